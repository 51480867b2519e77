/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops of the hierarchical schedule. The schedule carries what crosses nodes
 * (hier.h), and pairs carry what stays in a node.
 *
 * The arena block of a rank:
 *   mailbox   at the first rank of a node: slots of the node's ranks, then a
 *             message from each other node
 *   flags     of the rails whose proxy is the rank: outgoing rails by node and
 *             number, incoming rails by node, and the rail of the own node
 * Every rank computes the layout of every block from the numbers of ranks
 * alone, so only the address of each block is gathered.
 *
 * The staging of these rails, ULI_HIER_CHUNKS chunks each, in the same order,
 * is at the beginning of the memory of a call (exchange_rings.c).
 */
#include "collectives/exchange/exchange_schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/hier/hier.h"
#include "collectives/hier/plan_hier.h"
#include "collectives/plan/plan.h"
#include "comm/remote/remote.h"

/* ---- the block ----------------------------------------------------------- */

static int64_t
message_bytes(const struct uli_hier_nodes *nodes, int32_t from)
{
    return (int64_t)sizeof(struct uli_hier_message) +
           uli_round_up(2 * uli_nodes_size(nodes, from) *
                            (int64_t)sizeof(struct uli_hier_record),
               ULI_LINE);
}

/* Byte offset of the message from node `from` in the mailbox of `node`; from =
 * nnodes: the end. */
static int64_t
message_at(const struct uli_hier_nodes *nodes, int32_t node, int32_t from)
{
    int64_t at =
        (int64_t)sizeof(struct uli_hier_mailbox) +
        uli_nodes_size(nodes, node) * (int64_t)sizeof(struct uli_hier_slot);
    for (int32_t n = 0; n < from; n++)
        at += n == node ? 0 : message_bytes(nodes, n);
    return at;
}

static int64_t
flags_bytes(const struct uli_hier_nodes *nodes, int32_t node)
{
    return (int64_t)sizeof(struct uli_hier_flags) +
           2 * uli_nodes_size(nodes, node) *
               (int64_t)sizeof(struct uli_hier_flag);
}

/* Index of a rail among those whose proxy is the rank; kind OWN: the last. */
static int32_t
carried_index(const struct uli_hier_nodes *nodes, int32_t rank,
    enum uli_hier_kind kind, int32_t node, int32_t rail)
{
    int32_t home = nodes->node[rank], size = uli_nodes_size(nodes, home);
    int32_t count = 0;
    for (int32_t n = 0; n < nodes->nnodes; n++)
        for (int32_t j = nodes->local[rank];
             n != home && j < uli_nodes_size(nodes, n); j += size) {
            if (kind == ULI_HIER_OUT && n == node && j == rail)
                return count;
            count++;
        }
    for (int32_t n = 0; n < nodes->nnodes; n++) {
        if (kind == ULI_HIER_IN && n == node)
            return count;
        count += n != home;
    }
    return count;
}

static int64_t
rail_at(const struct uli_hier *h, int32_t rank, enum uli_hier_kind kind,
    int32_t node, int32_t rail)
{
    const struct uli_hier_nodes *nodes = &h->nodes;
    int32_t home = nodes->node[rank];
    int64_t mailbox =
        nodes->local[rank] == 0 ? message_at(nodes, home, nodes->nnodes) : 0;
    return mailbox + carried_index(nodes, rank, kind, node, rail) *
                         flags_bytes(nodes, home);
}

static int64_t
block_bytes(const struct uli_hier *h, int32_t rank)
{
    return rail_at(h, rank, ULI_HIER_OWN, -1, -1) +
           flags_bytes(&h->nodes, h->nodes.node[rank]);
}

/* Bytes of staging of this rank's rails. */
static int64_t
staging_bytes(const struct uli_hier *h, int64_t chunk_bytes)
{
    int64_t rails =
        carried_index(&h->nodes, h->comm->rank, ULI_HIER_OWN, -1, -1) + 1;
    return rails * ULI_HIER_CHUNKS * chunk_bytes;
}

/* ---- before the agreement ------------------------------------------------ */

static void
set_rail(struct uli_hier *h, enum uli_hier_kind kind, int32_t node,
    int32_t index, int32_t begins, int32_t ends)
{
    struct uli_hier_rail *rail = &h->rails[h->nrails++];
    rail->kind = kind;
    rail->node = node;
    rail->index = index;
    rail->proxy = kind == ULI_HIER_OUT ? begins : ends;
    rail->far = kind == ULI_HIER_OUT ? ends : begins;
}

