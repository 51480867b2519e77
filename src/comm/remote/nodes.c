/* SPDX-License-Identifier: Apache-2.0
 *
 * Agreement over nodes; see nodes.h. A post is sent as its header and the bytes
 * of this round's chunk; one message holds several posts.
 */
#include "comm/remote/nodes.h"

#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "comm/agreement/rounds.h"
#include "comm/remote/remote_internal.h"

/* TABLE_BYTES bounds both buffers of posts of all ranks; a chunk has at least
 * LEAST_CHUNK bytes. */
enum { TABLE_BYTES = 16 << 20, LEAST_CHUNK = 512 };

struct entry {
    int32_t rank;
    uint32_t call;
    int32_t status;
    uint32_t bytes; /* of the payload that follows, padded to a multiple of 8 */
    uint64_t sequence, total_bytes;
};

struct posts {
    struct uli_message_head head; /* count: entries */
    uint64_t round;
};

/* ---- ranks and nodes ----------------------------------------------------- */

ulyx_status_t
uli_nodes_open(ulyx_comm_t *comm, struct uli_nodes *nodes)
{
    int32_t at = 0;
    nodes->order = calloc((size_t)comm->nranks, sizeof(*nodes->order));
    nodes->first = calloc((size_t)comm->nnodes + 1, sizeof(*nodes->first));
    if (!nodes->order || !nodes->first)
        return uli_error(
            ULYX_ERR_NO_MEMORY, "no memory for %d nodes", comm->nnodes);
    for (int32_t p = 0; p < comm->nranks; p++)
        nodes->first[comm->peers[p].node + 1]++;
    for (int32_t j = 0; j < comm->nnodes; j++)
        nodes->first[j + 1] += nodes->first[j];
    /* first[j] steps through the entries of node j, and is set back
     * afterwards. */
    for (int32_t p = 0; p < comm->nranks; p++)
        nodes->order[nodes->first[comm->peers[p].node]++] = p;
    for (int32_t j = comm->nnodes; j > 0; j--)
        nodes->first[j] = nodes->first[j - 1];
    nodes->first[0] = at;
    nodes->mine = comm->peers[comm->rank].node;
    nodes->chunk_bytes = uli_max(LEAST_CHUNK,
        uli_min(ULI_AGREE_BYTES, TABLE_BYTES / 2 / comm->nranks / 8 * 8));
    nodes->stride_bytes = uli_round_up(
        (int64_t)offsetof(struct uli_agree_post, payload) + nodes->chunk_bytes,
        ULI_LINE);
    return ULYX_SUCCESS;
}

void
uli_nodes_close(struct uli_nodes *nodes)
{
    free(nodes->order);
    free(nodes->first);
}

static int32_t
leader_of(const struct uli_nodes *nodes, int32_t node)
{
    return nodes->order[nodes->first[node]];
}

static bool
nodes_leads(const ulyx_comm_t *comm, const struct uli_nodes *nodes)
{
    return leader_of(nodes, nodes->mine) == comm->rank;
}

/* ---- the table ----------------------------------------------------------- */

static int64_t
table_bytes(const ulyx_comm_t *comm)
{
    return 2 * comm->nranks * comm->remote->nodes.stride_bytes;
}

ulyx_status_t
uli_nodes_share(ulyx_comm_t *comm)
{
    struct uli_nodes *nodes = &comm->remote->nodes;
    if (!nodes_leads(comm, nodes))
        return ULYX_SUCCESS;
    ULI_TRY(uli_arena_alloc_node(comm, table_bytes(comm), &nodes->block));
    nodes->table = nodes->block.address;
    atomic_store(&comm->control->table_offset, nodes->block.offset);
    atomic_store(&comm->control->table_window, nodes->block.window);
    return ULYX_SUCCESS;
}

/* The leader has shared the table before the last gather of the creation. */
static void
find_table(ulyx_comm_t *comm)
{
    struct uli_nodes *nodes = &comm->remote->nodes;
    int32_t leader = leader_of(nodes, nodes->mine);
    const struct uli_control *control = comm->peers[leader].control;
    nodes->table =
        uli_window_address(comm, leader, atomic_load(&control->table_window),
            (int64_t)atomic_load(&control->table_offset), table_bytes(comm));
}

static struct uli_agree_post *
nodes_place(const ulyx_comm_t *comm, int32_t rank, uint64_t round)
{
    const struct uli_nodes *nodes = &comm->remote->nodes;
    int64_t at = (int64_t)(round & 1) * comm->nranks + rank;
    return (struct uli_agree_post *)(nodes->table + at * nodes->stride_bytes);
}

