/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers' device memory as this process has mapped it: each run of allocations
 * once a device, however many windows of however many communicators lie in it,
 * and unmapped with the last of them. The key is the owner's process, the base
 * and the buffer ids: an allocation that the owner freed and made anew at the
 * same address is another one, and the old mapping goes when its own windows
 * do.
 *
 * Any thread may call. Not from execute: mapping takes a lock and the driver.
 */
#ifndef ULI_TRANSPORT_NVLINK_IMPORTS_H
#define ULI_TRANSPORT_NVLINK_IMPORTS_H

#include <stdint.h>
#include "device/share.h"

struct uli_import; /* one holder's claim to a mapping is a count of it */

/* Maps the run for a device of this process, or counts one more holder of the
 * mapping there is. process: of the owner, uli_identity.process. base_p: where
 * the owner's shares[0].base lies here. Descriptors stay the caller's. Errors:
 * SYSTEM (the same allocation with another size or form), NO_MEMORY, those of
 * uli_share_map; then nothing is held. */
ulyx_status_t uli_import_take(int32_t device, const unsigned char process[16],
    const struct uli_share *shares, int32_t count, struct uli_import **import_p,
    void **base_p);

/* One holder less; the last one unmaps. The caller knows that no work of the
 * device still touches it. Errors: the driver's; the claim is gone anyway. */
ulyx_status_t uli_import_drop(struct uli_import *import);

/* Mappings that live in this process. */
int64_t uli_import_count(void);

#endif
