/* SPDX-License-Identifier: Apache-2.0
 *
 * The process's service: one thread (all signals blocked) with an abstract
 * Unix socket, alive while any communicator is. It maps windows that peers
 * deliver, watches peers' pidfds, and tells communicators of deaths. Peers
 * are accepted when their uid is ours and they name an endpoint of ours.
 */
#ifndef ULI_COMM_SERVICE_SERVICE_H
#define ULI_COMM_SERVICE_SERVICE_H

#include "base/system/clock.h"
#include "comm/comm.h"

/* The random name of this process and its socket's name. Starts the service
 * when needed. Counted: one hold a communicator's rank, released by
 * uli_service_release. ERR_FORKED in a forked child. */
ulyx_status_t uli_service_hold(unsigned char process_p[16], char name_p[32]);
void uli_service_release(void);
/* True in a child that was forked while a hold or a communicator existed: its
 * copy of the library is dead, and its parent's is unharmed. A child forked
 * when nothing was held starts afresh. */
bool uli_service_forked(void);

/* From here until remove, deliveries to comm->peers[rank].identity.endpoint
 * reach the communicator, also those of ranks of this process, which need no
 * service thread: add needs no hold then. Removing twice is harmless. */
ulyx_status_t uli_service_add(ulyx_comm_t *comm);
void uli_service_remove(ulyx_comm_t *comm);
/* Lets the service's thread run near what a communicator that has a hold is
 * near, besides where it runs for others; unless ULYX_SERVICE_CORE says. */
void uli_service_bind(const ulyx_comm_t *comm);
/* The communicator of this process that has the endpoint; NULL if none. The
 * registry stays locked until uli_service_unlock. */
ulyx_comm_t *uli_service_find(const unsigned char endpoint[16]);
void uli_service_unlock(void);
/* Calls visit for every registered communicator of this process, the oldest
 * first, with the registry locked. */
void uli_service_each(
    void (*visit)(void *context, ulyx_comm_t *comm), void *context);
/* For one who changes identities of a registered communicator's peers. */
void uli_service_lock(void);

struct uli_stand;

/* Delivers a window to the peer that the call needs now, which is in another
 * process, and waits until it is mapped there; or has it withdrawn. A peer that
 * has left counts as done; one that is not there yet is tried again. TIMEOUT
 * comes without a text, the caller fails the communicator; else errors are
 * those of the peer by name, the communicator's failure, AUTH, SYSTEM. */
ulyx_status_t uli_service_deliver(struct uli_stand *stand, uint32_t window,
    const struct uli_tr_handle *handle, uli_deadline_t deadline);
ulyx_status_t uli_service_withdraw(
    struct uli_stand *stand, uint32_t window, uli_deadline_t deadline);

/* Has window `window` of rank `rank` withdrawn at its peer, whatever state
 * any communicator is in; with `retire` only if no operation of the peer is in
 * flight, which might use it. True when done, and when the peer's handle or
 * process is gone; false when it did not answer by the deadline, or is busy. */
bool uli_service_recall(const struct uli_identity *peer, int32_t rank,
    uint32_t window, bool retire, uli_deadline_t deadline);

/* Watches the processes of comm's peers: uli_comm_rank_died when one ends.
 * Fork-safe: a pidfd a peer process. */
ulyx_status_t uli_service_watch(ulyx_comm_t *comm);

#endif
