/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of the portable backward beside its passes: one waits for the flags
 * of input pieces, one computes delta of each query row, one d_sink.
 */
#include "attention/cuda/portable/backward_parts.h"

enum { THREADS = 256 };

/* ---- flags of pieces ----------------------------------------------------- */

/* All threads: a thread waits for every THREADSth piece. False: the flag of one
 * of these pieces has not arrived. */
static __device__ __forceinline__ bool
pieces_come(const struct uli_gpu_attn_args &args,
    const struct uli_gpu_attn_tensor &tensor, int32_t which, uint64_t start_ns)
{
    bool ok = true;
    for (int32_t p = (int32_t)threadIdx.x; ok && p < tensor.npieces;
         p += THREADS)
        if (tensor.pieces[p].flag && tensor.pieces[p].rows)
            ok = piece_comes(args, tensor.pieces[p], which, p, start_ns);
    return ok;
}

/* One block, so that the kernels which set the flags find room on the device.
 * Kernels that follow on the stream may read every input. */
__global__ void
__launch_bounds__(THREADS, 1)
    backward_await_kernel(const __grid_constant__ backward_args args)
{
    const struct uli_gpu_attn_args &a = args.by_query;
    uint64_t start = ptx_globaltimer_ns();
    auto come = [&](const struct uli_gpu_attn_tensor &tensor, int32_t what) {
        return pieces_come(a, tensor, what - ULI_GPU_ATTN_FLAG_Q, start);
    };
    bool ok = come(a.q, ULI_GPU_ATTN_FLAG_Q) &&
              come(a.k, ULI_GPU_ATTN_FLAG_K) &&
              come(a.v, ULI_GPU_ATTN_FLAG_V) &&
              come(a.lse, ULI_GPU_ATTN_FLAG_LSE) &&
              come(args.dout, ULI_GPU_ATTN_FLAG_DOUT) &&
              come(args.delta, ULI_GPU_ATTN_FLAG_DELTA) &&
              come(args.dlse, ULI_GPU_ATTN_FLAG_DLSE) &&
              (tensor_given(args.delta) || come(a.out, ULI_GPU_ATTN_FLAG_OUT));
    if (!__syncthreads_and(ok) && threadIdx.x == 0)
        args.by_key.state->failed = ptx_ld_relaxed_gpu_u64(&a.state->failed);
}

/* ---- delta --------------------------------------------------------------- */

/* A warp computes a (tile, head), a lane every 32nd row of the tile. delta -
 * dlse of a row that sees no key is -dlse, whatever out and dout hold. */
__global__ void
__launch_bounds__(THREADS, 1)
    backward_delta_kernel(const __grid_constant__ backward_args args,
        const __grid_constant__ uli_gpu_attn_tensor to)
{
    const struct uli_gpu_attn_args &a = args.by_query;
    int64_t ntiles = a.state->ntiles, pairs = uli_gpu_attn_pairs(&a, ntiles);
    int64_t step = (int64_t)gridDim.x * (THREADS / 32);
    if (call_stopped(a))
        return;
    for (int64_t pair = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
         pair < pairs; pair += step) {
        int64_t tile, head;
        uli_gpu_attn_pair(&a, ntiles, pair, &tile, &head);
        const struct uli_gpu_attn_tile &t = a.tiles[tile];
        struct forward_mask mask = forward_mask_of(a, t);
        for (int n = (int)threadIdx.x % 32; n < t.rows; n += 32) {
            auto row_of = [&](const struct uli_gpu_attn_tensor &tensor) {
                return q_span(a, tensor, t, head, n, n + 1).data;
            };
            bool sees = forward_begin(mask, n) < forward_end(mask, n);
            *(float *)row_of(to) =
                sees ? delta_of(args, row_of) : -dlse_of(args, row_of);
        }
    }
}

/* ---- sinks --------------------------------------------------------------- */

static __device__ __forceinline__ int64_t
docs_entry(const void *array, int32_t bytes, int64_t n)
{
    return bytes == 4 ? ((const int32_t *)array)[n]
                      : ((const int64_t *)array)[n];
}

static __device__ __forceinline__ int64_t
docs_rows(const struct uli_gpu_attn_docs &docs, int64_t n)
{
    return docs.lengths ? docs_entry(docs.lengths, docs.index_bytes, n)
                        : docs_entry(docs.begins, docs.index_bytes, n + 1) -
                              docs_entry(docs.begins, docs.index_bytes, n);
}

/* The document of a query row: its rows of both sides, and the row's index i in
 * it. False in a gap. */
