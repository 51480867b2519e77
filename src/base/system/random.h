/* SPDX-License-Identifier: Apache-2.0
 *
 * Unguessable bytes for secrets and names, from the kernel.
 */
#ifndef ULI_BASE_SYSTEM_RANDOM_H
#define ULI_BASE_SYSTEM_RANDOM_H

#include <stddef.h>
#include "ulyx/types.h"

ulyx_status_t uli_random_bytes(void *bytes_p, size_t count);

#endif
