/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward by the warps' matrix products (mma.sync m16n8k16), compute
 * capability 8.0 and later, 16-bit elements. One .cu file per head dimension
 * includes this file.
 *
 * A block has 64 stationary rows (`still` in names), a warp 16 of them. Rows of
 * the other side stream (`flow` in names) through one or two slots, 32 rows at
 * a time. Both passes are one loop over streaming pairs of tiles:
 *   stationary   streaming    sums
 *   [q, dout]    [k, v]       dq += ds k
 *   [k, v]       [q, dout]    dk += ds q, dv += p dout
 * s is the product of the first tiles (q and k), dp that of the second tiles
 * (dout and v). The registers of a lane's p and ds are the operands of the
 * sums.
 *
 * Where dk and dv of 16 rows exceed a warp's registers, the block has two
 * groups of 4 warps along y, and both groups have the same 64 rows:
 *   queries stationary: a group has half of the streaming rows; at the end the
 *                       second group's sums are added to the first's
 *   keys stationary:    the first group sums dk, the second dv
 *
 * Bits: streaming tiles begin at multiples of 32 rows of the document, and a
 * sum adds them one by one in their order. So a row's bits depend neither on
 * the number of blocks nor on the tile that has the row.
 *
 * Shared memory: the stationary tiles, the slots, the work.
 */
#ifndef ULI_ATTENTION_CUDA_PORTABLE_BACKWARD_MMA_H
#define ULI_ATTENTION_CUDA_PORTABLE_BACKWARD_MMA_H

#include "attention/cuda/portable/backward_parts.h"
#include "attention/cuda/portable/mma_products.h"
#include "attention/cuda/portable/mma_sight.h"

/* DIM: columns of q and k, VDIM <= DIM: of v and dout, both padded. */
template <int DIM_, int VDIM_, int GROUPS_> struct backward_shape {
    static const int DIM = DIM_, VDIM = VDIM_, GROUPS = GROUPS_;
    static const int THREADS = 128; /* of a group */
    static const int ROWS = 64, STREAM = 32;
    static const int STILL_2 = ROWS * tile_rows<DIM>::PITCH;
    static const int FLOW_2 = STREAM * tile_rows<DIM>::PITCH;
    static const int FLOW_AT = STILL_2 + ROWS * tile_rows<VDIM>::PITCH;
    static const int SLOT = FLOW_2 + STREAM * tile_rows<VDIM>::PITCH;
    static const int BLOCKS = GROUPS == 1 ? 2 : 1; /* per SM, by registers */
    static const bool HELD = DIM <= 64; /* stationary tiles in registers */
    static_assert(
        VDIM <= DIM && (GROUPS == 1 || VDIM == DIM),
        "with two groups dk and dv have one width");
    static_assert(ROWS <= BACKWARD_QUERIES && 2 * STREAM <= BACKWARD_QUERIES,
        "the statistics of a tile fit, and those of two slots");

    static __host__ __device__ constexpr int
    work_at(int slots)
    {
        return FLOW_AT + slots * SLOT;
    }

    static __host__ __device__ constexpr int
    shared(int slots)
    {
        return work_at(slots) + (int)sizeof(struct backward_work);
    }

    static_assert(FLOW_AT + SLOT + (int)sizeof(struct backward_work) <=
                      99 * 1024,
        "one slot fits a block of compute capability 8.6 and 8.9");
    static_assert(FLOW_AT + 2 * SLOT + (int)sizeof(struct backward_work) <=
                      163 * 1024,
        "two slots fit a block of compute capability 8.0");
};

/* What a warp sums. */
enum backward_sum { SUM_DQ, SUM_DK, SUM_DV, SUM_DK_DV };

/* The shape S of mma_products.h for a warp's product over COLUMNS columns with
 * KEYS_ streaming rows. */
template <int COLUMNS, int KEYS_, bool HELD> struct backward_product {
    static const int DIM = COLUMNS, VDIM = COLUMNS, MT = 1, KEYS = KEYS_;
    static const int PITCH = tile_rows<COLUMNS>::PITCH;
    static const bool Q_HELD = HELD;
    static const int SCORE_STEPS = COLUMNS / 16;
};

