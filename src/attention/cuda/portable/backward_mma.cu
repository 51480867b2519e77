/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward by the warps' matrix products (mma.sync m16n8k16), compute
 * capability 8.0 and later, 16 bits, head dimensions to 128.
 *
 * A block of 4 warps has 64 stationary rows, a warp 16 of them; 32 rows of the
 * other side at a time stream by. Both passes are one loop over pairs of tiles:
 *   queries stationary: [q, dout] over [k, v]    dq += ds k
 *   keys stationary:    [k, v] over [q, dout]    dk += ds q, dv += p dout
 *   s = first tiles' product, dp = second tiles'
 * A lane's p and ds are the operands of the sums as they lie. Every sum is one
 * chain in the order of the stream, so that bits do not depend on blocks.
 */
#include "attention/cuda/portable/backward_parts.h"
#include "attention/cuda/portable/mma_shape.h"

template <int DIM_> struct backward_shape {
    static const int DIM = DIM_, MT = 1, WARPS = 4, THREADS = 32 * WARPS;
    static const int ROWS = 16 * WARPS, STREAM = 32;
    static const int PITCH = tile_rows<DIM>::PITCH;
    static const int STILL = ROWS * PITCH, FLOW = STREAM * PITCH;
    static const int FLOW_AT = 2 * STILL, WORK_AT = FLOW_AT + 2 * FLOW;
    static const int SHARED = WORK_AT + (int)sizeof(struct backward_work);
    static_assert(ROWS <= BACKWARD_QUERIES, "statistics of a tile");
};

/* Of a warp's rows: products with a streaming tile, those packed, sums. */
template <typename S> using pair_products = float[S::STREAM / 8][4];
template <typename S> using pair_weights = uint32_t[S::STREAM / 16][4];
template <typename S> using row_sums = float[S::DIM / 8][4];

/* Rows of a tile from where span_of(n, end) says that they lie; zeros where
 * they are absent or past `rows`. */
template <typename S, int ROWS, typename Span>
static __device__ __forceinline__ void
tile_load(unsigned char *tile, int rows, int columns, int align,
    const Span &span_of)
{
    struct row_span span = {NULL, 0, ROWS};
    if (rows > 0)
        span = span_of(0, rows);
    if (span.data && span.rows == rows && align == 16) {
        copy_even<S::DIM, ROWS, S::THREADS>(
            ptx_smem_addr(tile), span, columns);
        return;
    }
    for (int n = 0; n < ROWS; n += (int)span.rows) {
        span = {NULL, 0, ROWS - n};
        if (n < rows)
            span = span_of(n, rows);
        copy_any<S::DIM, S::THREADS>(tile, n, span, columns, align);
    }
}

/* The two tiles of one side at `tile` and `bytes` on: columns of q and k, of v
 * and dout. */
template <typename S, int ROWS, typename Span>
static __device__ __forceinline__ void
pair_load(const struct uli_gpu_attn_args &a, unsigned char *tile, int rows,
    const struct uli_gpu_attn_tensor &first,
    const struct uli_gpu_attn_tensor &second, const Span &span_of)
{
    tile_load<S, ROWS>(tile, rows, a.dim_qk, first.align,
        [&](int64_t n, int64_t end) { return span_of(first, n, end); });
    tile_load<S, ROWS>(tile + ROWS * S::PITCH, rows, a.dim_v, second.align,
        [&](int64_t n, int64_t end) { return span_of(second, n, end); });
}

template <typename S>
static __device__ __noinline__ void
still_load(const backward_args &args, bool keys, unsigned char *shared,
    struct backward_work *work)
{
    const struct uli_gpu_attn_args &a = args.by_query;
    const struct uli_gpu_attn_args &side = keys ? args.by_key : a;
    pair_load<S, S::ROWS>(a, shared, work->tile.rows, keys ? a.k : a.q,
        keys ? a.v : args.dout,
        [&](const struct uli_gpu_attn_tensor &tensor, int64_t n, int64_t end) {
            return q_span(side, tensor, work->tile, work->head, n, end);
        });
    if (!keys && threadIdx.x < S::ROWS)
        still_statistics(args, work, (int)threadIdx.x);
}

