/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward by the warps' matrix products (mma.sync m16n8k16), compute capability
 * 8.0 and later, 16-bit elements. One .cu file per head dimension includes this
 * file.
 *
 * A block takes (tile, head) pairs until there are no more. Each warp has
 * 16 MT rows of the tile; their scores, p and sums stay in registers:
 *   s[row][key]  = sum_c q[row][c] * k[key][c]     q in registers if DIM <= 64,
 *                                                  else in shared memory
 *   o[row][c]   += sum_key p[row][key] * v[key][c] p packed from the registers
 *                                                  of s
 * Keys are loaded in tiles of KEYS from the document's first key on, in
 * ascending order, k and v in turn to a ring of three slots (cp.async): while
 * one slot is read, the next slot is full or being filled, and so is the slot
 * after it.
 *
 * Bits: a hidden key has p = 0 exactly and changes no maximum, so a row's sums
 * do not depend on which rows share its tile, warp or block.
 *
 * Shared memory: q[ROWS], ring[3][KEYS] (rows as in forward_tiles.h), the work.
 */
#ifndef ULI_ATTENTION_CUDA_PORTABLE_FORWARD_MMA_H
#define ULI_ATTENTION_CUDA_PORTABLE_FORWARD_MMA_H

#include "attention/cuda/forward_gpu.h"
#include "attention/cuda/portable/mma_products.h"
#include "attention/cuda/portable/mma_sight.h"
#include "attention/cuda/portable/mma_softmax.h"
#include "attention/cuda/portable/mma_store.h"

/* Loads tile `tile` of the work's keys or values to a slot of the ring. */
template <typename S>
static __device__ __forceinline__ void
load_step(const mma_warp<S> &w, bool values, int tile, uint32_t slot)
{
    int64_t at = w.work->first + tile;
    if (at < w.work->end)
        load_keys<S::DIM, S::KEYS, S::THREADS>(w.args, values, w.work,
            at * S::KEYS, w.shared + S::RING_AT + slot * S::SLOT);
    ptx_cp_async_commit();
}

template <typename S>
static __device__ __forceinline__ void
mma_begin(mma_rows<S> &rows, mma_output<S> &o)
{
#pragma unroll
    for (int mt = 0; mt < S::MT; mt++) {
        rows.max[mt][0] = rows.max[mt][1] = -HUGE_VALF;
        rows.sum[mt][0] = rows.sum[mt][1] = 0;
    }
    mma_clear(o);
}

template <typename S>
static __device__ __forceinline__ struct forward_sight
mma_sight(const mma_warp<S> &w, int tile)
{
    return forward_sight_of(
        w.work->mask, (w.work->first + tile) * S::KEYS);
}

/* Computes p of a tile of keys; slot: where the keys are. */
template <typename S, bool BF16, bool TRANSFORMED>
static __device__ __forceinline__ void
mma_weigh(const mma_warp<S> &w, const mma_queries<S> &held, int tile, bool all,
    uint32_t slot, mma_rows<S> &rows, mma_weights<S> &p, mma_output<S> &o)
{
    mma_scores<S> s;
    mma_score<S, BF16>(ptx_smem_addr(w.shared), held, slot, s);
    if (TRANSFORMED)
        mma_transform(w, (w.work->first + tile) * S::KEYS, s);
    if (!all)
        mma_hide<S>(mma_sight(w, tile), [&](int mt, int n, int e) {
            s[mt][n][e] = -HUGE_VALF;
        });
    mma_softmax<S, BF16>(w.args.factor, s, rows, p, o);
}

