/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward kernels on device memory behind one table, the best fit first.
 * Plain C and CUDA C++.
 */
#ifndef ULI_ATTENTION_CUDA_FORWARD_GPU_H
#define ULI_ATTENTION_CUDA_FORWARD_GPU_H

#include "attention/cuda/attention_gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A family of kernels: all dtypes and features of some head dimensions. */
struct uli_gpu_attn_forward {
    const char *name;
    int32_t dim_qk, dim_v; /* at most */
    int32_t tile_rows, tile_keys;
    int32_t any_dtype; /* else 16-bit dtypes only */
    /* Loads the kernels on the current device at the first call, which must be
     * outside of a capture; later calls are cheap. *blocks_per_sm_p: how many
     * blocks a multiprocessor holds. returns a cudaError_t. */
    int (*prepare)(int32_t *blocks_per_sm_p);
    /* Enqueues the pass on a stream (a cudaStream_t), after prepare's launch.
     * Any number of blocks gives the same bits. returns a cudaError_t. */
    int (*launch)(
        const struct uli_gpu_attn_args *args, int32_t blocks, void *stream);
};

/* Multiprocessors of the current device and its compute capability, 10 * major
 * + minor; a cudaError_t, also where there is no device of 8.0 or later. */
int uli_gpu_attn_device(int32_t *sms_p, int32_t *capability_p);

extern const struct uli_gpu_attn_forward uli_gpu_attn_mma64;
extern const struct uli_gpu_attn_forward uli_gpu_attn_mma96;
extern const struct uli_gpu_attn_forward uli_gpu_attn_mma128;
extern const struct uli_gpu_attn_forward uli_gpu_attn_mma192;
extern const struct uli_gpu_attn_forward uli_gpu_attn_mma256;
extern const struct uli_gpu_attn_forward uli_gpu_attn_plain;

#ifdef __cplusplus
}
#endif
#endif
