/* SPDX-License-Identifier: Apache-2.0
 *
 * The memories of this build.
 */
#include "attention/dist_attention/memory.h"

#include "ulyx/types.h"

const struct uli_dist_memory *
uli_dist_memory_of(ulyx_memory_kind_t kind)
{
    if (kind == ULYX_MEMORY_HOST)
        return &uli_dist_memory_host;
#ifdef ULYX_HAVE_CUDA
    return &uli_dist_memory_cuda;
#else
    return NULL;
#endif
}
