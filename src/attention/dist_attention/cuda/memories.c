/* SPDX-License-Identifier: Apache-2.0
 *
 * The memories of this build.
 */
#include "attention/dist_attention/memory.h"

#include "ulyx/types.h"

/* A build without CUDA makes no communicator of device memory. */
const struct uli_dist_memory *
uli_dist_memory_of(ulyx_memory_kind_t kind)
{
#ifdef ULYX_HAVE_CUDA
    if (kind == ULYX_MEMORY_CUDA)
        return &uli_dist_memory_cuda;
#endif
    (void)kind;
    return &uli_dist_memory_host;
}
