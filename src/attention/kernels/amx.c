/* SPDX-License-Identifier: Apache-2.0
 *
 * Tile code for AMX: products by tiles of bf16, all else as in avx512_bf16.c.
 * Products are so fast that loading keys weighs, so items have more rows.
 */
#include "attention/kernels/amx_tiles.h"
#include "attention/kernels/avx512_bf16.h"
#define ROWS      32
#define ITEM_ROWS 1024
#define TILE_OPS  uli_attn_tile_amx
#include "attention/kernels/tile_body.h"
