/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocators of GPU and of host memory whose every allocation is in a window of
 * the communicators that were given to the pool; of GPU memory with the C
 * signatures that PyTorch's CUDAPluggableAllocator calls: a framework's own
 * caching allocator over it gives tensors that plans reach without
 * registration.
 *
 * The signatures have no place for a handle, so there is one pool a process.
 * An allocation is made known to all ranks before it is returned; that waits
 * for the service threads of the peers, not for their callers, so ranks need
 * not allocate in step. Ranks of one device or several, threads or processes.
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

/* From now on the pool's allocations on the communicator's device, or of host
 * memory where it moves that, are windows of it, those that live included. Not
 * collective.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (it is there already);
 * ERR_UNSUPPORTED (device memory is not mapped between the ranks: the text has
 * the reason); as ulyx_mem_attach. On error the communicator is not there. */
ULYX_API ulyx_status_t ulyx_pool_attach(ulyx_comm_t *comm);

/* The reverse, before the communicator is destroyed. A failed communicator may
 * be destroyed without it: its windows are then in quarantine.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (it is not there); ERR_BUSY
 * (quarantined: call again). */
ULYX_API ulyx_status_t ulyx_pool_detach(ulyx_comm_t *comm);

/* Memory of a CUDA device (an ordinal), zeroed, in whole granules of the
 * device (2 MiB): meant for the segments of a caching allocator. stream is not
 * used. NULL on failure, with ulyx_last_error(). Where only making it known
 * fails, because a communicator has, the memory is returned all the same, and
 * the communicator does not know it. */
ULYX_API void *ulyx_pool_malloc(size_t bytes, int device, void *stream);

/* Gives it back: waits for the stream, takes the window back everywhere, frees.
 * bytes is not used; NULL is fine. Memory that a rank of a failed communicator
 * may still store into is kept, and freed by a later call of the pool. */
ULYX_API void ulyx_pool_free(
    void *address, size_t bytes, int device, void *stream);

/* The same of host memory: `bytes` (> 0), aligned to 64, with undefined
 * contents, inside a window of every host communicator that was attached; for
 * tensors of any size, which are parts of windows of 8 MiB and more. NULL on
 * failure, with ulyx_last_error(). Memory of windows is shared with children of
 * a fork. */
ULYX_API void *ulyx_pool_malloc_host(size_t bytes);

/* Gives it back; NULL is fine. What a rank of a failed communicator may still
 * store into is given out by no later call. */
ULYX_API void ulyx_pool_free_host(void *address);

/* Allocations that live, and of them those that await the end of a quarantine;
 * either pointer may be NULL. */
ULYX_API ulyx_status_t ulyx_pool_get_counts(
    int64_t *allocations_p, int64_t *quarantined_p);

#ifdef __cplusplus
}
#endif
#endif
