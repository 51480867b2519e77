/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of kernels for calls on device memory, fastest first.
 */
#include "attention/kernels/kernels.h"

const struct uli_attn_kernel *
uli_attn_device_kernel_at(int n)
{
#ifdef ULYX_HAVE_CUDA
    static const struct uli_attn_kernel *const table[] = {
        &uli_attn_sm90_kernel, &uli_attn_cuda_kernel};
    return n >= 0 && n < 2 ? table[n] : NULL;
#else
    (void)n;
    return NULL;
#endif
}
