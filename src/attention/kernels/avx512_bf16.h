/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors of AVX-512 with pairs of bf16, which avx512_bf16.c and amx.c share.
 */
#ifndef ULI_ATTENTION_AVX512_BF16_H
#define ULI_ATTENTION_AVX512_BF16_H

#include "attention/kernels/avx512.h"

#define PAIRED  1
#define VECTORS 2
#define SIMD_DOT(c, a, b)                                                      \
    (vf) _mm512_dpbf16_ps((__m512)(c), (__m512bh)(a), (__m512bh)(b))
/* cvtne2 puts a's sixteen values below b's; the permutation interleaves them */
#define SIMD_PAIR(a, b)                                                        \
    (vf) _mm512_permutexvar_epi16(                                             \
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25,   \
            9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0), \
        (__m512i)_mm512_cvtne2ps_pbh((__m512)(b), (__m512)(a)))
#define SIMD_NARROW(to, v)                                                     \
    _mm256_storeu_si256(                                                       \
        (__m256i_u *)(void *)(to), (__m256i)_mm512_cvtneps_pbh((__m512)(v)))

#endif
