/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool of ulyx/pool.h.
 */
#ifndef ULI_COMM_MEMORY_POOL_H
#define ULI_COMM_MEMORY_POOL_H

#include "comm/comm.h"

ulyx_status_t uli_pool_attach(ulyx_comm_t *comm);
ulyx_status_t uli_pool_detach(ulyx_comm_t *comm);
ulyx_status_t uli_pool_malloc(int64_t bytes, int32_t device, void **address_p);
/* Errors: INVALID_ARGUMENT (not of the pool), BUSY (kept for later), the
 * driver's. */
ulyx_status_t uli_pool_free(void *address, void *stream);
/* Host memory. Its allocations are parts of windows. Errors: malloc_host:
 * NO_MEMORY, SYSTEM; free_host: INVALID_ARGUMENT (not an allocation of
 * malloc_host). */
ulyx_status_t uli_pool_malloc_host(int64_t bytes, void **address_p);
ulyx_status_t uli_pool_free_host(void *address);
void uli_pool_counts(int64_t *allocations_p, int64_t *quarantined_p);
/* The communicator ends: the pool removes it without detaching. The caller
 * holds no lock. */
void uli_pool_forget(ulyx_comm_t *comm);

#endif
