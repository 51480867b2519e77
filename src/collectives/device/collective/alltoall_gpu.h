/* SPDX-License-Identifier: Apache-2.0
 *
 * alltoall and alltoallv on device memory. Rules as in ulyx/collective.h.
 */
#ifndef ULI_COLLECTIVES_DEVICE_COLLECTIVE_ALLTOALL_GPU_H
#define ULI_COLLECTIVES_DEVICE_COLLECTIVE_ALLTOALL_GPU_H

#include "collectives/channel/collective.h"
#include "collectives/device/collective/channel_gpu.h"

/* alltoall of the device's uli_collective_ops: enqueued on the stream; blocking
 * the first time only. */
ulyx_status_t uli_alltoall_gpu(ulyx_comm_t *comm,
    const struct uli_alltoall_args *args, ulyx_status_t outcome);

/* Extends [*begin_p, *end_p), empty at first, by bytes at `at`; 0 bytes do not
 * extend it. */
void uli_alltoall_extent_add(
    int64_t at, int64_t bytes, int64_t *begin_p, int64_t *end_p);

/* Fills in, from args, the messages of the kernel (*args_p) and the memory that
 * they use (*call_p). */
void uli_alltoall_gpu_messages(const ulyx_comm_t *comm,
    const struct uli_alltoall_args *args, struct uli_channel_call *call_p,
    struct uli_collective_args *args_p);

#endif