/* The products of a pass: `first` of q and k, `second` of dout and v. */
template <typename S, bool KEYS> struct backward_pass {
    static const int COLUMNS = KEYS ? S::STREAM : S::STREAM / S::GROUPS;
    typedef backward_product<S::DIM, COLUMNS, S::HELD> first;
    typedef backward_product<S::VDIM, COLUMNS, S::HELD> second;
};

template <typename S, bool KEYS> struct backward_held {
    mma_queries<typename backward_pass<S, KEYS>::first> first;
    mma_queries<typename backward_pass<S, KEYS>::second> second;
};

/* What all functions of a warp take. */
struct backward_warp {
    const backward_args &args;
    unsigned char *shared;
    struct backward_work *work;
};

/* ---- loads --------------------------------------------------------------- */

/* The threads of a group load the rows of a tile from span_of(n, end). Absent
 * rows and those from `rows` on become zeros. */
template <int COLUMNS, int ROWS, int THREADS, typename Span>
static __device__ __forceinline__ void
tile_load(unsigned char *tile, int rows, int columns, int align,
    const Span &span_of)
{
    struct row_span span = {NULL, 0, ROWS};
    if (rows > 0)
        span = span_of(0, rows);
    if (span.data && span.rows == rows && align == 16) {
        copy_even<COLUMNS, ROWS, THREADS>(ptx_smem_addr(tile), span, columns);
        return;
    }
    for (int n = 0; n < ROWS; n += (int)span.rows) {
        span = {NULL, 0, ROWS - n};
        if (n < rows)
            span = span_of(n, rows);
        copy_any<COLUMNS, THREADS>(tile, n, span, columns, align);
    }
}

/* Loads the two tiles of one side, one behind the other, to `tile`. With two
 * groups each group loads one tile. */
template <typename S, int ROWS, typename Span>
static __device__ __forceinline__ void
pair_load(const struct uli_gpu_attn_args &a, unsigned char *tile, int rows,
    const struct uli_gpu_attn_tensor &first,
    const struct uli_gpu_attn_tensor &second, const Span &span_of)
{
    if (S::GROUPS == 1 || threadIdx.y == 0)
        tile_load<S::DIM, ROWS, S::THREADS>(tile, rows, a.dim_qk, first.align,
            [&](int64_t n, int64_t end) { return span_of(first, n, end); });
    if (S::GROUPS == 1 || threadIdx.y == 1)
        tile_load<S::VDIM, ROWS, S::THREADS>(
            tile + ROWS * tile_rows<S::DIM>::PITCH, rows, a.dim_v, second.align,
            [&](int64_t n, int64_t end) { return span_of(second, n, end); });
}

/* Loads the stationary tiles, and the statistics of stationary queries. */
template <typename S, bool KEYS>
static __device__ __noinline__ void
still_load(const backward_args &args, unsigned char *shared,
    struct backward_work *work)
{
    const struct uli_gpu_attn_args &a = args.by_query;
    const struct uli_gpu_attn_args &side = KEYS ? args.by_key : a;
    pair_load<S, S::ROWS>(a, shared, work->tile.rows, KEYS ? a.k : a.q,
        KEYS ? a.v : args.dout,
        [&](const struct uli_gpu_attn_tensor &tensor, int64_t n, int64_t end) {
            return q_span(side, tensor, work->tile, work->head, n, end);
        });
    if (!KEYS && threadIdx.x < S::ROWS && threadIdx.y == 0)
        still_statistics(args, work, (int)threadIdx.x);
}

/* Loads streaming rows [j, j + STREAM) of the document and a head, and the
 * statistics of streaming queries. */
template <typename S, bool KEYS>
static __device__ __noinline__ void
flow_load(const backward_args &args, unsigned char *shared,
    struct backward_work *work, int slot, int64_t head, int64_t j)
{
    const struct uli_gpu_attn_args &a = args.by_query;
    const struct uli_gpu_attn_args &side = KEYS ? args.by_key : a;
    const struct uli_gpu_attn_tile &t = work->tile;
    int64_t row = t.k_begin + j;
    pair_load<S, S::STREAM>(a, shared + S::FLOW_AT + slot * S::SLOT,
        (int)mask_min(t.k_rows - j, S::STREAM), KEYS ? a.q : a.k,
        KEYS ? args.dout : a.v,
        [&](const struct uli_gpu_attn_tensor &tensor, int64_t n, int64_t end) {
            return k_span(side, tensor, head, t.k_batch, row + n, row + end);
        });
    int n = (int)threadIdx.x;
    if (KEYS && n < S::STREAM && threadIdx.y == 0)
        flow_statistics(args, work, head, j, n, slot * S::STREAM + n);
}

