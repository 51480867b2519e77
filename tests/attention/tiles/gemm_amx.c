/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by the tiles of AMX, and the state of the tiles.
 */
#include "attention/kernels/amx_tiles.h"
#include "attention/kernels/avx512_bf16.h"
#define ROWS       32
#define PROBE_NAME probe_amx
#include "attention/tiles/gemm_probe_body.h"

int
probe_palette(void)
{
    uint8_t shape[64];
    _tile_storeconfig(shape);
    return shape[0];
}
