/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors as kernels use them: where rows lie, whether they have arrived, and
 * which calls are well formed.
 */
#ifndef ULI_ATTENTION_TRANSLATE_VIEW_H
#define ULI_ATTENTION_TRANSLATE_VIEW_H

#include "attention/problem.h"

/* Some adjacent rows: data + n * stride (bytes), n < rows. data NULL: the rows
 * are not in this call (keys outside the key segments, tensors not given). */
struct uli_attn_span {
    unsigned char *data;
    int64_t stride, rows;
};

/* The rows from `row` on of a query-side tensor's run that lie `stride` apart,
 * up to `end` at most. Waits for the flag of an input's piece; when that fails,
 * call->failed is set, and the span is still safe to read. */
struct uli_attn_span uli_attn_q_span(struct uli_attn_call *call,
    enum uli_attn_tensor tensor, const struct uli_attn_run *run, int64_t row,
    int64_t end);

/* As above, for a kv head and batch item of a key-side tensor. */
struct uli_attn_span uli_attn_k_span(struct uli_attn_call *call,
    enum uli_attn_tensor tensor, int64_t kv_head, int64_t batch, int64_t row,
    int64_t end);

/* Sets the flags of all output pieces. */
void uli_attn_signal_outputs(struct uli_attn_call *call);

/* The requirements on one tensor of a call. */
struct uli_attn_tensor_rule {
    const char *type; /* of the public struct that has the tensor */
    const char *name;
    bool keys;     /* a tensor of k's side */
    bool required; /* else NULL is allowed */
    bool output;
    int64_t columns;
    ulyx_dtype_t dtype;      /* what dtype 0 means */
    ulyx_dtype_t also_dtype; /* a second allowed dtype, or the same */
};

/* Checks one tensor and fills its view.
 * returns SUCCESS, INVALID_ARGUMENT, UNSUPPORTED or OVERFLOW with the cause. */
ulyx_status_t uli_attn_view_init(const struct uli_attn_problem *problem,
    const struct uli_attn_tensor_rule *rule,
    const ulyx_attention_tensor_t *given, struct uli_attn_view *view_p);

/* Refuses outputs that share a byte with another tensor or with themselves, and
 * tensors whose memory reaches beyond the address space. */
ulyx_status_t uli_attn_overlap_check(const struct uli_attn_call *call);

/* Refuses an array of `count` elements that the call writes, if it is not
 * aligned to its elements or shares a byte with a tensor; NULL is allowed. */
ulyx_status_t uli_attn_array_check(const struct uli_attn_call *call,
    const char *name, const void *array, int64_t count, int64_t element_bytes);

#endif
