/* SPDX-License-Identifier: Apache-2.0
 *
 * The hierarchical schedule as a row of the table: what crosses nodes is its
 * own (hier.h), what stays in one is the pairs'.
 */
#include "collectives/exchange/exchange_schedule.h"

#include <stdio.h>
#include "base/status.h"
#include "collectives/hier/hier.h"
#include "collectives/plan/plan.h"

/* ---- the life of a plan -------------------------------------------------- */

/* Device memory has movers of its own. */
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
    uli_hier_destroy(hier);
}

/* ---- what it carries ----------------------------------------------------- */

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

/* It knows of all ranks, pairs only of those of the node. */
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

/* ---- what it is and does ------------------------------------------------- */

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

/* Phases, staging, what crosses. */
static void
hier_describe(const struct ulyx_plan *plan, char *text_p, size_t text_bytes)
{
    const struct uli_hier *hier = uli_hier_of(&plan->exchange);
    size_t length = (size_t)snprintf(text_p, text_bytes,
        "; between %d nodes: gather, wire, spread in chunks of %lld, %d a rail "
        "(%lld staging bytes)",
        hier->nodes.nnodes, (long long)hier->chunk_bytes, ULI_HIER_CHUNKS,
        (long long)plan->exchange.rings.full.schedule_bytes);
    for (int direction = 0; direction < ULYX_DIRECTIONS && length < text_bytes;
         direction++) {
        const struct uli_hier_work *work = &hier->work[direction];
        if (!(plan->directions >> direction & 1))
            continue;
        length += (size_t)snprintf(text_p + length, text_bytes - length,
            ", %s %lld bytes leave the node (direct would send %lld more), "
            "%lld by this rank",
            uli_direction_name(direction), (long long)work->node.wire,
            (long long)(work->node.direct - work->node.wire),
            (long long)work->carried_bytes);
    }
}

const struct uli_schedule_ops uli_schedule_hier = {
    .applicable = hier_applicable,
    .create = uli_hier_create,
    .connect = uli_hier_connect,
    .rebuild = uli_hier_rebuild,
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
    .tells_waits = false,
    .wire_bytes = hier_wire_bytes,
    .bytes = hier_bytes,
    .describe = hier_describe,
};
