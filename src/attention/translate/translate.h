/* SPDX-License-Identifier: Apache-2.0
 *
 * From the public structs to a call that kernels can run. Nothing here writes
 * to the caller's memory.
 */
#ifndef ULI_ATTENTION_TRANSLATE_TRANSLATE_H
#define ULI_ATTENTION_TRANSLATE_TRANSLATE_H

#include "attention/problem.h"

/* Checks the problem and how to run it; fills call->problem, kernel, threads
 * and timeout. With tensors == false (workspace and describe) the contents of
 * documents and segments are not read.
 * returns SUCCESS, INVALID_ARGUMENT, UNSUPPORTED or OVERFLOW with the cause. */
ulyx_status_t uli_attn_translate(const ulyx_attention_t *given,
    ulyx_attention_pass_t pass, const ulyx_attention_exec_t *exec, bool tensors,
    struct uli_attn_call *call_p);

/* After uli_attn_translate: the tensors of a pass. Same statuses. */
ulyx_status_t uli_attn_translate_forward(
    const ulyx_attention_forward_t *given, struct uli_attn_call *call);
ulyx_status_t uli_attn_translate_backward(
    const ulyx_attention_backward_t *given, struct uli_attn_call *call);

/* Checks that need both sides: documents within the axes; segments in order,
 * and wide enough for the keys that the queries attend to. offset_unit must be
 * set. */
ulyx_status_t uli_attn_check_docs(const struct uli_attn_problem *problem);
ulyx_status_t uli_attn_check_segments(const struct uli_attn_problem *problem);

#endif
