/* SPDX-License-Identifier: Apache-2.0
 *
 * The device memory of peers that this process has mapped. Each run of
 * allocations is mapped once per device, however many windows of however many
 * communicators lie in it, and unmapped with the last window. The key is the
 * owner's process, the base and the buffer ids: an allocation that the owner
 * freed and made anew at the same address is another one, and the old mapping
 * ends with its own windows.
 *
 * Any thread, but not from execute: mapping takes a lock and calls the driver.
 */
#ifndef ULI_TRANSPORT_NVLINK_IMPORTS_H
#define ULI_TRANSPORT_NVLINK_IMPORTS_H

#include <stdint.h>
#include "device/share.h"

struct uli_import; /* a mapping; its holders are counted */

/* Maps the run of allocations for a device of this process, or counts one more
 * holder of the existing mapping. process: the owner's uli_identity.process.
 * *base_p: the address here of the owner's shares[0].base. Descriptors stay the
 * caller's. Errors: SYSTEM (the same allocation with another size or form),
 * NO_MEMORY, those of uli_share_map; then nothing is held. */
ulyx_status_t uli_import_take(int32_t device, const unsigned char process[16],
    const struct uli_share *shares, int32_t count, struct uli_import **import_p,
    void **base_p);

/* Removes one holder; the last one unmaps. The caller ensures that no work of
 * the device still touches the memory. Errors: the driver's; the holder is
 * removed anyway. */
ulyx_status_t uli_import_drop(struct uli_import *import);

/* The number of mappings in this process. */
int64_t uli_import_count(void);

#endif
