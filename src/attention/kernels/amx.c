/* SPDX-License-Identifier: Apache-2.0
 *
 * Tile code for AMX: products by tiles of bf16, everything else as in
 * avx512_bf16.c. Products are so fast that loading the keys takes a share of
 * the time that counts, so items have more rows.
 */
#include "attention/kernels/amx_tiles.h"
#include "attention/kernels/avx512_bf16.h"
#define ROWS      32
#define ITEM_ROWS 1024
#define TILE_OPS  uli_attn_tile_amx
#include "attention/kernels/tile_body.h"
