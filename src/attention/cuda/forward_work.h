/* SPDX-License-Identifier: Apache-2.0
 *
 * What the portable forward kernels share: the walk over the work, waiting for
 * its rows, and where they lie. Device code.
 */
#ifndef ULI_ATTENTION_CUDA_FORWARD_WORK_H
#define ULI_ATTENTION_CUDA_FORWARD_WORK_H

#include "attention/cuda/forward_mask.h"
#include "attention/cuda/rows_gpu.h"

/* The (tile, head) that a block works on, in shared memory. */
struct forward_work {
    struct uli_gpu_attn_tile tile;
    struct forward_mask mask;
    int64_t head, kv;
    int64_t first, end;   /* key tiles that some row sees */
    struct row_span k, v; /* keys 0 .. of the document, where all those that
                           * the work reads lie evenly, at multiples of 16
                           * bytes; else rows is 0 */
    double sink;          /* -inf: none */
    float slope;          /* 0: none */
    int32_t valid;
    uint32_t taken; /* pairs by this block so far */
    struct row_flags flags;
};

/* For one thread, once per kernel. */
static __device__ __forceinline__ void
work_begin(struct forward_work *work)
{
    for (int n = 0; n < 3; n++)
        work->flags.come[n] = 0;
    work->taken = 0;
    work->flags.start_ns = ptx_globaltimer_ns();
}

/* One past the last key that the work reads. */
static __device__ __forceinline__ int64_t
work_keys_end(
    const struct uli_gpu_attn_args &args, const struct forward_work *work)
{
    return mask_min(work->end * args.tile_keys, work->tile.k_rows);
}

static __device__ struct row_span
work_even(const struct uli_gpu_attn_args &args,
    const struct uli_gpu_attn_tensor &tensor, const struct forward_work *work)
{
    const struct uli_gpu_attn_tile &t = work->tile;
    int64_t first = work->first * args.tile_keys;
    int64_t end = work_keys_end(args, work);
    struct row_span span = {NULL, 0, 0};
    if (first < end)
        span = k_span(args, tensor, work->kv, t.k_batch, t.k_begin + first,
            t.k_begin + end);
    if (!span.data || span.rows < end - first || tensor.align != 16)
        return {NULL, 0, 0};
    span.data -= first * span.stride;
    return span;
}

/* One thread: takes the next pair; valid = 0 when there is no more to do. */
static __device__ __forceinline__ void
work_take(const struct uli_gpu_attn_args &args, struct forward_work *work)
{
    int64_t tile;
    work->valid = pair_take(args, &tile, &work->head, work->taken++);
    if (!work->valid)
        return;
    work->tile = tile_taken(args, tile);
    work->kv = kv_head_of(args, work->head);
    work->mask = forward_mask_of(args, work->tile);
    mask_tiles(args, work->tile, args.tile_keys, &work->first, &work->end);
    work->k = work_even(args, args.k, work);
    work->v = work_even(args, args.v, work);
    work->sink = head_param(args, args.sinks, work->head, -HUGE_VAL);
    work->slope = (float)head_param(args, args.slopes, work->head, 0);
}

/* All threads: waits for the pieces that the work reads. */
static __device__ __forceinline__ bool
work_awaits(const struct uli_gpu_attn_args &args, struct forward_work *work)
{
    const struct uli_gpu_attn_tile &tile = work->tile;
    int64_t first = tile.k_begin + work->first * args.tile_keys;
    int64_t end = tile.k_begin + work_keys_end(args, work);
    if (work->first >= work->end)
        return true;
    return (!args.q.flags || block_awaits(args, &work->flags, 0, tile.row,
                                 tile.row + tile.rows)) &&
           (!args.k.flags || block_awaits(args, &work->flags, 1, first, end)) &&
           (!args.v.flags || block_awaits(args, &work->flags, 2, first, end));
}

/* All threads: body() for each (tile, head) that the block takes, until there
 * are no more or the call has failed. body leaves no asynchronous copies. */
template <typename Body>
static __device__ __forceinline__ void
work_loop(const struct uli_gpu_attn_args &args, struct forward_work *work,
    const Body &body)
{
    if (threadIdx.x == 0)
        work_begin(work);
    for (;;) {
        __syncthreads(); /* no thread reads the last work any more */
        if (threadIdx.x == 0)
            work_take(args, work);
        __syncthreads();
        if (!work->valid || !work_awaits(args, work))
            break;
        body();
    }
    block_ends(args);
}

#endif
