/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether this build has CUDA kernels.
 */
#include "device/device.h"

bool
uli_device_kernels_built(void)
{
#ifdef ULYX_HAVE_CUDA
    return true;
#else
    return false;
#endif
}