const struct uli_agree_post *
uli_nodes_post(ulyx_comm_t *comm, int32_t rank, uint64_t round)
{
    if (!comm->remote->nodes.table)
        find_table(comm);
    return comm->remote->nodes.table ? nodes_place(comm, rank, round) : NULL;
}

/* ---- sending ------------------------------------------------------------- */

/* A message that is being filled. */
struct parcel {
    int32_t to;
    size_t used;
    _Alignas(8) unsigned char bytes[ULI_NET_MESSAGE_BYTES];
};

static void
open_parcel(const ulyx_comm_t *comm, struct parcel *parcel, uint64_t round)
{
    struct posts posts = {{comm->remote->token, ULI_MESSAGE_POSTS, 0}, round};
    memcpy(parcel->bytes, &posts, sizeof(posts));
    parcel->used = sizeof(posts);
}

static ulyx_status_t
send_parcel(ulyx_comm_t *comm, struct parcel *parcel)
{
    return uli_remote_send(comm, parcel->to, parcel->bytes, parcel->used);
}

static ulyx_status_t
add_post(ulyx_comm_t *comm, struct parcel *parcel, int32_t rank, uint64_t round)
{
    const struct uli_agree_post *post =
        uli_rounds_read(comm, ULI_ROUNDS_AGREE, rank, round);
    struct entry entry = {rank, post->call, post->status, post->bytes,
        post->sequence, post->total_bytes};
    size_t padded = (size_t)uli_round_up(post->bytes, 8);
    if (parcel->used + sizeof(entry) + padded > sizeof(parcel->bytes)) {
        ULI_TRY(send_parcel(comm, parcel));
        open_parcel(comm, parcel, round);
    }
    memcpy(parcel->bytes + parcel->used, &entry, sizeof(entry));
    memcpy(parcel->bytes + parcel->used + sizeof(entry), post->payload,
        post->bytes);
    memset(parcel->bytes + parcel->used + sizeof(entry) + post->bytes, 0,
        padded - post->bytes);
    parcel->used += sizeof(entry) + padded;
    ((struct posts *)parcel->bytes)->head.count++;
    return ULYX_SUCCESS;
}

/* Sends the posts of `count` nodes from this node on. */
static ulyx_status_t
send_nodes(ulyx_comm_t *comm, int32_t to, int32_t count, uint64_t round)
{
    const struct uli_nodes *nodes = &comm->remote->nodes;
    struct parcel parcel = {.to = to};
    open_parcel(comm, &parcel, round);
    for (int32_t i = 0; i < count; i++) {
        int32_t node = (nodes->mine + i) % comm->nnodes;
        for (int32_t at = nodes->first[node]; at < nodes->first[node + 1]; at++)
            ULI_TRY(add_post(comm, &parcel, nodes->order[at], round));
    }
    return send_parcel(comm, &parcel);
}

/* Whether the posts of `count` nodes from this node on are here. Continues
 * where the last check ended. */
static bool
have_nodes(ulyx_comm_t *comm, int32_t count, uint64_t round)
{
    struct uli_nodes *nodes = &comm->remote->nodes;
    for (; nodes->present_nodes < count; nodes->present_nodes++) {
        int32_t node = (nodes->mine + nodes->present_nodes) % comm->nnodes;
        int32_t ranks = nodes->first[node + 1] - nodes->first[node];
        for (; nodes->present_ranks < ranks; nodes->present_ranks++) {
            int32_t at = nodes->first[node] + nodes->present_ranks;
            if (!uli_rounds_has(
                    comm, ULI_ROUNDS_AGREE, nodes->order[at], round))
                return false;
        }
        nodes->present_ranks = 0;
    }
    return true;
}

bool
uli_nodes_drive(ulyx_comm_t *comm, uint64_t round)
{
    struct uli_nodes *nodes = &comm->remote->nodes;
    int32_t count = comm->nnodes;
    if (!nodes_leads(comm, nodes))
        return true;
    if (nodes->round != round) {
        nodes->round = round;
        nodes->distance = 1;
        nodes->present_nodes = nodes->present_ranks = 0;
    }
    for (; nodes->distance < count; nodes->distance *= 2) {
        int32_t share =
            (int32_t)uli_min(nodes->distance, count - nodes->distance);
        int32_t to = (nodes->mine - nodes->distance + count) % count;
        if (!have_nodes(comm, share, round) ||
            send_nodes(comm, leader_of(nodes, to), share, round) !=
                ULYX_SUCCESS)
            return false;
    }
    return true;
}

