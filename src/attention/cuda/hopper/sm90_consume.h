/* SPDX-License-Identifier: Apache-2.0
 *
 * A consumer warpgroup multiplies 64 query rows by their key tiles, in
 * ascending order.
 *
 *   S(j) = Q K(j)^T is issued, then O += P(j-1) V(j-1). While the product for O
 *   runs, S(j) becomes P(j). When the product has ended, O is rescaled.
 *
 * With turns (sm90_family.h) a warpgroup issues its two products only in its
 * turn, and the other warpgroups compute exponentials meanwhile. All consumers
 * have the same tiles, so all take and give turns equally often: once for each
 * tile but the first of an item, and once for the item's last product.
 */
#ifndef ULI_ATTENTION_CUDA_HOPPER_SM90_CONSUME_H
#define ULI_ATTENTION_CUDA_HOPPER_SM90_CONSUME_H

#include "attention/cuda/hopper/sm90_softmax.h"
#include "attention/cuda/hopper/sm90_store.h"

#if PTX_SM90
/* What a consumer keeps over all items. */
template <class F> struct sm90_consumer {
    const struct uli_gpu_attn_args &args;
    unsigned char *shared;
    uint32_t base;
    struct sm90_bars<F> bars;
    int group;   /* 0 .. WGS - 1 */
    uint32_t kv; /* key tiles begun, over all items */
};

/* Named barriers: 1 + group for turns, 8 + group within a warpgroup; the
 * producer has one of its own. */
template <class F>
static __device__ __forceinline__ void
sm90_turn_take(int group)
{
    if (F::TURNS)
        ptx_bar_sync(1 + group, 256);
}

template <class F>
static __device__ __forceinline__ void
sm90_turn_give(int group)
{
    if (F::TURNS)
        ptx_bar_arrive(1 + (group + 1) % F::WGS, 256);
}

template <class F>
static __device__ __forceinline__ void
sm90_issue_qk(float (&s)[F::N / 2], uint32_t q, uint32_t k)
{
    uint64_t a = ptx_wgmma_descriptor(q, 16, 1024, 128);
    uint64_t b = ptx_wgmma_descriptor(k, 16, 1024, 128);
#pragma unroll
    for (int n = 0; n < F::D / 16; n++) {
        /* 16 columns are 32 bytes of a panel's row; 64 columns are a panel */
        uint64_t da = a + (n / 4 * F::M * 128 + n % 4 * 32) / 16;
        uint64_t db = b + (n / 4 * F::N * 128 + n % 4 * 32) / 16;
        if constexpr (F::BF16)
            ptx_wgmma_bf16<0, 0>(s, da, db, n > 0);
        else
            ptx_wgmma_f16<0, 0>(s, da, db, n > 0);
    }
    ptx_wgmma_commit();
}

template <class F>
static __device__ __forceinline__ void
sm90_issue_pv(
    float (&o)[F::DV / 2], const uint32_t (&p)[F::N / 16][4], uint32_t v)
{
    /* v is MN-major, in panels of 64 columns; 16 rows are 2048 bytes */
    uint64_t b = ptx_wgmma_descriptor(v, F::N * 128, 1024, 128);
#pragma unroll
    for (int n = 0; n < F::N / 16; n++) {
        if constexpr (F::BF16)
            ptx_wgmma_bf16<1>(o, p[n], b + n * 2048 / 16, 1);
        else
            ptx_wgmma_f16<1>(o, p[n], b + n * 2048 / 16, 1);
    }
    ptx_wgmma_commit();
}

/* One thread of the warpgroup arrives, because wgmma's wait covers all four
 * warps. */
static __device__ __forceinline__ void
sm90_release(uint32_t bar)
{
    if (ptx_thread() % 128 == 0)
        ptx_mbarrier_arrive(bar + 8);
}

/* The code for a tile: all rows see all its keys; some rows see a part of the
 * keys; some rows may, and scores are capped or have ALiBi. */
enum sm90_body { SM90_WHOLE, SM90_MASKED, SM90_TRANSFORMED };

/* The first of the warp's 16 rows. */
template <class F>
static __device__ __forceinline__ int
sm90_warp_row(const struct sm90_consumer<F> &c)
{
    return 64 * c.group + (int)ptx_thread() % 128 / 32 * 16;
}