static __device__ bool
docs_row(const struct uli_gpu_attn_args &a, int64_t batch, int64_t row,
    int64_t *i_p, int64_t *q_rows_p, int64_t *k_rows_p)
{
    *i_p = row;
    *q_rows_p = a.len_q;
    *k_rows_p = a.len_k;
    if (!a.has_docs)
        return true;
    int64_t at = batch * a.len_q + row, low = -1, high = a.ndocs;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (docs_entry(a.docs_q.begins, a.docs_q.index_bytes, middle) <= at)
            low = middle;
        else
            high = middle;
    }
    if (low < 0)
        return false;
    *i_p = at - docs_entry(a.docs_q.begins, a.docs_q.index_bytes, low);
    *q_rows_p = docs_rows(a.docs_q, low);
    *k_rows_p = docs_rows(a.docs_k, low);
    return *i_p < *q_rows_p;
}

/* What a query row adds to its head's d_sink. */
static __device__ double
sink_of_row(const backward_args &args, int64_t head, int64_t batch, int64_t row,
    double sink)
{
    const struct uli_gpu_attn_args &a = args.by_query, &b = args.by_key;
    int64_t i, q_rows, k_rows;
    if (sink == -HUGE_VAL || !docs_row(a, batch, row, &i, &q_rows, &k_rows))
        return 0;
    int64_t off = uli_mask_off(a.bottom_right, a.diagonal, q_rows, k_rows);
    auto row_of = [&](const struct uli_gpu_attn_tensor &tensor) {
        return k_span(b, tensor, head, batch, row, row + 1).data;
    };
    if (mask_begin(a, off, k_rows, i) < mask_end(a, off, k_rows, i))
        return -exp(sink - (double)*(const float *)row_of(a.lse)) *
               (double)delta_of(args, row_of);
    if (tensor_given(args.dlse))
        return (double)*(const float *)row_of(args.dlse);
    return args.delta_less_dlse ? -(double)*(const float *)row_of(args.delta)
                                : 0;
}

/* A block sums a global head, a thread every THREADSth row of each segment or
 * batch item. Thread 0 adds the threads' sums in the order of threads. */
__global__ void
__launch_bounds__(THREADS, 1)
    backward_sinks_kernel(const __grid_constant__ backward_args args)
{
    ULI_SHARED(shared);
    double *sums = (double *)shared;
    const struct uli_gpu_attn_args &a = args.by_query;
    int64_t global = blockIdx.x;
    double sum = 0;
    if (call_stopped(a))
        return;
    for (int64_t head = 0; head < a.heads_q; head++) {
        int64_t id = a.head_ids ? a.head_ids[head] : a.head_offset + head;
        double sink = head_param(a, a.sinks, head, -HUGE_VAL);
        int64_t runs = a.q_segments ? a.nq_segments : a.batch;
        for (int64_t n = 0; id == global && n < runs; n++) {
            struct uli_gpu_attn_segment run = {head, n, 0, a.len_q, 0};
            if (a.q_segments)
                run = a.q_segments[n];
            for (int64_t row = run.row_begin + threadIdx.x;
                 run.head == head && row < run.row_end; row += THREADS)
                sum += sink_of_row(args, head, run.batch, row, sink);
        }
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (int n = 1; n < THREADS; n++)
        sum += sums[n];
    if (a.param_f64)
        ((double *)args.d_sink)[global] = sum;
    else
        ((float *)args.d_sink)[global] = (float)sum;
}

/* ---- host ---------------------------------------------------------------- */

extern "C" int
uli_gpu_attn_backward_await(const backward_args *args, void *stream)
{
    struct uli_launch_config launch = {
        dim3(1), dim3(THREADS), 0, (cudaStream_t)stream};
    return uli_kernel_launch(launch, backward_await_kernel, *args);
}

extern "C" int
uli_gpu_attn_backward_sinks(const backward_args *args, void *stream)
{
    struct uli_launch_config launch = {dim3((unsigned)args->heads_global),
        dim3(THREADS), THREADS * sizeof(double), (cudaStream_t)stream};
    return uli_kernel_launch(launch, backward_sinks_kernel, *args);
}

extern "C" int
uli_gpu_attn_backward_delta(const backward_args *args,
    const struct uli_gpu_attn_tensor *to, int32_t blocks, void *stream)
{
    struct uli_launch_config launch = {
        dim3((unsigned)blocks), dim3(THREADS), 0, (cudaStream_t)stream};
    return uli_kernel_launch(launch, backward_delta_kernel, *args, *to);
}
