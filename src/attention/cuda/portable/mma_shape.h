/* SPDX-License-Identifier: Apache-2.0
 *
 * Tile shapes of the mma.sync kernels and what a warp holds of its tile.
 *
 * Fragments, lane l, g = l / 4, u = l % 4:
 *   s[mt][n][2 h + e]: row 16 mt + g + 8 h, key  8 n + 2 u + e
 *   o[mt][n][2 h + e]: the same row,        column 8 n + 2 u + e
 *   p[mt][n] as A operand of keys 16 n ..: s[mt][2 n], then s[mt][2 n + 1]
 */
#ifndef ULI_ATTENTION_CUDA_PORTABLE_MMA_SHAPE_H
#define ULI_ATTENTION_CUDA_PORTABLE_MMA_SHAPE_H

#include "attention/cuda/portable/forward_tiles.h"

/* DIM: columns of q and k, VDIM <= DIM: of v and out, both padded to a multiple
 * of 32; MT: 16-row tiles per warp; WARPS per block. */
template <int DIM_, int VDIM_, int MT_, int WARPS_> struct mma_shape {
    static const int DIM = DIM_, VDIM = VDIM_, MT = MT_, WARPS = WARPS_;
    static const int KEYS = 64, THREADS = 32 * WARPS, ROWS = 16 * MT * WARPS;
    static const int PITCH = tile_rows<DIM>::PITCH;
    static const int SLOT = KEYS * PITCH;
    static const int RING_AT = ROWS * PITCH;
    static const int WORK_AT = RING_AT + 3 * SLOT;
    static const int SHARED = WORK_AT + (int)sizeof(struct forward_work);
    static const bool Q_HELD = DIM <= 64;
    /* Steps of 16 columns that scores unroll: more would spill registers. */
    static const int SCORE_STEPS = DIM > 96 ? 4 : DIM / 16;
    /* Blocks that a multiprocessor of compute capability 8.0 holds: by
     * registers, and by shared memory, of which each block takes 1 KiB more. */
    static const int BLOCKS =
        THREADS <= 128 && 2 * (SHARED + 1024) <= 164 * 1024 ? 2 : 1;
    static_assert(VDIM <= DIM && DIM % 32 == 0 && VDIM % 32 == 0, "padded");
    static_assert(SHARED <= 163 * 1024, "fits a block of 8.0");
};

/* What all functions of a warp take. The warp's rows and its lanes' addresses
 * are computed anew where they are needed, for a few instructions per tile of
 * keys: registers that held them would spill. */
template <typename S> struct mma_warp {
    const uli_gpu_attn_args &args;
    unsigned char *shared;
    const struct forward_work *work;
};

static __device__ __forceinline__ int
mma_lane(void)
{
    return (int)ptx_opaque(threadIdx.x) % 32;
}

/* The warp's first row of the tile. */
template <typename S>
static __device__ __forceinline__ int
mma_first(void)
{
    return (int)ptx_opaque(threadIdx.x) / 32 * (16 * S::MT);
}

/* The lane's row address for ldmatrix, counted from the tile's address. For
 * operand A the four matrices are rows 0-7 and 8-15, then the same rows 8
 * columns further on. */
template <typename S>
static __device__ __forceinline__ uint32_t
mma_a_at(void)
{
    int lane = mma_lane();
    return tile_at<S::DIM>(mma_first<S>() + lane % 16, lane / 16);
}

/* For keys as operand B: rows 0-7, the same rows 8 columns further on, then
 * rows 8-15 in the same way. */
template <typename S>
static __device__ __forceinline__ uint32_t
mma_b_at(void)
{
    int lane = mma_lane();
    return tile_at<S::DIM>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

/* For values as operand B, transposed: rows 0-7 and 8-15, then the same rows 8
 * columns further on. */
template <typename S>
static __device__ __forceinline__ uint32_t
mma_bt_at(void)
{
    int lane = mma_lane();
    return tile_at<S::DIM>(lane % 16, lane / 16);
}

/* What a lane holds for the warp's rows: numbers of COLUMNS columns; the
 * scores; p, packed; the sums of values. */
template <int MT, int COLUMNS> using mma_rows_of = float[MT][COLUMNS / 8][4];
template <typename S> using mma_scores = mma_rows_of<S::MT, S::KEYS>;
template <typename S> using mma_weights = uint32_t[S::MT][S::KEYS / 16][4];
template <typename S> using mma_output = mma_rows_of<S::MT, S::VDIM>;

template <int MT, int N>
static __device__ __forceinline__ void
mma_clear(float (&rows)[MT][N][4])
{
#pragma unroll
    for (int mt = 0; mt < MT; mt++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                rows[mt][n][e] = 0;
}

/* The running maximum of each row of the lane, and the lane's part of the row's
 * sum. */
template <typename S> struct mma_rows {
    float max[S::MT][2], sum[S::MT][2];
};

template <typename S> struct mma_queries {
    uint32_t at[S::Q_HELD ? S::MT : 1][S::Q_HELD ? S::DIM / 16 : 1][4];
};

/* The lane's row of the tile in m-tile mt, half h. */
template <typename S>
static __device__ __forceinline__ int
mma_row(int mt, int h)
{
    return mma_first<S>() + 16 * mt + 8 * h + mma_lane() / 4;
}

template <bool BF16>
static __device__ __forceinline__ void
mma_issue(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    if (BF16)
        ptx_mma_bf16(d, a, b0, b1);
    else
        ptx_mma_f16(d, a, b0, b1);
}

template <bool BF16>
static __device__ __forceinline__ uint32_t
mma_pack(float low, float high)
{
    return BF16 ? ptx_pack_bf16(low, high) : ptx_pack_f16(low, high);
}

#endif
