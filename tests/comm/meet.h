/* SPDX-License-Identifier: Apache-2.0
 *
 * How the processes of a test meet without a bootstrap of sockets: an
 * allgather over memory that they share, which also serves threads.
 */
#ifndef TESTS_COMM_MEET_H
#define TESTS_COMM_MEET_H

#include "comm/comm.h"

struct meet;

/* For up to 64 ranks; made before they start. */
struct meet *meet_new(int nranks);
void meet_free(struct meet *meet);

/* A communicator of all ranks; any number of times, in step. */
ulyx_status_t meet_comm(
    struct meet *meet, int rank, double timeout_s, ulyx_comm_t **comm_p);
/* The same with parameters of the caller's. */
ulyx_status_t meet_comm_by(struct meet *meet, int rank,
    const ulyx_comm_params_t *params, ulyx_comm_t **comm_p);
/* False when the others did not come within 30 s. */
bool meet_barrier(struct meet *meet, int rank);
/* Gathers one number of each rank. */
bool meet_gather(struct meet *meet, int rank, uint64_t mine, uint64_t *all_p);

#endif
