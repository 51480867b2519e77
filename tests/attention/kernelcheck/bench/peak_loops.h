/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops of multiply-adds, one per instruction set.
 */
#ifndef TESTS_ATTENTION_KERNELCHECK_BENCH_PEAK_LOOPS_H
#define TESTS_ATTENTION_KERNELCHECK_BENCH_PEAK_LOOPS_H

#include <stdint.h>
#include "attention/kernelcheck/bench/bench.h"

typedef void (*kc_peak_loop)(int64_t rounds);

/* Returns the widest loop that this CPU runs, and stores the operations of a
 * round; NULL where the CPU has no such arithmetic. */
kc_peak_loop kc_peak_loop_of(enum kc_arithmetic kind, double *flops_p);

/* Each is in a file of its own, which has its own flags; 24 chains of 4, 8 or
 * 16 lanes. */
void kc_peak_portable(int64_t rounds);
void kc_peak_avx2(int64_t rounds);
void kc_peak_avx512(int64_t rounds);
void kc_peak_avx512_bf16(int64_t rounds);

/* Four chains of tiles; a step is 16 rows by 16 columns by 32. */
#define KC_TILE_CHAINS 4
void kc_peak_amx(int64_t rounds);

#endif
