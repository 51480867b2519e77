/* SPDX-License-Identifier: Apache-2.0
 *
 * allreduce, allgather and broadcast on device memory. Rules as in
 * ulyx/collective.h. If ranks differ, all of them find that on the device
 * before a byte moves.
 */
#ifndef ULI_COLLECTIVES_DEVICE_COLLECTIVE_REDUCE_GPU_H
#define ULI_COLLECTIVES_DEVICE_COLLECTIVE_REDUCE_GPU_H

#include "collectives/channel/collective.h"

/* The operation (enum uli_collective) of a kind of reduction. */
uint64_t uli_collective_of_kind(enum uli_reduction kind);

/* reduce of the device's uli_collective_ops: enqueued on the stream; blocking
 * the first time only. */
ulyx_status_t uli_reduce_gpu(ulyx_comm_t *comm,
    const struct uli_reduce_args *args, ulyx_status_t outcome);

#endif