/* The scores s of tile j become p. */
template <class F>
static __device__ __forceinline__ void
sm90_probabilities(const struct sm90_consumer<F> &c,
    const struct sm90_item *item, int32_t j, enum sm90_body body,
    float (&s)[F::N / 2], struct sm90_rows_state &rows)
{
    int row = sm90_warp_row(c);
    if (body == SM90_TRANSFORMED) {
        const struct sm90_alibi *alibi =
            (const struct sm90_alibi *)(c.shared + F::ALIBI_AT) + row;
        sm90_transform(s, c.args, item->slope, alibi, (int64_t)j * F::N);
    }
    if (body != SM90_WHOLE)
        sm90_mask(s, item, row + (int)ptx_thread() % 32 / 4, (int64_t)j * F::N);
    sm90_softmax(s, rows, c.args.factor);
}

/* The body of tile j. */
static __device__ __forceinline__ enum sm90_body
sm90_body_of(const struct sm90_item *item, int32_t j, bool transformed)
{
    bool whole = item->full <= j && j < item->masked;
    return transformed ? SM90_TRANSFORMED : whole ? SM90_WHOLE : SM90_MASKED;
}

/* Keeps ptxas from moving the wait for the previous tile's product in front of
 * most exponentials, which are to be computed while the product runs. The wait
 * cannot pass a trap that depends on the sums of the exponentials, which are
 * never negative. SM90_WAITS_FIRST leaves the order to ptxas; which order is
 * better is to be measured on a card. */
template <class F>
static __device__ __forceinline__ void
sm90_before_wait(const struct sm90_rows_state &rows)
{
    if (!F::WAITS_FIRST && fminf(rows.sum[0], rows.sum[1]) < 0)
        __trap();
}

/* Computes tile j while the product of tile j - 1 runs. */
template <class F, enum sm90_body BODY>
static __device__ __forceinline__ void
sm90_step(struct sm90_consumer<F> &c, const struct sm90_item *item, uint32_t q,
    int32_t j, float (&s)[F::N / 2], float (&o)[F::DV / 2],
    uint32_t (&p)[F::N / 16][4], struct sm90_rows_state &rows)
{
    uint32_t now = c.kv++, before = now - 1;
    sm90_wait_full(c.bars.k(now), now / F::STAGES);
    sm90_turn_take<F>(c.group);
    ptx_wgmma_fence();
    sm90_issue_qk<F>(s, q, c.base + F::K_AT + now % F::STAGES * F::K_BYTES);
    sm90_wait_full(c.bars.v(before), before / F::STAGES);
    sm90_issue_pv<F>(o, p, c.base + F::V_AT + before % F::STAGES * F::V_BYTES);
    sm90_turn_give<F>(c.group);
    ptx_wgmma_wait<1>();
    ptx_wgmma_touch(s);
    sm90_release(c.bars.k(now));
    sm90_probabilities(c, item, j, BODY, s, rows);
    sm90_before_wait<F>(rows);
    ptx_wgmma_wait<0>();
    ptx_wgmma_touch(o);
    sm90_release(c.bars.v(before));
    sm90_scale(o, rows.alpha);
    sm90_fragments<F::BF16>(p, s);
}

/* Computes the first tile; no product runs meanwhile. */
template <class F>
static __device__ __forceinline__ void
sm90_first(struct sm90_consumer<F> &c, const struct sm90_item *item, uint32_t q,
    enum sm90_body body, float (&s)[F::N / 2], uint32_t (&p)[F::N / 16][4],
    struct sm90_rows_state &rows)
{
    uint32_t now = c.kv++;
    sm90_wait_full(c.bars.k(now), now / F::STAGES);
    ptx_wgmma_fence();
    sm90_issue_qk<F>(s, q, c.base + F::K_AT + now % F::STAGES * F::K_BYTES);
    ptx_wgmma_wait<0>();
    ptx_wgmma_touch(s);
    sm90_release(c.bars.k(now));
    sm90_probabilities(c, item, item->first, body, s, rows);
    sm90_fragments<F::BF16>(p, s);
}

/* The last product; the rows' statistics are written while the product runs. */
template <class F>
static __device__ __forceinline__ void
sm90_last(struct sm90_consumer<F> &c, const struct sm90_item *item,
    float (&o)[F::DV / 2], const uint32_t (&p)[F::N / 16][4],
    const struct sm90_rows_state &rows, float (&factor)[2])
{
    uint32_t last = c.kv - 1;
    sm90_wait_full(c.bars.v(last), last / F::STAGES);
    sm90_turn_take<F>(c.group);
    ptx_wgmma_fence();
    sm90_issue_pv<F>(o, p, c.base + F::V_AT + last % F::STAGES * F::V_BYTES);
    sm90_turn_give<F>(c.group);
    sm90_statistics<F>(c.args, item, c.shared,
        sm90_warp_row(c) + (int)ptx_thread() % 32 / 4, rows, factor);
    ptx_wgmma_wait<0>();
    ptx_wgmma_touch(o);
    sm90_release(c.bars.v(last));
}

/* Sums all key tiles of an item to o, which must still be multiplied by
 * factor. */
