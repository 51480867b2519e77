/* SPDX-License-Identifier: Apache-2.0
 *
 * Tile code in portable C: vectors of four floats, which the baseline of every
 * CPU has (SSE2, NEON) or the compiler writes as single operations.
 */
#define LANES    4
#define PAIRED   0
#define ROWS     4
#define VECTORS  2
#define TILE_OPS uli_attn_tile_portable
#include "attention/kernels/tile_body.h"
