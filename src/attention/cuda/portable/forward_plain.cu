/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward without matrix instructions: fp32, and 16-bit head dimensions for
 * which no other kernel was built, to 512. Products and sums are fp32 in plain
 * multiply-adds, exp2 is the accurate one: errors are those of plain attention
 * in fp32. The slower path.
 *
 * A block of 8 warps has 32 query rows, a warp 4 of them. Keys are loaded in
 * tiles of 32, as fp32, k and v in turn to the same place:
 *   scores  lane = key:     s[r] = sum_c q[4 w + r][c] * k[lane][c]
 *   values  lane = columns: o[r][n][e] += p[r][key] * v[key][c]
 *                           with c = 128 n + 4 lane + e
 *
 * p passes from scores to values through p[warp][key][r]. Every sum is one
 * chain over ascending columns, or keys, so a row's bits do not depend on other
 * rows.
 *
 * Shared memory (floats): q[32][ld], tile[32][ld], p[8][32][4]; the work.
 * ld = the larger dimension + 4: rows begin four banks apart.
 */
#include "attention/cuda/forward_gpu.h"
#include "attention/cuda/portable/forward_row.h"

enum {
    WARPS = 8,
    ROWS = 32,
    KEYS = 32,
    THREADS = 32 * WARPS,
    WARP_ROWS = ROWS / WARPS,
    DIM_MAX = 512,
};

/* Offsets in shared memory. */
struct plain_shared {
    int ld, tile, p, work, bytes;
};

static __host__ __device__ __forceinline__ struct plain_shared
plain_shared_of(int dim_qk, int dim_v)
{
    struct plain_shared s;
    s.ld = (dim_qk > dim_v ? dim_qk : dim_v) + 4;
    s.tile = ROWS * s.ld * 4;
    s.p = s.tile + KEYS * s.ld * 4;
    s.work = s.p + WARPS * KEYS * WARP_ROWS * 4;
    s.bytes = s.work + (int)sizeof(struct forward_work);
    return s;
}

/* Loads elements of any dtype: one kernel for all dtypes, because this is the
 * slower path. */
static __device__ __forceinline__ float
plain_load(const uli_gpu_attn_args &args, const unsigned char *row, int c)
{
    if (args.dtype == ULYX_DTYPE_F32)
        return ((const float *)row)[c];
    uint16_t bits = ((const uint16_t *)row)[c];
    return args.dtype == ULYX_DTYPE_BF16 ? ptx_bf16_to_float(bits)
                                         : ptx_f16_to_float(bits);
}

static __device__ __forceinline__ void
plain_put(const uli_gpu_attn_args &args, unsigned char *row, int c, float v)
{
    if (args.dtype == ULYX_DTYPE_F32)
        ((float *)row)[c] = v;
    else if (args.dtype == ULYX_DTYPE_BF16)
        ((uint16_t *)row)[c] = (uint16_t)ptx_pack_bf16(v, 0);
    else
        ((uint16_t *)row)[c] = (uint16_t)ptx_pack_f16(v, 0);
}

/* Loads rows [first, first + span.rows) of a tile; zeros if the span is
 * absent. */
static __device__ __forceinline__ void
copy_span(const uli_gpu_attn_args &args, float *tile, int ld, int first,
    const struct row_span &span, int columns)
{
    for (int at = (int)threadIdx.x; at < (int)span.rows * columns;
         at += THREADS) {
        int row = at / columns, c = at % columns;
        float value = 0;
        if (span.data)
            value = plain_load(args, span.data + row * span.stride, c);
        tile[(first + row) * ld + c] = value;
    }
}

static __device__ void
copy_queries(const uli_gpu_attn_args &args, const struct forward_work *work,
    float *tile, int ld)
{
    struct row_span span;
    for (int n = 0; n < ROWS; n += (int)span.rows) {
        span = {NULL, 0, ROWS - n};
        if (n < work->tile.rows)
            span = q_span(
                args, args.q, work->tile, work->head, n, work->tile.rows);
        copy_span(args, tile, ld, n, span, args.dim_qk);
    }
}

