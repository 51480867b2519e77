/* SPDX-License-Identifier: Apache-2.0
 *
 * All to all of plain bytes, by the engine of the exchanges. Rules as in
 * ulyx/collective.h.
 */
#ifndef ULI_COLLECTIVES_CHANNEL_ALLTOALL_H
#define ULI_COLLECTIVES_CHANNEL_ALLTOALL_H

#include <stdint.h>
#include "comm/comm.h"

/* Sizes and offsets of the messages in bytes, [nranks] each. even: all messages
 * have src_bytes[0] bytes and lie one after another, and the arrays have one
 * entry. */
struct uli_alltoall_args {
    const char *src;
    char *dst;
    bool even;
    const int64_t *src_bytes, *src_offsets, *dst_bytes, *dst_offsets;
    void *stream; /* for device memory */
};

/* Bytes and offsets of the message to (src) or from (dst) rank p. */
int64_t uli_alltoall_sends(const struct uli_alltoall_args *args, int32_t p);
int64_t uli_alltoall_receives(const struct uli_alltoall_args *args, int32_t p);
int64_t uli_alltoall_src_at(const struct uli_alltoall_args *args, int32_t p);
int64_t uli_alltoall_dst_at(const struct uli_alltoall_args *args, int32_t p);

/* Checks that no message overlaps a message that is written, and that this
 * rank's message to itself has one size. */
ulyx_status_t uli_alltoall_check(
    const ulyx_comm_t *comm, const struct uli_alltoall_args *args);

/* alltoall of the host's uli_collective_ops (collective.h); blocking. */
ulyx_status_t uli_alltoall_host(ulyx_comm_t *comm,
    const struct uli_alltoall_args *args, ulyx_status_t outcome);

#endif
