/* SPDX-License-Identifier: Apache-2.0
 *
 * The process's service: one thread (all signals blocked) with an abstract
 * Unix socket, alive while any communicator is. It maps windows that peers
 * deliver, watches peers' pidfds, and tells communicators of deaths. Peers
 * are accepted when their uid is ours and they name an endpoint of ours.
 */
#ifndef ULI_COMM_SERVICE_H
#define ULI_COMM_SERVICE_H

#include "base/clock.h"
#include "comm/comm.h"

/* The random name of this process and its socket's name. Starts the service
 * when needed. Counted: one hold a communicator's rank, released by
 * uli_service_release. ERR_FORKED in a forked child. */
ulyx_status_t uli_service_hold(unsigned char process_p[16], char name_p[32]);
void uli_service_release(void);
/* True in a child forked after the first hold. */
bool uli_service_forked(void);

/* From here until remove, deliveries to comm->peers[rank].identity.endpoint
 * reach the communicator. */
ulyx_status_t uli_service_add(ulyx_comm_t *comm);
void uli_service_remove(ulyx_comm_t *comm);
/* The communicator of this process that has the endpoint; NULL if none. The
 * registry stays locked until uli_service_unlock. */
ulyx_comm_t *uli_service_find(const unsigned char endpoint[16]);
void uli_service_unlock(void);

/* Delivers a window to a peer in another process and waits until it is
 * mapped there; or has it withdrawn. Errors: those of the peer by name,
 * TIMEOUT, RANK_LOST, AUTH. */
ulyx_status_t uli_service_deliver(ulyx_comm_t *comm, int32_t rank,
    uint32_t window, const struct uli_tr_handle *handle,
    uli_deadline_t deadline);
ulyx_status_t uli_service_withdraw(
    ulyx_comm_t *comm, int32_t rank, uint32_t window, uli_deadline_t deadline);

/* Watches the processes of comm's peers: uli_comm_rank_died when one ends.
 * Fork-safe: a pidfd a peer process. */
ulyx_status_t uli_service_watch(ulyx_comm_t *comm);

#endif
