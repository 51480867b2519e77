/* SPDX-License-Identifier: Apache-2.0
 *
 * Tile code for AVX2 with FMA and F16C. -ffp-contract=fast fuses products and
 * sums.
 */
#include <immintrin.h>
#define LANES  8
#define PAIRED 0
#define ROWS   4
/* 12 sums: a CPU that starts two products per cycle and finishes them after
 * five cycles needs ten. */
#define ROWS_MOST      6
#define VECTORS        2
#define ITEM_ROWS      512
#define SIMD_MAX(a, b) (vf) _mm256_max_ps((__m256)(a), (__m256)(b))
#define SIMD_DOT(c, a, b)                                                      \
    (vf) _mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c))
#define SIMD_F16(from)                                                         \
    (vf) _mm256_cvtph_ps(                                                      \
        _mm_loadu_si128((const __m128i_u *)(const void *)(from)))
#define TILE_OPS uli_attn_tile_avx2
#include "attention/kernels/tile_body.h"
