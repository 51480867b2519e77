/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors of AVX-512 F, which all kernels of that width share.
 */
#ifndef ULI_ATTENTION_AVX512_H
#define ULI_ATTENTION_AVX512_H

#include <immintrin.h>
#define LANES          16
#define SIMD_MAX(a, b) (vf) _mm512_max_ps((__m512)(a), (__m512)(b))
#define SIMD_ROUND(a)  (vf) _mm512_roundscale_ps((__m512)(a), 0)
#define SIMD_F16(from)                                                         \
    (vf) _mm512_cvtph_ps(                                                      \
        _mm256_loadu_si256((const __m256i_u *)(const void *)(from)))
#define SIMD_SCALE(x, a, n)                                                    \
    (vf) _mm512_maskz_scalef_ps(                                               \
        _mm512_cmp_ps_mask((__m512)(x), _mm512_set1_ps(-126.0f), _CMP_NLT_UQ), \
        (__m512)(a), (__m512)(n))

#endif