/* ---- the stream ---------------------------------------------------------- */

/* Streaming tile t of a head; head -1: no tile. */
struct flow_step {
    int64_t head, t;
};

/* The first streaming tile of the work, of the first head from `head` on whose
 * rows the work reads. */
template <bool KEYS>
static __device__ __forceinline__ struct flow_step
flow_of_head(
    const backward_args &args, const struct backward_work *work, int64_t head)
{
    const struct uli_gpu_attn_args &a = args.by_query;
    while (KEYS && head < a.heads_q && kv_head_of(a, head) != work->head)
        head++;
    bool none = work->first >= work->end || (KEYS && head >= a.heads_q);
    return {none ? -1 : head, work->first};
}

template <bool KEYS>
static __device__ __forceinline__ struct flow_step
flow_first(const backward_args &args, const struct backward_work *work)
{
    return flow_of_head<KEYS>(
        args, work, KEYS ? 0 : kv_head_of(args.by_query, work->head));
}

template <bool KEYS>
static __device__ __forceinline__ struct flow_step
flow_after(const backward_args &args, const struct backward_work *work,
    struct flow_step step)
{
    if (step.head < 0 || step.t + 1 < work->end)
        return {step.head, step.t + 1};
    if (!KEYS)
        return {-1, 0};
    return flow_of_head<KEYS>(args, work, step.head + 1);
}

/* ---- p and ds ------------------------------------------------------------ */

/* s becomes score - lse, and dp becomes ds / p. entry: the first one of these
 * queries in the statistics; rise: the derivative of the transform. */
template <typename P, enum backward_sum SUM, bool TRANSFORMED>
static __device__ __forceinline__ void
pairs_transform(const backward_warp &w, int entry, float slope, int64_t j,
    mma_scores<P> &s, mma_scores<P> &dp)
{
    const struct backward_work *work = w.work;
    int lane_column = mma_lane() % 4 * 2;
    const float *lse = work->lse + entry, *delta = work->delta + entry;
#pragma unroll
    for (int n = 0; n < P::KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int row = mma_row<P>(0, e / 2);
            int column = 8 * n + lane_column + e % 2;
            int query = SUM == SUM_DQ ? row : column;
            float rise = 1, power;
            if (TRANSFORMED) {
                int64_t apart = work->mask.at + row - j - column;
                power = pair_power(w.args, slope, apart < 0 ? -apart : apart,
                    s[0][n][e], lse[query], &rise);
            } else {
                power = fmaf(s[0][n][e], w.args.scale, -lse[query]);
            }
            s[0][n][e] = power;
            if (SUM != SUM_DV)
                dp[0][n][e] = (dp[0][n][e] - delta[query]) * rise;
        }
}

/* s becomes p, and dp becomes ds. */
template <typename P>
static __device__ __forceinline__ void
pairs_weigh(mma_scores<P> &s, mma_scores<P> &dp)
{
#pragma unroll
    for (int n = 0; n < P::KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            s[0][n][e] =
                ptx_ex2(fminf(s[0][n][e], 0) * (float)BACKWARD_LOG2_E);
            dp[0][n][e] *= s[0][n][e];
        }
}

/* Packs p or ds as an A operand. A lane's registers are rows g and g + 8 of
 * columns 2 u, then of columns 2 u + 8, with g = lane / 4 and u = lane % 4. */
template <typename P, bool BF16>
static __device__ __forceinline__ void
weights_pack(const mma_scores<P> &from, mma_weights<P> &weights)
{
#pragma unroll
    for (int k = 0; k < P::KEYS / 16; k++)
#pragma unroll
        for (int h = 0; h < 4; h++) {
            const float(&four)[4] = from[0][2 * k + h / 2];
            weights[0][k][h] =
                mma_pack<BF16>(four[h % 2 * 2], four[h % 2 * 2 + 1]);
        }
}

/* ---- sums ---------------------------------------------------------------- */

template <int COLUMNS> using row_sums = mma_rows_of<1, COLUMNS>;

