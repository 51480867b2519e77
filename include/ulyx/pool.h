/* SPDX-License-Identifier: Apache-2.0
 *
 * Two allocators, of GPU memory and of host memory, whose allocations lie in
 * windows of the communicators attached to the pool. That of GPU memory has the
 * C signatures that PyTorch's CUDAPluggableAllocator calls: a framework's
 * caching allocator on top of it gives tensors that plans reach without
 * registration.
 *
 * The signatures have no place for a handle, so there is one pool per process.
 * An allocation is known to all ranks before it is returned. That waits for the
 * service threads of the peers, not for their callers, so ranks need not
 * allocate at the same time. Ranks of one device or several, threads or
 * processes.
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

/* Ends it; call it before the communicator is destroyed. A failed communicator
 * may be destroyed without: its windows are then in quarantine.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (not attached); ERR_BUSY
 * (quarantined: call again). */
ULYX_API ulyx_status_t ulyx_pool_detach(ulyx_comm_t *comm);

/* Memory of a CUDA device (an ordinal), zeroed, in whole granules of the device
 * (2 MiB): meant for the segments of a caching allocator. stream is not used.
 * NULL on failure, with ulyx_last_error(). Where a communicator has failed, and
 * so only making the allocation known to its ranks fails, the memory is
 * returned all the same; it is then no window of that communicator. */
ULYX_API void *ulyx_pool_malloc(size_t bytes, int device, void *stream);

/* Waits for the stream, takes the window back from all ranks, and frees the
 * memory. bytes is not used; NULL is fine. Memory that a rank of a failed
 * communicator may still store into is kept, and freed by a later call of the
 * pool. */
ULYX_API void ulyx_pool_free(
    void *address, size_t bytes, int device, void *stream);

/* The same of host memory: `bytes` (> 0), aligned to 64, with undefined
 * contents, inside a window of every host communicator that was attached; for
 * tensors of any size, which are parts of windows of 8 MiB and more. NULL on
 * failure, with ulyx_last_error(). Memory of windows is shared with children of
 * a fork. */
ULYX_API void *ulyx_pool_malloc_host(size_t bytes);

/* Frees it; NULL is fine. Memory into which a rank of a failed communicator may
 * still store is not handed out again. */
ULYX_API void ulyx_pool_free_host(void *address);

/* The number of allocations, and how many of them await the end of a
 * quarantine; either pointer may be NULL. */
ULYX_API ulyx_status_t ulyx_pool_get_counts(
    int64_t *allocations_p, int64_t *quarantined_p);

#ifdef __cplusplus
}
#endif
#endif
