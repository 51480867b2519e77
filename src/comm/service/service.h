/* SPDX-License-Identifier: Apache-2.0
 *
 * The process's service: one thread (all signals blocked) with an abstract Unix
 * socket, alive while any communicator holds it. The service maps windows that
 * peers deliver, watches the pidfds of peers' processes, and reports deaths to
 * communicators. A peer is accepted when it has this process's uid and names an
 * endpoint of this process.
 */
#ifndef ULI_COMM_SERVICE_SERVICE_H
#define ULI_COMM_SERVICE_SERVICE_H

#include "base/system/clock.h"
#include "comm/comm.h"

/* Gives the random name of this process and the name of its socket. Starts the
 * service when needed. Holds are counted: one hold per communicator and rank,
 * released by uli_service_release. ERR_FORKED in a forked child. */
ulyx_status_t uli_service_hold(unsigned char process_p[16], char name_p[32]);
void uli_service_release(void);
/* True in a child that was forked while a hold or a communicator existed: the
 * child cannot use the library; its parent can. A child forked when nothing was
 * held starts anew. */
bool uli_service_forked(void);

/* Between add and remove, deliveries to comm->peers[rank].identity.endpoint
 * reach the communicator. Deliveries from ranks of this process need no service
 * thread, so add alone needs no hold. remove may be called twice. */
ulyx_status_t uli_service_add(ulyx_comm_t *comm);
void uli_service_remove(ulyx_comm_t *comm);
/* Extends the cores of the service's thread by those that a communicator with a
 * hold is bound to; does nothing where ULYX_SERVICE_CORE is set. */
void uli_service_bind(const ulyx_comm_t *comm);
/* The communicator of this process that has the endpoint; NULL if none. The
 * registry stays locked until uli_service_unlock. */
ulyx_comm_t *uli_service_find(const unsigned char endpoint[16]);
void uli_service_unlock(void);
/* Calls visit for every registered communicator of this process, the oldest
 * first, with the registry locked. */
void uli_service_each(
    void (*visit)(void *context, ulyx_comm_t *comm), void *context);
/* For code that changes identities of a registered communicator's peers. */
void uli_service_lock(void);

struct uli_stand;

/* deliver: gives a window to the peer stand->rank, in another process, and
 * waits until it is mapped there. withdraw: has the window withdrawn there. A
 * peer that has left counts as done; a peer that has not made its communicator
 * yet gets the request again. Errors: TIMEOUT without a text (the caller fails
 * the communicator); those of the peer, naming it; the communicator's failure;
 * AUTH, SYSTEM. */
ulyx_status_t uli_service_deliver(struct uli_stand *stand, uint32_t window,
    const struct uli_tr_handle *handle, uli_deadline_t deadline);
ulyx_status_t uli_service_withdraw(
    struct uli_stand *stand, uint32_t window, uli_deadline_t deadline);

/* Has window `window` of rank `rank` withdrawn at a peer, whatever state any
 * communicator is in; retire: only if the peer has no operation in flight,
 * which might use the window. True when done, and when the peer's handle or
 * process is gone; false when the peer did not answer by the deadline, or is
 * busy. */
bool uli_service_recall(const struct uli_identity *peer, int32_t rank,
    uint32_t window, bool retire, uli_deadline_t deadline);

/* Watches the processes of comm's peers, one pidfd per process:
 * uli_comm_rank_died when one ends. Safe across forks. */
ulyx_status_t uli_service_watch(ulyx_comm_t *comm);

#endif
