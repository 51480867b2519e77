/* SPDX-License-Identifier: Apache-2.0
 *
 * The host part that plans and collectives on device memory share: checks of a
 * call's stream, the words that the device has stored, and whether the device is
 * still at work. Only uli_gpu_await waits.
 */
#ifndef ULI_COLLECTIVES_DEVICE_CALLS_GPU_H
#define ULI_COLLECTIVES_DEVICE_CALLS_GPU_H

#include "collectives/device/mapped/exchange_gpu.h"
#include "comm/comm.h"
#include "device/device.h"

/* Where ranks of the process share a device, refuses streams that take turns
 * with the other streams of the process: a call of one rank would keep the calls
 * of its peers from starting. *capturing_p: whether the stream is being
 * captured. */
ulyx_status_t uli_gpu_check_stream(const struct uli_device_ops *ops,
    int32_t device, bool shares_device, void *stream, bool *capturing_p);

/* The first collective of a communicator, which makes `what` ("connections"),
 * waits for the other ranks on the host, so no stream may be captured.
 * INVALID_ARGUMENT. */
ulyx_status_t uli_gpu_check_first(
    const ulyx_comm_t *comm, const char *what, void *stream);

/* Whether memory that lies in no window is this device's: another device's, or
 * the host's, would be a fault of the kernel. INVALID_ARGUMENT, with the name. */
ulyx_status_t uli_gpu_check_memory(const struct uli_device_ops *ops,
    int32_t device, const char *name, const void *pointer, int64_t bytes);

/* Orders the next call after a refusal, which was enqueued on another stream
 * and ends with the event `ended`. Errors: BUSY, in a capture. */
ulyx_status_t uli_gpu_end_detour(const struct uli_device_ops *ops,
    int32_t device, void *ended, void *stream, bool capturing, bool *detour);

/* Whether a call may fork from `stream` to `inner`. A captured call takes
 * `inner` into its capture until the capture ends, and no other stream can use
 * `inner` in that time. Errors: BUSY, then. */
ulyx_status_t uli_gpu_check_inner(const struct uli_device_ops *ops,
    int32_t device, void *inner, void *stream);

/* A word that the device stores. */
uint64_t uli_gpu_noted(const uint64_t *word);

/* The parts of a ULI_GPU_CAUSE. */
struct uli_gpu_noted_cause {
    int32_t status, phase, peer;
    uint32_t call;
};
struct uli_gpu_noted_cause uli_gpu_cause(uint64_t word);
/* Fails the communicator for a cause that is a missed deadline. */
void uli_gpu_fail_late(ulyx_comm_t *comm,
    const struct uli_gpu_noted_cause *cause, const char *name,
    double timeout_s);

/* Whether enqueued calls have not ended. ended: the event after the last call
 * that was enqueued, if there was one. Of a replay only the words that its
 * kernels store are known. */
bool uli_gpu_calls_in_flight(const ulyx_comm_t *comm,
    const struct uli_device_ops *ops, int32_t device, void *ended,
    const _Atomic bool *enqueued, const struct uli_gpu_report *report);

/* Waits for the event. IN_PROGRESS: the event has not come by the deadline. */
ulyx_status_t uli_gpu_await(const struct uli_device_ops *ops, int32_t device,
    void *event, uli_deadline_t deadline);

#endif
