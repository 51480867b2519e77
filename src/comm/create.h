/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of creation. comm.c implements them; local.c uses them to make all
 * ranks of a process.
 */
#ifndef ULI_COMM_CREATE_H
#define ULI_COMM_CREATE_H

#include "comm/comm.h"

/* A communicator without peers yet: settings, identity of its own rank, control
 * segment, peers[nranks] zeroed. node_hash: as in bootstrap.h. shared: the
 * segment can be handed to other processes. On error nothing is kept. */
ulyx_status_t uli_comm_new(int32_t nranks, int32_t rank,
    const ulyx_comm_params_t *params, const uint64_t *node_hash, bool shared,
    ulyx_comm_t **comm_p);

/* Computes from the identities of all peers: node numbers, same_process,
 * one_process, the spin budget, and the MAP transport of each peer. map is NULL
 * for remote peers, which a transport that puts reaches. From then on peers may
 * give windows to this rank; after an error their windows are refused. Errors:
 * UNSUPPORTED naming a rank that no transport reaches, and why; VERSION. */
ulyx_status_t uli_comm_connect(ulyx_comm_t *comm);

/* serve registers the communicator with the process's service, and puts the
 * names of process and service into its identity; unserve removes it. */
ulyx_status_t uli_comm_serve(ulyx_comm_t *comm);
void uli_comm_unserve(ulyx_comm_t *comm);

/* Frees a communicator at any stage of creation. */
void uli_comm_free(ulyx_comm_t *comm);

#endif
