/* SPDX-License-Identifier: Apache-2.0
 *
 * The hierarchical schedule of a plan: its life and where its memory lies.
 *
 * The arena piece of a rank, which anybody computes from the numbers of ranks
 * alone (so nothing but its beginning is gathered):
 *   board   at the first rank of a node: seats of its ranks, then mail from
 *           each other node
 *   lanes   that the rank carries: those out by node and number, those in by
 *           node, and one of its own node; each words, then K places of
 *           chunk_bytes
 */
#include "collectives/hier/plan_hier.h"

#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "comm/remote/remote.h"

/* ---- the piece ----------------------------------------------------------- */

static int64_t
mail_bytes(const struct uli_hier_nodes *nodes, int32_t from)
{
    return (int64_t)sizeof(struct uli_hier_mail) +
           uli_round_up(2 * uli_nodes_size(nodes, from) *
                            (int64_t)sizeof(struct uli_hier_record),
               ULI_LINE);
}

/* Of the mail from a node in the board of another; from = nnodes: the end. */
static int64_t
mail_at(const struct uli_hier_nodes *nodes, int32_t node, int32_t from)
{
    int64_t at =
        (int64_t)sizeof(struct uli_hier_board) +
        uli_nodes_size(nodes, node) * (int64_t)sizeof(struct uli_hier_seat);
    for (int32_t n = 0; n < from; n++)
        at += n == node ? 0 : mail_bytes(nodes, n);
    return at;
}

static int64_t
words_bytes(const struct uli_hier_nodes *nodes, int32_t node)
{
    return (int64_t)sizeof(struct uli_hier_words) +
           2 * uli_nodes_size(nodes, node) *
               (int64_t)sizeof(struct uli_hier_word);
}

/* Number of the lane among those that the rank carries; kind OWN: their last.
 */
