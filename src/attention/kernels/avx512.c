/* SPDX-License-Identifier: Apache-2.0
 *
 * Tile code for AVX-512 F in fp32; 16-bit inputs are widened as they load.
 */
#include "attention/kernels/avx512.h"

#define PAIRED    0
#define ROWS      8
#define VECTORS   2
#define ITEM_ROWS 512
#define SIMD_DOT(c, a, b)                                                      \
    (vf) _mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c))
#define TILE_OPS uli_attn_tile_avx512
#include "attention/kernels/tile_body.h"
