/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops of multiply-adds per instruction set.
 */
#ifndef TESTS_ATTENTION_KERNELCHECK_BENCH_PEAK_LOOPS_H
#define TESTS_ATTENTION_KERNELCHECK_BENCH_PEAK_LOOPS_H

#include <stdint.h>
#include "attention/kernelcheck/bench/bench.h"

typedef void (*kc_peak_loop)(int64_t rounds);

/* The widest loop that this CPU runs and the operations of a round; NULL where
 * it has no such arithmetic. */
kc_peak_loop kc_peak_loop_of(enum kc_arithmetic kind, double *flops_p);

/* One per file, with that file's flags; 24 chains of 4, 8 or 16 lanes. */
void kc_peak_portable(int64_t rounds);
void kc_peak_avx2(int64_t rounds);
void kc_peak_avx512(int64_t rounds);
void kc_peak_avx512_bf16(int64_t rounds);

/* Four chains of tiles: 16 rows by 16 columns by 32 a step. */
#define KC_TILE_CHAINS 4
void kc_peak_amx(int64_t rounds);

#endif
