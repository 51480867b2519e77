/* SPDX-License-Identifier: Apache-2.0
 *
 * Tile code for AVX2 with FMA; products and sums fuse by -ffp-contract=fast.
 */
#include <immintrin.h>
#define LANES          8
#define PAIRED         0
#define ROWS           4
#define VECTORS        2
#define SIMD_MAX(a, b) (vf) _mm256_max_ps((__m256)(a), (__m256)(b))
#define SIMD_DOT(c, a, b)                                                      \
    (vf) _mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c))
#define TILE_OPS uli_attn_tile_avx2
#include "attention/kernels/tile_body.h"
