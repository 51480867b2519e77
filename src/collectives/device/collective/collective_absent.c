/* SPDX-License-Identifier: Apache-2.0
 *
 * The launches of the collectives where ulyx was built without CUDA: a
 * communicator of device memory does not exist there, so none is ever called.
 */
#include "collectives/device/collective/collective_gpu.h"
#include "collectives/device/collective/collective_messages_gpu.h"

enum { NOT_SUPPORTED = 801 }; /* cudaErrorNotSupported */

int
uli_alltoall_launch(const struct uli_collective_args *args, int32_t blocks,
    int32_t threads, void *stream)
{
    (void)args, (void)blocks, (void)threads, (void)stream;
    return NOT_SUPPORTED;
}

int
uli_allreduce_launch(const struct uli_collective_args *args, int32_t blocks,
    int32_t threads, void *stream)
{
    (void)args, (void)blocks, (void)threads, (void)stream;
    return NOT_SUPPORTED;
}

int
uli_alltoall_prepare(int32_t *blocks_per_sm_p)
{
    (void)blocks_per_sm_p;
    return NOT_SUPPORTED;
}

int
uli_allreduce_prepare(int32_t *blocks_per_sm_p)
{
    (void)blocks_per_sm_p;
    return NOT_SUPPORTED;
}

int
uli_messages_mark_launch(const struct uli_messages_mark *mark, void *stream)
{
    (void)mark, (void)stream;
    return NOT_SUPPORTED;
}

int
uli_messages_sum_launch(
    const struct uli_messages_sum *sum, int32_t blocks, void *stream)
{
    (void)sum, (void)blocks, (void)stream;
    return NOT_SUPPORTED;
}

int
uli_messages_collective_prepare(void)
{
    return NOT_SUPPORTED;
}
