/* SPDX-License-Identifier: Apache-2.0
 *
 * Tile code for AVX-512 with bf16 dot products (vdpbf16ps): two products per
 * lane, accumulated in fp32. Subnormal operands and results count as zero.
 */
#include "attention/kernels/avx512_bf16.h"
#define ROWS     8
#define TILE_OPS uli_attn_tile_avx512_bf16
#include "attention/kernels/tile_body.h"
