/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages of the host's that devices reach: memory that was there before, mapped
 * from a segment say, pinned so that kernels and copies of every device of the
 * process use it at an address of theirs. The driver pins a page once, and
 * several ranks of a process may need it, so holds are counted.
 */
#ifndef ULI_DEVICE_PINNED_H
#define ULI_DEVICE_PINNED_H

#include <stdint.h>
#include "ulyx/types.h"

/* Pins [address, address + bytes), both multiples of a page, and gives the
 * address at which devices find it. Holding the same range again gives the same
 * address; a range that overlaps another only in part is refused. Any thread.
 * Errors: NO_MEMORY; INVALID_ARGUMENT (in part); the driver's. */
ulyx_status_t uli_pinned_hold(
    int32_t device, void *address, int64_t bytes, void **there_p);
/* The last drop unpins: nothing of any device uses it any more. */
ulyx_status_t uli_pinned_drop(int32_t device, void *address);
/* Ranges that are held in the process, for tests. */
int32_t uli_pinned_count(void);

#endif
