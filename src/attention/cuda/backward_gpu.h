/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention backward on device memory: what the host hands to its kernels.
 *
 * The call is two passes, each a prepare and a kernel over its list of tiles,
 * and a kernel for the sinks. Where pieces of inputs have flags, a kernel of
 * one block waits for all of them first; where delta is not given, a kernel
 * computes it. Neither pass adds to what another block wrote:
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
    int32_t slots;           /* of streaming tiles, of the launch */
    int32_t accumulate;      /* dk and dv are added to what is there */
    int32_t delta_less_dlse; /* the given delta has dlse taken away already */
    float scale;
    void *d_sink; /* [global heads], dtype of the sinks; or NULL */
    int64_t heads_global;
};

/* Exchanges queries and keys; places and tables of the workspace stay. */
void uli_gpu_attn_exchange(const struct uli_gpu_attn_args *by_query,
    struct uli_gpu_attn_args *by_key_p);

/* How a pass's kernel fits the current device, by its driver. */
struct uli_gpu_attn_fit {
    int32_t blocks_per_sm;
    int32_t slots; /* of streaming tiles: as many as cost no block */
};

/* Kernels of both passes for head dimensions up to a bound. */
struct uli_gpu_attn_backward {
    const char *name;
    int32_t dim_qk, dim_v; /* at most */
    int32_t tile_rows;     /* stationary rows, */
    int32_t tile_flow;     /* and rows of the other side at a time */
    int32_t any_dtype;     /* else 16-bit dtypes only */
    /* Loads the kernel of a pass, keys or queries stationary, at the first
     * call, which is therefore outside of any capture. returns a cudaError_t.
     */
    int (*fit)(const struct uli_gpu_attn_backward_args *args, bool keys,
        struct uli_gpu_attn_fit *fit_p);
    /* Enqueues a pass after its prepare's launch; any number of blocks gives
     * the same bits. returns a cudaError_t. */
    int (*launch)(const struct uli_gpu_attn_backward_args *args, bool keys,
        const struct uli_gpu_attn_fit *fit, int32_t blocks, void *stream);
};

extern const struct uli_gpu_attn_backward uli_gpu_attn_backward_mma64;
extern const struct uli_gpu_attn_backward uli_gpu_attn_backward_mma128;
extern const struct uli_gpu_attn_backward uli_gpu_attn_backward_mma192;
extern const struct uli_gpu_attn_backward uli_gpu_attn_backward_mma256;
extern const struct uli_gpu_attn_backward uli_gpu_attn_backward_plain128;
extern const struct uli_gpu_attn_backward uli_gpu_attn_backward_plain256;
extern const struct uli_gpu_attn_backward uli_gpu_attn_backward_plain512;

/* What all families share; each enqueues and returns a cudaError_t. */
int uli_gpu_attn_backward_await(
    const struct uli_gpu_attn_backward_args *args, void *stream);
/* delta - dlse of all rows, from out, dout and dlse. Not with segments. */
int uli_gpu_attn_backward_delta(const struct uli_gpu_attn_backward_args *args,
    const struct uli_gpu_attn_tensor *to, int32_t blocks, void *stream);
int uli_gpu_attn_backward_sinks(
    const struct uli_gpu_attn_backward_args *args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
