/* SPDX-License-Identifier: Apache-2.0
 *
 * The producer warpgroup: takes work items from the call's counter, sends them
 * to the consumers, and keeps the rings of q, k and v filled. Its four warps go
 * through the same sequence; warp 0 takes the items and issues TMA.
 */
#ifndef ULI_ATTENTION_CUDA_HOPPER_SM90_PRODUCE_H
#define ULI_ATTENTION_CUDA_HOPPER_SM90_PRODUCE_H

#include "attention/cuda/hopper/sm90_load.h"

#if PTX_SM90
/* Far beyond any key, with room for sums. */
#define SM90_FAR ((int64_t)1 << 61)

static __device__ __forceinline__ int64_t
sm90_near(mask_wide sum)
{
    return sum > SM90_FAR    ? SM90_FAR
           : sum < -SM90_FAR ? -SM90_FAR
                             : (int64_t)sum;
}

/* Finds the key tiles of the item, and those that all its rows see whole. Under
 * a softcap or ALiBi no tile counts as seen whole. */
static __device__ __forceinline__ void
sm90_item_keys(const struct uli_gpu_attn_args &args,
    const struct uli_gpu_attn_tile &t, int64_t keys, bool transformed,
    struct sm90_item *item)
{
    mask_wide around = (mask_wide)t.i + t.off;
    item->low =
        args.left == MASK_UNBOUNDED ? -SM90_FAR : sm90_near(around - args.left);
    item->high = args.right == MASK_UNBOUNDED
                     ? SM90_FAR
                     : sm90_near(around + 1 + args.right);
    item->around = sm90_near(around);
    int64_t first, end;
    mask_tiles(args, t, keys, &first, &end);
    int64_t last = item->low + t.rows - 1;
    int64_t seen = mask_min(item->high, t.k_rows);
    int64_t full = last > 0 ? (last + keys - 1) / keys : 0;
    int64_t masked = seen > 0 ? seen / keys : 0;
    full = mask_min(mask_max(full, first), end);
    item->first = (int32_t)first;
    item->full = (int32_t)full;
    item->masked = (int32_t)mask_min(mask_max(masked, full), end);
    item->end = (int32_t)end;
    if (transformed)
        item->masked = item->full = item->first;
}

/* One thread takes the block's item n. */
static __device__ __forceinline__ void
sm90_item_take(const struct uli_gpu_attn_args &args, int64_t keys, uint32_t n,
    struct sm90_item *item)
{
    int64_t at, head;
    item->done = !pair_take(args, &at, &head, n);
    if (item->done)
        return;
    const struct uli_gpu_attn_tile t = tile_taken(args, at);
    item->rows = t.rows;
    item->head = (int32_t)head;
    item->batch = t.batch;
    item->k_batch = t.k_batch;
    item->kv = (int32_t)kv_head_of(args, head);
    item->row = t.row;
    item->packed = t.packed;
    item->k_begin = t.k_begin;
    item->k_rows = t.k_rows;
    item->slope = (float)head_param(args, args.slopes, head, 0);
    item->sink = head_param(args, args.sinks, head, -INFINITY);
    sm90_item_keys(args, t, keys, args.cap > 0 || args.slopes, item);
}

/* Takes item n if this is the thread that takes items, and gives the item to
 * all threads. */
template <class F>
static __device__ __forceinline__ void
sm90_item_put(const struct uli_gpu_attn_args &args,
    const struct sm90_bars<F> &bars, unsigned char *shared, uint32_t n)
{
    struct sm90_item *item = (struct sm90_item *)(shared + F::ITEMS_AT) + n % 2;
    if (ptx_thread() == 0) {
        sm90_wait_empty(bars.item(n), n / 2);
        sm90_item_take(args, F::N, n, item);
        ptx_mbarrier_arrive(bars.item(n));
    }
    __syncwarp();
}

/* Loads the tile of item n's queries; each producer warp calls it. */
template <class F>
static __device__ __forceinline__ void
sm90_load_queries(const struct uli_sm90_params &p, const struct sm90_item *item,
    const struct sm90_bars<F> &bars, unsigned char *shared, uint32_t n)
{
    struct sm90_producer *kept = (struct sm90_producer *)(shared + F::KEPT_AT);
    const struct sm90_rows r = {item->row, item->rows};
    sm90_wait_empty(bars.q(n), n / F::QBUF);
    if (item->first < item->end)
        sm90_load<F, SM90_Q>(
            p, item, kept, r, shared + n % F::QBUF * F::Q_BYTES, bars.q(n));
    else if (ptx_thread() % 32 == 0)
        ptx_mbarrier_arrive(bars.q(n));
}

