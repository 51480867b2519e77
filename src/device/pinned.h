/* SPDX-License-Identifier: Apache-2.0
 *
 * Pins existing host memory, for instance a mapped segment, so that kernels and
 * copies of every device of the process can access it, at a device address. The
 * driver pins a page only once, and several ranks of a process may need the
 * page, so holds are counted.
 */
#ifndef ULI_DEVICE_PINNED_H
#define ULI_DEVICE_PINNED_H

#include <stdint.h>
#include "ulyx/types.h"

/* Pins [address, address + bytes), both multiples of a page. *there_p: the
 * address of the range for devices. Holding the same range again gives the same
 * address; a range that overlaps another one in part is refused. Any thread.
 * Errors: NO_MEMORY; INVALID_ARGUMENT (overlap in part); the driver's. */
ulyx_status_t uli_pinned_hold(
    int32_t device, void *address, int64_t bytes, void **there_p);
/* Ends a hold. The last drop unpins the range, which no work of any device may
 * then use any more. */
ulyx_status_t uli_pinned_drop(int32_t device, void *address);
/* The number of ranges that are held in the process, for tests. */
int32_t uli_pinned_count(void);

#endif
