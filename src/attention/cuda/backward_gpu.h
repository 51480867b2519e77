/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention backward on device memory: the arguments of its kernels, and the
 * table of them. Plain C and CUDA C++.
 *
 * A call is two passes, each a prepare kernel and a kernel over the list of
 * tiles that prepare made, and a kernel for the sinks. Where pieces of inputs
 * have flags, a kernel of one block waits for all flags first. Where delta is
 * not given, a kernel computes delta. Each gradient element is written by one
 * block, which computes the whole sum:
 *   queries stationary: dq of a query tile, over the keys that it sees
 *   keys stationary:    dk, dv of a key tile, over the heads that read it
 *                       (ascending) and the queries that see it (ascending)
 * The second pass has the arguments of the first with queries and keys
 * exchanged: key j is seen by rows j - off - right .. j - off + left, which is
 * a window again.
 */
#ifndef ULI_ATTENTION_CUDA_BACKWARD_GPU_H
#define ULI_ATTENTION_CUDA_BACKWARD_GPU_H

#include "attention/cuda/attention_gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

struct uli_gpu_attn_backward_args {
    struct uli_gpu_attn_args by_query; /* q, k, v, out, lse as in forward */
    struct uli_gpu_attn_args by_key;   /* exchanged; tensors are unused */
    struct uli_gpu_attn_tensor dout, delta, dlse, dq, dk, dv;
    int32_t dq_dtype, dk_dtype, dv_dtype;
    int32_t slots;           /* of streaming tiles; the launch sets them */
    int32_t accumulate;      /* dk and dv are added to what is there */
    int32_t delta_less_dlse; /* the given delta is delta - dlse */
    float scale;
    void *d_sink; /* [global heads], dtype of the sinks; or NULL */
    int64_t heads_global;
};

/* Sets *by_key_p to *by_query with queries and keys exchanged. The places in
 * the workspace stay those of by_query. */
void uli_gpu_attn_exchange(const struct uli_gpu_attn_args *by_query,
    struct uli_gpu_attn_args *by_key_p);

/* How a pass's kernel fits the current device, as the driver reports. */
struct uli_gpu_attn_fit {
    int32_t blocks_per_sm;
    int32_t slots; /* of streaming tiles: the most with which so many blocks
                    * fit */
};

/* A family: kernels of both passes for head dimensions up to a bound. */
struct uli_gpu_attn_backward {
    const char *name;
    int32_t dim_qk, dim_v; /* at most */
    int32_t tile_rows;     /* stationary rows of a block */
    int32_t tile_flow;     /* streaming rows at a time */
    int32_t any_dtype;     /* 0: 16-bit dtypes only */
    /* Loads the kernel of a pass (keys: keys stationary) on the current device
     * at the first call, which must be outside of a capture; later calls are
     * cheap. returns a cudaError_t, also where the device's shared memory is
     * too small: another family may take the problem then. */
    int (*fit)(const struct uli_gpu_attn_backward_args *args, bool keys,
        struct uli_gpu_attn_fit *fit_p);
    /* Enqueues a pass, whose prepare kernel has been enqueued. Bits do not
     * depend on the number of blocks. returns a cudaError_t. */
    int (*launch)(const struct uli_gpu_attn_backward_args *args, bool keys,
        const struct uli_gpu_attn_fit *fit, int32_t blocks, void *stream);
};

extern const struct uli_gpu_attn_backward uli_gpu_attn_backward_mma64;
extern const struct uli_gpu_attn_backward uli_gpu_attn_backward_mma128;
extern const struct uli_gpu_attn_backward uli_gpu_attn_backward_mma192;
extern const struct uli_gpu_attn_backward uli_gpu_attn_backward_mma256;
extern const struct uli_gpu_attn_backward uli_gpu_attn_backward_plain128;
extern const struct uli_gpu_attn_backward uli_gpu_attn_backward_plain256;
extern const struct uli_gpu_attn_backward uli_gpu_attn_backward_plain256_small;
extern const struct uli_gpu_attn_backward uli_gpu_attn_backward_plain512;

/* Kernels of all families; each function enqueues one and returns a
 * cudaError_t. */
int uli_gpu_attn_backward_await(
    const struct uli_gpu_attn_backward_args *args, void *stream);
/* to: delta - dlse of all query rows, from out, dout and dlse. Refuses no
 * call, but must not be called with segments. */
int uli_gpu_attn_backward_delta(const struct uli_gpu_attn_backward_args *args,
    const struct uli_gpu_attn_tensor *to, int32_t blocks, void *stream);
int uli_gpu_attn_backward_sinks(
    const struct uli_gpu_attn_backward_args *args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