static int32_t
carried_index(const struct uli_hier_nodes *nodes, int32_t rank,
    enum uli_hier_kind kind, int32_t node, int32_t lane)
{
    int32_t home = nodes->node[rank], size = uli_nodes_size(nodes, home);
    int32_t count = 0;
    for (int32_t n = 0; n < nodes->nnodes; n++)
        for (int32_t j = nodes->local[rank];
             n != home && j < uli_nodes_size(nodes, n); j += size) {
            if (kind == ULI_HIER_OUT && n == node && j == lane)
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
lane_at(const struct uli_hier *h, int32_t rank, enum uli_hier_kind kind,
    int32_t node, int32_t lane)
{
    const struct uli_hier_nodes *nodes = &h->nodes;
    int32_t home = nodes->node[rank];
    int64_t board =
        nodes->local[rank] == 0 ? mail_at(nodes, home, nodes->nnodes) : 0;
    return board +
           carried_index(nodes, rank, kind, node, lane) *
               (words_bytes(nodes, home) + ULI_HIER_CHUNKS * h->chunk_bytes);
}

static int64_t
piece_bytes(const struct uli_hier *h, int32_t rank)
{
    return lane_at(h, rank, ULI_HIER_OWN, -1, -1) +
           words_bytes(&h->nodes, h->nodes.node[rank]) +
           ULI_HIER_CHUNKS * h->chunk_bytes;
}

/* ---- before the agreement ------------------------------------------------ */

static void
set_lane(struct uli_hier *h, enum uli_hier_kind kind, int32_t node,
    int32_t index, int32_t begins, int32_t ends)
{
    struct uli_hier_lane *lane = &h->lanes[h->nlanes++];
    lane->kind = kind;
    lane->node = node;
    lane->index = index;
    lane->carrier = kind == ULI_HIER_OUT ? begins : ends;
    lane->far = kind == ULI_HIER_OUT ? ends : begins;
}

/* Lane j from a node to another begins at local rank j mod size. */
static void
set_lanes(struct uli_hier *h)
{
    const struct uli_hier_nodes *nodes = &h->nodes;
    for (int32_t n = 0; n < nodes->nnodes; n++) {
        h->out_first[n] = h->nlanes;
        for (int32_t j = 0; n != h->node && j < uli_nodes_size(nodes, n); j++)
            set_lane(h, ULI_HIER_OUT, n, j,
                uli_nodes_rank(nodes, h->node, j % h->size),
                uli_nodes_rank(nodes, n, j));
    }
    for (int32_t n = 0; n < nodes->nnodes; n++) {
        h->in_first[n] = h->nlanes;
        for (int32_t j = 0; j < h->size; j++)
            set_lane(h, n == h->node ? ULI_HIER_OWN : ULI_HIER_IN, n, j,
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
    size_t lanes = (size_t)h->nodes.nranks + nnodes * (size_t)h->size;
    h->mails = calloc(nnodes, sizeof(*h->mails));
    h->mails_there = calloc(nnodes, sizeof(*h->mails_there));
    h->out_first = calloc(nnodes, sizeof(*h->out_first));
    h->in_first = calloc(nnodes, sizeof(*h->in_first));
    h->lanes = calloc(lanes, sizeof(*h->lanes));
    h->acc = malloc(ULI_HIER_ACC_BYTES);
    h->group_acc = malloc(ULI_HIER_ACC_BYTES);
    h->packed = malloc(ULI_HIER_ACC_BYTES);
    h->fixed_bytes =
        (int64_t)(lanes * sizeof(*h->lanes)) + 3 * ULI_HIER_ACC_BYTES;
    return h->mails && h->mails_there && h->out_first && h->in_first &&
           h->lanes && h->acc && h->group_acc && h->packed;
}

ulyx_status_t
uli_hier_create(struct ulyx_plan *plan)
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
    set_lanes(h);
    h->chunk_bytes = plan->schedule_chunk_bytes;
    for (int direction = 0; direction < ULYX_DIRECTIONS; direction++)
        if (plan->directions >> direction & 1)
            ULI_TRY(uli_hier_build(plan, direction, &h->work[direction]));
    ULI_TRY(uli_arena_alloc(h->comm, piece_bytes(h, h->comm->rank), &h->piece));
    plan->info.schedule.window = h->piece.window;
    plan->info.schedule.offset = h->piece.offset;
    return ULYX_SUCCESS;
}

/* ---- after it ------------------------------------------------------------ */

/* Bytes of a local rank's piece, mapped here; NULL fails. */
static char *
address_mapped(
    const struct ulyx_plan *plan, int32_t rank, int64_t at, int64_t bytes)
{
    const struct uli_hier *h = uli_hier_of(&plan->exchange);
    const struct uli_address *piece = &plan->ranks[rank].schedule;
    if (rank == h->comm->rank)
        return (char *)h->piece.address + at;
    return uli_window_address(
        h->comm, rank, piece->window, piece->offset + at, bytes);
}

static bool
connect_board(const struct ulyx_plan *plan, struct uli_hier *h)
{
    const struct uli_hier_nodes *nodes = &h->nodes;
    char *board = address_mapped(plan, uli_nodes_rank(nodes, h->node, 0), 0,
        mail_at(nodes, h->node, nodes->nnodes));
    h->board = (struct uli_hier_board *)board;
    for (int32_t n = 0; n < nodes->nnodes; n++) {
        if (n == h->node)
            continue;
        h->mails[n] =
            (struct uli_hier_mail *)(board + mail_at(nodes, h->node, n));
        h->mails_there[n] = plan->ranks[uli_nodes_rank(nodes, n, 0)].schedule;
        h->mails_there[n].offset += mail_at(nodes, n, h->node);
    }
    return board != NULL;
}

static bool
connect_lane(const struct ulyx_plan *plan, const struct uli_hier *h,
    struct uli_hier_lane *lane)
{
    int64_t words = words_bytes(&h->nodes, h->node);
    char *at = address_mapped(plan, lane->carrier,
        lane_at(h, lane->carrier, lane->kind, lane->node, lane->index),
        words + ULI_HIER_CHUNKS * h->chunk_bytes);
    if (!at)
        return false;
    lane->words = (struct uli_hier_words *)at;
    lane->filled = lane->words->counts;
    lane->taken = lane->filled + h->size;
    lane->staging = at + words;
    if (lane->kind == ULI_HIER_OWN)
        return true;
    /* What goes out here comes in there, from this node, and conversely. */
    lane->far_words = plan->ranks[lane->far].schedule;
    lane->far_words.offset += lane_at(h, lane->far,
        lane->kind == ULI_HIER_OUT ? ULI_HIER_IN : ULI_HIER_OUT, h->node,
        lane->index);
    lane->far_staging = words_bytes(&h->nodes, lane->node);
    return true;
}

ulyx_status_t
uli_hier_connect(struct ulyx_plan *plan)
{
    struct uli_hier *h = uli_hier_of(&plan->exchange);
    bool good = connect_board(plan, h);
    int32_t p = uli_nodes_rank(&h->nodes, h->node, 0);
    for (int32_t i = 0; good && i < h->nlanes; i++) {
        p = h->lanes[i].carrier;
        good = connect_lane(plan, h, &h->lanes[i]);
    }
    if (good)
        return ULYX_SUCCESS;
    return uli_comm_fail(h->comm, ULYX_ERR_INTERNAL, p,
        "plan create: the arena of rank %d is not mapped here", p);
}

void
uli_hier_rebuild(struct ulyx_plan *plan)
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

void
uli_hier_destroy(struct uli_hier *h)
{
    if (!h)
        return;
    for (int direction = 0; direction < ULYX_DIRECTIONS; direction++)
        uli_hier_free_work(h, &h->work[direction]);
    uli_nodes_destroy(&h->nodes);
    free(h->mails);
    free(h->mails_there);
    free(h->out_first);
    free(h->in_first);
    free(h->lanes);
    free(h->acc);
    free(h->group_acc);
    free(h->packed);
    free(h);
}
