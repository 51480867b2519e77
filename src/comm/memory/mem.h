/* SPDX-License-Identifier: Apache-2.0
 *
 * Window objects: memory that is allocated (or registered) once and attached to
 * any number of communicators. Locks: mem->lock, held through a whole call,
 * then comm->lock.
 */
#ifndef ULI_COMM_MEMORY_MEM_H
#define ULI_COMM_MEMORY_MEM_H

#include "comm/comm.h"
#include "ulyx/memory.h"

/* device: a CUDA ordinal; -1 = the calling thread's current device, or, of
 * registered memory, the device where it lies. Errors: NO_MEMORY (needed and
 * available bytes), SYSTEM, UNSUPPORTED (no driver; a device whose memory
 * cannot be shared), INVALID_ARGUMENT (memory of another kind or device than
 * given), FORKED, the driver's. */
ulyx_status_t uli_mem_alloc(int64_t bytes, int32_t memory_kind, int32_t device,
    bool hugepages, ulyx_mem_t **mem_p);
ulyx_status_t uli_mem_register(void *address, int64_t bytes,
    int32_t memory_kind, int32_t device, ulyx_mem_t **mem_p);
void uli_mem_range(const ulyx_mem_t *mem, void **address_p, int64_t *bytes_p);

/* Contracts: ulyx/memory.h. */
ulyx_status_t uli_mem_attach(ulyx_comm_t *comm, ulyx_mem_t *mem);
ulyx_status_t uli_mem_detach(ulyx_comm_t *comm, ulyx_mem_t *mem);
ulyx_status_t uli_mem_free(ulyx_mem_t *mem);
bool uli_mem_is_attached(const ulyx_comm_t *comm, ulyx_mem_t *mem);

#endif