/* Loads key tile j of the item, as use kv of the rings. */
template <class F>
static __device__ __forceinline__ void
sm90_load_keys(const struct uli_sm90_params &p, const struct sm90_item *item,
    const struct sm90_bars<F> &bars, unsigned char *shared, int32_t j,
    uint32_t kv)
{
    struct sm90_producer *kept = (struct sm90_producer *)(shared + F::KEPT_AT);
    uint32_t stage = kv % F::STAGES, lap = kv / F::STAGES;
    const struct sm90_rows r = {item->k_begin + (int64_t)j * F::N,
        (int32_t)mask_min(F::N, item->k_rows - (int64_t)j * F::N)};
    sm90_wait_empty(bars.k(kv), lap);
    sm90_load<F, SM90_K>(
        p, item, kept, r, shared + F::K_AT + stage * F::K_BYTES, bars.k(kv));
    sm90_wait_empty(bars.v(kv), lap);
    sm90_load<F, SM90_V>(
        p, item, kept, r, shared + F::V_AT + stage * F::V_BYTES, bars.v(kv));
}

/* The key tile of an item after which the next item is taken: when the
 * consumers have begun this item, because then the place for the next item is
 * free, and the search for the next item overlaps products. Without tiles:
 * none. */
template <class F>
static __device__ __forceinline__ int32_t
sm90_takes_after(const struct sm90_item *item)
{
    int32_t late = item->first + F::STAGES;
    return late < item->end           ? late
           : item->first < item->end ? item->end - 1
                                     : item->first;
}

/* Loads all tiles of item n, and takes the next item on the way. Large heads
 * leave room for one tile of Q, which becomes free last, so the first keys and
 * values are loaded before it. If the rows see no key, q is not read, but its
 * place is counted. count: as below. */
template <class F>
static __device__ __forceinline__ void
sm90_item_tiles(const struct uli_sm90_params &p, const struct sm90_item *item,
    const struct sm90_bars<F> &bars, unsigned char *shared, uint32_t count)
{
    int32_t j = item->first;
    do {
        if (F::QBUF > 1 && j == item->first)
            sm90_load_queries<F>(p, item, bars, shared, count & 0xffff);
        if (j < item->end)
            sm90_load_keys<F>(
                p, item, bars, shared, j, (count >> 16) + (j - item->first));
        if (F::QBUF == 1 && j == item->first)
            sm90_load_queries<F>(p, item, bars, shared, count & 0xffff);
        if (j == sm90_takes_after<F>(item))
            sm90_item_put<F>(p.args, bars, shared, (count + 1) & 0xffff);
    } while (++j < item->end);
}

template <class F>
static __device__ __forceinline__ void
sm90_produce(const struct uli_sm90_params &p, unsigned char *shared)
{
    const struct sm90_bars<F> bars = {
        ptx_smem_addr(shared) + F::BARS_AT
    };
    struct sm90_producer *kept = (struct sm90_producer *)(shared + F::KEPT_AT);
    /* items and key tiles so far: one register, in 16 bits each, which laps of
     * 2 and 4 stages divide */
    uint32_t count = 0;
    if (p.mapped && ptx_thread() == 0) {
        ptx_tma_prefetch_map(&p.q.map[0]);
        ptx_tma_prefetch_map(&p.k.map[0]);
        ptx_tma_prefetch_map(&p.v.map[0]);
    }
    if (ptx_thread() % 32 == 0) {
        for (int n = 0; n < 3; n++)
            kept->ready[ptx_thread() / 32][n] = 0;
        kept->tails[ptx_thread() / 32] = 0;
        kept->start_ns[ptx_thread() / 32] = ptx_globaltimer_ns();
    }
    sm90_item_put<F>(p.args, bars, shared, 0);
    for (;; count = ((count + 1) & 0xffff) | (count & 0xffff0000)) {
        uint32_t n = count & 0xffff;
        const struct sm90_item *item =
            (const struct sm90_item *)(shared + F::ITEMS_AT) + n % 2;
        sm90_wait_full(bars.item(n), n / 2);
        if (item->done)
            return;
        sm90_item_tiles<F>(p, item, bars, shared, count);
        count += (uint32_t)(item->end - item->first) << 16;
        __syncwarp();
        if (ptx_thread() >= 32 && ptx_thread() % 32 == 0)
            ptx_mbarrier_arrive(bars.item(n) + 8);
    }
}
#endif

#endif
