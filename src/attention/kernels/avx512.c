/* SPDX-License-Identifier: Apache-2.0
 *
 * Tile code for AVX-512 F in fp32; 16-bit inputs are widened as they load.
 */
#include <immintrin.h>
#define LANES          16
#define PAIRED         0
#define ROWS           8
#define VECTORS        2
#define SIMD_MAX(a, b) (vf) _mm512_max_ps((__m512)(a), (__m512)(b))
#define SIMD_ROUND(a)  (vf) _mm512_roundscale_ps((__m512)(a), 0)
#define SIMD_SCALE(x, a, n)                                                    \
    (vf) _mm512_maskz_scalef_ps(                                               \
        _mm512_cmp_ps_mask((__m512)(x), _mm512_set1_ps(-126.0f), _CMP_NLT_UQ), \
        (__m512)(a), (__m512)(n))
#define SIMD_DOT(c, a, b)                                                      \
    (vf) _mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c))
#define TILE_OPS uli_attn_tile_avx512
#include "attention/kernels/tile_body.h"
