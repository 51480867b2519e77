/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions, by the communicator's alltoall. Rules as in ulyx/collective.h.
 */
#ifndef ULI_COLLECTIVES_CHANNEL_REDUCE_H
#define ULI_COLLECTIVES_CHANNEL_REDUCE_H

#include <stdint.h>
#include "comm/comm.h"

enum uli_reduction { ULI_ALLREDUCE = 1, ULI_ALLGATHER, ULI_BROADCAST };

struct uli_reduce_args {
    enum uli_reduction kind;
    const char *src; /* ALLREDUCE, ALLGATHER */
    char *dst;
    int64_t count; /* elements; ALLGATHER: bytes per rank; BROADCAST: bytes */
    int32_t dtype; /* ALLREDUCE */
    int32_t root;  /* BROADCAST */
    void *stream;  /* for device memory */
};

/* reduce of the host's uli_collective_ops; blocking. */
ulyx_status_t uli_reduce_host(ulyx_comm_t *comm,
    const struct uli_reduce_args *args, ulyx_status_t outcome);

#endif
