/* SPDX-License-Identifier: Apache-2.0
 *
 * What upper layers call: attention on translated calls.
 */
#ifndef ULI_ATTENTION_ATTENTION_H
#define ULI_ATTENTION_ATTENTION_H

#include "attention/problem.h"

/* Bytes of workspace of a pass of call->problem by call->kernel and
 * call->threads.
 * returns SUCCESS or OVERFLOW. */
ulyx_status_t uli_attn_workspace(const struct uli_attn_call *call,
    ulyx_attention_pass_t pass, int64_t *bytes_p);

/* Runs the pass of a translated call in its workspace, and signals output
 * flags.
 * returns SUCCESS; INVALID_ARGUMENT (workspace); TIMEOUT (a flag). On a device
 * the pass is enqueued on call->stream: also UNSUPPORTED, INTERNAL (a launch);
 * later failures are in call->cause. */
ulyx_status_t uli_attn_run_pass(
    struct uli_attn_call *call, ulyx_attention_pass_t pass);

#endif