template <typename S, bool BF16, bool TRANSFORMED>
static __device__ __forceinline__ void
mma_work(const mma_warp<S> &w)
{
    mma_output<S> o;
    mma_rows<S> rows;
    mma_queries<S> held;
    uint32_t ring = ptx_smem_addr(w.shared) + S::RING_AT;
    int tile = 0, tiles = (int)(w.work->end - w.work->first);
    mma_begin<S>(rows, o);
    if (tiles)
        load_queries<S::DIM, S::ROWS, S::THREADS>(w.args, w.work, w.shared);
    load_step<S>(w, false, tile, 0);
    load_step<S>(w, true, tile, 1);
    for (uint32_t slot = 0; tile < tiles; tile++) {
        mma_weights<S> p;
        uint32_t second = slot == 2 ? 0 : slot + 1;
        uint32_t third = second == 2 ? 0 : second + 1;
        enum forward_part part =
            mma_part<S>(mma_sight(w, tile), w.work->tile.rows);
        ptx_cp_async_wait<1>();
        __syncthreads(); /* keys are loaded; the slot `third` is free */
        load_step<S>(w, false, tile + 1, third);
        if (S::Q_HELD && tile == 0)
            mma_hold_queries<S>(ptx_smem_addr(w.shared), held);
        if (part != SEES_NONE)
            mma_weigh<S, BF16, TRANSFORMED>(w, held, tile, part == SEES_ALL,
                ring + slot * S::SLOT, rows, p, o);
        ptx_cp_async_wait<1>();
        __syncthreads(); /* values are loaded; the slot `slot` is free */
        load_step<S>(w, true, tile + 1, slot);
        if (part != SEES_NONE)
            mma_add_values<S, BF16>(ring + second * S::SLOT, p, o);
        slot = third;
    }
    if (mma_first<S>() < w.work->tile.rows)
        mma_store<S, BF16>(w, rows, o);
}

template <typename S, bool BF16, bool TRANSFORMED>
__global__ void
__launch_bounds__(S::THREADS, S::BLOCKS)
    attention_mma_kernel(const __grid_constant__ uli_gpu_attn_args args)
{
    ULI_SHARED(shared);
    struct forward_work *work = (struct forward_work *)(shared + S::WORK_AT);
    mma_warp<S> w = {args, shared, work};
    work_loop(args, work, [&] { mma_work<S, BF16, TRANSFORMED>(w); });
}

/* ---- host ---------------------------------------------------------------- */

template <typename S>
static void (*mma_kernel(bool bf16, bool with_transform))(
    const uli_gpu_attn_args)
{
    if (bf16)
        return with_transform ? attention_mma_kernel<S, true, true>
                              : attention_mma_kernel<S, true, false>;
    return with_transform ? attention_mma_kernel<S, false, true>
                          : attention_mma_kernel<S, false, false>;
}

template <typename S>
static int
mma_prepare(int32_t *blocks_per_sm_p)
{
    int least = 0;
    for (int n = 0; n < 4; n++) {
        auto kernel = mma_kernel<S>(n & 1, n & 2);
        int fit = 0;
        cudaError_t error = uli_kernel_prepare(kernel, S::SHARED);
        if (error == cudaSuccess)
            error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                &fit, (const void *)kernel, S::THREADS, S::SHARED);
        if (error != cudaSuccess)
            return error;
        least = n == 0 || fit < least ? fit : least;
    }
    *blocks_per_sm_p = least;
    return cudaSuccess;
}

template <typename S>
static int
mma_launch(const struct uli_gpu_attn_args *args, int32_t blocks, void *stream)
{
    bool bf16 = args->dtype == ULYX_DTYPE_BF16;
    bool with_transform = args->cap > 0 || args->slopes;
    struct uli_launch_config launch = {dim3((unsigned)blocks), dim3(S::THREADS),
        S::SHARED, (cudaStream_t)stream};
    return uli_kernel_launch(
        launch, mma_kernel<S>(bf16, with_transform), *args);
}

/* The ops of a family, whose shape the .cu file gives. */
#define MMA_FAMILY(id, label, shape)                                           \
    static int id##_prepare(int32_t *blocks_per_sm_p)                          \
    {                                                                          \
        return mma_prepare<shape>(blocks_per_sm_p);                            \
    }                                                                          \
    static int id##_launch(                                                    \
        const struct uli_gpu_attn_args *args, int32_t blocks, void *stream)    \
    {                                                                          \
        return mma_launch<shape>(args, blocks, stream);                        \
    }                                                                          \
    extern "C" const struct uli_gpu_attn_forward uli_gpu_attn_##id = {label,   \
        shape::DIM, shape::VDIM, shape::ROWS, shape::KEYS, 0, id##_prepare,    \
        id##_launch}

#endif