/* Stores columns c and c + 1 of a gradient's row. */
static __device__ __forceinline__ void
gradient_store(const struct uli_gpu_attn_tensor &tensor, int32_t dtype,
    bool accumulate, unsigned char *row, int c, float a, float b)
{
    if (accumulate) {
        a += element_load(dtype, row, c);
        b += element_load(dtype, row, c + 1);
    }
    if (dtype != ULYX_DTYPE_F32 && tensor.align >= 4) {
        *(uint32_t *)(row + 2 * c) = dtype == ULYX_DTYPE_BF16
                                         ? ptx_pack_bf16(a, b)
                                         : ptx_pack_f16(a, b);
        return;
    }
    element_store(dtype, row, c, a);
    element_store(dtype, row, c + 1, b);
}

/* Stores a warp's sums in the rows of a gradient. */
template <typename P>
static __device__ __forceinline__ void
row_sums_store(const struct uli_gpu_attn_args &side,
    const struct uli_gpu_attn_tensor &tensor, int32_t dtype, int columns,
    const struct backward_work *work, float scale, bool accumulate,
    const row_sums<P::DIM> &sums)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = mma_row<P>(0, h);
        if (row >= work->tile.rows)
            continue;
        unsigned char *to =
            q_span(side, tensor, work->tile, work->head, row, row + 1).data;
#pragma unroll
        for (int n = 0; n < P::DIM / 8; n++)
            if (8 * n < columns)
                gradient_store(tensor, dtype, accumulate, to,
                    8 * n + mma_lane() % 4 * 2, sums[0][n][2 * h] * scale,
                    sums[0][n][2 * h + 1] * scale);
    }
}

/* Adds the second group's sums to the first group's. They pass through the
 * shared memory of the tiles, which no warp reads any more. */
