/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of a plan.
 *
 * Everything that can fail at one rank alone comes before the agreement:
 * layout, tables, arena pieces. A failure there is this rank's verdict, and
 * everybody's error. After the round nothing can fail at one rank.
 *
 * The end is local. A rank marks the plan closed at each peer; its own arena
 * pieces can serve again when all peers have marked it closed here, for until
 * then they may still post. Meanwhile they lie in a grave.
 */
#include "collectives/plan.h"

#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/size.h"
#include "base/status.h"

enum { MIN_CHUNK_BYTES = 256 };

/* ---- graves -------------------------------------------------------------- */

/* words of rank p, in my piece. */
static struct uli_words *
words_of(const struct uli_arena_piece *words, int32_t p)
{
    return (struct uli_words *)words->address + p;
}

static bool
closed_by_all(const struct uli_grave *grave)
{
    for (int32_t p = 0; p < grave->nranks; p++)
        if (grave->shares[p] &&
            !atomic_load_explicit(
                &words_of(&grave->words, p)->closed, memory_order_acquire))
            return false;
    return true;
}

static void
free_pieces(ulyx_comm_t *comm, const struct uli_arena_piece *words,
    const struct uli_arena_piece *rings)
{
    if (words->address)
        uli_arena_free(comm, words);
    if (rings->address)
        uli_arena_free(comm, rings);
}

void
uli_plans_sweep(ulyx_comm_t *comm)
{
    struct uli_list *node = comm->plan_graves.next;
    while (node != &comm->plan_graves) {
        struct uli_grave *grave =
            ULI_CONTAINER_OF(node, struct uli_grave, node);
        node = node->next;
        if (!closed_by_all(grave))
            continue;
        free_pieces(comm, &grave->words, &grave->rings);
        uli_list_remove(&grave->node);
        free(grave);
    }
}

/* The communicator goes: its arenas take the pieces along. */
static void
forget_graves(ulyx_comm_t *comm)
{
    while (!uli_list_empty(&comm->plan_graves)) {
        struct uli_grave *grave =
            ULI_CONTAINER_OF(comm->plan_graves.next, struct uli_grave, node);
        uli_list_remove(&grave->node);
        free(grave);
    }
}

/* ---- freeing ------------------------------------------------------------- */

static void
free_plan(ulyx_plan_t *plan)
{
    if (plan->holds_thread)
        uli_op_thread_release();
    uli_plan_free_tables(plan);
    uli_layout_destroy(plan->layout);
    uli_op_destroy(&plan->exchange.op);
    free(plan->exchange.pairs);
    free(plan->ranks);
    free(plan->ring_index);
    free(plan->extents);
    free(plan->grave);
    if (plan->user)
        plan->free_user(plan->user);
    free(plan);
}

/* A plan that was never agreed: no peer knows its pieces. */
static void
drop_plan(ulyx_plan_t *plan)
{
    free_pieces(plan->comm, &plan->words, &plan->rings);
    free_plan(plan);
}

/* ---- before the agreement ------------------------------------------------ */

static ulyx_status_t
check_reach(const ulyx_comm_t *comm, const char *algo)
{
    if (algo && algo[0] && strcmp(algo, "direct"))
        return uli_error(strcmp(algo, "pairwise") && strcmp(algo, "hier")
                             ? ULYX_ERR_INVALID_ARGUMENT
                             : ULYX_ERR_UNSUPPORTED,
            "algo is \"%s\": only \"direct\" exists, between ranks of one node",
            algo);
    if (comm->memory_kind != ULYX_MEMORY_HOST)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "plans exist for communicators of host memory only");
    for (int32_t p = 0; p < comm->nranks; p++)
        if (p != comm->rank &&
            (!comm->peers[p].map || comm->peers[p].node != comm->peers[0].node))
            return uli_error(ULYX_ERR_UNSUPPORTED,
                "rank %d is on another node (%s): only exchanges within a "
                "node exist",
                p, comm->peers[p].identity.host);
    return ULYX_SUCCESS;
}

