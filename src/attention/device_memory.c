/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls on device memory; see device_memory.h. A few driver queries per array,
 * because a host pointer would destroy the device's context if a kernel used
 * it. Only addresses are checked; the memory is never read.
 */
#include "attention/device_memory.h"
#include <inttypes.h>
#include "base/status.h"
#include "device/device.h"

#define INVALID(...)     uli_error(ULYX_ERR_INVALID_ARGUMENT, __VA_ARGS__)
#define UNSUPPORTED(...) uli_error(ULYX_ERR_UNSUPPORTED, __VA_ARGS__)

ulyx_status_t
uli_attn_device_usable(ulyx_memory_kind_t memory)
{
    if (memory != ULYX_MEMORY_CUDA)
        return INVALID(
            "attention: memory kind is %d, must be HOST or CUDA", memory);
    if (!uli_device_kernels_built())
        return UNSUPPORTED("attention: memory kind is CUDA, and this build was "
                           "made without CUDA");
    return uli_device_cuda.open();
}

static ulyx_status_t
check_array(int32_t device, const char *name, const void *array)
{
    struct uli_device_range range;
    if (!array)
        return ULYX_SUCCESS;
    ULI_TRY(uli_device_cuda.range(array, &range));
    if (range.memory_kind != ULYX_MEMORY_CUDA)
        return INVALID(
            "%s: %p is not device memory, and the memory kind is CUDA", name,
            array);
    if (range.device != device && !range.managed)
        return INVALID("%s: %p is memory of CUDA device %d, the thread's "
                       "current device is %d",
            name, array, range.device, device);
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_view(int32_t device, const struct uli_attn_view *view)
{
    bool empty = !view->rows || !view->heads || !view->batch;
    if (!view->given || empty)
        return ULYX_SUCCESS;
    if (!view->pieces)
        return check_array(device, view->name, view->base);
    for (int64_t n = 0; n < view->piece_count; n++) {
        const ulyx_attention_piece_t *piece = uli_attn_piece_at(view, n);
        if (piece->flag && view->output)
            return UNSUPPORTED("%s: flag of piece %" PRId64
                               ": outputs on devices have no flags",
                view->name, n);
        if (piece->rows)
            ULI_TRY(check_array(device, view->name, piece->base));
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_docs(int32_t device, const struct uli_attn_problem *problem)
{
    if (!problem->docs_on_device || !problem->doc_count)
        return ULYX_SUCCESS;
    ULI_TRY(check_array(device, "docs_q", problem->docs_q.begins));
    ULI_TRY(check_array(device, "docs_q", problem->docs_q.lengths));
    ULI_TRY(check_array(device, "docs_k", problem->docs_k.begins));
    return check_array(device, "docs_k", problem->docs_k.lengths);
}

ulyx_status_t
uli_attn_device_check(const struct uli_attn_call *call)
{
    const struct uli_attn_problem *problem = &call->problem;
    int32_t device = 0;
    ULI_TRY(uli_device_cuda.current(&device));
    for (int n = 0; n < ULI_ATTN_TENSORS; n++)
        ULI_TRY(check_view(device, &call->views[n]));
    ULI_TRY(check_docs(device, problem));
    ULI_TRY(check_array(device, "sinks", problem->sinks));
    ULI_TRY(check_array(device, "alibi_slopes", problem->slopes));
    ULI_TRY(check_array(device, "max_logit", call->max_logit));
    ULI_TRY(check_array(device, "d_sink", call->d_sink));
    ULI_TRY(check_array(device, "workspace", call->workspace));
    if ((uintptr_t)call->cause % 8)
        return INVALID("attention: cause is not aligned to 8 bytes");
    return ULYX_SUCCESS;
}