/* Rail j from a node to another begins at local rank j mod size. */
static void
set_rails(struct uli_hier *h)
{
    const struct uli_hier_nodes *nodes = &h->nodes;
    for (int32_t n = 0; n < nodes->nnodes; n++) {
        h->out_first[n] = h->nrails;
        for (int32_t j = 0; n != h->node && j < uli_nodes_size(nodes, n); j++)
            set_rail(h, ULI_HIER_OUT, n, j,
                uli_nodes_rank(nodes, h->node, j % h->size),
                uli_nodes_rank(nodes, n, j));
    }
    for (int32_t n = 0; n < nodes->nnodes; n++) {
        h->in_first[n] = h->nrails;
        for (int32_t j = 0; j < h->size; j++)
            set_rail(h, n == h->node ? ULI_HIER_OWN : ULI_HIER_IN, n, j,
                uli_nodes_rank(nodes, n, j % uli_nodes_size(nodes, n)),
                uli_nodes_rank(nodes, h->node, j));
    }
}

static ulyx_status_t
find_nodes(struct uli_hier *h)
{
    const ulyx_comm_t *comm = h->comm;
    int32_t *node = calloc((size_t)comm->nranks, sizeof(*node));
    if (!node)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    for (int32_t p = 0; p < comm->nranks; p++)
        node[p] = comm->peers[p].node;
    ulyx_status_t status =
        uli_nodes_create(comm->nranks, comm->nnodes, node, &h->nodes);
    free(node);
    ULI_TRY(status);
    h->node = h->nodes.node[comm->rank];
    h->local = h->nodes.local[comm->rank];
    h->size = uli_nodes_size(&h->nodes, h->node);
    return ULYX_SUCCESS;
}

static bool
hier_allocate(struct uli_hier *h)
{
    size_t nnodes = (size_t)h->nodes.nnodes;
    size_t rails = (size_t)h->nodes.nranks + nnodes * (size_t)h->size;
    h->mails = calloc(nnodes, sizeof(*h->mails));
    h->messages_there = calloc(nnodes, sizeof(*h->messages_there));
    h->out_first = calloc(nnodes, sizeof(*h->out_first));
    h->in_first = calloc(nnodes, sizeof(*h->in_first));
    h->rails = calloc(rails, sizeof(*h->rails));
    h->fixed_bytes = (int64_t)(rails * sizeof(*h->rails));
    return h->mails && h->messages_there && h->out_first && h->in_first &&
           h->rails;
}

static ulyx_status_t
hier_create(struct ulyx_plan *plan)
{
    struct uli_hier *h = calloc(1, sizeof(*h));
    if (!h)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    plan->exchange.schedule_state = h;
    h->comm = plan->comm;
    h->exchange = &plan->exchange;
    h->layout = plan->layout;
    ULI_TRY(find_nodes(h));
    if (!hier_allocate(h))
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    set_rails(h);
    h->chunk_bytes = plan->schedule_chunk_bytes;
    h->small_bytes = uli_min(h->chunk_bytes, ULI_SMALL_CHUNK_BYTES);
    plan->exchange.rings.full.schedule_bytes = staging_bytes(h, h->chunk_bytes);
    plan->exchange.rings.small.schedule_bytes =
        staging_bytes(h, h->small_bytes);
    for (int direction = 0; direction < ULYX_DIRECTIONS; direction++)
        if (plan->directions >> direction & 1)
            ULI_TRY(uli_hier_build(plan, direction, &h->work[direction]));
    ULI_TRY(uli_arena_alloc(h->comm, block_bytes(h, h->comm->rank), &h->block));
    plan->info.schedule.window = h->block.window;
    plan->info.schedule.offset = h->block.offset;
    return ULYX_SUCCESS;
}

/* ---- after the agreement ------------------------------------------------- */

/* The address of bytes in the block of a rank of this node; NULL: the block is
 * not mapped. */
static char *
address_mapped(
    const struct ulyx_plan *plan, int32_t rank, int64_t at, int64_t bytes)
{
    const struct uli_hier *h = uli_hier_of(&plan->exchange);
    const struct uli_address *block = &plan->ranks[rank].schedule;
    if (rank == h->comm->rank)
        return (char *)h->block.address + at;
    return uli_window_address(
        h->comm, rank, block->window, block->offset + at, bytes);
}

