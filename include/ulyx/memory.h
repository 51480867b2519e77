/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows: memory that peers reach directly.
 *
 * A tensor inside a window moves with one copy, without packing; any other
 * memory works too, by kernel-assisted copies or staging. A window is made by
 * ulyx_mem_alloc, or by ulyx_mem_register for memory of the caller; it becomes
 * known to the ranks of a communicator by ulyx_mem_attach.
 *
 * Life: alloc or register, attach (to any number of communicators), use,
 * detach, free. After a timeout or a lost rank the windows attached to the
 * failed communicator are in quarantine, because a stopped rank that wakes may
 * go on storing into them: detach and free return ERR_BUSY until each missing
 * rank has acknowledged the abort or is proved dead, also after destroy.
 *
 * Threads: any thread may call; calls on one window are serialised by the
 * library.
 */
#ifndef ULYX_MEMORY_H
#define ULYX_MEMORY_H

#include "ulyx/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    size_t size;         /* sizeof(ulyx_mem_params_t), set by the macro */
    int32_t memory_kind; /* ULYX_MEMORY_HOST (default) or ULYX_MEMORY_CUDA */
    int32_t device;      /* ordinal of a CUDA device; -1 (by the macro) = the
                          * current one, of registered memory its own */
    uint64_t flags;      /* ULYX_MEM_..., default 0 */
} ulyx_mem_params_t;
#define ULYX_MEM_PARAMS_INIT                                                   \
    {                                                                          \
        sizeof(ulyx_mem_params_t), 0, -1, 0                                    \
    }

/* Huge pages; where there are none, ordinary pages are used. */
#define ULYX_MEM_HUGEPAGES UINT64_C(1)

/* Allocates a window of `bytes` bytes (> 0), zeroed, page aligned, reserved
 * in full: lack of memory is an error here, never a signal later.
 * On the host: a sealed memfd, independent of /dev/shm and gone with its last
 * user, also after SIGKILL. On a device: an allocation that other processes
 * can map, in whole granules of the device (2 MiB).
 * ownership: *mem_p is freed by ulyx_mem_free; *address_p lives as long.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT; ERR_NO_MEMORY; ERR_SYSTEM;
 * ERR_UNSUPPORTED (no such device here); ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_mem_alloc(int64_t bytes,
    const ulyx_mem_params_t *params, ulyx_mem_t **mem_p, void **address_p);

/* Makes the caller's memory [address, address + bytes) a window where that is
 * possible: GPU allocations, and host memory in communicators whose ranks are
 * all threads of this process. Other processes cannot map registered host
 * memory: ulyx_mem_attach refuses it, and it remains ordinary memory, which
 * plans accept too. GPU memory may be that of cudaMalloc, or virtual-memory
 * allocations made to be exported, also several side by side; device may stay
 * -1. Memory that is freed and allocated again at the same address must be
 * registered again.
 * ownership: the memory stays the caller's and must outlive the window.
 * returns: as alloc. */
ULYX_API ulyx_status_t ulyx_mem_register(void *address, int64_t bytes,
    const ulyx_mem_params_t *params, ulyx_mem_t **mem_p);

/* Makes the window known to all ranks of comm. Not collective; the peers'
 * service threads map it. Returns when all have, or with the first failure
 * (then it is attached nowhere).
 * returns: SUCCESS; ERR_UNSUPPORTED (registered host memory, and a rank is
 * another process; device memory that has no handle, or that is not mapped
 * between the ranks, with the reason); ERR_INVALID_ARGUMENT (attached there
 * already; of another memory kind or device than comm's rank); ERR_BUSY
 * (quarantined); ERR_NO_MEMORY (here or at the rank named); ERR_TIMEOUT;
 * ERR_RANK_LOST; ERR_ABORTED. */
ULYX_API ulyx_status_t ulyx_mem_attach(ulyx_comm_t *comm, ulyx_mem_t *mem);

/* Takes the window back from all ranks of comm. No operation that uses the
 * window may be in flight on any rank.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (not attached); ERR_BUSY
 * (quarantined: the text names the ranks that are awaited). */
ULYX_API ulyx_status_t ulyx_mem_detach(ulyx_comm_t *comm, ulyx_mem_t *mem);

/* Frees an allocated window or forgets a registered one; NULL is fine.
 * returns: SUCCESS; ERR_BUSY when still attached or quarantined, or with a call
 * of another thread in flight (the window stays valid); ERR_INVALID_ARGUMENT
 * (freed before). */
ULYX_API ulyx_status_t ulyx_mem_free(ulyx_mem_t *mem);

/* Where the memory begins here, and its size in bytes as it was requested.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (a NULL pointer); ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_mem_get_range(
    const ulyx_mem_t *mem, void **address_p, int64_t *bytes_p);

#ifdef __cplusplus
}
#endif
#endif
