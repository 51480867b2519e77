/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward without matrix instructions, all dtypes, head dimensions to 512.
 *
 * A block of 8 warps has 32 stationary rows, a warp 4 of them; rows of the
 * other side stream by in tiles, a lane has one of them:
 *   s[r]  = q.k,  dp[r] = dout.v         of the warp's rows and the lane's row
 *   p = exp(score - lse), ds = p * (dp - delta) * d score / d (scale * s)
 * p and ds pass through shared memory to the sums, in which a lane has columns.
 * Every sum is one chain in the order of the stream, so that bits do not depend
 * on the number of blocks.
 */
#include "attention/cuda/portable/backward_parts.h"

enum {
    WARPS = 8,
    ROWS = 32,
    STREAM = 32,
    THREADS = 32 * WARPS,
    WARP_ROWS = ROWS / WARPS,
    DIM_MAX = 512,
};

/* Offsets in shared memory: two stationary and two streaming tiles. */
struct backward_shared {
    int ld, still[2], flow[2], pair, work, bytes;
};

/* stream: rows of a streaming tile, STREAM at most. */
static __host__ __device__ __forceinline__ struct backward_shared
backward_shared_of(int dim_qk, int dim_v, int stream)
{
    struct backward_shared s;
    int dim = dim_qk > dim_v ? dim_qk : dim_v;
    s.ld = dim + 4;
    s.still[0] = 0;
    s.still[1] = ROWS * s.ld * 4;
    s.flow[0] = 2 * s.still[1];
    s.flow[1] = s.flow[0] + stream * s.ld * 4;
    s.pair = s.flow[1] + stream * s.ld * 4;
    s.work = s.pair + 2 * WARPS * STREAM * WARP_ROWS * 4;
    s.bytes = s.work + (int)sizeof(struct backward_work);
    return s;
}

/* Loads rows of a tile from span(n, end); absent rows and rows from `rows` on
 * become zeros. */
template <typename Span>
static __device__ __forceinline__ void
tile_copy(int32_t dtype, float *tile, int ld, int count, int rows, int columns,
    const Span &span_of)
{
    struct row_span span;
    for (int n = 0; n < count; n += (int)span.rows) {
        span = {NULL, 0, count - n};
        if (n < rows)
            span = span_of(n, rows);
        for (int at = (int)threadIdx.x; at < (int)span.rows * columns;
             at += THREADS) {
            int row = at / columns, c = at % columns;
            tile[(n + row) * ld + c] =
                span.data
                    ? element_load(dtype, span.data + row * span.stride, c)
                    : 0;
        }
    }
}

static __device__ __forceinline__ void
tile_products(const float *still, const float *flow, int columns, int ld,
    float (&s)[WARP_ROWS])
{
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++)
        s[r] = 0;
    for (int c = 0; c < columns; c += 4) {
        float4 b = *(const float4 *)(flow + c);
#pragma unroll
        for (int r = 0; r < WARP_ROWS; r++) {
            float4 a = *(const float4 *)(still + r * ld + c);
            s[r] = fmaf(a.x, b.x, s[r]);
            s[r] = fmaf(a.y, b.y, s[r]);
            s[r] = fmaf(a.z, b.z, s[r]);
            s[r] = fmaf(a.w, b.w, s[r]);
        }
    }
}

/* Adds weight[row][r] * flow[row] to sum[r], for a lane's columns. */
template <int NV>
static __device__ __forceinline__ void
tile_sums(const float *flow, int rows, int columns, int ld, const float *weight,
    float (&sum)[WARP_ROWS][NV][4])
{
    int lane = (int)threadIdx.x % 32;
    for (int row = 0; row < rows; row++) {
        float4 four = *(const float4 *)(weight + row * WARP_ROWS);
        const float w[WARP_ROWS] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int n = 0; n < NV; n++) {
            int c = 128 * n + 4 * lane;
            if (c >= columns)
                continue;
            float4 b = *(const float4 *)(flow + row * ld + c);
#pragma unroll
            for (int r = 0; r < WARP_ROWS; r++) {
                sum[r][n][0] = fmaf(w[r], b.x, sum[r][n][0]);
                sum[r][n][1] = fmaf(w[r], b.y, sum[r][n][1]);
                sum[r][n][2] = fmaf(w[r], b.z, sum[r][n][2]);
                sum[r][n][3] = fmaf(w[r], b.w, sum[r][n][3]);
            }
        }
    }
}

