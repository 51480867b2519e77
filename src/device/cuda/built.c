/* SPDX-License-Identifier: Apache-2.0
 *
 * What kind of build this is.
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
