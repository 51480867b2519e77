/* SPDX-License-Identifier: Apache-2.0
 *
 * The primary context of a device around calls of the driver and launches.
 */
#ifndef ULI_DEVICE_CUDA_CONTEXT_H
#define ULI_DEVICE_CUDA_CONTEXT_H

#include <stdint.h>
#include "ulyx/types.h"

/* Opens the driver if it is not open, and makes the device's primary context
 * current until leave. Errors: UNSUPPORTED (no driver), INVALID_ARGUMENT (no
 * such device), the driver's. */
ulyx_status_t uli_cuda_enter(int32_t device);
/* Restores the caller's context. status: of the work in between. returns
 * status, unless that is no error and the restoring fails. */
ulyx_status_t uli_cuda_leave(ulyx_status_t status);

#endif
