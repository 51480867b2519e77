/* SPDX-License-Identifier: Apache-2.0
 *
 * The data paths of collectives in this build.
 */
#include "collectives/device/collective/alltoall_gpu.h"
#include "collectives/device/collective/channel_messages.h"
#include "collectives/device/collective/reduce_gpu.h"
#include "comm/device/gpu.h"

#ifdef ULYX_HAVE_CUDA
static bool
messages_serve(const ulyx_comm_t *comm)
{
    return comm->gpu && uli_gpu_unmapped(comm);
}

static const struct uli_collective_ops messages = {.name = "messages",
    .serves = messages_serve,
    .alltoall = uli_alltoall_messages,
    .reduce = uli_reduce_messages};

static bool
device_serves(const ulyx_comm_t *comm)
{
    return comm->gpu != NULL;
}

static const struct uli_collective_ops device = {.name = "device",
    .serves = device_serves,
    .alltoall = uli_alltoall_gpu,
    .reduce = uli_reduce_gpu};
#endif

const struct uli_collective_ops *const uli_collectives[] = {
#ifdef ULYX_HAVE_CUDA
    &messages, &device,
#endif
    &uli_collective_host, NULL};