static bool
connect_mailbox(const struct ulyx_plan *plan, struct uli_hier *h)
{
    const struct uli_hier_nodes *nodes = &h->nodes;
    char *mailbox = address_mapped(plan, uli_nodes_rank(nodes, h->node, 0), 0,
        message_at(nodes, h->node, nodes->nnodes));
    h->mailbox = (struct uli_hier_mailbox *)mailbox;
    for (int32_t n = 0; n < nodes->nnodes; n++) {
        if (n == h->node)
            continue;
        h->mails[n] = (struct uli_hier_message *)(mailbox + message_at(nodes,
                                                                h->node, n));
        h->messages_there[n] =
            plan->ranks[uli_nodes_rank(nodes, n, 0)].schedule;
        h->messages_there[n].offset += message_at(nodes, n, h->node);
    }
    return mailbox != NULL;
}

static bool
connect_rail(const struct ulyx_plan *plan, const struct uli_hier *h,
    struct uli_hier_rail *rail)
{
    char *at = address_mapped(plan, rail->proxy,
        rail_at(h, rail->proxy, rail->kind, rail->node, rail->index),
        flags_bytes(&h->nodes, h->node));
    if (!at)
        return false;
    rail->words = (struct uli_hier_flags *)at;
    rail->filled = rail->words->counts;
    rail->taken = rail->filled + h->size;
    rail->place = carried_index(
        &h->nodes, rail->proxy, rail->kind, rail->node, rail->index);
    if (rail->kind == ULI_HIER_OWN)
        return true;
    /* A rail that is outgoing here is incoming at the other end, and
     * conversely. */
    enum uli_hier_kind there =
        rail->kind == ULI_HIER_OUT ? ULI_HIER_IN : ULI_HIER_OUT;
    rail->far_flags = plan->ranks[rail->far].schedule;
    rail->far_flags.offset +=
        rail_at(h, rail->far, there, h->node, rail->index);
    rail->far_place =
        carried_index(&h->nodes, rail->far, there, h->node, rail->index);
    return true;
}

static ulyx_status_t
hier_connect(struct ulyx_plan *plan)
{
    struct uli_hier *h = uli_hier_of(&plan->exchange);
    bool good = connect_mailbox(plan, h);
    int32_t p = uli_nodes_rank(&h->nodes, h->node, 0);
    for (int32_t i = 0; good && i < h->nrails; i++) {
        p = h->rails[i].proxy;
        good = connect_rail(plan, h, &h->rails[i]);
    }
    if (good)
        return ULYX_SUCCESS;
    return uli_comm_fail(h->comm, ULYX_ERR_INTERNAL, p,
        "plan create: the arena of rank %d is not mapped here", p);
}

static void
hier_rebuild(struct ulyx_plan *plan)
{
    struct uli_hier *h = uli_hier_of(&plan->exchange);
    h->broken = false;
    h->table_bytes = 0;
    for (int direction = 0; direction < ULYX_DIRECTIONS; direction++) {
        if (!(plan->directions >> direction & 1))
            continue;
        uli_hier_free_work(h, &h->work[direction]);
        if (uli_hier_build(plan, direction, &h->work[direction]) !=
            ULYX_SUCCESS)
            h->broken = true;
    }
}

static void
hier_free(struct uli_hier *h)
{
    if (!h)
        return;
    for (int direction = 0; direction < ULYX_DIRECTIONS; direction++)
        uli_hier_free_work(h, &h->work[direction]);
    uli_nodes_destroy(&h->nodes);
    free(h->mails);
    free(h->messages_there);
    free(h->out_first);
    free(h->in_first);
    free(h->rails);
    free(h);
}

/* ---- the life of a plan -------------------------------------------------- */

/* The schedule is for host memory on several nodes. Device memory has its own
 * movers. */
static bool
hier_applicable(const ulyx_comm_t *comm)
{
    return comm->nnodes > 1 && !comm->gpu;
}

static void
hier_leave(void *state)
{
    uli_hier_close(state);
}

static bool
hier_idle(void *state)
{
    return uli_hier_idle(state);
}

static void
hier_destroy(ulyx_comm_t *comm, void *state)
{
    struct uli_hier *hier = state;
    if (hier && comm && hier->block.address)
        uli_arena_free(comm, &hier->block);
    hier_free(hier);
}

