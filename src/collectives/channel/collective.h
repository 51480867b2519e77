/* SPDX-License-Identifier: Apache-2.0
 *
 * All to all and reductions of a communicator, by whichever data path serves
 * its memory. Rules as ulyx/collective.h.
 */
#ifndef ULI_COLLECTIVES_CHANNEL_COLLECTIVE_H
#define ULI_COLLECTIVES_CHANNEL_COLLECTIVE_H

#include "collectives/channel/alltoall.h"
#include "collectives/channel/reduce.h"

/* A data path. Both calls are collective, by one thread a communicator.
 * outcome: what the public edge thought of args, with its text set; a rank that
 * refuses still tells the others. The first call of a communicator may allocate
 * and waits for all ranks; later ones allocate nothing but scratch of the
 * host's reductions. */
struct uli_collective_ops {
    const char *name; /* one flag, for logs */
    /* Does it move the communicator's memory? Equal on all ranks. */
    bool (*serves)(const ulyx_comm_t *comm);
    /* The host's returns when all has arrived; the device's once the call is in
     * args->stream, and then an error may be that of an earlier call, while
     * this one is enqueued all the same. On an error of the arguments nothing
     * has moved. Errors: BUSY, of the arguments, PEER_REFUSED, MISMATCH, the
     * communicator's. */
    ulyx_status_t (*alltoall)(ulyx_comm_t *comm,
        const struct uli_alltoall_args *args, ulyx_status_t outcome);
    /* The same of the reductions. */
    ulyx_status_t (*reduce)(ulyx_comm_t *comm,
        const struct uli_reduce_args *args, ulyx_status_t outcome);
};

/* All data paths of this build, ended by NULL: the first that serves a
 * communicator is its own. The last one, the host's, serves whatever is left,
 * and is the only one of a build without CUDA. (cuda/collectives.c) */
extern const struct uli_collective_ops *const uli_collectives[];
extern const struct uli_collective_ops uli_collective_host; /* collective.c */

/* As the table's, by the path that serves the communicator. */
ulyx_status_t uli_alltoall(ulyx_comm_t *comm,
    const struct uli_alltoall_args *args, ulyx_status_t outcome);
ulyx_status_t uli_reduce(ulyx_comm_t *comm, const struct uli_reduce_args *args,
    ulyx_status_t outcome);

#endif