template <int NV>
static __device__ __forceinline__ void
sums_store(const struct uli_gpu_attn_args &args,
    const struct uli_gpu_attn_tensor &tensor, int32_t dtype, int columns,
    const struct backward_work *work, int first, float scale, bool accumulate,
    const float (&sum)[WARP_ROWS][NV][4])
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++) {
        int row = first + r;
        if (row >= work->tile.rows)
            continue;
        struct row_span to =
            q_span(args, tensor, work->tile, work->head, row, row + 1);
#pragma unroll
        for (int n = 0; n < NV; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int c = 128 * n + 4 * lane + e;
                if (c >= columns)
                    continue;
                float value = sum[r][n][e] * scale;
                if (accumulate)
                    value += element_load(dtype, to.data, c);
                element_store(dtype, to.data, c, value);
            }
    }
}

template <int NV>
static __device__ __forceinline__ void
sums_clear(float (&sum)[WARP_ROWS][NV][4])
{
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++)
#pragma unroll
        for (int n = 0; n < NV; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                sum[r][n][e] = 0;
}

/* Computes p and ds of the warp's rows and the streaming tile that begins at
 * row j. queries: the stationary rows are queries. */
static __device__ __forceinline__ void
tile_pairs(const backward_args &args, const struct backward_work *work,
    bool queries, int stream, float slope, int64_t j, int first,
    const float (&s)[WARP_ROWS], const float (&dp)[WARP_ROWS], float *p,
    float *ds)
{
    int lane = (int)threadIdx.x % 32;
    struct forward_sight sight = forward_sight_of(work->mask, j);
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++) {
        int row = first + r, query = queries ? row : lane;
        float one = 0, two = 0;
        bool sees = lane >= sight.begin + row && lane < sight.end + row &&
                    lane < sight.keys && lane < stream &&
                    row < work->tile.rows && work->lse[query] != HUGE_VALF;
        if (sees) {
            int64_t apart = work->mask.at + row - j - lane;
            float rise, power = pair_power(args, slope,
                            apart < 0 ? -apart : apart, s[r], work->lse[query],
                            &rise);
            one = exp2f(fminf(power, 0) * (float)BACKWARD_LOG2_E);
            two = one * (dp[r] - work->delta[query]) * rise;
        }
        p[lane * WARP_ROWS + r] = one;
        ds[lane * WARP_ROWS + r] = two;
    }
}

/* ---- queries stationary -------------------------------------------------- */

static __device__ void
queries_load(const backward_args &args, unsigned char *shared,
    const struct backward_shared &at, struct backward_work *work)
{
    const struct uli_gpu_attn_args &a = args.by_query;
    const struct uli_gpu_attn_tile &t = work->tile;
    int rows = t.rows, n = (int)threadIdx.x;
    tile_copy(a.dtype, (float *)(shared + at.still[0]), at.ld, ROWS, rows,
        a.dim_qk, [&](int64_t from, int64_t end) {
            return q_span(a, a.q, t, work->head, from, end);
        });
    tile_copy(a.dtype, (float *)(shared + at.still[1]), at.ld, ROWS, rows,
        a.dim_v, [&](int64_t from, int64_t end) {
            return q_span(a, args.dout, t, work->head, from, end);
        });
    if (n < ROWS)
        still_statistics(args, work, n);
}

/* Loads keys [j, j + stream) of the document. */
static __device__ void
keys_stream(const backward_args &args, const struct uli_gpu_attn_tensor &tensor,
    const struct backward_work *work, int64_t kv, int64_t j, int columns,
    float *tile, int ld)
{
    const struct uli_gpu_attn_args &a = args.by_query;
    const struct uli_gpu_attn_tile &t = work->tile;
    int rows = (int)mask_min(t.k_rows - j, a.tile_keys);
    tile_copy(a.dtype, tile, ld, a.tile_keys, rows, columns,
        [&](int64_t from, int64_t end) {
            return k_span(a, tensor, kv, t.k_batch, t.k_begin + j + from,
                t.k_begin + j + end);
        });
}

