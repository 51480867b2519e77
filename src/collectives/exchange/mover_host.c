/* SPDX-License-Identifier: Apache-2.0
 *
 * The mover of host memory: a plan of the exchange engine, between ranks of one
 * machine and, by puts, between nodes.
 *
 * A plan ends without communication that waits. A rank marks the plan closed at
 * each peer; the rank's own arena blocks can be used again when all peers have
 * marked the plan closed here, for until then peers may still post.
 */
#include "collectives/exchange/mover_host.h"

#include <stdlib.h>
#include "base/status.h"
#include "base/text.h"
#include "collectives/exchange/copies.h"
#include "collectives/exchange/exchange_schedule.h"
#include "comm/messages/batch.h"
#include "comm/remote/remote.h"

/* ---- creation ------------------------------------------------------------ */

static bool
host_serves(const ulyx_plan_t *plan, const char *algo)
{
    (void)plan, (void)algo;
    return true;
}

static ulyx_status_t
host_check(const ulyx_plan_t *plan, const struct uli_plan_params *params)
{
    if (plan->flags & ULYX_PLAN_COPY_ENGINE)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "flags has COPY_ENGINE, which is for device memory only");
    if (params->algo && uli_comm_batch_transport(params->algo))
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "algo is \"%s\", which moves device memory only", params->algo);
    return ULYX_SUCCESS;
}

/* Creates the schedule before measuring, because what the schedule carries is
 * not measured as bytes of pairs. */
static ulyx_status_t
schedule_prepare(ulyx_plan_t *plan)
{
    struct uli_host_state *host = uli_host_of(plan);
    ulyx_status_t status = uli_plan_create_schedule(plan);
    host->schedule = plan->exchange.schedule;
    host->schedule_state = plan->exchange.schedule_state;
    return status;
}

static ulyx_status_t
host_prepare(ulyx_plan_t *plan, const struct uli_plan_params *params)
{
    ulyx_comm_t *comm = plan->comm;
    struct uli_host_state *host;
    ULI_TRY(uli_copies_offer(comm));
    ULI_TRY(uli_ring_pool_open(comm));
    host = calloc(1, sizeof(*host) + (size_t)comm->nranks * sizeof(bool));
    if (!host)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    host->state.plan = plan;
    host->state.mover = &uli_mover_host;
    host->nranks = comm->nranks;
    plan->state = &host->state;
    ULI_TRY(schedule_prepare(plan));
    ULI_TRY(uli_plan_measure(plan));
    ULI_TRY(uli_plan_allocate_work(plan));
    if (plan->flags & ULYX_PLAN_PROGRESS_THREAD) {
        ULI_TRY(uli_request_thread_hold(&comm->binding));
        host->holds_thread = true;
    }
    return uli_plan_take_blocks(plan, params->bytes_in_flight);
}

/* Hook of the exchange. */
static ulyx_status_t
pair_report(struct uli_exchange *exchange, int32_t p)
{
    const struct uli_pair *pair = &exchange->pairs[p];
    char reason[ULI_REFUSAL_TEXT_BYTES];
    if (pair->outcome == ULYX_ERR_PEER_REFUSED)
        return uli_error(pair->outcome,
            "reshuffle, call %llu: rank %d refused: %s",
            (unsigned long long)exchange->call, p,
            uli_exchange_reason(exchange, p, reason));
    if (pair->peer_direction != exchange->direction)
        return uli_error(ULYX_ERR_MISMATCH,
            "reshuffle, call %llu: rank %d executes %s, rank %d %s",
            (unsigned long long)exchange->call, p,
            uli_direction_name(pair->peer_direction), exchange->rank,
            uli_direction_name(exchange->direction));
    return uli_error(ULYX_ERR_MISMATCH,
        "reshuffle, call %llu: the rows or document tables of rank %d and rank "
        "%d differ",
        (unsigned long long)exchange->call, p, exchange->rank);
}

static void
tables_rebuild(ulyx_plan_t *plan)
{
    uli_plan_remeasure(plan);
    uli_plan_build(plan);
    plan->exchange.schedule->rebuild(plan);
}