/* ---- receiving (hook) ---------------------------------------------------- */

static void
ring_node(ulyx_comm_t *comm)
{
    const struct uli_nodes *nodes = &comm->remote->nodes;
    int32_t end = nodes->first[nodes->mine + 1];
    for (int32_t at = nodes->first[nodes->mine]; at < end; at++)
        if (nodes->order[at] != comm->rank)
            uli_doorbell_ring(comm->peers[nodes->order[at]].control);
}

/* The last missing post wakes the node. */
static void
count_post(ulyx_comm_t *comm, uint64_t round)
{
    struct uli_nodes *nodes = &comm->remote->nodes;
    int32_t here = nodes->first[nodes->mine + 1] - nodes->first[nodes->mine];
    if (nodes->came_round[round & 1] != round) {
        nodes->came_round[round & 1] = round;
        nodes->came[round & 1] = 0;
    }
    if (++nodes->came[round & 1] == comm->nranks - here)
        ring_node(comm);
}

static bool
take_entry(ulyx_comm_t *comm, const struct entry *entry, uint64_t round)
{
    const struct uli_nodes *nodes = &comm->remote->nodes;
    if (entry->rank < 0 || entry->rank >= comm->nranks ||
        comm->peers[entry->rank].node == nodes->mine ||
        entry->bytes > nodes->chunk_bytes)
        return false;
    struct uli_agree_post *post = nodes_place(comm, entry->rank, round);
    post->call = entry->call;
    post->status = entry->status;
    post->sequence = entry->sequence;
    post->total_bytes = entry->total_bytes;
    post->bytes = entry->bytes;
    memcpy(post->payload, entry + 1, entry->bytes);
    atomic_store_explicit(&post->round, round, memory_order_release);
    count_post(comm, round);
    return true;
}

void
uli_nodes_receive(ulyx_comm_t *comm, const void *message, size_t bytes)
{
    const struct posts *posts = message;
    size_t at = sizeof(*posts);
    if (bytes < at || !comm->remote->nodes.table ||
        !nodes_leads(comm, &comm->remote->nodes))
        return;
    for (uint32_t i = 0; i < posts->head.count; i++) {
        const struct entry *entry =
            (const struct entry *)((const char *)message + at);
        if (bytes - at < sizeof(*entry))
            return;
        size_t padded = (size_t)uli_round_up(entry->bytes, 8);
        if (bytes - at - sizeof(*entry) < padded ||
            !take_entry(comm, entry, posts->round))
            return;
        at += sizeof(*entry) + padded;
    }
}

/* ---- missing ranks ------------------------------------------------------- */

bool
uli_nodes_came(const ulyx_comm_t *comm, int32_t rank, uint64_t round)
{
    return atomic_load(&comm->remote->peers[rank].here) >= round;
}

bool
uli_nodes_answered(const ulyx_comm_t *comm, int32_t rank, uint64_t round)
{
    int32_t leader = leader_of(&comm->remote->nodes, comm->peers[rank].node);
    return atomic_load(&comm->remote->peers[leader].answered) == round;
}

static bool
is_missing(ulyx_comm_t *comm, int32_t rank, uint64_t round)
{
    return uli_comm_is_remote(comm, rank) &&
           !uli_rounds_has(comm, ULI_ROUNDS_AGREE, rank, round) &&
           !uli_nodes_came(comm, rank, round);
}

void
uli_nodes_query(ulyx_comm_t *comm, uint64_t round, bool all)
{
    const struct uli_nodes *nodes = &comm->remote->nodes;
    for (int32_t node = 0; node < comm->nnodes; node++) {
        int32_t queried = 0;
        for (int32_t at = nodes->first[node]; at < nodes->first[node + 1];
             at++) {
            struct uli_message query = {
                .head.kind = ULI_MESSAGE_QUERY, .value = round};
            int32_t rank = nodes->order[at];
            if (!is_missing(comm, rank, round) || (queried++ > 0 && !all))
                continue;
            uli_remote_send_message(
                comm, all ? rank : leader_of(nodes, node), &query, NULL, 0);
        }
    }
}

/* A rank's entry in an answer. A rank that has not come, and is not known to
 * wait for a rank, has none. */
struct whereabouts {
    int32_t rank;
    int32_t awaits; /* -1: the rank has come */
};

