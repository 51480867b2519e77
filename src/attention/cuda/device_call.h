/* SPDX-License-Identifier: Apache-2.0
 *
 * A translated call whose tensors lie on the device, as the kernels' arguments.
 * Tensors, sinks, slopes, max_logit and the workspace are device memory; all
 * tables (documents unless docs_on_device, segments, pieces, kv_map, head_ids)
 * lie on the host and are put into the workspace in stream order.
 */
#ifndef ULI_ATTENTION_CUDA_DEVICE_CALL_H
#define ULI_ATTENTION_CUDA_DEVICE_CALL_H

#include "attention/cuda/forward_gpu.h"
#include "attention/problem.h"

enum { ULI_GPU_ATTN_PIECES_MAX = 256 }; /* of a tensor */

/* The family that takes the problem, or NULL and why not. */
const struct uli_gpu_attn_forward *uli_gpu_attn_family(
    const struct uli_attn_problem *problem, const char **why_p);

/* Bytes of workspace of a call by a family; -1: beyond 64 bits. The state lies
 * at its begin. */
int64_t uli_gpu_attn_call_bytes(const struct uli_attn_problem *problem,
    const struct uli_gpu_attn_forward *family);

/* Fills the arguments and enqueues the tables' copies on call->stream.
 * returns SUCCESS, UNSUPPORTED (more pieces than above) or INTERNAL (a launch
 * failed; the text has CUDA's code). */
ulyx_status_t uli_gpu_attn_call_args(const struct uli_attn_call *call,
    const struct uli_gpu_attn_forward *family,
    struct uli_gpu_attn_args *args_p);

#endif