static ulyx_status_t
choose_operations(ulyx_plan_t *plan, uint64_t wanted)
{
    plan->operations = wanted;
    if (wanted >> ULYX_OPERATIONS)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "operations is 0x%llx: bits above %d mean nothing",
            (unsigned long long)wanted, ULYX_OPERATIONS - 1);
    for (int op = 0; op < ULYX_OPERATIONS; op++) {
        if (wanted >> op & 1)
            ULI_TRY(uli_layout_operation_check(plan->layout, op));
        else if (!wanted && uli_layout_operation_exists(plan->layout, op))
            plan->operations |= UINT64_C(1) << op;
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
choose_limits(ulyx_plan_t *plan, const struct uli_plan_params *params)
{
    const struct uli_settings *settings = &plan->comm->settings;
    int64_t slot =
        params->slot_bytes ? params->slot_bytes : settings->slot_bytes;
    if (slot > 1 << 20)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "slot_bytes is %lld, at most %d", (long long)slot, 1 << 20);
    if (params->bytes_in_flight < 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "bytes_in_flight is %lld, must not be negative",
            (long long)params->bytes_in_flight);
    plan->slot_limit = uli_max(slot, 0) / ULI_LINE * ULI_LINE;
    plan->exchange.slot_bytes = plan->slot_limit;
    plan->info.chunk_bytes = settings->ring_chunk_bytes;
    if (params->bytes_in_flight)
        plan->info.chunk_bytes = uli_min(plan->info.chunk_bytes,
            uli_max(params->bytes_in_flight / 2, MIN_CHUNK_BYTES));
    plan->info.chunk_bytes = plan->info.chunk_bytes / ULI_LINE * ULI_LINE;
    return ULYX_SUCCESS;
}

static bool
allocate(ulyx_plan_t *plan)
{
    size_t nranks = (size_t)plan->comm->nranks;
    plan->exchange.pairs = calloc(nranks, sizeof(*plan->exchange.pairs));
    plan->ranks = calloc(nranks, sizeof(*plan->ranks));
    plan->ring_index = calloc(nranks * nranks, sizeof(*plan->ring_index));
    plan->extents =
        calloc(nranks * ULI_SIDES * ULI_TENSORS, sizeof(*plan->extents));
    plan->grave = calloc(1, sizeof(*plan->grave) + nranks * sizeof(bool));
    return plan->exchange.pairs && plan->ranks && plan->ring_index &&
           plan->extents && plan->grave;
}

/* Counters and slots, and rings for whoever may need them: what the peers'
 * memory is, and so whether they do, is known only after the round. */
static ulyx_status_t
take_pieces(ulyx_plan_t *plan)
{
    ulyx_comm_t *comm = plan->comm;
    int64_t most = 0, rings = 0, bytes;
    ULI_TRY(uli_arena_alloc(comm,
        comm->nranks *
            ((int64_t)sizeof(struct uli_words) + 2 * plan->slot_limit),
        &plan->words));
    for (int32_t p = 0; p < comm->nranks; p++)
        if (p != comm->rank && uli_plan_may_stream(plan, p, &bytes)) {
            most = uli_max(most, bytes);
            rings++;
        }
    plan->info.words.window = plan->words.window;
    plan->info.words.offset = plan->words.offset;
    if (!rings)
        return ULYX_SUCCESS;
    if (most < plan->info.chunk_bytes)
        plan->info.chunk_bytes = uli_round_up(most, ULI_LINE);
    ULI_TRY(uli_arena_alloc(
        comm, rings * 2 * plan->info.chunk_bytes, &plan->rings));
    plan->info.rings.window = plan->rings.window;
    plan->info.rings.offset = plan->rings.offset;
    return ULYX_SUCCESS;
}