/* Rows [j, j + STREAM) of the other side's document, of a head of it. */
template <typename S>
static __device__ __noinline__ void
flow_load(const backward_args &args, bool keys, unsigned char *shared,
    struct backward_work *work, int64_t head, int64_t j)
{
    const struct uli_gpu_attn_args &a = args.by_query;
    const struct uli_gpu_attn_args &side = keys ? args.by_key : a;
    const struct uli_gpu_attn_tile &t = work->tile;
    int64_t row = t.k_begin + j;
    pair_load<S, S::STREAM>(a, shared + S::FLOW_AT,
        (int)mask_min(t.k_rows - j, S::STREAM), keys ? a.q : a.k,
        keys ? args.dout : a.v,
        [&](const struct uli_gpu_attn_tensor &tensor, int64_t n, int64_t end) {
            return k_span(side, tensor, head, t.k_batch, row + n, row + end);
        });
    if (keys && threadIdx.x < S::STREAM)
        flow_statistics(args, work, head, j, (int)threadIdx.x);
}

/* Copies of all threads are there. */
static __device__ __forceinline__ void
tiles_await(void)
{
    ptx_cp_async_commit();
    ptx_cp_async_wait<0>();
    __syncthreads();
}

template <typename S, bool BF16>
static __device__ __forceinline__ void
products_make(uint32_t still, uint32_t flow, pair_products<S> &s)
{
    uint32_t a_at = still + mma_a_at<S>(), b_at = flow + mma_b_at<S>();
#pragma unroll
    for (int n = 0; n < S::STREAM / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            s[n][e] = 0;
#pragma unroll
    for (int c = 0; c < S::DIM / 16; c++) {
        uint32_t a[4];
        ptx_ldmatrix(a, tile_along<S::DIM>(a_at, c));
#pragma unroll
        for (int n = 0; n < S::STREAM / 16; n++) {
            uint32_t b[4];
            ptx_ldmatrix(b, tile_along<S::DIM>(b_at + n * 16 * S::PITCH, c));
            mma_issue<BF16>(s[2 * n], a, b[0], b[1]);
            mma_issue<BF16>(s[2 * n + 1], a, b[2], b[3]);
        }
    }
}

/* sums += weights times the rows of a streaming tile. */
template <typename S, bool BF16>
static __device__ __forceinline__ void
sums_add(uint32_t flow, const pair_weights<S> &weights, row_sums<S> &sums)
{
    uint32_t b_at = flow + mma_bt_at<S>();
#pragma unroll
    for (int k = 0; k < S::STREAM / 16; k++)
#pragma unroll
        for (int c = 0; c < S::DIM / 16; c++) {
            uint32_t b[4];
            ptx_ldmatrix_trans(
                b, tile_along<S::DIM>(b_at + k * 16 * S::PITCH, c));
            mma_issue<BF16>(sums[2 * c], weights[k], b[0], b[1]);
            mma_issue<BF16>(sums[2 * c + 1], weights[k], b[2], b[3]);
        }
}

/* Products become p and ds, 0 where the mask lets nothing through. */
template <typename S, bool KEYS>
static __device__ __forceinline__ void
pairs_make(const backward_args &args, const struct backward_work *work,
    float slope, int64_t j, pair_products<S> &s, pair_products<S> &dp)
{
    struct forward_sight sight = forward_sight_of(work->mask, j);
#pragma unroll
    for (int n = 0; n < S::STREAM / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int row = mma_row<S>(0, e / 2);
            int column = 8 * n + 2 * (mma_lane() % 4) + e % 2;
            int query = KEYS ? column : row;
            float p = 0, ds = 0;
            bool sees = column >= sight.begin + row &&
                        column < sight.end + row && column < sight.keys &&
                        row < work->tile.rows && work->lse[query] != HUGE_VALF;
            if (sees) {
                int64_t apart = work->mask.at + row - j - column;
                pair_gradient(args, slope, apart < 0 ? -apart : apart, s[n][e],
                    dp[n][e], work->lse[query], work->delta[query], &p, &ds);
            }
            s[n][e] = p;
            dp[n][e] = ds;
        }
}

/* As A operand: rows g and g + 8 of columns 2 u, then of columns 8 on. */
template <typename S, bool BF16>
static __device__ __forceinline__ void
weights_pack(const pair_products<S> &from, pair_weights<S> &weights)
{
#pragma unroll
    for (int k = 0; k < S::STREAM / 16; k++)
#pragma unroll
        for (int h = 0; h < 4; h++) {
            const float(&four)[4] = from[2 * k + h / 2];
            weights[k][h] =
                mma_pack<BF16>(four[h % 2 * 2], four[h % 2 * 2 + 1]);
        }
}

template <typename S>
static __device__ __forceinline__ void
row_sums_clear(row_sums<S> &sums)
{
#pragma unroll
    for (int n = 0; n < S::DIM / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            sums[n][e] = 0;
}

template <typename S>
static __device__ __forceinline__ void
row_sums_store(const struct uli_gpu_attn_args &side,
    const struct uli_gpu_attn_tensor &tensor, int32_t dtype, int columns,
    const struct backward_work *work, float scale, bool accumulate,
    const row_sums<S> &sums)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = mma_row<S>(0, h);
        if (row >= work->tile.rows)
            continue;
        unsigned char *to =
            q_span(side, tensor, work->tile, work->head, row, row + 1).data;
#pragma unroll
        for (int n = 0; n < S::DIM / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int c = 8 * n + 2 * (mma_lane() % 4) + e;
                if (c >= columns)
                    continue;
                float value = sums[n][2 * h + e] * scale;
                if (accumulate)
                    value += element_load(dtype, to, c);
                element_store(dtype, to, c, value);
            }
    }
}