template <class F>
static __device__ __forceinline__ void
sm90_tiles(struct sm90_consumer<F> &c, const struct sm90_item *item, uint32_t q,
    float (&o)[F::DV / 2], float (&factor)[2])
{
    struct sm90_rows_state rows = {{-INFINITY, -INFINITY}, {0, 0}, {1, 1}};
    float s[F::N / 2];
    uint32_t p[F::N / 16][4];
    int32_t j = item->first, full = item->full, masked = item->masked,
            end = item->end;
    /* Where slopes are given, heads of slope 0 are transformed too. */
    bool transformed = c.args.cap > 0 || c.args.slopes;
    sm90_first(c, item, q, sm90_body_of(item, j, transformed), s, p, rows);
    j++;
    for (; transformed && j < end; j++)
        sm90_step<F, SM90_TRANSFORMED>(c, item, q, j, s, o, p, rows);
    for (; j < full; j++)
        sm90_step<F, SM90_MASKED>(c, item, q, j, s, o, p, rows);
    for (; j < masked; j++)
        sm90_step<F, SM90_WHOLE>(c, item, q, j, s, o, p, rows);
    for (; j < end; j++)
        sm90_step<F, SM90_MASKED>(c, item, q, j, s, o, p, rows);
    sm90_last(c, item, o, p, rows, factor);
}

/* Stores the statistics of an item whose rows see no key. */
template <class F>
static __device__ __forceinline__ void
sm90_no_tiles(const struct sm90_consumer<F> &c, const struct sm90_item *item,
    float (&factor)[2])
{
    const struct sm90_rows_state rows = {
        {-INFINITY, -INFINITY}, {0, 0}, {1, 1}};
    sm90_statistics<F>(c.args, item, c.shared,
        sm90_warp_row(c) + (int)ptx_thread() % 32 / 4, rows, factor);
}

/* Stores the distances that ALiBi needs, for the warp's 16 rows. */
template <class F>
static __device__ __forceinline__ void
sm90_alibi_rows(const struct sm90_consumer<F> &c, const struct sm90_item *item)
{
    int n = (int)ptx_thread() - 128;
    n = n / 32 * 16 + n % 32;
    struct sm90_alibi *to = (struct sm90_alibi *)(c.shared + F::ALIBI_AT) + n;
    if (ptx_thread() % 32 < 16) {
        int64_t begin = mask_max(mask_min(item->low + n, item->k_rows), 0);
        int64_t end = mask_max(mask_min(item->high + n, item->k_rows), 0);
        int64_t at = item->around + n;
        to->around = at;
        to->nearest = begin >= end ? 0
                      : at < begin ? begin - at
                      : at >= end  ? at - (end - 1)
                                   : 0;
    }
    __syncwarp();
}

template <class F>
static __device__ __forceinline__ void
sm90_consume(const struct uli_sm90_params &params, unsigned char *shared)
{
    uint32_t base = ptx_smem_addr(shared);
    /* The shuffle shows ptxas that group is equal in all lanes, so that group
     * and the descriptors made of it stay in uniform registers. */
    int group = __shfl_sync(0xffffffffu, (int)ptx_thread() / 128 - 1, 0);
    struct sm90_consumer<F> c = {
        params.args, shared, base, {base + F::BARS_AT}, group, 0
    };
    if (F::TURNS && c.group == F::WGS - 1)
        sm90_turn_give<F>(c.group);
    for (uint32_t n = 0;; n++) {
        const struct sm90_item *item =
            (const struct sm90_item *)(shared + F::ITEMS_AT) + n % 2;
        sm90_wait_full(c.bars.item(n), n / 2);
        if (item->done)
            break;
        uint32_t q = n % F::QBUF * F::Q_BYTES;
        float o[F::DV / 2], factor[2];
#pragma unroll
        for (int i = 0; i < F::DV / 2; i++)
            o[i] = 0;
        if (item->slope != 0)
            sm90_alibi_rows<F>(c, item);
        sm90_wait_full(c.bars.q(n), n / F::QBUF);
        if (item->first < item->end)
            sm90_tiles<F>(c, item, base + q + c.group * 8192, o, factor);
        else
            sm90_no_tiles<F>(c, item, factor);
        sm90_store<F>(params.args, item, shared, q, o, factor);
        ptx_fence_proxy_async_shared();
        __syncwarp();
        if (ptx_thread() % 32 == 0) {
            ptx_mbarrier_arrive(c.bars.q(n) + 8);
            ptx_mbarrier_arrive(c.bars.item(n) + 8);
        }
    }
    if (F::TURNS && c.group == 0)
        sm90_turn_take<F>(c.group);
}
#endif

#endif