template <int NV>
static __device__ __forceinline__ void
queries_work(const backward_args &args, unsigned char *shared,
    const struct backward_shared &at, struct backward_work *work)
{
    const struct uli_gpu_attn_args &a = args.by_query;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int first = warp * WARP_ROWS, stream = a.tile_keys;
    int near = lane < stream ? lane : 0;
    const float *q = (float *)(shared + at.still[0]);
    const float *dout = (float *)(shared + at.still[1]);
    float *k = (float *)(shared + at.flow[0]);
    float *v = (float *)(shared + at.flow[1]);
    float *p = (float *)(shared + at.pair) + 2 * warp * STREAM * WARP_ROWS;
    float *ds = p + STREAM * WARP_ROWS;
    float slope = (float)head_param(a, a.slopes, work->head, 0);
    int64_t kv = kv_head_of(a, work->head);
    float dq[WARP_ROWS][NV][4], s[WARP_ROWS], dp[WARP_ROWS];
    sums_clear<NV>(dq);
    if (work->first < work->end)
        queries_load(args, shared, at, work);
    for (int64_t t = work->first; t < work->end; t++) {
        keys_stream(args, a.k, work, kv, t * stream, a.dim_qk, k, at.ld);
        keys_stream(args, a.v, work, kv, t * stream, a.dim_v, v, at.ld);
        __syncthreads();
        tile_products(q + first * at.ld, k + near * at.ld, a.dim_qk, at.ld, s);
        tile_products(
            dout + first * at.ld, v + near * at.ld, a.dim_v, at.ld, dp);
        tile_pairs(
            args, work, true, stream, slope, t * stream, first, s, dp, p, ds);
        __syncwarp();
        tile_sums<NV>(k, stream, a.dim_qk, at.ld, ds, dq);
        __syncthreads();
    }
    sums_store<NV>(a, args.dq, args.dq_dtype, a.dim_qk, work, first, args.scale,
        false, dq);
}

template <int NV>
__global__ void
__launch_bounds__(THREADS, 1)
    backward_queries_kernel(const __grid_constant__ backward_args args)
{
    ULI_SHARED(shared);
    struct backward_shared at = backward_shared_of(args.by_query.dim_qk,
        args.by_query.dim_v, args.by_query.tile_keys);
    struct backward_work *work = (struct backward_work *)(shared + at.work);
    backward_loop(
        args.by_query, work, [&] { queries_work<NV>(args, shared, at, work); });
}

/* ---- keys stationary ----------------------------------------------------- */

static __device__ void
keys_load(const backward_args &args, unsigned char *shared,
    const struct backward_shared &at, const struct backward_work *work)
{
    const struct uli_gpu_attn_args &a = args.by_query, &b = args.by_key;
    const struct uli_gpu_attn_tile &t = work->tile;
    tile_copy(a.dtype, (float *)(shared + at.still[0]), at.ld, ROWS, t.rows,
        a.dim_qk, [&](int64_t from, int64_t end) {
            return q_span(b, a.k, t, work->head, from, end);
        });
    tile_copy(a.dtype, (float *)(shared + at.still[1]), at.ld, ROWS, t.rows,
        a.dim_v, [&](int64_t from, int64_t end) {
            return q_span(b, a.v, t, work->head, from, end);
        });
}

/* Loads query rows [j, j + stream) of the document and a head. */
static __device__ void
queries_stream(const backward_args &args, unsigned char *shared,
    const struct backward_shared &at, struct backward_work *work, int64_t head,
    int64_t j)
{
    const struct uli_gpu_attn_args &a = args.by_query, &b = args.by_key;
    const struct uli_gpu_attn_tile &t = work->tile;
    int rows = (int)mask_min(t.k_rows - j, b.tile_keys), n = (int)threadIdx.x;
    int64_t row = t.k_begin + j;
    auto span_of = [&](const struct uli_gpu_attn_tensor &tensor, int64_t from,
                       int64_t end) {
        return k_span(b, tensor, head, t.k_batch, row + from, row + end);
    };
    tile_copy(a.dtype, (float *)(shared + at.flow[0]), at.ld, b.tile_keys, rows,
        a.dim_qk,
        [&](int64_t from, int64_t end) { return span_of(a.q, from, end); });
    tile_copy(a.dtype, (float *)(shared + at.flow[1]), at.ld, b.tile_keys, rows,
        a.dim_v, [&](int64_t from, int64_t end) {
            return span_of(args.dout, from, end);
        });
    if (n < STREAM)
        flow_statistics(args, work, head, j, n, n);
}

