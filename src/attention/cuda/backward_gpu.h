/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention backward on device memory: what the host hands to its kernels.
 *
 * The call is two passes, each a prepare and a kernel over its list of tiles,
 * and a kernel for the sinks; where pieces of inputs have flags, a kernel of one
 * block waits for all of them first. Neither pass adds to what another block wrote:
 *   queries stationary: dq of a query tile, over the keys that it sees
 *   keys stationary:    dk, dv of a key tile, over the heads that read it
 *                       (ascending) and the queries that see it (ascending)
 * The second pass has the same arguments with queries and keys exchanged: key j
 * is seen by rows j - off - right .. j - off + left, which is a window again.
 */
#ifndef ULI_ATTENTION_CUDA_BACKWARD_GPU_H
#define ULI_ATTENTION_CUDA_BACKWARD_GPU_H

#include "attention/cuda/attention_gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

struct uli_gpu_attn_backward_args {
    struct uli_gpu_attn_args by_query; /* q, k, v, out, lse as in forward */
    struct uli_gpu_attn_args by_key;   /* exchanged; its tensors are unused */
    struct uli_gpu_attn_tensor dout, delta, dlse, dq, dk, dv;
    int32_t dq_dtype, dk_dtype, dv_dtype;
    int32_t accumulate; /* dk and dv are added to what is there */
    int32_t delta_less_dlse; /* the given delta has dlse taken away already */
    float scale;
    void *d_sink; /* [global heads], dtype of the sinks; or NULL */
    int64_t heads_global;
};

/* Exchanges queries and keys; places and tables of the workspace stay. */
void uli_gpu_attn_exchange(const struct uli_gpu_attn_args *by_query,
    struct uli_gpu_attn_args *by_key_p);

enum { ULI_GPU_ATTN_BACKWARD_ROWS = 32, ULI_GPU_ATTN_BACKWARD_DIM = 512 };

/* Rows of the other side that a pass reads at a time. */
ULI_GPU_BOTH int32_t
uli_gpu_attn_backward_stream(int32_t dim_qk, int32_t dim_v)
{
    return dim_qk > 256 || dim_v > 256 ? 16 : 32;
}

/* Each enqueues on a stream and returns a cudaError_t. */
int uli_gpu_attn_backward_load(int32_t *blocks_per_sm_p);
int uli_gpu_attn_backward_await(
    const struct uli_gpu_attn_backward_args *args, void *stream);
int uli_gpu_attn_backward_queries(const struct uli_gpu_attn_backward_args *args,
    int32_t blocks, void *stream);
int uli_gpu_attn_backward_keys(const struct uli_gpu_attn_backward_args *args,
    int32_t blocks, void *stream);
int uli_gpu_attn_backward_sinks(
    const struct uli_gpu_attn_backward_args *args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
