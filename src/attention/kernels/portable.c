/* SPDX-License-Identifier: Apache-2.0
 *
 * Tile code in portable C: vectors of four floats, which every compiler's
 * baseline has (SSE2, NEON) or spells out.
 */
#define LANES    4
#define PAIRED   0
#define ROWS     4
#define VECTORS  2
#define TILE_OPS uli_attn_tile_portable
#include "attention/kernels/tile_body.h"