/* One streaming tile that has come. KEYS: dv is summed, too. */
template <typename S, bool BF16, bool KEYS>
static __device__ __forceinline__ void
flow_add(const backward_args &args, unsigned char *shared,
    const struct backward_work *work, float slope, int64_t j,
    row_sums<S> &first, row_sums<S> &second)
{
    uint32_t still = ptx_smem_addr(shared), flow = still + S::FLOW_AT;
    pair_products<S> s, dp;
    pair_weights<S> weights;
    products_make<S, BF16>(still, flow, s);
    products_make<S, BF16>(still + S::STILL, flow + S::FLOW, dp);
    pairs_make<S, KEYS>(args, work, slope, j, s, dp);
    if (KEYS) {
        weights_pack<S, BF16>(s, weights);
        sums_add<S, BF16>(flow + S::FLOW, weights, second);
    }
    weights_pack<S, BF16>(dp, weights);
    sums_add<S, BF16>(flow, weights, first);
}

template <typename S, bool BF16>
static __device__ __forceinline__ void
queries_work(const backward_args &args, unsigned char *shared,
    struct backward_work *work)
{
    const struct uli_gpu_attn_args &a = args.by_query;
    float slope = (float)head_param(a, a.slopes, work->head, 0);
    int64_t kv = kv_head_of(a, work->head);
    row_sums<S> dq, none;
    row_sums_clear<S>(dq);
    if (work->first < work->end)
        still_load<S>(args, false, shared, work);
    for (int64_t t = work->first; t < work->end; t++) {
        flow_load<S>(args, false, shared, work, kv, t * S::STREAM);
        tiles_await();
        flow_add<S, BF16, false>(
            args, shared, work, slope, t * S::STREAM, dq, none);
        __syncthreads();
    }
    row_sums_store<S>(a, args.dq, args.dq_dtype, a.dim_qk, work, args.scale,
        false, dq);
}

