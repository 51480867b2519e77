/* SPDX-License-Identifier: Apache-2.0
 *
 * A translated call whose tensors lie on the device, as the kernels' arguments.
 * Tensors, sinks, slopes, max_logit and the workspace are device memory; all
 * tables (documents unless docs_on_device, segments, pieces, kv_map, head_ids)
 * lie on the host and are put into the workspace in stream order.
 *
 * First the arguments are described, which touches nothing, then a kernel is
 * chosen by them, then the tables are put for the kernel's tiles.
 */
#ifndef ULI_ATTENTION_CUDA_DEVICE_CALL_H
#define ULI_ATTENTION_CUDA_DEVICE_CALL_H

#include "attention/cuda/forward_gpu.h"
#include "attention/problem.h"

enum { ULI_GPU_ATTN_PIECES_MAX = 256 }; /* of a tensor */

/* Bytes of workspace of a call by a kernel with tiles of tile_rows rows; -1:
 * beyond 64 bits. The state lies at the beginning of the workspace. */
int64_t uli_gpu_attn_call_bytes(
    const struct uli_attn_problem *problem, int32_t tile_rows);

/* Piece n of a view in pieces, its strides resolved. */
struct uli_gpu_attn_piece uli_gpu_attn_piece_at(
    const struct uli_attn_view *view, int64_t n);

/* Describes a tensor; the place of the table of its pieces is not known yet.
 * returns SUCCESS, or UNSUPPORTED: more pieces than above. */
ulyx_status_t uli_gpu_attn_tensor_describe(
    const struct uli_attn_view *view, struct uli_gpu_attn_tensor *tensor_p);

/* Enqueues the copy of a tensor's table of pieces, if it has one. */
ulyx_status_t uli_gpu_attn_tensor_put(const struct uli_attn_call *call,
    int32_t tile_rows, enum uli_attn_tensor name,
    struct uli_gpu_attn_tensor *tensor);

/* Numbers and tensors; pointers to tables and workspace stay NULL.
 * returns SUCCESS, or UNSUPPORTED: more pieces than above. */
ulyx_status_t uli_gpu_attn_call_describe(
    const struct uli_attn_call *call, struct uli_gpu_attn_args *args_p);

/* Enqueues the tables' copies on call->stream and completes the arguments.
 * returns SUCCESS, OVERFLOW or INTERNAL (a launch failed; the text has CUDA's
 * code). */
ulyx_status_t uli_gpu_attn_call_put(const struct uli_attn_call *call,
    int32_t tile_rows, int32_t tile_keys, struct uli_gpu_attn_args *args);

/* ---- the rows' common parts (device_forward.c) --------------------------- */

/* As uli_gpu_attn_call_put for a forward pass, whose tiles need no list where
 * there are neither documents nor segments. */
ulyx_status_t uli_gpu_attn_forward_put(const struct uli_attn_call *call,
    int32_t tile_rows, int32_t tile_keys, struct uli_gpu_attn_args *args);

/* The number of blocks of a pass on a device of sms multiprocessors, each with
 * room for per_sm blocks: all blocks that can run at once. With max_sms, one
 * block on each of max_sms multiprocessors, because so many blocks cannot use
 * more multiprocessors. A pass that waits for flags leaves an eighth of the
 * multiprocessors, one at least, and shares the rest with the passes of the
 * other ranks on the device: the kernels that set the flags must find room
 * beside all waiting passes, else all passes wait until the deadline. */
int32_t uli_gpu_attn_blocks(int32_t sms, int32_t per_sm, int32_t max_sms,
    bool waits, int32_t device_ranks);

/* The multiprocessors that a call may take: those of the current device, at
 * most call->share_sms where that is set. returns a CUDA error, or 0. */
int uli_gpu_attn_sms(const struct uli_attn_call *call, int32_t *sms_p);
/* Loads a family's kernels by `load`, enqueues prepare, and sets *blocks_p to
 * the number of blocks of the pass, which the caller enqueues next. returns a
 * cudaError_t. */
int uli_gpu_attn_begin(const struct uli_attn_call *call,
    const struct uli_gpu_attn_args *args, int (*load)(int32_t *blocks_per_sm_p),
    int32_t *blocks_p);

/* Puts the tables, enqueues prepare and the portable pass. Failures are
 * recorded in call->failed. */
void uli_gpu_attn_portable(
    struct uli_attn_call *call, struct uli_gpu_attn_args *args);

/* Forward by Hopper's kernels of a family that takes the problem. If TMA cannot
 * read the tensors, the portable pass is enqueued instead. */
struct uli_sm90_family;
void uli_gpu_attn_sm90(
    struct uli_attn_call *call, const struct uli_sm90_family *family);

/* The backward of the portable row, and the bytes of its workspace (-1: beyond
 * 64 bits). */
int64_t uli_gpu_attn_backward_bytes(const struct uli_attn_problem *problem);
void uli_gpu_attn_backward(struct uli_attn_call *call);

/* Records in call->failed that a family's launch returned a CUDA error. */
void uli_gpu_attn_launch_failed(
    struct uli_attn_call *call, const char *family, int error);

#endif
