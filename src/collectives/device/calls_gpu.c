/* SPDX-License-Identifier: Apache-2.0
 *
 * See calls_gpu.h.
 */
#include "collectives/device/calls_gpu.h"

#include <stdatomic.h>
#include "base/status.h"
#include "base/system/clock.h"
#include "comm/device/gpu.h"

enum { PAUSE_NS = 20000 };

ulyx_status_t
uli_gpu_check_stream(const struct uli_device_ops *ops, int32_t device,
    bool shares_device, void *stream, bool *capturing_p)
{
    void *const legacy = (void *)(uintptr_t)1; /* CU_STREAM_LEGACY */
    if (shares_device && (!stream || stream == legacy))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "stream is the %s stream, which takes turns with all others: ranks "
            "that share a device in a process need streams of their own",
            stream ? "legacy default" : "NULL");
    return ops->stream_capturing(device, stream, capturing_p);
}

ulyx_status_t
uli_gpu_check_first(const ulyx_comm_t *comm, const char *what, void *stream)
{
    bool capturing = false;
    ULI_TRY(comm->gpu->ops->stream_capturing(
        comm->gpu->device, stream, &capturing));
    return capturing
               ? uli_error(ULYX_ERR_INVALID_ARGUMENT,
                     "the first collective of %.63s makes the %s of the "
                     "communicator: call a collective before the capture",
                     comm->name, what)
               : ULYX_SUCCESS;
}

ulyx_status_t
uli_gpu_check_memory(const struct uli_device_ops *ops, int32_t device,
    const char *name, const void *pointer, int64_t bytes)
{
    uint64_t at = (uint64_t)(uintptr_t)pointer, end = at + (uint64_t)bytes;
    while (at < end) {
        struct uli_device_range range;
        ULI_TRY(ops->range((const void *)(uintptr_t)at, &range));
        if (range.memory_kind != ULYX_MEMORY_CUDA || range.device != device)
            return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                "%s: %p is not memory of CUDA device %d", name,
                (void *)(uintptr_t)at, device);
        at = (uint64_t)(uintptr_t)range.base + (uint64_t)range.bytes;
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_gpu_end_detour(const struct uli_device_ops *ops, int32_t device,
    void *ended, void *stream, bool capturing, bool *detour)
{
    if (!*detour)
        return ULYX_SUCCESS;
    if (!capturing)
        ULI_TRY(ops->event_order(device, ended, stream));
    else if (ops->event_test(device, ended) != ULYX_SUCCESS)
        return uli_error(ULYX_ERR_BUSY,
            "a refused call has not ended yet on device %d", device);
    *detour = false;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_gpu_check_inner(
    const struct uli_device_ops *ops, int32_t device, void *inner, void *stream)
{
    bool taken = false, capturing = false;
    ULI_TRY(ops->stream_capturing(device, inner, &taken));
    if (taken)
        ULI_TRY(ops->stream_capturing(device, stream, &capturing));
    return taken && !capturing
               ? uli_error(ULYX_ERR_BUSY,
                     "reshuffle: another stream captures a call of the plan: "
                     "end the capture first")
               : ULYX_SUCCESS;
}

uint64_t
uli_gpu_noted(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

struct uli_gpu_noted_cause
uli_gpu_cause(uint64_t word)
{
    struct uli_gpu_noted_cause cause = {(int32_t)(word & 0xFF),
        (int32_t)(word >> 8 & 0xFF), (int32_t)(word >> 16 & 0xFFFF),
        (uint32_t)(word >> 32)};
    return cause;
}

void
uli_gpu_fail_late(ulyx_comm_t *comm, const struct uli_gpu_noted_cause *cause,
    const char *name, double timeout_s)
{
    if (cause->phase == ULI_GPU_GIVEN_UP) {
        /* The peer may have sent the reason. */
        if (uli_comm_check(comm) == ULYX_SUCCESS)
            (void)uli_comm_fail(comm, ULYX_ERR_TIMEOUT, cause->peer,
                "%s, call %u: this rank has read from rank %d after that rank "
                "gave up the call",
                name, cause->call, cause->peer);
        return;
    }
    struct uli_late late = uli_late_one(
        cause->phase == ULI_GPU_AWAITS_READY ? ULI_LATE_REACH : ULI_LATE_MOVE,
        cause->peer);
    (void)uli_comm_fail_late(
        comm, &late, "%s, call %u, after %g s", name, cause->call, timeout_s);
}

bool
uli_gpu_calls_in_flight(const ulyx_comm_t *comm,
    const struct uli_device_ops *ops, int32_t device, void *ended,
    const _Atomic bool *enqueued, const struct uli_gpu_report *report)
{
    if (atomic_load(enqueued) &&
        ops->event_test(device, ended) == ULYX_IN_PROGRESS)
        return true;
    /* A call that leaves because of a failure stores no end. */
    return atomic_load(&comm->failed) == 0 &&
           uli_gpu_noted(&report->failed) == 0 &&
           uli_gpu_noted(&report->begun) > uli_gpu_noted(&report->ended);
}

ulyx_status_t
uli_gpu_await(const struct uli_device_ops *ops, int32_t device, void *event,
    uli_deadline_t deadline)
{
    ulyx_status_t status = ops->event_test(device, event);
    while (status == ULYX_IN_PROGRESS && !uli_deadline_over(deadline)) {
        uli_clock_sleep_ns(PAUSE_NS);
        status = ops->event_test(device, event);
    }
    return status;
}
