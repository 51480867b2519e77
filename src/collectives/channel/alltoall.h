/* SPDX-License-Identifier: Apache-2.0
 *
 * All to all of plain bytes, on the engine of the exchanges. Rules as
 * ulyx/collective.h.
 */
#ifndef ULI_COLLECTIVES_CHANNEL_ALLTOALL_H
#define ULI_COLLECTIVES_CHANNEL_ALLTOALL_H

#include <stdint.h>
#include "comm/comm.h"

/* Offsets and sizes of the messages, [nranks] each; even = true: all messages
 * have src_bytes[0] bytes, one after another, and the arrays one entry. */
struct uli_alltoall_args {
    const char *src;
    char *dst;
    bool even;
    const int64_t *src_bytes, *src_offsets, *dst_bytes, *dst_offsets;
    void *stream; /* device memory */
};

/* Of message p. */
int64_t uli_alltoall_sends(const struct uli_alltoall_args *args, int32_t p);
int64_t uli_alltoall_receives(const struct uli_alltoall_args *args, int32_t p);
int64_t uli_alltoall_src_at(const struct uli_alltoall_args *args, int32_t p);
int64_t uli_alltoall_dst_at(const struct uli_alltoall_args *args, int32_t p);

/* No message overlaps another that is written, and the own one is of one size.
 */
ulyx_status_t uli_alltoall_check(
    const ulyx_comm_t *comm, const struct uli_alltoall_args *args);

/* alltoall of the host's uli_collective_ops (collective.h): blocking. */
ulyx_status_t uli_alltoall_host(ulyx_comm_t *comm,
    const struct uli_alltoall_args *args, ulyx_status_t outcome);

#endif