template <typename S>
static __device__ __forceinline__ void
groups_add(unsigned char *shared, row_sums<S::DIM> &sums)
{
    float *place = (float *)shared +
                   threadIdx.x / 32 * (S::DIM / 2 * 32) + threadIdx.x % 32;
    static_assert(16 * S::DIM * 4 * 4 <= S::FLOW_AT, "place of 4 warps' sums");
#pragma unroll
    for (int n = 0; n < S::DIM / 8 && threadIdx.y == 1; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            place[(4 * n + e) * 32] = sums[0][n][e];
    __syncthreads();
#pragma unroll
    for (int n = 0; n < S::DIM / 8 && threadIdx.y == 0; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            sums[0][n][e] += place[(4 * n + e) * 32];
}

/* ---- a streaming tile ---------------------------------------------------- */

/* Adds the products of the streaming tile in a slot. one: dq or dk, else not
 * used; two: dv, else not used. */
template <typename S, bool BF16, bool TRANSFORMED, enum backward_sum SUM>
static __device__ __forceinline__ void
flow_add(const backward_warp &w,
    const backward_held<S, SUM != SUM_DQ> &held, int slot,
    struct flow_step step, row_sums<S::DIM> &one, row_sums<S::VDIM> &two)
{
    typedef backward_pass<S, SUM != SUM_DQ> pass;
    typedef typename pass::first first;
    typedef typename pass::second second;
    const struct uli_gpu_attn_args &a = w.args.by_query;
    /* the group's first row of the streaming tile */
    int own = pass::COLUMNS < S::STREAM ? (int)threadIdx.y * pass::COLUMNS : 0;
    int64_t j = step.t * S::STREAM + own;
    struct forward_sight sight = forward_sight_of(w.work->mask, j);
    enum forward_part part = mma_part<first>(sight, w.work->tile.rows);
    if (part == SEES_NONE)
        return;
    uint32_t still = ptx_smem_addr(w.shared);
    uint32_t flow = still + S::FLOW_AT + slot * S::SLOT + own * first::PITCH;
    uint32_t flow_2 = flow + S::FLOW_2 + own * (second::PITCH - first::PITCH);
    float slope = 0;
    if (TRANSFORMED)
        slope = (float)head_param(
            a, a.slopes, SUM == SUM_DQ ? w.work->head : step.head, 0);
    mma_scores<first> s, dp = {};
    mma_weights<first> weights;
    mma_score<first, BF16>(still, held.first, flow, s);
    if (SUM != SUM_DV)
        mma_score<second, BF16>(still + S::STILL_2, held.second, flow_2, dp);
    pairs_transform<first, SUM, TRANSFORMED>(
        w, SUM == SUM_DQ ? 0 : slot * S::STREAM, slope, j, s, dp);
    if (part != SEES_ALL) /* then p and ds are 0 */
        mma_hide<first>(sight, [&](int mt, int n, int e) {
            s[mt][n][e] = -HUGE_VALF;
            dp[mt][n][e] = 0;
        });
    pairs_weigh<first>(s, dp);
    if (SUM == SUM_DV || SUM == SUM_DK_DV) {
        weights_pack<first, BF16>(s, weights);
        mma_add_values<second, BF16>(flow_2, weights, two);
    }
    if (SUM != SUM_DV) {
        weights_pack<first, BF16>(dp, weights);
        mma_add_values<first, BF16>(flow, weights, one);
    }
}

/* Loads the streaming tiles one by one and calls body(slot, step) for each. Of
 * two slots one is loaded while the body reads the other. */
template <typename S, bool KEYS, typename Body>
static __device__ __forceinline__ void
flow_run(const backward_warp &w, const Body &body)
{
    struct flow_step step = flow_first<KEYS>(w.args, w.work), next = step;
    bool two = w.args.slots == 2, ahead = two;
    if (step.head >= 0)
        still_load<S, KEYS>(w.args, w.shared, w.work);
    for (int slot = 0; step.head >= 0;) {
        struct flow_step loaded = next;
        if (loaded.head >= 0)
            flow_load<S, KEYS>(w.args, w.shared, w.work, slot, loaded.head,
                loaded.t * S::STREAM);
        ptx_cp_async_commit();
        next = flow_after<KEYS>(w.args, w.work, loaded);
        slot ^= two;
        if (ahead) { /* first fill both slots */
            ahead = false;
            continue;
        }
        if (two)
            ptx_cp_async_wait<1>();
        else
            ptx_cp_async_wait<0>();
        __syncthreads(); /* the copies of all threads are there */
        body(slot, step);
        __syncthreads(); /* the slot is free */
        step = two ? loaded : next;
    }
}

/* At the first streaming tile: loads the warp's stationary rows to registers,
 * where they fit. */
template <typename S, bool KEYS>
static __device__ __forceinline__ void
still_hold(const backward_warp &w, bool *fresh, backward_held<S, KEYS> &held)
{
    typedef backward_pass<S, KEYS> pass;
    uint32_t still = ptx_smem_addr(w.shared);
    if (!S::HELD || !*fresh)
        return;
    mma_hold_queries<typename pass::first>(still, held.first);
    mma_hold_queries<typename pass::second>(still + S::STILL_2, held.second);
    *fresh = false;
}

template <typename S, bool BF16, bool TRANSFORMED>
static __device__ __forceinline__ void
queries_work(const backward_warp &w)
{
    typedef backward_pass<S, false> pass;
    const struct uli_gpu_attn_args &a = w.args.by_query;
    row_sums<S::DIM> dq;
    row_sums<S::VDIM> none;
    backward_held<S, false> held;
    bool fresh = true;
    mma_clear(dq);
    flow_run<S, false>(w, [&](int slot, struct flow_step step) {
        still_hold<S, false>(w, &fresh, held);
        flow_add<S, BF16, TRANSFORMED, SUM_DQ>(w, held, slot, step, dq, none);
    });
    if constexpr (S::GROUPS == 2)
        groups_add<S>(w.shared, dq);
    if (threadIdx.y == 0)
        row_sums_store<typename pass::first>(a, w.args.dq, w.args.dq_dtype,
            a.dim_qk, w.work, w.args.scale, false, dq);
}

template <typename S, bool BF16, bool TRANSFORMED>
static __device__ __forceinline__ void
keys_work(const backward_warp &w)
{
    typedef backward_pass<S, true> pass;
    const backward_args &args = w.args;
    const struct uli_gpu_attn_args &a = args.by_query, &b = args.by_key;
    row_sums<S::DIM> dk;
    row_sums<S::VDIM> dv;
    backward_held<S, true> held;
    bool fresh = true;
    mma_clear(dk);
    mma_clear(dv);
    flow_run<S, true>(w, [&](int slot, struct flow_step step) {
        still_hold<S, true>(w, &fresh, held);
        flow_add<S, BF16, TRANSFORMED, SUM_DK_DV>(w, held, slot, step, dk, dv);
    });
    row_sums_store<typename pass::first>(b, args.dk, args.dk_dtype, a.dim_qk,
        w.work, args.scale, args.accumulate, dk);
    row_sums_store<typename pass::second>(
        b, args.dv, args.dv_dtype, a.dim_v, w.work, 1, args.accumulate, dv);
}

/* Of two groups the first sums dk and the second dv. */
template <typename S, bool BF16, bool TRANSFORMED>
static __device__ __forceinline__ void
keys_work_apart(const backward_warp &w)
{
    typedef backward_pass<S, true> pass;
    const backward_args &args = w.args;
    const struct uli_gpu_attn_args &a = args.by_query, &b = args.by_key;
    row_sums<S::DIM> sums;
    backward_held<S, true> held;
    bool values = threadIdx.y == 1;
    mma_clear(sums);
    flow_run<S, true>(w, [&](int slot, struct flow_step step) {
        if (values)
            flow_add<S, BF16, TRANSFORMED, SUM_DV>(
                w, held, slot, step, sums, sums);
        else
            flow_add<S, BF16, TRANSFORMED, SUM_DK>(
                w, held, slot, step, sums, sums);
    });
    row_sums_store<typename pass::first>(b, values ? args.dv : args.dk,
        values ? args.dv_dtype : args.dk_dtype, values ? a.dim_v : a.dim_qk,
        w.work, values ? 1 : args.scale, args.accumulate, sums);
}

template <typename S, bool BF16, bool KEYS, bool TRANSFORMED>
__global__ void
__launch_bounds__(S::GROUPS * S::THREADS, S::BLOCKS)
    backward_mma_kernel(const __grid_constant__ backward_args args)
{
    ULI_SHARED(shared);
    struct backward_work *work =
        (struct backward_work *)(shared + S::work_at(args.slots));
    backward_warp w = {args, shared, work};
    backward_loop(KEYS ? args.by_key : args.by_query, work, [&] {
        if constexpr (!KEYS)
            queries_work<S, BF16, TRANSFORMED>(w);
        else if constexpr (S::GROUPS == 1)
            keys_work<S, BF16, TRANSFORMED>(w);
        else
            keys_work_apart<S, BF16, TRANSFORMED>(w);
    });
}

/* ---- host ---------------------------------------------------------------- */

typedef void (*backward_kernel)(const backward_args);

template <typename S>
static backward_kernel
mma_kernel(const backward_args *args, bool keys)
{
    const struct uli_gpu_attn_args *a = &args->by_query;
    /* [bf16][keys][softcap or ALiBi] */
    static const backward_kernel kernels[2][2][2] = {
        {{backward_mma_kernel<S, false, false, false>,
             backward_mma_kernel<S, false, false, true>},
            {backward_mma_kernel<S, false, true, false>,
                backward_mma_kernel<S, false, true, true>}},
        {{backward_mma_kernel<S, true, false, false>,
             backward_mma_kernel<S, true, false, true>},
            {backward_mma_kernel<S, true, true, false>,
                backward_mma_kernel<S, true, true, true>}}};
    return kernels[a->dtype == ULYX_DTYPE_BF16][keys][a->cap > 0 || a->slopes];
}

template <typename S>
static int
mma_fit(const backward_args *args, bool keys, struct uli_gpu_attn_fit *fit_p)
{
    const size_t bytes[2] = {S::shared(1), S::shared(2)};
    return backward_fit(
        mma_kernel<S>(args, keys), S::GROUPS * S::THREADS, bytes, 2, fit_p);
}

template <typename S>
static int
mma_launch(const backward_args *args, bool keys,
    const struct uli_gpu_attn_fit *fit, int32_t blocks, void *stream)
{
    backward_args with = *args;
    with.slots = fit->slots;
    struct uli_launch_config launch = {dim3((unsigned)blocks),
        dim3(S::THREADS, S::GROUPS), (size_t)S::shared(fit->slots),
        (cudaStream_t)stream};
    return uli_kernel_launch(launch, mma_kernel<S>(args, keys), with);
}

/* The ops of a family, whose shape the .cu file gives. */
#define BACKWARD_MMA_FAMILY(id, shape)                                         \
    extern "C" const struct uli_gpu_attn_backward uli_gpu_attn_backward_##id = \
        {"backward " #id, shape::DIM, shape::VDIM, shape::ROWS, shape::STREAM, \
            0, mma_fit<shape>, mma_launch<shape>}

#endif
