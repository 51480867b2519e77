/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory that other processes of the node map: how its owner exports it,
 * and how the others import it. The memory has one of three origins:
 *
 *   ours        made by uli_share_alloc: a virtual-memory allocation, exported
 *               as a file descriptor
 *   cudaMalloc  the caller's: a legacy IPC handle of the whole allocation
 *   mapped      a virtual-memory allocation of the caller (PyTorch's expandable
 *               segments): its handle is retained, and exported as a file
 *               descriptor or, if it was not made for that, as a fabric handle
 *
 * Memory that can be exported in none of these ways is refused with
 * ERR_UNSUPPORTED and the reason.
 *
 * A range may extend over several adjacent mapped allocations (a segment that
 * has grown). It is exported as a run, one share per allocation, and the
 * importer maps the allocations adjacently again.
 *
 * A share names one whole allocation by base and buffer id. The driver never
 * gives an id to two allocations of a process. So a cache of imports with both
 * as its key does not mix up memory that was freed and allocated again at the
 * same address.
 */
#ifndef ULI_DEVICE_SHARE_H
#define ULI_DEVICE_SHARE_H

#include <stdint.h>
#include "ulyx/types.h"

enum uli_share_form {
    ULI_SHARE_DESCRIPTOR = 1,
    ULI_SHARE_IPC,
    ULI_SHARE_FABRIC
};

/* The most shares of one run: a message must hold their descriptors. */
enum { ULI_SHARE_RUN = 240 };

/* One exported allocation. All fields but fd are plain bytes, which another
 * process may use. */
struct uli_share {
    int32_t form, device; /* device: the owner's ordinal */
    int fd;        /* DESCRIPTOR: a descriptor of the exporting process, until
                    * uli_share_close; otherwise -1 */
    uint64_t base; /* in the owner's address space */
    int64_t bytes;
    uint64_t buffer_id;
    unsigned char token[64]; /* IPC, FABRIC: the handle */
};

/* Device memory that the library has allocated. */
struct uli_share_memory {
    int32_t device;
    void *address;
    int64_t bytes; /* rounded up to the device's granularity */
    unsigned long long handle;
};

/* Allocates exportable memory of a device, which the device can read and write.
 * Contents undefined.
 * Errors: INVALID_ARGUMENT (bytes below 1), UNSUPPORTED (the device has no
 * virtual memory management), those of the driver; nothing remains
 * allocated. */
ulyx_status_t uli_share_alloc(
    int32_t device, int64_t bytes, struct uli_share_memory *memory_p);
/* The caller makes sure that no work of a device uses the memory. After an
 * error everything that the driver could release is freed. */
ulyx_status_t uli_share_free(const struct uli_share_memory *memory);

/* Exports the allocation in which address lies.
 * Errors: UNSUPPORTED with the reason (host memory, managed memory, memory that
 * cannot be exported). */
ulyx_status_t uli_share_export(const void *address, struct uli_share *share_p);
/* Closes the descriptor, if there is one; may be called again. */
void uli_share_close(struct uli_share *share);

/* Exports the allocations in which [address, address + bytes) lies, in order;
 * each begins where the last one ends. shares_p has ULI_SHARE_RUN entries.
 * Errors: as export, and UNSUPPORTED (a range that extends beyond a plain
 * allocation, more allocations than a run can have); no descriptor then stays
 * open. */
ulyx_status_t uli_share_export_run(const void *address, int64_t bytes,
    struct uli_share *shares_p, int32_t *count_p);
void uli_share_close_run(struct uli_share *shares, int32_t count);

/* Lets work of `device` access memory of any origin on another device of this
 * process. peer_enable of the two devices must have succeeded. */
ulyx_status_t uli_share_access(
    int32_t device, const void *address, int64_t bytes);

/* An imported run of a peer, mapped for a device of this process, which may be
 * another device than the owner's. The caller keeps, and closes, the
 * descriptors. */
struct uli_share_import {
    int32_t form, device;
    void *address; /* where the base of the first allocation is mapped */
    int64_t bytes; /* of all allocations */
    int32_t nshares;
    int64_t *share_bytes; /* the size of each mapping; NULL for IPC */
};
/* Errors: SYSTEM (the shares are not a run), NO_MEMORY, the driver's. */
ulyx_status_t uli_share_map(int32_t device, const struct uli_share *shares,
    int32_t count, struct uli_share_import *import_p);
ulyx_status_t uli_share_unmap(const struct uli_share_import *import);

#endif
