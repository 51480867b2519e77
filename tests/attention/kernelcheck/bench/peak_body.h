/* SPDX-License-Identifier: Apache-2.0
 *
 * A peak loop. The including file defines LOOP_NAME, LANES, and PEAK_DOT(c, a,
 * b) where the operation is not a plain product and sum. The sums stay in
 * registers: for the compiler, the empty assembly uses each of them.
 */
#include <stdint.h>

#ifndef PEAK_DOT
#define PEAK_DOT(c, a, b) ((c) * (a) + (b))
#endif
/* 24 sums and two operands need 26 registers. Instruction sets with 16
 * registers have 12 sums. */
#if LANES == 16
#define PEAK_LIVE 24
#else
#define PEAK_LIVE 12
#endif
#define PEAK_CHAINS 24

typedef float peak_vector __attribute__((vector_size(LANES * 4)));

void
LOOP_NAME(int64_t rounds)
{
    peak_vector sums[PEAK_LIVE], a = {0}, b = {0};
    a += 0.999f;
    b += 0.001f;
    for (int n = 0; n < PEAK_LIVE; n++)
        sums[n] = b;
    for (int64_t r = 0; r < rounds * (PEAK_CHAINS / PEAK_LIVE); r++) {
#pragma GCC unroll 24
        for (int n = 0; n < PEAK_LIVE; n++)
            sums[n] = PEAK_DOT(sums[n], a, b);
    }
    for (int n = 0; n < PEAK_LIVE; n++)
        __asm__ volatile("" : : "m"(sums[n]));
}
