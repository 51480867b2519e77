/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory that other processes of the node map: how it is handed out,
 * and how it is taken in. Three origins:
 *
 *   ours        made by uli_share_alloc: a virtual-memory allocation, handed
 *               out as a file descriptor
 *   cudaMalloc  the caller's: a legacy IPC handle of the whole allocation
 *   mapped      a virtual-memory allocation of others (PyTorch's expandable
 *               segments): its own handle, retained and exported, where it was
 *               made to be exported, or, failing that, as a fabric handle
 *
 * What has none of these is reported as ERR_UNSUPPORTED with the reason.
 *
 * A range may lie over several mapped allocations side by side (a segment that
 * has grown): it is shared as a run, one share per allocation, and mapped side
 * by side again.
 *
 * A share names one whole allocation by base and buffer id. The driver gives
 * an id to one allocation of a process and never again, so a cache of imports
 * keyed by both is not fooled by memory freed and allocated again at the same
 * address.
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

/* One allocation as its owner hands it out: plain bytes but for fd. */
struct uli_share {
    int32_t form, device; /* device: the owner's ordinal */
    int fd;        /* DESCRIPTOR: of who exported it, until uli_share_close;
                    * -1 otherwise */
    uint64_t base; /* in the owner's address space */
    int64_t bytes;
    uint64_t buffer_id;
    unsigned char token[64]; /* IPC, FABRIC: the handle itself */
};

/* Memory of this library's own. */
struct uli_share_memory {
    int32_t device;
    void *address;
    int64_t bytes; /* rounded up to the device's granularity */
    unsigned long long handle;
};

/* Exportable memory of a device, mapped readable and writable there. Contents
 * undefined. Errors: INVALID_ARGUMENT (bytes below 1), UNSUPPORTED (the device
 * has no virtual memory management), those of the driver; nothing is left. */
ulyx_status_t uli_share_alloc(
    int32_t device, int64_t bytes, struct uli_share_memory *memory_p);
/* The caller makes sure that no work of the device touches it. On error,
 * everything that the driver released is freed. */
ulyx_status_t uli_share_free(const struct uli_share_memory *memory);

/* The allocation that address lies in. Errors: UNSUPPORTED with the reason
 * (host memory, managed memory, memory made not to be exported). */
ulyx_status_t uli_share_export(const void *address, struct uli_share *share_p);
/* Closes the descriptor; calling it again costs nothing. */
void uli_share_close(struct uli_share *share);

/* The allocations that [address, address + bytes) lies in, in order, each
 * beginning where the last one ends: shares_p[ULI_SHARE_RUN]. Errors: as
 * export, and UNSUPPORTED (a range that leaves a plain allocation, more
 * allocations than a run holds); then nothing is left open. */
ulyx_status_t uli_share_export_run(const void *address, int64_t bytes,
    struct uli_share *shares_p, int32_t *count_p);
void uli_share_close_run(struct uli_share *shares, int32_t count);

/* Lets work of `device` reach memory of another device of this process, of any
 * origin; where the two may reach each other at all (peer_enable). */
ulyx_status_t uli_share_access(
    int32_t device, const void *address, int64_t bytes);

/* An import of a peer's run: mapped for a device of this process, which may
 * be another than the owner's. Descriptors stay the caller's. */
struct uli_share_import {
    int32_t form, device;
    void *address; /* of the first allocation's base */
    int64_t bytes; /* of all */
    int32_t nshares;
    int64_t *share_bytes; /* of mapped ones; NULL of IPC */
};
/* Errors: SYSTEM (the shares make no run), NO_MEMORY, the driver's. */
ulyx_status_t uli_share_map(int32_t device, const struct uli_share *shares,
    int32_t count, struct uli_share_import *import_p);
ulyx_status_t uli_share_unmap(const struct uli_share_import *import);

#endif
