/* SPDX-License-Identifier: Apache-2.0
 *
 * Making and ending the channel of an alltoall. Every pair has a ring with the
 * same number of chunks, because nothing is known in advance about what will go
 * where. A bounce buffer stands for the blocks of each remote peer.
 */
#include "collectives/channel/alltoall_channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/exchange/copies.h"
#include "collectives/plan/plan.h"
#include "comm/remote/remote.h"

enum {
    CHUNK_BYTES = 256 << 10,
    LOCAL_CHUNKS = 2,
    NET_CHUNKS = 4,
    /* All rings of a rank together, unless the smallest chunks take more. */
    MOST_RING_BYTES = 256 << 20,
    LEAST_CHUNK_BYTES = 4096,
};

static void
free_channel(struct uli_channel *channel)
{
    free(channel->exchange.pairs);
    free(channel->work.pairs);
    free(channel->items);
    free(channel->send);
    free(channel->infos);
    free(channel);
}

static void
channel_destroy(ulyx_comm_t *comm)
{
    struct uli_channel *channel = comm->alltoall;
    comm->alltoall = NULL;
    if (!channel)
        return;
    for (int32_t p = 0; p < comm->nranks; p++)
        if (channel->exchange.pairs[p].remote)
            uli_post_closed(&channel->exchange, p);
    free_channel(channel);
}

/* A rank that has made another call announces to the peers that it refuses, and
 * continues. */
static void
channel_skip(ulyx_comm_t *comm, uli_deadline_t deadline)
{
    struct uli_channel *channel = comm->alltoall;
    if (uli_exchange_take(&channel->exchange) == ULYX_SUCCESS)
        uli_exchange_refuse(&channel->exchange, ULYX_ERR_MISMATCH, deadline);
}

static bool
channel_allocate(struct uli_channel *channel, int32_t nranks)
{
    size_t n = (size_t)nranks;
    channel->exchange.pairs = calloc(n, sizeof(*channel->exchange.pairs));
    channel->work.pairs = calloc(n, sizeof(*channel->work.pairs));
    channel->items = calloc(2 * n, sizeof(*channel->items));
    channel->send = calloc(4 * n, sizeof(*channel->send));
    channel->infos = calloc(n, sizeof(*channel->infos));
    if (!channel->exchange.pairs || !channel->work.pairs || !channel->items ||
        !channel->send || !channel->infos)
        return false;
    channel->receive = channel->send + n;
    channel->peer_send = channel->send + 2 * n;
    channel->peer_receive = channel->send + 3 * n;
    channel->work.locals = &channel->local;
    for (int32_t p = 0; p < nranks; p++) {
        channel->work.pairs[p].last_sum = -1;
        channel->work.pairs[p].in.at = &channel->items[p];
        channel->work.pairs[p].out.at = &channel->items[nranks + p];
    }
    return true;
}

static bool
peer_is_remote(const ulyx_comm_t *comm, int32_t p)
{
    return p != comm->rank && uli_comm_is_remote(comm, p);
}

static int64_t
channel_chunks(const ulyx_comm_t *comm)
{
    return comm->nnodes > 1 ? NET_CHUNKS : LOCAL_CHUNKS;
}

/* Bytes that stand for a remote peer's pair flags, eager slots and ring. */
static int64_t
bounce_bytes(const ulyx_comm_t *comm, int64_t chunk_bytes)
{
    return uli_flags_block_of(1, 0, 0).bytes +
           channel_chunks(comm) * chunk_bytes;
}

static ulyx_status_t
channel_prepare(ulyx_comm_t *comm, struct uli_channel *channel,
    struct uli_channel_info *info)
{
    int64_t nranks = comm->nranks, nremote = 0;
    int64_t most = MOST_RING_BYTES / (nranks * channel_chunks(comm));
    most = uli_max(uli_min(most, CHUNK_BYTES), LEAST_CHUNK_BYTES);
    info->chunk_bytes =
        uli_min(comm->settings.ring_chunk_bytes, most) / ULI_LINE * ULI_LINE;
    if (!channel_allocate(channel, comm->nranks))
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for alltoall");
    for (int32_t p = 0; p < nranks; p++)
        nremote += peer_is_remote(comm, p);
    ULI_TRY(uli_arena_alloc(
        comm, uli_flags_block_of(nranks, 0, 0).bytes, &channel->pair_flags));
    ULI_TRY(uli_arena_alloc(comm,
        nranks * channel_chunks(comm) * info->chunk_bytes, &channel->rings));
    if (nremote)
        ULI_TRY(uli_arena_alloc(comm,
            nremote * bounce_bytes(comm, info->chunk_bytes),
            &channel->bounces));
    info->pair_flags.window = channel->pair_flags.window;
    info->pair_flags.offset = channel->pair_flags.offset;
    info->rings.window = channel->rings.window;
    info->rings.offset = channel->rings.offset;
    info->probe = (uint64_t)(uintptr_t)&uli_tr_probe_word;
    return ULYX_SUCCESS;
}

