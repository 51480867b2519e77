/* SPDX-License-Identifier: Apache-2.0
 *
 * The launch of staging in builds without CUDA: there no communicator of device
 * memory exists, so these functions are never called.
 */
#include "transport/staged/cuda/staged_gpu.h"

enum { NOT_SUPPORTED = 801 }; /* cudaErrorNotSupported */

int
uli_staged_launch(
    const struct uli_staged_args *args, int32_t blocks, void *stream)
{
    (void)args, (void)blocks, (void)stream;
    return NOT_SUPPORTED;
}

int
uli_staged_prepare(int32_t *multiprocessors_p, int32_t *per_sm_p)
{
    (void)multiprocessors_p, (void)per_sm_p;
    return NOT_SUPPORTED;
}
