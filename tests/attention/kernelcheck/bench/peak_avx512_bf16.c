/* SPDX-License-Identifier: Apache-2.0
 *
 * Peak loop of bf16 dot products.
 */
#include <immintrin.h>
#include "attention/kernelcheck/bench/peak_loops.h"
#define LOOP_NAME kc_peak_avx512_bf16
#define LANES     16
#define PEAK_DOT(c, a, b)                                                      \
    (peak_vector) _mm512_dpbf16_ps((__m512)(c), (__m512bh)(a), (__m512bh)(b))
#include "attention/kernelcheck/bench/peak_body.h"