static ulyx_status_t
prepare(ulyx_plan_t *plan, const struct uli_plan_params *params)
{
    ulyx_comm_t *comm = plan->comm;
    plan->timeout_s = uli_timeout_or(params->timeout_s, comm->timeout_s);
    plan->flags = params->flags;
    ULI_TRY(
        check_reach(comm, params->algo ? params->algo : comm->settings.algo));
    ULI_TRY(uli_layout_create(
        &params->shape, params->docs_q, params->docs_k, &plan->layout));
    ULI_TRY(choose_operations(plan, params->operations));
    memcpy(plan->info.strides, params->strides, sizeof(plan->info.strides));
    ULI_TRY(uli_plan_fix_strides(plan->layout, comm->rank, plan->info.strides));
    plan->info.memory[0] = params->seq_memory;
    plan->info.memory[1] = params->head_memory;
    plan->info.cma_min_row = uli_reader_min_row(comm);
    plan->info.probe = (uint64_t)(uintptr_t)&uli_tr_probe_word;
    ULI_TRY(choose_limits(plan, params));
    plan->exchange.ntensors = params->shape.ntensors;
    if (!allocate(plan))
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    ULI_TRY(uli_plan_measure(plan));
    if (plan->flags & ULYX_PLAN_PROGRESS_THREAD) {
        ULI_TRY(uli_op_thread_hold());
        plan->holds_thread = true;
    }
    return take_pieces(plan);
}

/* ---- after the agreement ------------------------------------------------- */

static bool
shares(const ulyx_plan_t *plan, int32_t p)
{
    if (p == plan->comm->rank)
        return false;
    if (uli_layout_has_tables(plan->layout))
        return true;
    for (int op = 0; op < ULYX_OPERATIONS; op++)
        if (plan->room[op].in &&
            (plan->room[op].in[p].items || plan->room[op].out[p].items))
            return true;
    return false;
}

static void
set_rings(ulyx_plan_t *plan, int32_t p)
{
    struct uli_pair *pair = &plan->exchange.pairs[p];
    const struct uli_rank_info *peer = &plan->ranks[p];
    int32_t nranks = plan->comm->nranks, me = plan->comm->rank;
    int32_t in = plan->ring_index[me * nranks + p];
    int32_t out = plan->ring_index[p * nranks + me];
    pair->chunk_in_bytes = plan->info.chunk_bytes;
    pair->chunk_out_bytes = peer->chunk_bytes;
    if (in >= 0)
        pair->ring_in = (char *)plan->rings.address +
                        (int64_t)in * 2 * pair->chunk_in_bytes;
    if (out >= 0)
        pair->ring_out = uli_window_address(plan->comm, p, peer->rings.window,
            peer->rings.offset + (int64_t)out * 2 * pair->chunk_out_bytes,
            2 * pair->chunk_out_bytes);
}

/* Where the pair's words, slots and rings are, here and there. */
static ulyx_status_t
connect(ulyx_plan_t *plan, int32_t p)
{
    struct uli_pair *pair = &plan->exchange.pairs[p];
    const struct uli_rank_info *peer = &plan->ranks[p];
    int32_t nranks = plan->comm->nranks, me = plan->comm->rank;
    int64_t words = nranks * (int64_t)sizeof(struct uli_words);
    int64_t slots = 2 * plan->slot_limit;
    char *theirs = uli_window_address(plan->comm, p, peer->words.window,
        peer->words.offset, words + nranks * slots);
    if (!theirs)
        return uli_comm_fail(plan->comm, ULYX_ERR_INTERNAL, p,
            "plan create: the arena of rank %d is not mapped here", p);
    pair->shares = true;
    pair->mine = words_of(&plan->words, p);
    pair->yours = (struct uli_words *)theirs + me;
    pair->slots_in = (char *)plan->words.address + words + p * slots;
    pair->slots_out = theirs + words + me * slots;
    pair->reader = uli_reader_of(plan->comm, p, peer->probe);
    pair->can_read = pair->reader && plan->info.cma_min_row > 0;
    set_rings(plan, p);
    return ULYX_SUCCESS;
}

/* Rings that no verb needs, now that all memory classes are known. */
static void
return_spare_rings(ulyx_plan_t *plan)
{
    if (!plan->rings.address || uli_layout_has_tables(plan->layout))
        return;
    for (int op = 0; op < ULYX_OPERATIONS; op++) {
        const struct uli_work *work = &plan->work[op];
        for (int32_t p = 0; work->pairs && p < plan->comm->nranks; p++) {
            const struct uli_items *in = &work->pairs[p].in;
            for (int64_t i = 0; i < in->count && !work->pairs[p].slot; i++)
                if (in->at[i].verb == ULI_VERB_STREAM ||
                    in->at[i].verb == ULI_VERB_READ)
                    return;
        }
    }
    uli_arena_free(plan->comm, &plan->rings);
    plan->rings.address = NULL;
}

