/* SPDX-License-Identifier: Apache-2.0
 *
 * One pass, from the check of its workspace to its output flags.
 */
#include "attention/attention.h"
#include <inttypes.h>
#include "attention/device_memory.h"
#include "attention/kernels/kernels.h"
#include "attention/translate/view.h"
#include "base/status.h"

ulyx_status_t
uli_attn_workspace(const struct uli_attn_call *call, ulyx_attention_pass_t pass,
    int64_t *bytes_p)
{
    int64_t bytes =
        call->kernel->workspace(&call->problem, pass, call->threads);
    if (bytes < 0)
        return uli_error(
            ULYX_ERR_OVERFLOW, "attention: the workspace does not fit 64 bits");
    *bytes_p = uli_round_up(bytes, 64);
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_workspace(struct uli_attn_call *call, ulyx_attention_pass_t pass)
{
    int64_t needed = 0;
    ULI_TRY(uli_attn_workspace(call, pass, &needed));
    /* fewer cores may have been usable when the caller asked for the size */
    while (needed > call->workspace_bytes && call->threads > 1) {
        call->threads--;
        ULI_TRY(uli_attn_workspace(call, pass, &needed));
    }
    if (needed && !call->workspace)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "attention: workspace is NULL, %" PRId64 " bytes are needed: as "
            "many as ulyx_attention_workspace gives",
            needed);
    if (call->workspace_bytes < needed)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "attention: workspace of %" PRId64 " bytes, %" PRId64
            " are needed: as many as ulyx_attention_workspace gives",
            call->workspace_bytes, needed);
    if ((uintptr_t)call->workspace % 64)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "attention: workspace is not aligned to 64 bytes");
    return uli_attn_array_check(call, "workspace", call->workspace, needed, 1);
}

static void
call_start(struct uli_attn_call *call, ulyx_attention_pass_t pass)
{
    if (pass == ULYX_ATTENTION_PASS_FORWARD)
        call->kernel->forward(call);
    else
        call->kernel->backward(call);
}

/* On a device: what has gone wrong by the return is an error of the launch. */
static ulyx_status_t
call_enqueue(struct uli_attn_call *call, ulyx_attention_pass_t pass)
{
    if (!call->lies_there)
        ULI_TRY(uli_attn_device_check(call));
    call_start(call, pass);
    return atomic_load(&call->failed);
}

ulyx_status_t
uli_attn_run_pass(struct uli_attn_call *call, ulyx_attention_pass_t pass)
{
    ULI_TRY(check_workspace(call, pass));
    if (call->problem.memory != ULYX_MEMORY_HOST)
        return call_enqueue(call, pass);
    call->deadline = uli_deadline_in(call->timeout_s);
    call_start(call, pass);
    ulyx_status_t failed = atomic_load(&call->failed);
    if (failed && failed != ULYX_ERR_TIMEOUT)
        return failed; /* reported where it happened */
    if (failed)
        return uli_error(ULYX_ERR_TIMEOUT,
            "attention: the flag of an input piece was not set within %g s",
            call->timeout_s);
    uli_attn_signal_outputs(call);
    return ULYX_SUCCESS;
}