static ulyx_status_t
host_complete(ulyx_plan_t *plan)
{
    struct uli_exchange *exchange = &plan->exchange;
    uli_copies_take(plan->comm);
    exchange->report = pair_report;
    exchange->record = uli_host_send_strides;
    exchange->accept = uli_host_take_strides;
    exchange->refresh_sums = uli_host_refresh_sums;
    exchange->request.by_library_thread = uli_host_of(plan)->holds_thread;
    for (int32_t p = 0; p < plan->comm->nranks; p++)
        if (uli_plan_shares(plan, p))
            ULI_TRY(uli_plan_connect(plan, p));
    ULI_TRY(exchange->schedule->connect(plan));
    if (uli_layout_rows_change(plan->layout))
        tables_rebuild(plan); /* the tables so far are for the most rows */
    else
        uli_plan_build(plan);
    return uli_plan_settle_rings(plan);
}

/* ---- calls --------------------------------------------------------------- */

static const char *
host_needs_windows(const ulyx_plan_t *plan, enum uli_side side)
{
    return plan->info.memory[side == ULI_SIDE_SEQ ? 0 : 1] ==
                   ULYX_POINTER_WINDOW
               ? "the plan has declared"
               : NULL;
}

static void
exchange_set_up(ulyx_plan_t *plan, ulyx_direction_t direction)
{
    struct uli_exchange *exchange = &plan->exchange;
    enum uli_side from = uli_plan_side(direction, true);
    enum uli_side to = uli_plan_side(direction, false);
    exchange->work = &plan->work[direction];
    for (int32_t p = 0; p < exchange->nranks; p++) {
        const int64_t *extents =
            plan->extents + (int64_t)p * ULI_SIDES * ULI_TENSORS;
        exchange->pairs[p].src_bytes = extents + from * ULI_TENSORS;
        exchange->pairs[p].dst_bytes = extents + to * ULI_TENSORS;
    }
    uli_host_use_strides(plan, direction);
    exchange->strided = plan->call.given;
}

