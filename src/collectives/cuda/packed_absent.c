/* SPDX-License-Identifier: Apache-2.0
 *
 * The launches of the packed exchange where ulyx was built without CUDA: a
 * communicator of device memory does not exist there, so none is ever called.
 */
#include "collectives/cuda/packed_gpu.h"

enum { NOT_SUPPORTED = 801 }; /* cudaErrorNotSupported */

int
uli_packed_pack_launch(const struct uli_gpu_args *args, int32_t blocks,
    int32_t threads, void *stream)
{
    (void)args, (void)blocks, (void)threads, (void)stream;
    return NOT_SUPPORTED;
}

int
uli_packed_unpack_launch(const struct uli_gpu_args *args, int32_t blocks,
    int32_t threads, void *stream)
{
    (void)args, (void)blocks, (void)threads, (void)stream;
    return NOT_SUPPORTED;
}

int
uli_packed_prepare(void)
{
    return NOT_SUPPORTED;
}
