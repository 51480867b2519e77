/* SPDX-License-Identifier: Apache-2.0
 *
 * What the portable backward kernels share: a block's work, the statistics of
 * query rows, p and ds of a pair. Device code.
 */
#ifndef ULI_ATTENTION_CUDA_PORTABLE_BACKWARD_PARTS_H
#define ULI_ATTENTION_CUDA_PORTABLE_BACKWARD_PARTS_H

#include "attention/cuda/backward_gpu.h"
#include "attention/cuda/forward_mask.h"
#include "attention/cuda/rows_gpu.h"

/* Query rows whose statistics a block holds, at most. */
enum { BACKWARD_QUERIES = 64 };

#define BACKWARD_LOG2_E 1.4426950408889634

typedef struct uli_gpu_attn_backward_args backward_args;

/* The (tile, head) of a block, in shared memory. */
struct backward_work {
    struct uli_gpu_attn_tile tile;
    struct forward_mask mask;
    int64_t head, first, end;
    int32_t valid;
    /* of query rows, stationary or streaming; lse +inf: the row is absent or
     * sees no key, and p is 0 */
    float lse[BACKWARD_QUERIES], delta[BACKWARD_QUERIES];
};

/* The value of a 16-bit element. */
static __device__ __forceinline__ float
element_of(int32_t dtype, uint32_t bits)
{
    return dtype == ULYX_DTYPE_BF16 ? ptx_bf16_to_float((uint16_t)bits)
                                    : ptx_f16_to_float((uint16_t)bits);
}

static __device__ __forceinline__ float
element_load(int32_t dtype, const unsigned char *row, int c)
{
    return dtype == ULYX_DTYPE_F32
               ? ((const float *)row)[c]
               : element_of(dtype, ((const uint16_t *)row)[c]);
}

static __device__ __forceinline__ void
element_store(int32_t dtype, unsigned char *row, int c, float v)
{
    if (dtype == ULYX_DTYPE_F32)
        ((float *)row)[c] = v;
    else if (dtype == ULYX_DTYPE_BF16)
        ((uint16_t *)row)[c] = (uint16_t)ptx_pack_bf16(v, 0);
    else
        ((uint16_t *)row)[c] = (uint16_t)ptx_pack_f16(v, 0);
}

static __device__ __forceinline__ bool
tensor_given(const struct uli_gpu_attn_tensor &tensor)
{
    return tensor.base || tensor.pieces;
}

/* <dout, out> of a row: products are added one by one in double in the order of
 * columns, so that every kernel computes the same bits of delta. wide: both
 * rows are aligned to 16 bytes. */
static __device__ __forceinline__ float
row_product(int32_t dtype, int columns, const unsigned char *dout,
    const unsigned char *out, bool wide)
{
    double sum = 0;
    if (!wide) {
        for (int c = 0; c < columns; c++)
            sum += (double)element_load(dtype, dout, c) *
                   (double)element_load(dtype, out, c);
        return (float)sum;
    }
    for (int c = 0; c < columns; dout += 16, out += 16) {
        uint4 four = ptx_ld_v4(dout), other = ptx_ld_v4(out);
        const uint32_t x[4] = {four.x, four.y, four.z, four.w};
        const uint32_t y[4] = {other.x, other.y, other.z, other.w};
        c += dtype == ULYX_DTYPE_F32 ? 4 : 8;
#pragma unroll
        for (int n = 0; n < 4; n++) {
            if (dtype == ULYX_DTYPE_F32) {
                sum += (double)__uint_as_float(x[n]) *
                       (double)__uint_as_float(y[n]);
                continue;
            }
            sum += (double)element_of(dtype, x[n]) *
                   (double)element_of(dtype, y[n]);
            sum += (double)element_of(dtype, x[n] >> 16) *
                   (double)element_of(dtype, y[n] >> 16);
        }
    }
    return (float)sum;
}

/* dlse of a query row, or 0; row_of(tensor): the address of the row. */
template <typename Row>
static __device__ __forceinline__ float
dlse_of(const backward_args &args, const Row &row_of)
{
    return tensor_given(args.dlse) ? *(const float *)row_of(args.dlse) : 0;
}

/* delta - dlse of a query row. */
template <typename Row>
static __device__ __forceinline__ float
delta_of(const backward_args &args, const Row &row_of)
{
    const struct uli_gpu_attn_args &a = args.by_query;
    if (tensor_given(args.delta))
        return *(const float *)row_of(args.delta) - dlse_of(args, row_of);
    bool wide = args.dout.align == 16 && a.out.align == 16;
    return row_product(
               a.dtype, a.dim_v, row_of(args.dout), row_of(a.out), wide) -
           dlse_of(args, row_of);
}

