/* SPDX-License-Identifier: Apache-2.0
 *
 * The meeting of a test's processes without a bootstrap over sockets: an
 * allgather over memory that they share. Also for threads.
 */
#ifndef TESTS_COMM_MEET_H
#define TESTS_COMM_MEET_H

#include "comm/comm.h"

struct meet;

/* For up to 64 ranks; made before the ranks start. */
struct meet *meet_new(int nranks);
void meet_free(struct meet *meet);

/* A communicator of all ranks, collectively; any number of times. */
ulyx_status_t meet_comm(
    struct meet *meet, int rank, double timeout_s, ulyx_comm_t **comm_p);
/* As meet_comm, with parameters of the caller. */
ulyx_status_t meet_comm_by(struct meet *meet, int rank,
    const ulyx_comm_params_t *params, ulyx_comm_t **comm_p);
/* False where the others did not come within 30 s. */
bool meet_barrier(struct meet *meet, int rank);
/* Gathers one number of each rank. */
bool meet_gather(struct meet *meet, int rank, uint64_t mine, uint64_t *all_p);

#endif
