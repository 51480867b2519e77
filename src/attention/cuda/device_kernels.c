/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of kernels for calls on device memory.
 */
#include "attention/kernels/kernels.h"

const struct uli_attn_kernel *
uli_attn_device_kernel_at(int n)
{
#ifdef ULYX_HAVE_CUDA
    return n == 0 ? &uli_attn_cuda_kernel : NULL;
#else
    (void)n;
    return NULL;
#endif
}
