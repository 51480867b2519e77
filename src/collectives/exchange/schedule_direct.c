/* SPDX-License-Identifier: Apache-2.0
 *
 * Direct: the pairs of the engine move everything, from every rank to every
 * other. Pairwise: as direct, to at most ULYX_NET_PEERS ranks of other nodes at
 * one time.
 */
#include "collectives/exchange/exchange_schedule.h"
#include "collectives/plan/plan.h"

/* ---- the life of a plan -------------------------------------------------- */

static bool
direct_applicable(const ulyx_comm_t *comm)
{
    (void)comm;
    return true;
}

static ulyx_status_t
direct_create(struct ulyx_plan *plan)
{
    plan->exchange.peer_limit = 0;
    return ULYX_SUCCESS;
}

static ulyx_status_t
pairwise_create(struct ulyx_plan *plan)
{
    plan->exchange.peer_limit = plan->comm->settings.net_peers;
    return ULYX_SUCCESS;
}

static ulyx_status_t
direct_connect(struct ulyx_plan *plan)
{
    (void)plan;
    return ULYX_SUCCESS;
}

static void
direct_rebuild(struct ulyx_plan *plan)
{
    (void)plan;
}

static void
direct_lay(struct ulyx_plan *plan, ulyx_direction_t direction)
{
    (void)plan;
    (void)direction;
}

static void
direct_leave(void *state)
{
    (void)state;
}

static bool
direct_idle(void *state)
{
    (void)state;
    return true;
}

static void
direct_destroy(ulyx_comm_t *comm, void *state)
{
    (void)comm;
    (void)state;
}

/* ---- what it carries ----------------------------------------------------- */

static bool
direct_carries(const struct uli_exchange *exchange, const struct uli_move *move)
{
    (void)exchange;
    (void)move;
    return false;
}

static bool
direct_parts(const struct uli_exchange *exchange, int32_t p)
{
    (void)exchange;
    (void)p;
    return false;
}

/* ---- a call -------------------------------------------------------------- */

static ulyx_status_t
direct_check(const struct uli_exchange *exchange)
{
    (void)exchange;
    return ULYX_SUCCESS;
}

static bool
direct_may_post(const struct uli_exchange *exchange)
{
    (void)exchange;
    return true;
}

static void
direct_start(struct uli_exchange *exchange)
{
    (void)exchange;
}

static bool
direct_progress(struct uli_exchange *exchange)
{
    (void)exchange;
    return false;
}

static bool
direct_ended(const struct uli_exchange *exchange)
{
    (void)exchange;
    return true;
}

static ulyx_status_t
direct_result(struct uli_exchange *exchange)
{
    for (int32_t p = 0; p < exchange->nranks; p++) {
        const struct uli_pair *pair = &exchange->pairs[p];
        if (pair->shares && pair->skip)
            return pair->gone ? uli_exchange_report_gone(exchange, p)
                              : exchange->report(exchange, p);
    }
    return ULYX_SUCCESS;
}

static void
direct_refuse(struct uli_exchange *exchange, ulyx_status_t status)
{
    (void)exchange;
    (void)status;
}

static bool
direct_missing(const struct uli_exchange *exchange, int32_t p)
{
    (void)exchange;
    (void)p;
    return false;
}

/* ---- what it is and does ------------------------------------------------- */

static int64_t
direct_wire_bytes(const struct uli_exchange *exchange,
    ulyx_direction_t direction, int64_t by_moves)
{
    (void)exchange;
    (void)direction;
    return by_moves;
}

static int64_t
direct_bytes(const struct uli_exchange *exchange)
{
    (void)exchange;
    return 0;
}

static void
direct_describe(const struct ulyx_plan *plan, char *text_p, size_t text_bytes)
{
    (void)plan;
    (void)text_bytes;
    text_p[0] = 0;
}

/* ---- the rows ------------------------------------------------------------ */

#define BY_PAIRS                                                               \
    .applicable = direct_applicable, .connect = direct_connect,                \
    .rebuild = direct_rebuild, .lay = direct_lay, .leave = direct_leave,       \
    .idle = direct_idle, .destroy = direct_destroy, .carries = direct_carries, \
    .parts = direct_parts, .check = direct_check, .may_post = direct_may_post, \
    .start = direct_start, .progress = direct_progress, .ended = direct_ended, \
    .result = direct_result, .refuse = direct_refuse,                          \
    .missing = direct_missing, .announces_waits = true,                        \
    .wire_bytes = direct_wire_bytes, .bytes = direct_bytes,                    \
    .describe = direct_describe

const struct uli_schedule_ops uli_schedule_direct = {
    BY_PAIRS, .create = direct_create};

const struct uli_schedule_ops uli_schedule_pairwise = {
    BY_PAIRS, .create = pairwise_create};
