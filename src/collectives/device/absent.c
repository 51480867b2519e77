/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands for the kernels of the exchange where the library is built without
 * CUDA. The host part of device memory is always built, because test programs
 * link it with kernels of their own. Its movers are then left out of the list
 * (movers.c).
 */
#include "collectives/device/engine/engine_gpu.h"
#include "collectives/device/mapped/exchange_gpu.h"
#include "collectives/device/messages/messages_gpu.h"

enum { NOT_SUPPORTED = 801 }; /* a cudaError_t */

int
uli_gpu_exchange_launch(const struct uli_gpu_args *args, int32_t blocks,
    int32_t threads, void *stream)
{
    (void)args, (void)blocks, (void)threads, (void)stream;
    return NOT_SUPPORTED;
}

int
uli_gpu_exchange_prepare(int32_t threads, bool sums, int32_t *blocks_per_sm_p)
{
    (void)threads, (void)sums, (void)blocks_per_sm_p;
    return NOT_SUPPORTED;
}

int
uli_gpu_multiprocessors(int32_t *count_p)
{
    (void)count_p;
    return NOT_SUPPORTED;
}

int
uli_engine_launch(const struct uli_engine_args *args, void *stream)
{
    (void)args, (void)stream;
    return NOT_SUPPORTED;
}

int
uli_engine_prepare(void)
{
    return NOT_SUPPORTED;
}

int
uli_messages_pack_launch(const struct uli_messages_args *args, int32_t blocks,
    int32_t threads, void *stream)
{
    (void)args, (void)blocks, (void)threads, (void)stream;
    return NOT_SUPPORTED;
}

int
uli_messages_unpack_launch(const struct uli_messages_args *args, int32_t blocks,
    int32_t threads, void *stream)
{
    (void)args, (void)blocks, (void)threads, (void)stream;
    return NOT_SUPPORTED;
}

int
uli_messages_prepare(void)
{
    return NOT_SUPPORTED;
}