template <int NV>
static __device__ __forceinline__ void
keys_work(const backward_args &args, unsigned char *shared,
    const struct backward_shared &at, struct backward_work *work)
{
    const struct uli_gpu_attn_args &a = args.by_query, &b = args.by_key;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int first = warp * WARP_ROWS, stream = b.tile_keys;
    int near = lane < stream ? lane : 0;
    const float *k = (float *)(shared + at.still[0]);
    const float *v = (float *)(shared + at.still[1]);
    const float *q = (float *)(shared + at.flow[0]);
    const float *dout = (float *)(shared + at.flow[1]);
    float *p = (float *)(shared + at.pair) + 2 * warp * STREAM * WARP_ROWS;
    float *ds = p + STREAM * WARP_ROWS;
    float dk[WARP_ROWS][NV][4], dv[WARP_ROWS][NV][4];
    float s[WARP_ROWS], dp[WARP_ROWS];
    sums_clear<NV>(dk);
    sums_clear<NV>(dv);
    if (work->first < work->end)
        keys_load(args, shared, at, work);
    for (int64_t head = 0; head < a.heads_q; head++) {
        if (kv_head_of(a, head) != work->head)
            continue;
        float slope = (float)head_param(a, a.slopes, head, 0);
        for (int64_t t = work->first; t < work->end; t++) {
            queries_stream(args, shared, at, work, head, t * stream);
            __syncthreads();
            tile_products(
                k + first * at.ld, q + near * at.ld, a.dim_qk, at.ld, s);
            tile_products(
                v + first * at.ld, dout + near * at.ld, a.dim_v, at.ld, dp);
            tile_pairs(args, work, false, stream, slope, t * stream, first, s,
                dp, p, ds);
            __syncwarp();
            tile_sums<NV>(dout, stream, a.dim_v, at.ld, p, dv);
            tile_sums<NV>(q, stream, a.dim_qk, at.ld, ds, dk);
            __syncthreads();
        }
    }
    sums_store<NV>(b, args.dk, args.dk_dtype, a.dim_qk, work, first, args.scale,
        args.accumulate, dk);
    sums_store<NV>(b, args.dv, args.dv_dtype, a.dim_v, work, first, 1,
        args.accumulate, dv);
}

template <int NV>
__global__ void
__launch_bounds__(THREADS, 1)
    backward_keys_kernel(const __grid_constant__ backward_args args)
{
    ULI_SHARED(shared);
    struct backward_shared at = backward_shared_of(args.by_query.dim_qk,
        args.by_query.dim_v, args.by_query.tile_keys);
    struct backward_work *work = (struct backward_work *)(shared + at.work);
    backward_loop(
        args.by_key, work, [&] { keys_work<NV>(args, shared, at, work); });
}

/* ---- host ---------------------------------------------------------------- */

typedef void (*backward_kernel)(const backward_args);

template <int DIM>
static backward_kernel
plain_kernel(bool keys)
{
    const int NV = DIM > 128 ? DIM_MAX / 128 : 1;
    return keys ? backward_keys_kernel<NV> : backward_queries_kernel<NV>;
}

template <int DIM, int FLOW>
static int
plain_fit(
    const backward_args *args, bool keys, struct uli_gpu_attn_fit *fit_p)
{
    const size_t bytes = (size_t)backward_shared_of(DIM, DIM, FLOW).bytes;
    (void)args;
    return backward_fit(plain_kernel<DIM>(keys), THREADS, &bytes, 1, fit_p);
}

template <int DIM>
static int
plain_launch(const backward_args *args, bool keys,
    const struct uli_gpu_attn_fit *fit, int32_t blocks, void *stream)
{
    struct backward_shared at = backward_shared_of(args->by_query.dim_qk,
        args->by_query.dim_v, args->by_query.tile_keys);
    struct uli_launch_config launch = {dim3((unsigned)blocks), dim3(THREADS),
        (size_t)at.bytes, (cudaStream_t)stream};
    (void)fit;
    return uli_kernel_launch(launch, plain_kernel<DIM>(keys), *args);
}

/* For head dimensions to dim, streaming tiles of so many rows, which leave a
 * block within the shared memory of a device. */
#define PLAIN_FAMILY(id, dim, flow, shared_kib)                                \
    static_assert(8 * (ROWS + flow) * (dim + 4) +                              \
                          8 * WARPS * STREAM * WARP_ROWS +                     \
                          (int)sizeof(struct backward_work) <=                 \
                      shared_kib * 1024,                                       \
        "fits a block");                                                       \
    extern "C" const struct uli_gpu_attn_backward uli_gpu_attn_backward_##id = \
        {"backward " #id, dim, dim, ROWS, flow, 1, plain_fit<dim, flow>,       \
            plain_launch<dim>}

PLAIN_FAMILY(plain128, 128, STREAM, 99);
PLAIN_FAMILY(plain256, 256, STREAM, 163);
PLAIN_FAMILY(plain256_small, 256, 8, 99); /* for 8.6 and 8.9 */
PLAIN_FAMILY(plain512, 512, 4, 163);
