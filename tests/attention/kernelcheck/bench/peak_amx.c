/* SPDX-License-Identifier: Apache-2.0
 *
 * The peak loop of tiles. The sums stay in tiles 0 to 3, and four products
 * cover the latency of one.
 */
#include "attention/kernelcheck/bench/peak_loops.h"
#include "attention/kernels/amx_tiles.h"

void
kc_peak_amx(int64_t rounds)
{
    TILE_BEGIN();
    for (int64_t r = 0; r < rounds; r++) {
        TILE_DOT(0, 4, 6);
        TILE_DOT(1, 4, 7);
        TILE_DOT(2, 5, 6);
        TILE_DOT(3, 5, 7);
    }
    TILE_END();
}