/* Loads keys [j, j + KEYS) of k or v; zeros past the document's end. */
static __device__ void
copy_keys(const uli_gpu_attn_args &args, const uli_gpu_attn_tensor &tensor,
    const struct forward_work *work, int64_t j, float *tile, int ld,
    int columns)
{
    const struct uli_gpu_attn_tile &t = work->tile;
    int64_t row = t.k_begin + j;
    int64_t end = mask_min(t.k_begin + t.k_rows, row + KEYS);
    struct row_span span;
    for (int n = 0; n < KEYS; n += (int)span.rows) {
        span = {NULL, 0, KEYS - n};
        if (row + n < end)
            span = k_span(args, tensor, work->kv, t.k_batch, row + n, end);
        copy_span(args, tile, ld, n, span, columns);
    }
}

/* What a warp keeps of its rows. */
template <int NV> struct plain_rows {
    float max[WARP_ROWS], sum[WARP_ROWS];
    float o[WARP_ROWS][NV][4];
};

/* Computes s of the lane's key with the warp's rows. */
static __device__ __forceinline__ void
plain_scores(
    const float *q, const float *k, int columns, int ld, float (&s)[WARP_ROWS])
{
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++)
        s[r] = 0;
    for (int c = 0; c < columns; c += 4) {
        float4 key = *(const float4 *)(k + c);
#pragma unroll
        for (int r = 0; r < WARP_ROWS; r++) {
            float4 query = *(const float4 *)(q + r * ld + c);
            s[r] = fmaf(query.x, key.x, s[r]);
            s[r] = fmaf(query.y, key.y, s[r]);
            s[r] = fmaf(query.z, key.z, s[r]);
            s[r] = fmaf(query.w, key.w, s[r]);
        }
    }
}

/* s becomes what the row sees of the lane's key: the transformed score, or
 * -inf. */
static __device__ __forceinline__ void
plain_mask(const uli_gpu_attn_args &args, const struct forward_work *work,
    int first, int64_t j, float (&s)[WARP_ROWS])
{
    int lane = (int)threadIdx.x % 32;
    bool with_transform = args.cap > 0 || args.slopes;
    struct forward_sight sight = forward_sight_of(work->mask, j);
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++) {
        int row = first + r;
        if (with_transform) {
            struct forward_alibi alibi = alibi_of(work->mask, row, j);
            float d = fabsf(alibi.at - (float)lane) + alibi.plus;
            s[r] = score_transformed(args, s[r], work->slope, d);
        }
        if (lane < sight.begin + row || lane >= sight.end + row ||
            lane >= sight.keys)
            s[r] = -HUGE_VALF;
    }
}

template <int NV>
static __device__ __forceinline__ void
plain_softmax(
    float factor, const float (&s)[WARP_ROWS], plain_rows<NV> &rows, float *p)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++) {
        float top = s[r];
        for (int step = 16; step; step /= 2)
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
        top = fmaxf(top, rows.max[r]);
        float used = top == -HUGE_VALF ? 0 : top;
        float alpha = exp2f((rows.max[r] - used) * factor);
        float weight = exp2f((s[r] - used) * factor), sum = weight;
        for (int step = 16; step; step /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
        rows.max[r] = top;
        rows.sum[r] = fmaf(rows.sum[r], alpha, sum);
        p[lane * WARP_ROWS + r] = weight;
#pragma unroll
        for (int n = 0; n < NV; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                rows.o[r][n][e] *= alpha;
    }
}

template <int NV>
static __device__ __forceinline__ void
plain_values(
    const float *v, int columns, int ld, const float *p, plain_rows<NV> &rows)
{
    int lane = (int)threadIdx.x % 32;
    for (int key = 0; key < KEYS; key++) {
        float4 weight = *(const float4 *)(p + key * WARP_ROWS);
        const float w[WARP_ROWS] = {weight.x, weight.y, weight.z, weight.w};
#pragma unroll
        for (int n = 0; n < NV; n++) {
            int c = 128 * n + 4 * lane;
            if (c >= columns)
                continue;
            float4 value = *(const float4 *)(v + key * ld + c);
#pragma unroll
            for (int r = 0; r < WARP_ROWS; r++) {
                rows.o[r][n][0] = fmaf(w[r], value.x, rows.o[r][n][0]);
                rows.o[r][n][1] = fmaf(w[r], value.y, rows.o[r][n][1]);
                rows.o[r][n][2] = fmaf(w[r], value.z, rows.o[r][n][2]);
                rows.o[r][n][3] = fmaf(w[r], value.w, rows.o[r][n][3]);
            }
        }
    }
}

template <int NV>
static __device__ __forceinline__ void
plain_store(const uli_gpu_attn_args &args, const struct forward_work *work,
    int first, const plain_rows<NV> &rows)
{
    int lane = (int)threadIdx.x % 32;
    float most = -HUGE_VALF;
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++) {
        int row = first + r;
        if (row >= work->tile.rows)
            continue;
        struct forward_final final = final_of(
            args, work->sink, rows.max[r], rows.sum[r], shift_of(work, row));
        bool empty = rows.max[r] == -HUGE_VALF && rows.sum[r] == 0;
        struct row_span to =
            q_span(args, args.out, work->tile, work->head, row, row + 1);
        most = fmaxf(most, final.max);
        if (lane == 0)
            store_lse(args, work, row, final.lse);
#pragma unroll
        for (int n = 0; n < NV; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int c = 128 * n + 4 * lane + e;
                float value = rows.o[r][n][e] * final.factor + 0.0f;
                if (c < args.dim_v)
                    plain_put(args, to.data, c, empty ? 0.0f : value);
            }
    }
    if (args.max_logit && lane == 0 && first < work->tile.rows)
        raise_max(args, work->head, most);
}

