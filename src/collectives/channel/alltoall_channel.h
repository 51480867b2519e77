/* SPDX-License-Identifier: Apache-2.0
 *
 * The channel of a communicator's alltoall: pair flags, rings and the rest of
 * an exchange in which any rank may send to any other.
 */
#ifndef ULI_COLLECTIVES_CHANNEL_ALLTOALL_CHANNEL_H
#define ULI_COLLECTIVES_CHANNEL_ALLTOALL_CHANNEL_H

#include "collectives/channel/alltoall.h"
#include "collectives/exchange/exchange.h"

/* What a rank publishes to the others about its channel. */
struct uli_channel_info {
    struct uli_address pair_flags, rings;
    int64_t chunk_bytes;
    uint64_t probe;
};

struct uli_channel {
    struct uli_exchange exchange; /* first */
    struct uli_arena_block
        pair_flags; /* [nranks] uli_pair_flags, then two eager slots per rank */
    struct uli_arena_block rings, bounces;
    struct uli_work work;
    struct uli_item *items;  /* [2 * nranks]: in, then out */
    struct uli_local local;  /* the message to itself */
    int64_t *send, *receive; /* [nranks] bytes, of the call in flight */
    int64_t *peer_send, *peer_receive; /* [nranks], by the peers' records */
    const struct uli_alltoall_args *args;
    struct uli_channel_info *infos;
};

/* Hooks of struct uli_exchange. */
struct uli_channel_hooks {
    void (*record)(
        struct uli_exchange *exchange, int32_t p, struct uli_record *record_p);
    bool (*accept)(struct uli_exchange *exchange, int32_t p,
        const struct uli_record *record);
    ulyx_status_t (*report)(struct uli_exchange *exchange, int32_t p);
};

/* Makes comm->alltoall, by one agreement at the first use. outcome: as
 * uli_alltoall's; a refusal is returned. */
ulyx_status_t uli_channel_set_up(ulyx_comm_t *comm,
    const struct uli_channel_hooks *hooks, ulyx_status_t outcome,
    uli_deadline_t deadline);

#endif
