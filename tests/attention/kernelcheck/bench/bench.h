/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine's peak, for --bench.
 */
#ifndef TESTS_ATTENTION_KERNELCHECK_BENCH_BENCH_H
#define TESTS_ATTENTION_KERNELCHECK_BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>

/* The kind of arithmetic of a kernel's products. */
enum kc_arithmetic { KC_FP32, KC_PAIRS, KC_TILES, KC_ARITHMETICS };

/* Returns the operations per second of `threads` threads at once in a loop of
 * independent multiply-adds: fp32 or bf16 pairs on the widest vectors, or tiles
 * of bf16 (0 where the CPU has none). Takes about 0.1 s. */
double kc_peak(enum kc_arithmetic kind, int threads, bool cpu_time);

/* Returns the wall clock or, with cpu_time, the CPU time of this process per
 * thread, for machines that others use at the same time. */
int64_t kc_clock_ns(bool cpu_time, int threads);

#endif