template <int NV>
static __device__ __forceinline__ void
plain_work(const uli_gpu_attn_args &args, unsigned char *shared,
    const struct plain_shared &at, const struct forward_work *work)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int first = warp * WARP_ROWS;
    float *q = (float *)shared, *tile = (float *)(shared + at.tile);
    float *p = (float *)(shared + at.p) + warp * KEYS * WARP_ROWS;
    plain_rows<NV> rows;
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++) {
        rows.max[r] = -HUGE_VALF;
        rows.sum[r] = 0;
#pragma unroll
        for (int n = 0; n < NV; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                rows.o[r][n][e] = 0;
    }
    if (work->first < work->end)
        copy_queries(args, work, q, at.ld);
    for (int64_t t = work->first; t < work->end; t++) {
        float s[WARP_ROWS];
        copy_keys(args, args.k, work, t * KEYS, tile, at.ld, args.dim_qk);
        __syncthreads();
        plain_scores(
            q + first * at.ld, tile + lane * at.ld, args.dim_qk, at.ld, s);
        plain_mask(args, work, first, t * KEYS, s);
        plain_softmax<NV>(args.factor, s, rows, p);
        __syncthreads();
        copy_keys(args, args.v, work, t * KEYS, tile, at.ld, args.dim_v);
        __syncthreads();
        plain_values<NV>(tile, args.dim_v, at.ld, p, rows);
        __syncthreads();
    }
    plain_store<NV>(args, work, first, rows);
}

template <int NV>
__global__ void
__launch_bounds__(THREADS, 1)
    attention_plain_kernel(const __grid_constant__ uli_gpu_attn_args args)
{
    ULI_SHARED(shared);
    struct plain_shared at = plain_shared_of(args.dim_qk, args.dim_v);
    struct forward_work *work = (struct forward_work *)(shared + at.work);
    work_loop(args, work, [&] { plain_work<NV>(args, shared, at, work); });
}

/* ---- host ---------------------------------------------------------------- */

static void (*plain_kernel_for(int32_t dim_v))(const uli_gpu_attn_args)
{
    return dim_v <= 128 ? attention_plain_kernel<1>
                        : attention_plain_kernel<DIM_MAX / 128>;
}

static int
plain_prepare(int32_t *blocks_per_sm_p)
{
    size_t bytes = (size_t)plain_shared_of(DIM_MAX, DIM_MAX).bytes;
    cudaError_t error = uli_kernel_prepare(plain_kernel_for(128), bytes);
    if (error == cudaSuccess)
        error = uli_kernel_prepare(plain_kernel_for(DIM_MAX), bytes);
    *blocks_per_sm_p = 1;
    return error;
}

static int
plain_launch(const struct uli_gpu_attn_args *args, int32_t blocks, void *stream)
{
    struct plain_shared at = plain_shared_of(args->dim_qk, args->dim_v);
    struct uli_launch_config launch = {dim3((unsigned)blocks), dim3(THREADS),
        (size_t)at.bytes, (cudaStream_t)stream};
    return uli_kernel_launch(launch, plain_kernel_for(args->dim_v), *args);
}

extern "C" const struct uli_gpu_attn_forward uli_gpu_attn_plain = {
    "plain", DIM_MAX, DIM_MAX, ROWS, KEYS, 1, plain_prepare, plain_launch};
