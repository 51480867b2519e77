/* SPDX-License-Identifier: Apache-2.0
 *
 * All to all and reductions of a communicator, by the data path that serves its
 * memory. Rules as in ulyx/collective.h.
 */
#ifndef ULI_COLLECTIVES_CHANNEL_COLLECTIVE_H
#define ULI_COLLECTIVES_CHANNEL_COLLECTIVE_H

#include "collectives/channel/alltoall.h"
#include "collectives/channel/reduce.h"

/* A data path. Both calls are collective, by one thread per communicator.
 * outcome: the public edge's verdict on args, with its text set; a rank that
 * refuses still announces that to the others. The first call of a communicator
 * may allocate, and waits for all ranks; later calls allocate nothing but
 * scratch of the host's reductions. */
struct uli_collective_ops {
    const char *name; /* one word, for logs */
    /* Does the data path move the communicator's memory? Equal on all ranks. */
    bool (*serves)(const ulyx_comm_t *comm);
    /* The host's returns when all messages have arrived. The device's returns
     * once the call is in args->stream; an error may then belong to an earlier
     * call, although this call is enqueued. On an error of the arguments
     * nothing has moved. Errors: BUSY, of the arguments, PEER_REFUSED,
     * MISMATCH, the communicator's. */
    ulyx_status_t (*alltoall)(ulyx_comm_t *comm,
        const struct uli_alltoall_args *args, ulyx_status_t outcome);
    /* As alltoall, for the reductions. */
    ulyx_status_t (*reduce)(ulyx_comm_t *comm,
        const struct uli_reduce_args *args, ulyx_status_t outcome);
};

/* All data paths of this build, ended by NULL; a communicator's path is the
 * first that serves it. The host's is last and serves every communicator that
 * is left; a build without CUDA has no other.
 * (device/collective/collectives.c) */
extern const struct uli_collective_ops *const uli_collectives[];
extern const struct uli_collective_ops uli_collective_host; /* collective.c */

/* As the table's entries, by the path that serves the communicator. */
ulyx_status_t uli_alltoall(ulyx_comm_t *comm,
    const struct uli_alltoall_args *args, ulyx_status_t outcome);
ulyx_status_t uli_reduce(ulyx_comm_t *comm, const struct uli_reduce_args *args,
    ulyx_status_t outcome);

#endif