static ulyx_status_t
not_mapped(ulyx_comm_t *comm, int32_t p)
{
    return uli_comm_fail(comm, ULYX_ERR_INTERNAL, p,
        "alltoall: the arena of rank %d is not mapped here", p);
}

/* The blocks of one rank, one of pair flags and eager slots, one of rings:
 * their sizes, and the byte offsets of its peer p in them. */
struct channel_block {
    struct uli_flags_block pairs;
    int64_t ring_bytes, ring; /* with the chunks of the block's rank */
};

static struct channel_block
channel_block_of(const ulyx_comm_t *comm, int64_t chunk_bytes, int32_t p)
{
    int64_t ring = channel_chunks(comm) * chunk_bytes;
    return (struct channel_block){
        uli_flags_block_of(comm->nranks, 0, p), comm->nranks * ring, p * ring};
}

static ulyx_status_t
connect_mapped(ulyx_comm_t *comm, struct uli_channel *channel, int32_t p,
    const struct channel_block *there)
{
    struct uli_pair *pair = &channel->exchange.pairs[p];
    const struct uli_channel_info *peer = &channel->infos[p];
    char *theirs = uli_window_address(comm, p, peer->pair_flags.window,
        peer->pair_flags.offset, there->pairs.bytes);
    char *rings = uli_window_address(
        comm, p, peer->rings.window, peer->rings.offset, there->ring_bytes);
    if (!theirs || !rings)
        return not_mapped(comm, p);
    pair->yours = (struct uli_pair_flags *)(theirs + there->pairs.flags);
    pair->eager_out = theirs + there->pairs.eager;
    pair->chunk_out_bytes = peer->chunk_bytes;
    pair->ring_out = rings + there->ring;
    pair->reader = uli_reader_of(comm, p, peer->probe);
    pair->can_read = pair->reader != NULL;
    return ULYX_SUCCESS;
}

/* Both ends use the smaller chunk of the two. */
static ulyx_status_t
connect_remote(ulyx_comm_t *comm, struct uli_channel *channel, int32_t p,
    const struct channel_block *there)
{
    struct uli_pair *pair = &channel->exchange.pairs[p];
    const struct uli_channel_info *mine = &channel->infos[comm->rank];
    const struct uli_channel_info *peer = &channel->infos[p];
    char *bounce = channel->bounces.address;
    if (!uli_remote_window_holds(comm, p, peer->pair_flags.window,
            peer->pair_flags.offset, there->pairs.bytes))
        return not_mapped(comm, p);
    for (int32_t q = 0; q < p; q++)
        if (peer_is_remote(comm, q))
            bounce += bounce_bytes(comm, mine->chunk_bytes);
    pair->remote = true;
    pair->yours = (struct uli_pair_flags *)bounce;
    pair->eager_out = bounce + sizeof(struct uli_pair_flags);
    pair->ring_out = pair->eager_out + uli_eager_bytes(0);
    pair->chunk_in_bytes = pair->chunk_out_bytes =
        uli_min(mine->chunk_bytes, peer->chunk_bytes);
    pair->flags_at = pair->eager_at = peer->pair_flags;
    pair->flags_at.offset += there->pairs.flags;
    pair->eager_at.offset += there->pairs.eager;
    pair->ring_at = peer->rings;
    pair->ring_at.offset += there->ring;
    return ULYX_SUCCESS;
}

