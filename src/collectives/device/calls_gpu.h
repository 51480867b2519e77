/* SPDX-License-Identifier: Apache-2.0
 *
 * What plans and collectives on device memory have alike on the host: the
 * stream of a call, the words that the device has noted, whether it is still
 * at work. Nothing but uli_gpu_await waits.
 */
#ifndef ULI_COLLECTIVES_DEVICE_CALLS_GPU_H
#define ULI_COLLECTIVES_DEVICE_CALLS_GPU_H

#include "collectives/device/mapped/exchange_gpu.h"
#include "comm/comm.h"
#include "device/device.h"

/* Refuses streams that take turns with others of the process where ranks share
 * a device there: a call of one rank would keep those of its peers from
 * starting. Says whether the stream is being captured. */
ulyx_status_t uli_gpu_check_stream(const struct uli_device_ops *ops,
    int32_t device, bool shares_device, void *stream, bool *capturing_p);

/* After a refusal, which went to another stream and ends with `ended`, the
 * next call comes later than it. Errors: BUSY, in a capture. */
ulyx_status_t uli_gpu_end_detour(const struct uli_device_ops *ops,
    int32_t device, void *ended, void *stream, bool capturing, bool *detour);

/* Calls fork from `stream` to `inner`, which belongs to a capture until that
 * ends, and no other stream can have it meanwhile. Errors: BUSY, then. */
ulyx_status_t uli_gpu_check_inner(const struct uli_device_ops *ops,
    int32_t device, void *inner, void *stream);

/* A word that the device stores. */
uint64_t uli_gpu_noted(const uint64_t *word);

/* ULI_GPU_CAUSE, taken apart. */
struct uli_gpu_noted_cause {
    int32_t status, phase, peer;
    uint32_t call;
};
struct uli_gpu_noted_cause uli_gpu_cause(uint64_t word);
/* Fails the communicator by a cause that is a deadline. */
void uli_gpu_fail_late(ulyx_comm_t *comm,
    const struct uli_gpu_noted_cause *cause, const char *name,
    double timeout_s);

/* Have calls not ended? ended: event after the last one that was enqueued, if
 * any was. Of a replay nothing is known but what its kernels say. */
bool uli_gpu_calls_in_flight(const ulyx_comm_t *comm,
    const struct uli_device_ops *ops, int32_t device, void *ended,
    const _Atomic bool *enqueued, const struct uli_gpu_report *report);

/* Until the event has come. IN_PROGRESS: it has not by the deadline. */
ulyx_status_t uli_gpu_await(const struct uli_device_ops *ops, int32_t device,
    void *event, uli_deadline_t deadline);

#endif