static ulyx_status_t
host_start(ulyx_plan_t *plan, const struct uli_plan_call *call,
    ulyx_request_t **request_p)
{
    struct uli_exchange *exchange = &plan->exchange;
    if (call->stream)
        return uli_plan_refuse(
            plan, ULYX_ERR_INVALID_ARGUMENT, "stream must be NULL on the host");
    ULI_TRY(uli_comm_check(plan->comm));
    ULI_TRY(uli_exchange_take(exchange));
    int64_t now_ns = uli_clock_ns();
    uli_deadline_t deadline = uli_deadline_from(
        now_ns, uli_timeout_or(call->timeout_s, plan->timeout_s));
    ulyx_status_t status = uli_plan_check_call(plan, call);
    exchange->direction = call->direction;
    exchange->hash =
        plan->user_hash ? plan->user_hash : uli_layout_table_hash(plan->layout);
    if (status != ULYX_SUCCESS)
        return uli_exchange_refuse(exchange, status, deadline);
    exchange_set_up(plan, call->direction);
    uli_exchange_start(exchange, now_ns, deadline, call->awaited);
    *request_p = &exchange->request;
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_refuse(ulyx_plan_t *plan, ulyx_status_t status, const char *text)
{
    struct uli_exchange *exchange = &plan->exchange;
    ULI_TRY(uli_comm_check(plan->comm));
    ULI_TRY(uli_exchange_take(exchange));
    return uli_exchange_refuse(exchange, uli_error_pass(status, text),
        uli_deadline_in(plan->timeout_s));
}

static ulyx_status_t
host_update(ulyx_plan_t *plan, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream)
{
    (void)stream;
    ULI_TRY(uli_exchange_take(&plan->exchange));
    ulyx_status_t status = uli_layout_update(plan->layout, docs_q, docs_k);
    if (status == ULYX_SUCCESS && uli_layout_has_tables(plan->layout))
        tables_rebuild(plan);
    atomic_store(&plan->exchange.busy, false);
    return status;
}

static ulyx_status_t
host_update_rows(ulyx_plan_t *plan, const int64_t *rows,
    const int64_t *const *splits, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream)
{
    (void)stream;
    ULI_TRY(uli_exchange_take(&plan->exchange));
    ulyx_status_t status =
        uli_layout_update_rows(plan->layout, rows, splits, docs_q, docs_k);
    if (status == ULYX_SUCCESS)
        tables_rebuild(plan);
    atomic_store(&plan->exchange.busy, false);
    return status;
}

/* ---- the end ------------------------------------------------------------- */

static void
thread_release(struct uli_host_state *host)
{
    if (host->holds_thread)
        uli_request_thread_release();
    host->holds_thread = false;
}

static ulyx_status_t
host_leave(ulyx_plan_t *plan)
{
    struct uli_host_state *host = uli_host_of(plan);
    /* No rank waits for calls of this plan any more, not even a rank that has
     * not yet read that the plan is closed. */
    uli_recorder_count(
        &plan->comm->control->recorder, plan->exchange.plan_number, INT64_MAX);
    for (int32_t p = 0; p < host->nranks; p++) {
        host->shares[p] = plan->exchange.pairs[p].shares;
        if (host->shares[p])
            uli_post_closed(&plan->exchange, p);
    }
    host->schedule->leave(host->schedule_state);
    uli_ring_pool_leave(&host->ring_use);
    thread_release(host);
    host->state.plan = NULL;
    return ULYX_SUCCESS;
}

static bool
host_left(const struct uli_mover_state *state)
{
    const struct uli_host_state *host = (const struct uli_host_state *)state;
    for (int32_t p = 0; p < host->nranks; p++)
        if (host->shares[p] && !uli_plan_closed_by(&host->blocks, p))
            return false;
    /* Checked last, because idle of the schedule is not called again once it
     * has returned true. */
    return uli_plan_blocks_idle(&host->blocks) &&
           host->schedule->idle(host->schedule_state);
}

static void
host_destroy(ulyx_comm_t *comm, struct uli_mover_state *state, bool gives_back)
{
    struct uli_host_state *host = (struct uli_host_state *)state;
    thread_release(host);
    uli_ring_pool_leave(&host->ring_use);
    if (gives_back)
        uli_plan_free_blocks(comm, &host->blocks);
    host->schedule->destroy(gives_back ? comm : NULL, host->schedule_state);
    free(host);
}

/* ---- description --------------------------------------------------------- */

/* How many peers each way of moving serves. */
struct verbs {
    int32_t slot, stored, taken, loaded, read, ring, put, nothing;
    int64_t wire_bytes;
};

static bool
has_verb(const struct uli_items *items, int32_t verb)
{
    for (int64_t i = 0; i < items->count; i++)
        if (items->at[i].verb == verb)
            return true;
    return false;
}

/* Where this rank has bytes to give or take but no verb, the peer moves
 * them. */
static void
count_peer(
    const ulyx_plan_t *plan, int direction, int32_t p, struct verbs *verbs)
{
    const struct uli_pair_work *pair = &plan->work[direction].pairs[p];
    const struct uli_volume *in = &plan->room[direction].in[p];
    const struct uli_volume *out = &plan->room[direction].out[p];
    if (!in->items && !out->items) {
        verbs->nothing++;
        return;
    }
    if (uli_comm_is_remote(plan->comm, p)) {
        verbs->put++;
        for (int64_t i = 0; i < pair->out.count; i++)
            verbs->wire_bytes += uli_box_bytes(&pair->out.at[i].box);
        return;
    }
    if (pair->slot) {
        verbs->slot++;
        return;
    }
    verbs->stored += has_verb(&pair->out, ULI_VERB_STORE);
    verbs->loaded +=
        has_verb(&pair->in, ULI_VERB_LOAD) ||
        (pair->last_sum >= 0 &&
            plan->ranks[p].memory[direction == ULYX_SEQ_TO_HEAD_ADJOINT] ==
                ULYX_POINTER_WINDOW);
    verbs->taken += in->items > pair->in.count || out->items > pair->out.count;
    verbs->read += has_verb(&pair->in, ULI_VERB_READ) ||
                   has_verb(&pair->out, ULI_VERB_READ);
    verbs->ring += has_verb(&pair->in, ULI_VERB_STREAM) ||
                   has_verb(&pair->out, ULI_VERB_STREAM);
}

static void
host_describe_direction(
    const ulyx_plan_t *plan, ulyx_direction_t direction, struct uli_text *text)
{
    struct verbs verbs = {0};
    for (int32_t p = 0; p < plan->comm->nranks; p++)
        if (p != plan->comm->rank)
            count_peer(plan, direction, p, &verbs);
    struct {
        int32_t count;
        const char *text;
    } parts[] = {{verbs.stored, "stored to (its dst is a window)"},
        {verbs.loaded, "loaded from (a window, mine is none or sums)"},
        {verbs.taken, "that move it themselves (windows here)"},
        {verbs.read, "by process_vm_readv, else ring (no window, long rows)"},
        {verbs.ring, "by ring (no window)"}, {verbs.slot, "by slot (small)"},
        {verbs.put, "by puts (another node)"}};
    bool any = false;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (parts[i].count) {
            uli_text_add(text, "%s%d %s", any ? ", " : "", parts[i].count,
                parts[i].text);
            any = true;
        }
    if (!any)
        uli_text_add(text, "nothing between ranks");
    if (verbs.put)
        uli_text_add(
            text, ", %lld bytes to other nodes", (long long)verbs.wire_bytes);
}

/* "direct (one node)", "pairwise (2 nodes, to 8 ranks of others at a time; rule
 * on line 3 of the tuning file)" */
static void
host_describe(const ulyx_plan_t *plan, struct uli_text *text)
{
    long long limit = plan->exchange.peer_limit;
    uli_text_add(text, "%s (", uli_algo_name(plan->algo));
    if (plan->comm->nnodes > 1)
        uli_text_add(text, "%d nodes", plan->comm->nnodes);
    else
        uli_text_add(text, "one node");
    if (limit && plan->comm->nnodes > 1)
        uli_text_add(text, ", to %lld rank%s of others at a time", limit,
            uli_plural(limit));
    if (plan->comm->nnodes > 1)
        uli_text_add(text, "; %s", plan->reason);
    uli_text_add(text, ")");
}

/* How puts reach the first remote peer; most others are reached alike. */
static void
add_network(struct uli_text *text, const ulyx_plan_t *plan)
{
    char way[128] = "";
    int32_t p = 0;
    while (p < plan->comm->nranks && !plan->exchange.pairs[p].remote)
        p++;
    if (p == plan->comm->nranks)
        return;
    uli_remote_describe(plan->comm, p, way, sizeof(way));
    const struct uli_ring_sizes *sizes = &plan->exchange.rings.full;
    uli_text_add(text, "; network: %d chunk%s of %lld, %s", sizes->net_chunks,
        uli_plural(sizes->net_chunks), (long long)sizes->net_chunk_bytes, way);
}

static void
host_describe_rest(const ulyx_plan_t *plan, struct uli_text *text)
{
    const struct uli_host_state *host = uli_host_of(plan);
    char schedule[1024];
    host->schedule->describe(plan, schedule, sizeof(schedule));
    uli_text_add(text, "%s", schedule);
    if (host->blocks.rings.address)
        uli_text_add(text, "; ring chunk %lld",
            (long long)plan->exchange.rings.full.chunk_bytes);
    uli_plan_describe_slots(plan, text);
    add_network(text, plan);
    if (host->holds_thread)
        uli_text_add(text, "; progress thread");
}

static int64_t
block_bytes(const struct uli_arena_block *block)
{
    return block->address ? block->bytes : 0;
}

static int64_t
host_bytes(const ulyx_plan_t *plan)
{
    const struct uli_host_state *host = uli_host_of(plan);
    int64_t bytes =
        (int64_t)sizeof(*host) + host->nranks * (int64_t)sizeof(bool);
    return bytes + host->schedule->bytes(&plan->exchange) +
           block_bytes(&host->blocks.pair_flags) +
           block_bytes(&host->blocks.rings) +
           block_bytes(&host->blocks.bounces);
}

const struct uli_mover_ops uli_mover_host = {.name = "host",
    .takes_strides = true,
    .takes_hash = true,
    .serves = host_serves,
    .check = host_check,
    .prepare = host_prepare,
    .complete = host_complete,
    .needs_windows = host_needs_windows,
    .start = host_start,
    .refuse = host_refuse,
    .update = host_update,
    .update_rows = host_update_rows,
    .leave = host_leave,
    .left = host_left,
    .destroy = host_destroy,
    .describe = host_describe,
    .describe_direction = host_describe_direction,
    .describe_rest = host_describe_rest,
    .bytes = host_bytes};