static ulyx_status_t
report(struct uli_exchange *exchange, int32_t p)
{
    const struct uli_pair *pair = &exchange->pairs[p];
    if (pair->verdict == ULYX_ERR_PEER_REFUSED)
        return uli_error(pair->verdict,
            "reshuffle, call %llu: rank %d refused: %s",
            (unsigned long long)exchange->call, p,
            uli_status_text(pair->peer_status));
    if (pair->peer_operation != exchange->operation)
        return uli_error(ULYX_ERR_MISMATCH,
            "reshuffle, call %llu: rank %d executes %s, rank %d %s",
            (unsigned long long)exchange->call, p,
            uli_operation_name(pair->peer_operation), exchange->rank,
            uli_operation_name(exchange->operation));
    return uli_error(ULYX_ERR_MISMATCH,
        "reshuffle, call %llu: the document tables of rank %d and rank %d "
        "differ",
        (unsigned long long)exchange->call, p, exchange->rank);
}

static ulyx_status_t
complete(ulyx_plan_t *plan)
{
    struct uli_exchange *exchange = &plan->exchange;
    exchange->report = report;
    exchange->op.by_library_thread = plan->holds_thread;
    for (int32_t p = 0; p < plan->comm->nranks; p++)
        if (shares(plan, p))
            ULI_TRY(connect(plan, p));
    uli_plan_build(plan);
    return_spare_rings(plan);
    return ULYX_SUCCESS;
}

/* ---- public to the layers above ------------------------------------------ */

ulyx_status_t
uli_plan_create(ulyx_comm_t *comm, const struct uli_plan_params *params,
    ulyx_status_t verdict, double timeout_s, ulyx_plan_t **plan_p)
{
    uli_deadline_t deadline =
        uli_deadline_in(uli_timeout_or(timeout_s, comm->timeout_s));
    ulyx_plan_t *plan = NULL;
    ULI_TRY(uli_comm_check(comm));
    comm->graves_destroy = forget_graves;
    uli_plans_sweep(comm);
    if (verdict == ULYX_SUCCESS) {
        plan = calloc(1, sizeof(*plan));
        if (!plan) {
            verdict = uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
        } else {
            plan->comm = comm;
            uli_exchange_init(&plan->exchange, comm, "reshuffle");
            verdict = prepare(plan, params);
        }
    }
    ulyx_status_t status = uli_plan_agree(comm, plan, verdict, deadline);
    if (status == ULYX_SUCCESS)
        status = complete(plan);
    if (status != ULYX_SUCCESS) {
        if (plan)
            drop_plan(plan);
        return status;
    }
    atomic_fetch_add(&comm->nplans, 1);
    *plan_p = plan;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_plan_update(
    ulyx_plan_t *plan, const ulyx_docs_t *docs_q, const ulyx_docs_t *docs_k)
{
    ULI_TRY(uli_exchange_take(&plan->exchange));
    ulyx_status_t status = uli_layout_update(plan->layout, docs_q, docs_k);
    if (status == ULYX_SUCCESS && uli_layout_has_tables(plan->layout)) {
        uli_plan_remeasure(plan);
        uli_plan_build(plan);
    }
    atomic_store(&plan->exchange.busy, false);
    return status;
}

ulyx_status_t
uli_plan_destroy(ulyx_plan_t *plan)
{
    ulyx_comm_t *comm = plan->comm;
    struct uli_grave *grave = plan->grave;
    ULI_TRY(uli_exchange_take(&plan->exchange));
    grave->words = plan->words;
    grave->rings = plan->rings;
    grave->nranks = comm->nranks;
    for (int32_t p = 0; p < comm->nranks; p++) {
        struct uli_pair *pair = &plan->exchange.pairs[p];
        grave->shares[p] = pair->shares;
        if (pair->shares)
            atomic_store_explicit(
                &pair->yours->closed, 1, memory_order_release);
    }
    uli_list_append(&comm->plan_graves, &grave->node);
    plan->grave = NULL;
    free_plan(plan);
    atomic_fetch_sub(&comm->nplans, 1);
    uli_plans_sweep(comm);
    return ULYX_SUCCESS;
}
