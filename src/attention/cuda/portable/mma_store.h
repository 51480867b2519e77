/* SPDX-License-Identifier: Apache-2.0
 *
 * Stores a warp's results: out, through the warp's own rows of q in shared
 * memory; lse; the largest score.
 */
#ifndef ULI_ATTENTION_CUDA_PORTABLE_MMA_STORE_H
#define ULI_ATTENTION_CUDA_PORTABLE_MMA_STORE_H

#include "attention/cuda/portable/forward_row.h"
#include "attention/cuda/portable/mma_shape.h"

/* Stores a row of o, scaled and rounded, in its place in q's tile. */
template <typename S, bool BF16>
static __device__ __forceinline__ void
mma_put_row(const mma_warp<S> &w, int row, int h, float factor, bool empty,
    const float (&o)[S::VDIM / 8][4])
{
    uint32_t place = ptx_opaque(tile_at<S::DIM>(row, 0));
#pragma unroll
    for (int n = 0; n < S::VDIM / 8; n++) {
        /* + 0: an underflow's -0 is a 0 */
        float a = o[n][2 * h] * factor + 0.0f;
        float b = o[n][2 * h + 1] * factor + 0.0f;
        *(uint32_t *)(w.shared + tile_chunk<S::DIM>(place, n) +
                      mma_lane() % 4 * 4) = empty ? 0 : mma_pack<BF16>(a, b);
    }
}

/* Ends the warp's rows, one row per lane (16 MT rows; further lanes repeat
 * them): stores lse and raises the largest score. Returns the factor for the
 * lane's row of out; negative: the row saw no key. */
template <typename S>
static __device__ __forceinline__ float
mma_end_row(const mma_warp<S> &w, float max, float sum)
{
    int lane = mma_lane(), row = mma_first<S>() + lane % (16 * S::MT);
    bool own = lane < 16 * S::MT && row < w.work->tile.rows;
    struct forward_final final =
        final_of(w.args, w.work->sink, max, sum, shift_of(w.work, row));
    if (own)
        store_lse(w.args, w.work, row, final.lse);
    if (w.args.max_logit) {
        float most = own ? final.max : -HUGE_VALF;
        for (int step = 16; step; step /= 2)
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
        if (lane == 0)
            raise_max(w.args, w.work->head, most);
    }
    return max == -HUGE_VALF && sum == 0 ? -1.0f : final.factor;
}

template <typename S, bool BF16>
static __device__ __forceinline__ void
mma_store(const mma_warp<S> &w, mma_rows<S> &rows, mma_output<S> &o)
{
    int lane = mma_lane();
    float max = 0, sum = 0;
    __syncwarp();
#pragma unroll
    for (int mt = 0; mt < S::MT; mt++)
#pragma unroll
        for (int h = 0; h < 2; h++) { /* row g of these to lane g + .. */
            float total = rows.sum[mt][h];
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            float a = __shfl_sync(0xffffffffu, rows.max[mt][h], lane % 8 * 4);
            float b = __shfl_sync(0xffffffffu, total, lane % 8 * 4);
            bool mine = lane / 8 % (2 * S::MT) == 2 * mt + h;
            max = mine ? a : max;
            sum = mine ? b : sum;
        }
    float factor = mma_end_row(w, max, sum);
#pragma unroll
    for (int mt = 0; mt < S::MT; mt++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float f =
                __shfl_sync(0xffffffffu, factor, 16 * mt + 8 * h + lane / 4);
            mma_put_row<S, BF16>(w, mma_row<S>(mt, h), h, f, f < 0, o[mt]);
        }
    __syncwarp();
    store_rows<S::DIM, 16 * S::MT>(w.args, w.work, w.shared, mma_first<S>());
}

#endif