/* score - lse of a pair with product s, and the derivative of the score by
 * scale * s. distance: |i + off - j|. */
static __device__ __forceinline__ float
pair_power(const backward_args &args, float slope, int64_t distance, float s,
    float lse, float *rise_p)
{
    const struct uli_gpu_attn_args &a = args.by_query;
    float score = s * args.scale;
    *rise_p = 1;
    if (a.cap > 0) {
        float t = tanhf(score * a.cap_inverse);
        score = t * a.cap;
        *rise_p = 1 - t * t;
    }
    return slope != 0 ? (float)((double)score -
                                (double)slope * (double)distance - (double)lse)
                      : score - lse;
}

/* Stores the statistics of row n of a stationary tile of queries. */
static __device__ __forceinline__ void
still_statistics(const backward_args &args, struct backward_work *work, int n)
{
    const struct uli_gpu_attn_args &a = args.by_query;
    auto row_of = [&](const struct uli_gpu_attn_tensor &tensor) {
        return q_span(a, tensor, work->tile, work->head, n, n + 1).data;
    };
    work->lse[n] = HUGE_VALF;
    work->delta[n] = 0;
    if (n >= work->tile.rows ||
        forward_begin(work->mask, n) >= forward_end(work->mask, n))
        return;
    work->lse[n] = *(const float *)row_of(a.lse);
    work->delta[n] = delta_of(args, row_of);
}

/* Stores the statistics of row j + n of the document's queries and a head in
 * entry `at`. */
static __device__ __forceinline__ void
flow_statistics(const backward_args &args, struct backward_work *work,
    int64_t head, int64_t j, int n, int at)
{
    const struct uli_gpu_attn_args &a = args.by_query, &b = args.by_key;
    const struct uli_gpu_attn_tile &t = work->tile;
    int64_t row = t.k_begin + j + n;
    auto row_of = [&](const struct uli_gpu_attn_tensor &tensor) {
        return k_span(b, tensor, head, t.k_batch, row, row + 1).data;
    };
    work->lse[at] = HUGE_VALF;
    work->delta[at] = 0;
    if (j + n >= t.k_rows || !row_of(a.lse))
        return;
    work->lse[at] = *(const float *)row_of(a.lse);
    work->delta[at] = delta_of(args, row_of);
}

/* One thread: takes the next pair of a pass. */
static __device__ __forceinline__ void
backward_take(const struct uli_gpu_attn_args &args, struct backward_work *work)
{
    int64_t tile;
    work->valid = pair_take(args, &tile, &work->head);
    if (!work->valid)
        return;
    work->tile = args.tiles[tile];
    work->mask = forward_mask_of(args, work->tile);
    mask_tiles(args, work->tile, args.tile_keys, &work->first, &work->end);
}

/* All threads, of any number along x and y: body() for each pair that the block
 * takes. */
template <typename Body>
static __device__ __forceinline__ void
backward_loop(const struct uli_gpu_attn_args &args, struct backward_work *work,
    const Body &body)
{
    bool first = threadIdx.x == 0 && threadIdx.y == 0;
    for (;;) {
        __syncthreads(); /* the last work is read no more */
        if (first)
            backward_take(args, work);
        __syncthreads();
        if (!work->valid)
            break;
        body();
    }
    if (first)
        ptx_atom_add_acq_rel_gpu_u64(&args.state->blocks, 1);
}

/* ---- host ---------------------------------------------------------------- */

/* bytes[n]: shared memory of a block with n + 1 slots, n < most. Chooses the
 * number of slots with the most blocks per multiprocessor; among equals the
 * largest. The kernel's limit of shared memory is set to the device's maximum,
 * not to the need of this call: a limit of its own could be lowered, before
 * this call's launch, by another thread's call or another family with the same
 * kernel. */
static inline int
backward_fit(void (*kernel)(const backward_args), int threads,
    const size_t *bytes, int most, struct uli_gpu_attn_fit *fit_p)
{
    int device, room = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(
            &room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error == cudaSuccess)
        error = uli_kernel_prepare(kernel, (size_t)room);
    *fit_p = {0, 0};
    for (int n = 0; n < most && error == cudaSuccess; n++) {
        int blocks = 0;
        if (bytes[n] > (size_t)room)
            break;
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, (const void *)kernel, threads, bytes[n]);
        if (blocks > 0 && blocks >= fit_p->blocks_per_sm)
            *fit_p = {blocks, n + 1};
    }
    if (error == cudaSuccess && fit_p->blocks_per_sm == 0)
        error = cudaErrorInvalidConfiguration;
    return error;
}

#endif
