/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of creation: comm.c has them, and local.c makes all ranks of a process
 * of them.
 */
#ifndef ULI_COMM_CREATE_H
#define ULI_COMM_CREATE_H

#include "comm/comm.h"

/* A communicator without peers known: settings, identity of its own rank,
 * control segment, peers[nranks] zeroed. node_hash: as bootstrap.h's. shared:
 * the segment can be handed to other processes. Errors leave nothing. */
ulyx_status_t uli_comm_new(int32_t nranks, int32_t rank,
    const ulyx_comm_params_t *params, const uint64_t *node_hash, bool shared,
    ulyx_comm_t **comm_p);

/* From the identities of all peers: dense nodes, same_process, one_process,
 * the spin budget, and the MAP transport of each peer, NULL of those that are
 * remote: reached by a transport that puts. From then on peers may give this
 * rank windows, also after an error, which they are refused by.
 * Errors: UNSUPPORTED naming a rank that no transport reaches, and why;
 * VERSION. */
ulyx_status_t uli_comm_connect(ulyx_comm_t *comm);

/* Makes the communicator known to the process's service, and takes it away
 * again; the identity gets the service's names. */
ulyx_status_t uli_comm_serve(ulyx_comm_t *comm);
void uli_comm_unserve(ulyx_comm_t *comm);

/* Frees a communicator at any stage of creation. */
void uli_comm_free(ulyx_comm_t *comm);

#endif