template <typename S, bool BF16>
static __device__ __forceinline__ void
keys_work(const backward_args &args, unsigned char *shared,
    struct backward_work *work)
{
    const struct uli_gpu_attn_args &a = args.by_query, &b = args.by_key;
    row_sums<S> dk, dv;
    row_sums_clear<S>(dk);
    row_sums_clear<S>(dv);
    if (work->first < work->end)
        still_load<S>(args, true, shared, work);
    for (int64_t head = 0; head < a.heads_q; head++) {
        if (kv_head_of(a, head) != work->head)
            continue;
        float slope = (float)head_param(a, a.slopes, head, 0);
        for (int64_t t = work->first; t < work->end; t++) {
            flow_load<S>(args, true, shared, work, head, t * S::STREAM);
            tiles_await();
            flow_add<S, BF16, true>(
                args, shared, work, slope, t * S::STREAM, dk, dv);
            __syncthreads();
        }
    }
    row_sums_store<S>(b, args.dk, args.dk_dtype, a.dim_qk, work, args.scale,
        args.accumulate, dk);
    row_sums_store<S>(
        b, args.dv, args.dv_dtype, a.dim_v, work, 1, args.accumulate, dv);
}

template <typename S, bool BF16, bool KEYS>
__global__ void
__launch_bounds__(S::THREADS, 2)
    backward_mma_kernel(const __grid_constant__ backward_args args)
{
    ULI_SHARED(shared);
    struct backward_work *work = (struct backward_work *)(shared + S::WORK_AT);
    backward_loop(KEYS ? args.by_key : args.by_query, work, [&] {
        if (KEYS)
            keys_work<S, BF16>(args, shared, work);
        else
            queries_work<S, BF16>(args, shared, work);
    });
}

/* ---- host ---------------------------------------------------------------- */

typedef void (*backward_kernel)(const backward_args);

template <typename S>
static backward_kernel
mma_kernel(bool bf16, bool keys)
{
    if (bf16)
        return keys ? backward_mma_kernel<S, true, true>
                    : backward_mma_kernel<S, true, false>;
    return keys ? backward_mma_kernel<S, false, true>
                : backward_mma_kernel<S, false, false>;
}

template <typename S>
static int
mma_prepare(int32_t *blocks_per_sm_p)
{
    cudaError_t error = cudaSuccess;
    for (int n = 0; n < 4 && error == cudaSuccess; n++)
        error = uli_kernel_prepare(mma_kernel<S>(n & 1, n & 2), S::SHARED);
    *blocks_per_sm_p = 2;
    return error;
}

template <typename S>
static int
mma_launch(
    const backward_args *args, bool keys, int32_t blocks, void *stream)
{
    bool bf16 = args->by_query.dtype == ULYX_DTYPE_BF16;
    struct uli_launch_config launch = {dim3((unsigned)blocks), dim3(S::THREADS),
        S::SHARED, (cudaStream_t)stream};
    return uli_kernel_launch(launch, mma_kernel<S>(bf16, keys), *args);
}

#define MMA_FAMILY(id, label, shape)                                           \
    static int id##_prepare(int32_t *blocks_per_sm_p)                          \
    {                                                                          \
        return mma_prepare<shape>(blocks_per_sm_p);                            \
    }                                                                          \
    static int id##_launch(                                                    \
        const backward_args *args, bool keys, int32_t blocks, void *stream)    \
    {                                                                          \
        return mma_launch<shape>(args, keys, blocks, stream);                  \
    }                                                                          \
    extern "C" const struct uli_gpu_attn_backward uli_gpu_attn_backward_##id = \
        {label, shape::DIM, shape::ROWS, shape::STREAM, 0, id##_prepare,       \
            id##_launch}

MMA_FAMILY(mma64, "backward mma64", backward_shape<64>);
MMA_FAMILY(mma128, "backward mma128", backward_shape<128>);
