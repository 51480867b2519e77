/* SPDX-License-Identifier: Apache-2.0
 *
 * Two allocators, of GPU memory and of host memory, whose allocations lie in
 * windows of the communicators attached to the pool. The GPU allocator has the
 * C signatures that PyTorch's CUDAPluggableAllocator calls. A framework's
 * caching allocator on top of it returns tensors that plans can use without
 * registration.
 *
 * The signatures have no place for a handle, so there is one pool per process.
 * An allocation is known to all ranks before it is returned. For that the call
 * waits for the service threads of the peers, not for calls of the peers, so
 * ranks need not allocate at the same time. The ranks may be threads or
 * processes, on one device or several.
 *
 * Threads: any thread may call.
 */
#ifndef ULYX_POOL_H
#define ULYX_POOL_H

#include <stddef.h>
#include "ulyx/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From now on the pool's allocations on the communicator's device (of host
 * memory, for a communicator of host memory) are windows of the communicator,
 * including those that exist already. Not collective.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (attached already); ERR_UNSUPPORTED
 * (device memory is not mapped between the ranks: the text has the reason); as
 * ulyx_mem_attach. On error the communicator is not attached. */
ULYX_API ulyx_status_t ulyx_pool_attach(ulyx_comm_t *comm);

/* Ends what ulyx_pool_attach began; call it before the communicator is
 * destroyed. A failed communicator may be destroyed without detaching the pool:
 * its windows are then in quarantine.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (not attached); ERR_BUSY
 * (quarantined: call again). */
ULYX_API ulyx_status_t ulyx_pool_detach(ulyx_comm_t *comm);

/* Memory of a CUDA device (an ordinal), zeroed, in whole granules of the device
 * (2 MiB): meant for the segments of a caching allocator. stream is not used.
 * NULL on failure, with ulyx_last_error(). If an attached communicator has
 * failed, the allocation cannot be made known to its ranks; the memory is
 * returned all the same, and is no window of that communicator. */
ULYX_API void *ulyx_pool_malloc(size_t bytes, int device, void *stream);

/* Waits for the stream, withdraws the window from all ranks, and frees the
 * memory. bytes is not used; NULL is fine. Memory into which a rank of a failed
 * communicator may still store is kept, and freed by a later call of the
 * pool. */
ULYX_API void ulyx_pool_free(
    void *address, size_t bytes, int device, void *stream);

/* Host memory of `bytes` bytes (> 0), aligned to 64, with undefined contents,
 * in a window of every attached communicator of host memory. Allocations may
 * have any size: they share windows of 8 MiB and more. NULL on failure, with
 * ulyx_last_error(). After a fork parent and child share the memory. */
ULYX_API void *ulyx_pool_malloc_host(size_t bytes);

/* Frees memory of ulyx_pool_malloc_host; NULL is fine. Memory into which a rank
 * of a failed communicator may still store is not allocated again. */
ULYX_API void ulyx_pool_free_host(void *address);

/* The number of allocations, and how many of them wait for the end of a
 * quarantine; either pointer may be NULL. */
ULYX_API ulyx_status_t ulyx_pool_get_counts(
    int64_t *allocations_p, int64_t *quarantined_p);

#ifdef __cplusplus
}
#endif
#endif
