/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows: memory that peers access directly.
 *
 * A tensor inside a window moves with one copy, without packing; any other
 * memory works too, by kernel-assisted copies or staging. ulyx_mem_alloc
 * allocates a window, ulyx_mem_register makes one of the caller's memory;
 * ulyx_mem_attach makes it known to the ranks of a communicator.
 *
 * Life: alloc or register, attach (to any number of communicators), use,
 * detach, free. After a timeout or a lost rank the windows attached to the
 * failed communicator are in quarantine, because a stopped rank may resume and
 * store into them. Detach and free then return ERR_BUSY until each missing rank
 * has acknowledged the abort or is known to be dead, even after the
 * communicator was destroyed.
 *
 * Threads: any thread may call; the library serialises the calls on one window.
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
                          * current one; for registered memory the device of
                          * that memory */
    uint64_t flags;      /* ULYX_MEM_..., default 0 */
} ulyx_mem_params_t;
#define ULYX_MEM_PARAMS_INIT                                                   \
    {                                                                          \
        sizeof(ulyx_mem_params_t), 0, -1, 0                                    \
    }

/* Use huge pages; if there are none, ordinary pages are used. */
#define ULYX_MEM_HUGEPAGES UINT64_C(1)

/* Allocates a window of `bytes` bytes (> 0), zeroed and page aligned. All pages
 * are reserved here: a lack of memory is an error of this call, never a signal
 * later. On the host the window is a sealed memfd: it does not need /dev/shm,
 * and the kernel frees it when its last user ends, also after SIGKILL. On a
 * device it is an allocation that other processes can map, in whole granules of
 * the device (2 MiB).
 * ownership: *mem_p is freed by ulyx_mem_free; *address_p is valid until then.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT; ERR_NO_MEMORY; ERR_SYSTEM;
 * ERR_UNSUPPORTED (no such device here); ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_mem_alloc(int64_t bytes,
    const ulyx_mem_params_t *params, ulyx_mem_t **mem_p, void **address_p);

/* Makes the caller's memory [address, address + bytes) a window. This is
 * possible for GPU allocations, and for host memory in communicators whose
 * ranks are all threads of this process. Other processes cannot map registered
 * host memory: ulyx_mem_attach refuses such memory, which plans still accept as
 * ordinary memory. GPU memory may come from cudaMalloc, or from exportable
 * virtual-memory allocations, also several adjacent ones; device may stay -1.
 * Memory that is freed and allocated again at the same address must be
 * registered again.
 * ownership: the caller keeps the memory, which must outlive the window.
 * returns: as alloc. */
ULYX_API ulyx_status_t ulyx_mem_register(void *address, int64_t bytes,
    const ulyx_mem_params_t *params, ulyx_mem_t **mem_p);

/* Makes the window known to all ranks of comm. Not collective: the service
 * threads of the peers map the window. Returns when all ranks have mapped it,
 * or with the first failure; the window is then attached on no rank.
 * returns: SUCCESS; ERR_UNSUPPORTED (registered host memory, and a rank is in
 * another process; device memory that cannot be exported, or cannot be mapped
 * between the ranks; the text has the reason); ERR_INVALID_ARGUMENT (already
 * attached to comm; of another memory kind or device than comm's rank);
 * ERR_BUSY (quarantined); ERR_NO_MEMORY (here or at the rank named);
 * ERR_TIMEOUT; ERR_RANK_LOST; ERR_ABORTED. */
ULYX_API ulyx_status_t ulyx_mem_attach(ulyx_comm_t *comm, ulyx_mem_t *mem);

/* Withdraws the window from all ranks of comm. No operation that uses the
 * window may be in flight on any rank.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (not attached); ERR_BUSY
 * (quarantined: the text names the ranks that may still access the window). */
ULYX_API ulyx_status_t ulyx_mem_detach(ulyx_comm_t *comm, ulyx_mem_t *mem);

/* Frees an allocated window, or unregisters a registered one; NULL is fine.
 * returns: SUCCESS; ERR_BUSY when still attached or quarantined, or with a call
 * of another thread in flight (the window stays valid); ERR_INVALID_ARGUMENT
 * (freed before). */
ULYX_API ulyx_status_t ulyx_mem_free(ulyx_mem_t *mem);

/* The address of the window in this process, and its size in bytes as
 * requested.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (a NULL pointer); ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_mem_get_range(
    const ulyx_mem_t *mem, void **address_p, int64_t *bytes_p);

#ifdef __cplusplus
}
#endif
#endif