static bool
has_posted(const ulyx_comm_t *comm, int32_t rank, uint64_t round)
{
    struct uli_control *control = comm->peers[rank].control;
    return atomic_load(&control->agree[0].round) >= round ||
           atomic_load(&control->agree[1].round) >= round;
}

/* Hook: answers which ranks of this node have come to the round, or are beyond
 * it, and for which rank each other one waits. */
void
uli_nodes_answer(ulyx_comm_t *comm, int32_t from, uint64_t round)
{
    enum { MOST = (ULI_NET_MESSAGE_BYTES - 64) / sizeof(struct whereabouts) };
    const struct uli_nodes *nodes = &comm->remote->nodes;
    struct uli_message here = {.head.kind = ULI_MESSAGE_HERE, .value = round};
    struct whereabouts ranks[MOST];
    size_t count = 0;
    int32_t end = nodes->first[nodes->mine + 1];
    for (int32_t at = nodes->first[nodes->mine]; at < end && count < MOST;
         at++) {
        int32_t rank = nodes->order[at];
        bool came = has_posted(comm, rank, round);
        int32_t awaits = came ? -1 : uli_comm_awaits(comm, rank);
        if (came || awaits >= 0)
            ranks[count++] = (struct whereabouts){rank, awaits};
    }
    uli_remote_post(comm, from, &here, ranks, count * sizeof(ranks[0]));
}

void
uli_nodes_here(ulyx_comm_t *comm, int32_t from,
    const struct uli_message *message, size_t bytes)
{
    size_t count = (bytes - sizeof(*message)) / sizeof(struct whereabouts);
    for (size_t i = 0; i < count; i++) {
        struct whereabouts it;
        memcpy(&it, message->more + i * sizeof(it), sizeof(it));
        if (it.rank < 0 || it.rank >= comm->nranks || it.awaits < -1 ||
            it.awaits >= comm->nranks)
            continue;
        struct uli_remote_peer *peer = &comm->remote->peers[it.rank];
        atomic_store(&peer->awaits, it.awaits);
        atomic_store(
            it.awaits < 0 ? &peer->here : &peer->waits, message->value);
    }
    atomic_store(&comm->remote->peers[from].answered, message->value);
}

int32_t
uli_nodes_awaits(const ulyx_comm_t *comm, int32_t rank, uint64_t round)
{
    const struct uli_remote_peer *peer = &comm->remote->peers[rank];
    int32_t awaits = atomic_load(&peer->awaits);
    return atomic_load(&peer->waits) == round && awaits != rank ? awaits : -1;
}

/* ---- nodes that do not pass posts on ------------------------------------- */

static bool
node_is_silent(ulyx_comm_t *comm, int32_t node, uint64_t round)
{
    const struct uli_nodes *nodes = &comm->remote->nodes;
    for (int32_t at = nodes->first[node]; at < nodes->first[node + 1]; at++)
        if (!uli_rounds_has(comm, ULI_ROUNDS_AGREE, nodes->order[at], round))
            return true;
    return false;
}

/* The leaders of nodes whose posts are not here: all of them, or only those
 * that have not answered either. Every message of a node begins with the node's
 * own posts, so a node that holds up posts of others has its own posts missing
 * here too and is among these. */
static struct uli_late
silent_leaders(ulyx_comm_t *comm, uint64_t round, bool all)
{
    const struct uli_nodes *nodes = &comm->remote->nodes;
    struct uli_late late = uli_late_none(ULI_LATE_RELAY);
    for (int32_t p = 0; p < comm->nranks; p++) {
        int32_t node = comm->peers[p].node;
        if (node != nodes->mine && p == leader_of(nodes, node) &&
            (all || atomic_load(&comm->remote->peers[p].answered) != round) &&
            node_is_silent(comm, node, round))
            uli_late_add(&late, p);
    }
    return late;
}

/* A leader that runs records the rank for which it waits, and its network
 * thread answers other nodes. A leader that does neither is stopped. */
struct uli_late
uli_nodes_relays(ulyx_comm_t *comm, uint64_t round)
{
    int32_t own = leader_of(&comm->remote->nodes, comm->remote->nodes.mine);
    struct uli_late late = silent_leaders(comm, round, true);
    if (late.count == 0)
        return late;
    if (own != comm->rank && uli_comm_awaits(comm, own) < 0)
        return uli_late_one(ULI_LATE_RELAY, own);
    struct uli_late mute = silent_leaders(comm, round, false);
    if (mute.count > 0)
        return mute;
    return own != comm->rank ? uli_late_one(ULI_LATE_RELAY, own) : late;
}
