/* SPDX-License-Identifier: Apache-2.0
 *
 * The two products of a warp with a tile in shared memory, with the names that
 * they have in forward. Backward takes both from here, with 16 rows per warp:
 * each pair of its tiles is queries over keys, and each gradient a sum of
 * values. One ldmatrix of four matrices feeds 2 MT mma.
 */
#ifndef ULI_ATTENTION_CUDA_PORTABLE_MMA_PRODUCTS_H
#define ULI_ATTENTION_CUDA_PORTABLE_MMA_PRODUCTS_H

#include "attention/cuda/portable/mma_shape.h"

template <typename S>
static __device__ __forceinline__ void
mma_hold_queries(uint32_t queries, mma_queries<S> &held)
{
    if constexpr (S::Q_HELD)
#pragma unroll
        for (int mt = 0; mt < S::MT; mt++)
#pragma unroll
            for (int c = 0; c < S::DIM / 16; c++)
                ptx_ldmatrix(held.at[mt][c],
                    tile_along<S::DIM>(
                        queries + mma_a_at<S>() + mt * 16 * S::PITCH, c));
}

/* Loads columns 16 c to 16 c + 15 of the warp's rows of q; at: the lane's first
 * address. */
template <typename S>
static __device__ __forceinline__ void
mma_query(
    uint32_t at, const mma_queries<S> &held, int c, uint32_t (&a)[S::MT][4])
{
#pragma unroll
    for (int mt = 0; mt < S::MT; mt++) {
        if (!S::Q_HELD)
            ptx_ldmatrix(a[mt], tile_along<S::DIM>(at + mt * 16 * S::PITCH, c));
#pragma unroll
        for (int e = 0; e < 4 && S::Q_HELD; e++)
            a[mt][e] = held.at[S::Q_HELD ? mt : 0][S::Q_HELD ? c : 0][e];
    }
}

/* Computes s of the keys in a slot; queries, slot: addresses in shared
 * memory. */
template <typename S, bool BF16>
static __device__ __forceinline__ void
mma_score(uint32_t queries, const mma_queries<S> &held, uint32_t slot,
    mma_scores<S> &s)
{
    uint32_t q_at = queries + mma_a_at<S>(), k_at = slot + mma_b_at<S>();
    mma_clear(s);
#pragma unroll(S::SCORE_STEPS)
    for (int c = 0; c < S::DIM / 16; c++) {
        uint32_t a[S::MT][4];
        mma_query<S>(q_at, held, c, a);
#pragma unroll
        for (int n = 0; n < S::KEYS / 16; n++) {
            uint32_t b[4];
            ptx_ldmatrix(b, tile_along<S::DIM>(k_at + n * 16 * S::PITCH, c));
#pragma unroll
            for (int mt = 0; mt < S::MT; mt++) {
                mma_issue<BF16>(s[mt][2 * n], a[mt], b[0], b[1]);
                mma_issue<BF16>(s[mt][2 * n + 1], a[mt], b[2], b[3]);
            }
        }
    }
}

/* Adds p v of the values in a slot to o. */
template <typename S, bool BF16>
static __device__ __forceinline__ void
mma_add_values(uint32_t slot, const mma_weights<S> &p, mma_output<S> &o)
{
    uint32_t v_at = slot + mma_bt_at<S>();
#pragma unroll
    for (int k = 0; k < S::KEYS / 16; k++)
#pragma unroll
        for (int c = 0; c < S::VDIM / 16; c++) {
            uint32_t b[4];
            ptx_ldmatrix_trans(
                b, tile_along<S::DIM>(v_at + k * 16 * S::PITCH, c));
#pragma unroll
            for (int mt = 0; mt < S::MT; mt++) {
                mma_issue<BF16>(o[mt][2 * c], p[mt][k], b[0], b[1]);
                mma_issue<BF16>(o[mt][2 * c + 1], p[mt][k], b[2], b[3]);
            }
        }
}

#endif
