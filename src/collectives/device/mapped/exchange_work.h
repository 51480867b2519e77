/* SPDX-License-Identifier: Apache-2.0
 *
 * How the warps of a launch share the tiles of a table, what a warp does with a
 * tile, and how the last block is found. Device code, for all kernels that work
 * on tables of exchange_gpu.h.
 */
#ifndef ULI_COLLECTIVES_DEVICE_MAPPED_EXCHANGE_WORK_H
#define ULI_COLLECTIVES_DEVICE_MAPPED_EXCHANGE_WORK_H

#include "collectives/device/mapped/exchange_sum.h"

/* Threads of a block at most. A multiprocessor then holds two blocks, or one
 * with sums. */
enum { EXCHANGE_THREADS = 256 };

/* The item that has tile t: the last that begins at or before it. */
static __device__ int32_t
find_item(const uli_gpu_item *items, int32_t low, int32_t end, int64_t t)
{
    while (end - low > 1) {
        int32_t middle = low + (end - low) / 2;
        if (items[middle].first_tile <= t)
            low = middle;
        else
            end = middle;
    }
    return low;
}

/* Whether the warp may move this item: its peers are in the call and agree. */
template <bool SUMS>
static __device__ enum peer_state
warp_may_move(const struct call &c, const uli_gpu_item &item)
{
    enum peer_state state = PEER_USE;
    if (item.dst_slot)
        return PEER_USE;
    bool sum = SUMS && item.kind == ULI_GPU_SUM;
    if (!sum)
        return warp_meets(
            c, item.dst_rank == c.args->rank ? item.src_rank : item.dst_rank);
    for (int32_t s = 0; s < item.nsources && state == PEER_USE; s++) {
        state = warp_meets(c, c.args->sources[item.first_source + s].rank);
        if (state == PEER_USE && !share_of(c, item, s))
            state = PEER_SKIP;
    }
    return state;
}

/* The address that a copy reads; NULL for zeros, and where it cannot be
 * reached. */
static __device__ const unsigned char *
source_of(const struct call &c, const uli_gpu_item &item)
{
    if (item.kind != ULI_GPU_COPY)
        return nullptr;
    const unsigned char *base =
        item.src_slot ? c.args->peers[item.src_rank].slot_in +
                            (int64_t)(c.n & 1) * c.args->slot_bytes
                      : tensor_of(c, item.src_rank, item.tensor, false);
    return base ? base + item.src_offset : nullptr;
}

static __device__ unsigned char *
destination_of(const struct call &c, const uli_gpu_item &item)
{
    unsigned char *base = item.dst_slot
                              ? c.args->peers[item.dst_rank].slot_out +
                                    (int64_t)(c.n & 1) * c.args->slot_bytes
                              : tensor_of(c, item.dst_rank, item.tensor, true);
    return base ? base + item.dst_offset : nullptr;
}

/* One warp moves one tile of an item. */
template <bool SUMS>
static __device__ void
warp_moves(const struct call &c, const uli_gpu_item &item, int64_t tile)
{
    bool sum = SUMS && item.kind == ULI_GPU_SUM;
    int64_t each = sum ? tile_bytes_of(c) / 4 : tile_bytes_of(c);
    int64_t length =
        item.extent[0] * item.extent[1] * item.extent[2] * item.run;
    int64_t begin = (tile - item.first_tile) * each;
    int64_t end = begin + each < length ? begin + each : length;
    unsigned char *dst = destination_of(c, item);
    const unsigned char *src = source_of(c, item);
    if (!dst || (item.kind == ULI_GPU_COPY && !src))
        return;
    if (sum)
        sum_tile(c, item, dst, begin, end);
    else
        move_tile(item, dst, src, begin, end);
}

/* One warp moves one tile of an item by the strides of the call. A function of
 * its own, so that calls without strides do not use its registers. */
template <bool SUMS>
static __device__ __noinline__ void
warp_moves_laid(struct call c, int32_t index, int64_t tile)
{
    uli_gpu_item laid;
    lay_item(c, index, laid);
    warp_moves<SUMS>(c, laid, tile);
}

/* Moves the warp's tiles among [first, end), of items [low, high): tile
 * first + worker, and every tile a multiple of the number of warps after it.
 * False: leave the call. */
template <bool SUMS>
static __device__ bool
warp_works(
    const struct call &c, int32_t low, int32_t high, int64_t first, int64_t end)
{
    uint32_t warps = blockDim.x / WARP;
    uint32_t worker = blockIdx.x * warps + threadIdx.x / WARP;
    int32_t known = -1;
    enum peer_state state = PEER_USE;
    bool moved = false;
    for (int64_t t = first + worker; t < end; t += warps * gridDim.x) {
        low = find_item(c.args->items, low, high, t);
        const uli_gpu_item &item = c.args->items[low];
        if (low != known)
            state = warp_may_move<SUMS>(c, item);
        if (low != known && state == PEER_USE)
            moved = item_moved<SUMS>(c, item);
        known = low;
        if (state == PEER_LEAVE)
            return false;
        if (state == PEER_USE && moved)
            warp_moves_laid<SUMS>(c, low, t);
        else if (state == PEER_USE)
            warp_moves<SUMS>(c, item, t);
    }
    return true;
}

static __device__ struct call
begin_call(const uli_gpu_args &args)
{
    struct call c = {&args, args.state->call + 1, ptx_globaltimer_ns()};
    return c;
}

/* True in the last block only, when all other blocks have ended their part.
 * What they wrote is then visible to the last block. */
static __device__ bool
is_last_block(const struct call &c)
{
    uint32_t *blocks = &c.args->state->blocks;
    bool last = gridDim.x == 1;
    if (!last && threadIdx.x == 0)
        last = ptx_atom_add_acq_rel_gpu_u32(blocks, 1) == gridDim.x - 1;
    return __syncthreads_or(last) != 0;
}

/* Ends the call. Storing the end needs a fence only after an outcome, which the
 * host reads when it has seen the end. Before it frees memory of the call, the
 * host also waits for the call's event, or its caller has waited for the stream
 * of the graph. */
static __device__ void
call_advance(const struct call &c)
{
    struct uli_gpu_report *report = c.args->report;
    if (threadIdx.x != 0)
        return;
    c.args->state->blocks = 0;
    c.args->state->call = c.n;
    if (!report)
        return;
    uint64_t outcome = c.args->state->outcome;
    if (!outcome) {
        ptx_st_relaxed_sys_u64(&report->ended, c.n);
        return;
    }
    ptx_st_relaxed_sys_u64(&report->outcome, outcome);
    c.args->state->outcome = 0;
    ptx_st_release_sys_u64(&report->ended, c.n);
}

#endif