/* ---- what the schedule carries ------------------------------------------- */

static bool
hier_carries(const struct uli_exchange *exchange, const struct uli_move *move)
{
    return uli_nodes_cross(&uli_hier_of(exchange)->nodes, move);
}

static bool
hier_parts(const struct uli_exchange *exchange, int32_t p)
{
    const struct uli_hier *hier = uli_hier_of(exchange);
    return hier->nodes.node[p] != hier->node;
}

/* ---- a call -------------------------------------------------------------- */

static ulyx_status_t
hier_check(const struct uli_exchange *exchange)
{
    return uli_hier_of(exchange)->broken
               ? uli_error(ULYX_ERR_NO_MEMORY,
                     "no memory for the tables of the last update")
               : ULYX_SUCCESS;
}

static bool
hier_may_post(const struct uli_exchange *exchange)
{
    return uli_hier_may_post(uli_hier_of(exchange));
}

static void
hier_start(struct uli_exchange *exchange)
{
    uli_hier_start(uli_hier_of(exchange));
}

static bool
hier_progress(struct uli_exchange *exchange)
{
    return uli_hier_progress(uli_hier_of(exchange));
}

static bool
hier_ended(const struct uli_exchange *exchange)
{
    return uli_hier_of(exchange)->ended;
}

/* The result follows from the schedule's records, which are those of all ranks;
 * pairs have the records of this node only. */
static ulyx_status_t
hier_result(struct uli_exchange *exchange)
{
    return uli_hier_result(uli_hier_of(exchange));
}

static void
hier_refuse(struct uli_exchange *exchange, ulyx_status_t status)
{
    uli_hier_refuse(uli_hier_of(exchange), status);
}

static bool
hier_missing(const struct uli_exchange *exchange, int32_t p)
{
    return uli_hier_missing(uli_hier_of(exchange), p);
}

/* ---- description and numbers --------------------------------------------- */

static int64_t
hier_wire_bytes(const struct uli_exchange *exchange, ulyx_direction_t direction,
    int64_t by_moves)
{
    (void)by_moves;
    return uli_hier_of(exchange)->work[direction].carried_bytes;
}

static int64_t
hier_bytes(const struct uli_exchange *exchange)
{
    const struct uli_hier *hier = uli_hier_of(exchange);
    return (int64_t)sizeof(*hier) + hier->fixed_bytes + hier->table_bytes +
           hier->block.bytes;
}

/* Phases, staging, and what crosses nodes. */
static void
hier_describe(const struct ulyx_plan *plan, char *text_p, size_t text_bytes)
{
    const struct uli_hier *hier = uli_hier_of(&plan->exchange);
    size_t length = (size_t)snprintf(text_p, text_bytes,
        "; between %d nodes: gather, wire, spread in chunks of %lld bytes, %d "
        "per rail (%lld staging bytes)",
        hier->nodes.nnodes, (long long)hier->chunk_bytes, ULI_HIER_CHUNKS,
        (long long)plan->exchange.rings.full.schedule_bytes);
    for (int direction = 0; direction < ULYX_DIRECTIONS && length < text_bytes;
         direction++) {
        const struct uli_hier_work *work = &hier->work[direction];
        if (!(plan->directions >> direction & 1))
            continue;
        length += (size_t)snprintf(text_p + length, text_bytes - length,
            ", %s %lld bytes leave the node (direct would send %lld more), "
            "%lld of them by this rank",
            uli_direction_name(direction), (long long)work->node.wire,
            (long long)(work->node.direct - work->node.wire),
            (long long)work->carried_bytes);
    }
}

const struct uli_schedule_ops uli_schedule_hier = {
    .applicable = hier_applicable,
    .create = hier_create,
    .connect = hier_connect,
    .rebuild = hier_rebuild,
    .lay = uli_hier_lay,
    .leave = hier_leave,
    .idle = hier_idle,
    .destroy = hier_destroy,
    .carries = hier_carries,
    .parts = hier_parts,
    .check = hier_check,
    .may_post = hier_may_post,
    .start = hier_start,
    .progress = hier_progress,
    .ended = hier_ended,
    .result = hier_result,
    .refuse = hier_refuse,
    .missing = hier_missing,
    .announces_waits = false,
    .wire_bytes = hier_wire_bytes,
    .bytes = hier_bytes,
    .describe = hier_describe,
};
