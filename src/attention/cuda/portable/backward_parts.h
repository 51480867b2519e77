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

enum { BACKWARD_QUERIES = 64 }; /* rows of a tile of queries at most */

#define BACKWARD_LOG2_E 1.4426950408889634

typedef struct uli_gpu_attn_backward_args backward_args;

/* The (tile, head) of a block, in shared memory. */
struct backward_work {
    struct uli_gpu_attn_tile tile;
    struct forward_mask mask;
    int64_t head, first, end;
    int32_t valid;
    /* of query rows, stationary or streaming; lse +inf: no such row */
    float lse[BACKWARD_QUERIES], delta[BACKWARD_QUERIES];
};

static __device__ __forceinline__ float
element_load(int32_t dtype, const unsigned char *row, int c)
{
    if (dtype == ULYX_DTYPE_F32)
        return ((const float *)row)[c];
    uint16_t bits = ((const uint16_t *)row)[c];
    return dtype == ULYX_DTYPE_BF16 ? ptx_bf16_to_float(bits)
                                    : ptx_f16_to_float(bits);
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

/* delta - dlse of a query row; row_of(tensor) says where the row lies. */
template <typename Row>
static __device__ __forceinline__ float
delta_of(const backward_args &args, const Row &row_of)
{
    const struct uli_gpu_attn_args &a = args.by_query;
    float delta;
    if (tensor_given(args.delta)) {
        delta = *(const float *)row_of(args.delta);
    } else {
        const unsigned char *dout = row_of(args.dout), *out = row_of(a.out);
        double sum = 0;
        for (int c = 0; c < a.dim_v; c++)
            sum += (double)element_load(a.dtype, dout, c) *
                   (double)element_load(a.dtype, out, c);
        delta = (float)sum;
    }
    if (tensor_given(args.dlse))
        delta -= *(const float *)row_of(args.dlse);
    return delta;
}

/* p and ds of one pair that the mask lets through; distance: |i + off - j|. */
static __device__ __forceinline__ void
pair_gradient(const backward_args &args, float slope, int64_t distance, float s,
    float dp, float lse, float delta, float *p_p, float *ds_p)
{
    const struct uli_gpu_attn_args &a = args.by_query;
    float score = s * args.scale, rise = 1;
    if (a.cap > 0) {
        float t = tanhf(score * a.cap_inverse);
        score = t * a.cap;
        rise = 1 - t * t;
    }
    float power = slope != 0
                      ? (float)((double)score -
                                (double)slope * (double)distance - (double)lse)
                      : score - lse;
    float p = exp2f(fminf(power, 0) * (float)BACKWARD_LOG2_E);
    *p_p = p;
    *ds_p = p * (dp - delta) * rise;
}

/* Statistics of row n of the stationary tile, of queries. */
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

/* Of row j + n of the document's queries, of a head. */
static __device__ __forceinline__ void
flow_statistics(const backward_args &args, struct backward_work *work,
    int64_t head, int64_t j, int n)
{
    const struct uli_gpu_attn_args &a = args.by_query, &b = args.by_key;
    const struct uli_gpu_attn_tile &t = work->tile;
    int64_t row = t.k_begin + j + n;
    auto row_of = [&](const struct uli_gpu_attn_tensor &tensor) {
        return k_span(b, tensor, head, t.k_batch, row, row + 1).data;
    };
    work->lse[n] = HUGE_VALF;
    work->delta[n] = 0;
    if (j + n >= t.k_rows || !row_of(a.lse))
        return;
    work->lse[n] = *(const float *)row_of(a.lse);
    work->delta[n] = delta_of(args, row_of);
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

template <typename Body>
static __device__ __forceinline__ void
backward_loop(const struct uli_gpu_attn_args &args, struct backward_work *work,
    const Body &body)
{
    for (;;) {
        __syncthreads(); /* nobody looks at the last work any more */
        if (threadIdx.x == 0)
            backward_take(args, work);
        __syncthreads();
        if (!work->valid)
            break;
        body();
    }
    if (threadIdx.x == 0)
        ptx_atom_add_acq_rel_gpu_u64(&args.state->blocks, 1);
}

#endif