static ulyx_status_t
channel_connect(ulyx_comm_t *comm, struct uli_channel *channel, int32_t p)
{
    struct uli_pair *pair = &channel->exchange.pairs[p];
    const struct uli_channel_info *mine = &channel->infos[comm->rank];
    struct channel_block here = channel_block_of(comm, mine->chunk_bytes, p);
    struct channel_block there =
        channel_block_of(comm, channel->infos[p].chunk_bytes, comm->rank);
    char *base = channel->pair_flags.address;
    pair->shares = true;
    pair->mine = (struct uli_pair_flags *)(base + here.pairs.flags);
    pair->eager_in = base + here.pairs.eager;
    pair->chunks_in = pair->chunks_out = (int32_t)channel_chunks(comm);
    pair->chunk_in_bytes = mine->chunk_bytes;
    pair->ring_in = (char *)channel->rings.address + here.ring;
    pair->src_bytes = &channel->receive[p];
    pair->dst_bytes = &channel->send[p];
    return peer_is_remote(comm, p) ? connect_remote(comm, channel, p, &there)
                                   : connect_mapped(comm, channel, p, &there);
}

/* The agreement of the first use. A failure of one rank is an error of all. */
static ulyx_status_t
channel_agree(ulyx_comm_t *comm, struct uli_channel *channel,
    ulyx_status_t outcome, const struct uli_channel_info *info,
    uli_deadline_t deadline)
{
    char reason[ULI_REFUSAL_TEXT_BYTES];
    ulyx_status_t *outcomes = calloc((size_t)comm->nranks, sizeof(*outcomes));
    int64_t *bytes = calloc((size_t)comm->nranks, sizeof(*bytes));
    if (outcome == ULYX_SUCCESS && (!outcomes || !bytes))
        outcome = uli_error(ULYX_ERR_NO_MEMORY, "no memory for alltoall");
    ulyx_status_t status;
    if (outcome != ULYX_SUCCESS)
        status =
            uli_agree_refuse(comm, ULI_CALL_ALLTOALL_SETUP, outcome, deadline);
    else
        status = uli_agree_gather(
            comm, &(struct uli_gather){.call = ULI_CALL_ALLTOALL_SETUP,
                      .mine = info,
                      .bytes = sizeof(*info),
                      .max_bytes = sizeof(*info),
                      .all_p = channel->infos,
                      .bytes_p = bytes,
                      .status_p = outcomes,
                      .deadline = deadline});
    for (int32_t p = 0; status == ULYX_SUCCESS && p < comm->nranks; p++)
        if (outcomes[p] != ULYX_SUCCESS)
            status = uli_error(outcomes[p] == ULYX_ERR_NO_MEMORY
                                   ? ULYX_ERR_NO_MEMORY
                                   : ULYX_ERR_PEER_REFUSED,
                "alltoall: rank %d refused: %s", p,
                uli_agree_reason(comm, p, reason));
    free(outcomes);
    free(bytes);
    return status;
}

ulyx_status_t
uli_channel_set_up(ulyx_comm_t *comm, const struct uli_channel_hooks *hooks,
    ulyx_status_t outcome, uli_deadline_t deadline)
{
    struct uli_channel_info info;
    struct uli_channel *channel = calloc(1, sizeof(*channel));
    memset(&info, 0, sizeof(info));
    if (channel)
        uli_exchange_init(&channel->exchange, comm, ULI_CALL_ALLTOALL);
    if (outcome == ULYX_SUCCESS)
        outcome = uli_copies_offer(comm);
    if (outcome == ULYX_SUCCESS)
        outcome = channel
                      ? channel_prepare(comm, channel, &info)
                      : uli_error(ULYX_ERR_NO_MEMORY, "no memory for alltoall");
    ulyx_status_t status =
        channel_agree(comm, channel, outcome, &info, deadline);
    if (status == ULYX_SUCCESS)
        uli_copies_take(comm);
    for (int32_t p = 0; status == ULYX_SUCCESS && p < comm->nranks; p++)
        if (p != comm->rank)
            status = channel_connect(comm, channel, p);
    if (status == ULYX_SUCCESS) {
        channel->exchange.ntensors = 1;
        channel->exchange.record = hooks->record;
        channel->exchange.accept = hooks->accept;
        channel->exchange.report = hooks->report;
        channel->exchange.peer_limit = comm->settings.net_peers;
        comm->alltoall = channel;
        comm->alltoall_destroy = channel_destroy;
        comm->alltoall_skip = channel_skip;
        return ULYX_SUCCESS;
    }
    if (channel) {
        if (channel->pair_flags.address)
            uli_arena_free(comm, &channel->pair_flags);
        if (channel->rings.address)
            uli_arena_free(comm, &channel->rings);
        if (channel->bounces.address)
            uli_arena_free(comm, &channel->bounces);
        free_channel(channel);
    }
    return status;
}
