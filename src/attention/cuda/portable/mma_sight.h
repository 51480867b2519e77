/* SPDX-License-Identifier: Apache-2.0
 *
 * What a warp's rows see of a tile, for forward and both passes of backward.
 */
#ifndef ULI_ATTENTION_CUDA_PORTABLE_MMA_SIGHT_H
#define ULI_ATTENTION_CUDA_PORTABLE_MMA_SIGHT_H

#include "attention/cuda/forward_mask.h"
#include "attention/cuda/portable/mma_shape.h"

/* What the warp's rows see of a tile of keys. rows: those of the query tile. */
template <typename S>
static __device__ __forceinline__ enum forward_part
mma_part(const struct forward_sight &sight, int rows)
{
    int first = mma_first<S>(), last = min(first + 16 * S::MT, rows) - 1;
    if (last < first)
        return SEES_NONE;
    return forward_part_of<S::KEYS>(sight, first, last);
}

/* Calls hide(mt, n, e) for each of the lane's scores whose key the row does not
 * see. */
template <typename S, typename Hide>
static __device__ __forceinline__ void
mma_hide(const struct forward_sight &sight, const Hide &hide)
{
#pragma unroll
    for (int mt = 0; mt < S::MT; mt++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = mma_row<S>(mt, h), column = mma_lane() % 4 * 2;
            int from = sight.begin + row - column;
            int to = min(sight.end + row, sight.keys) - column;
#pragma unroll
            for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (8 * n + e < from || 8 * n + e >= to)
                        hide(mt, n, 2 * h + e);
        }
}

#endif
