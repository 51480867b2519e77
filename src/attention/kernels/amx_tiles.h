/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiles of AMX in the form that gemm_tiles.h takes. A thread has tiles from
 * the start of an item or unit to its end, where they are released: the
 * caller's thread keeps no tile state.
 */
#ifndef ULI_ATTENTION_AMX_TILES_H
#define ULI_ATTENTION_AMX_TILES_H

#include <immintrin.h>
#include <stdint.h>

/* Eight tiles of 16 rows of 64 bytes. */
static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} amx_shape = {.palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

#define TILE_BEGIN()           _tile_loadconfig(&amx_shape)
#define TILE_END()             _tile_release()
#define TILE_ZERO(t)           _tile_zero(t)
#define TILE_LOAD(t, from, ld) _tile_loadd(t, from, (ld)*4)
#define TILE_STORE(t, to, ld)  _tile_stored(t, to, (ld)*4)
#define TILE_DOT(c, a, b)      _tile_dpbf16ps(c, a, b)

#endif
