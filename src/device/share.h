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
 *               made to be exported
 *
 * What has neither is reported as ERR_UNSUPPORTED with the reason, upon which
 * callers stage.
 *
 * A share names one whole allocation by base and buffer id. The driver gives
 * an id to one allocation of a process and never again, so who caches imports
 * by both is not deceived by memory that was freed and made anew at the same
 * address.
 */
#ifndef ULI_DEVICE_SHARE_H
#define ULI_DEVICE_SHARE_H

#include <stdint.h>
#include "ulyx/types.h"

enum uli_share_form { ULI_SHARE_DESCRIPTOR = 1, ULI_SHARE_IPC };

/* One allocation as its owner hands it out: plain bytes but for fd. */
struct uli_share {
    int32_t form, device; /* device: the owner's ordinal */
    int fd;        /* DESCRIPTOR: of who exported it, until uli_share_close;
                    * -1 otherwise */
    uint64_t base; /* in the owner's address space */
    int64_t bytes;
    uint64_t buffer_id;
    unsigned char ipc[64];
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
/* The caller knows that no work of the device touches it. On error it is as
 * freed as the driver allowed. */
ulyx_status_t uli_share_free(const struct uli_share_memory *memory);

/* The allocation that address lies in. Errors: UNSUPPORTED with the reason
 * (host memory, managed memory, memory made not to be exported). */
ulyx_status_t uli_share_export(const void *address, struct uli_share *share_p);
/* Closes the descriptor; again is free. */
void uli_share_close(struct uli_share *share);

/* An import of a peer's share: mapped for a device of this process, which may
 * be another than the owner's. fd stays the caller's. */
struct uli_share_import {
    int32_t form, device;
    void *address; /* of the allocation's base */
    int64_t bytes;
    unsigned long long handle;
};
ulyx_status_t uli_share_map(int32_t device, const struct uli_share *share,
    struct uli_share_import *import_p);
ulyx_status_t uli_share_unmap(const struct uli_share_import *import);

#endif
