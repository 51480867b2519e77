/* SPDX-License-Identifier: Apache-2.0
 *
 * The launch of staging where ulyx was built without CUDA: a communicator of
 * device memory does not exist there, so it is never called.
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
