/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of a plan.
 *
 * Everything that can fail at one rank alone comes before the agreement:
 * layout, tables, arena pieces. A failure there is this rank's verdict, and
 * everybody's error. After the round nothing can fail at one rank, but
 * for a device's memory and NCCL's connections, which fail the communicator.
 *
 * The end is local. A rank marks the plan closed at each peer; its own arena
 * pieces can serve again when all peers have marked it closed here, for until
 * then they may still post. Meanwhile they lie in a grave.
 */
#include "collectives/cuda/plan_gpu.h"
#include "collectives/cuda/plan_packed.h"
#include "collectives/exchange_schedule.h"
#include "collectives/plan.h"

#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/size.h"
#include "base/status.h"

/* ---- graves -------------------------------------------------------------- */

static bool
closed_by_all(const struct uli_grave *grave)
{
    for (int32_t p = 0; p < grave->nranks; p++)
        if (grave->shares[p] &&
            !(grave->gpu ? uli_plan_gpu_left_by(grave->gpu, p)
                         : uli_plan_closed_by(&grave->pieces, p)))
            return false;
    if (grave->gpu)
        return true;
    /* Last: it is the last look at memory of others. */
    return uli_plan_pieces_idle(&grave->pieces) &&
           grave->schedule->idle(grave->schedule_state);
}

/* Returns arena pieces of plans that all peers have closed. */
static void
sweep_graves(ulyx_comm_t *comm)
{
    struct uli_list *node = comm->plan_graves.next;
    while (node != &comm->plan_graves) {
        struct uli_grave *grave =
            ULI_CONTAINER_OF(node, struct uli_grave, node);
        node = node->next;
        if (!closed_by_all(grave))
            continue;
        uli_plan_free_pieces(comm, &grave->pieces);
        grave->schedule->destroy(comm, grave->schedule_state);
        uli_plan_gpu_destroy(comm, grave->gpu);
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
        grave->schedule->destroy(NULL, grave->schedule_state);
        uli_plan_gpu_destroy(NULL, grave->gpu);
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
    uli_plan_packed_destroy(plan->packed);
    uli_layout_destroy(plan->layout);
    uli_op_destroy(&plan->exchange.op);
    free(plan->exchange.pairs);
    free(plan->ranks);
    free(plan->ring_at);
    free(plan->their_ring_at);
    free(plan->mirror_at);
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
    uli_plan_free_pieces(plan->comm, &plan->pieces);
    plan->exchange.schedule->destroy(plan->comm, plan->exchange.schedule_state);
    uli_plan_gpu_destroy(plan->comm, plan->gpu);
    free_plan(plan);
}

/* ---- before the agreement ------------------------------------------------ */

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
    return ULYX_SUCCESS;
}

static bool
allocate(ulyx_plan_t *plan)
{
    size_t nranks = (size_t)plan->comm->nranks;
    plan->exchange.pairs = calloc(nranks, sizeof(*plan->exchange.pairs));
    plan->ranks = calloc(nranks, sizeof(*plan->ranks));
    plan->ring_at = calloc(nranks, sizeof(*plan->ring_at));
    plan->their_ring_at = calloc(nranks, sizeof(*plan->their_ring_at));
    plan->mirror_at = calloc(nranks, sizeof(*plan->mirror_at));
    plan->extents =
        calloc(nranks * ULI_SIDES * ULI_TENSORS, sizeof(*plan->extents));
    plan->grave = calloc(1, sizeof(*plan->grave) + nranks * sizeof(bool));
    return plan->exchange.pairs && plan->ranks && plan->ring_at &&
           plan->their_ring_at && plan->mirror_at && plan->extents &&
           plan->grave;
}

static ulyx_status_t
prepare(ulyx_plan_t *plan, const struct uli_plan_params *params)
{
    ulyx_comm_t *comm = plan->comm;
    plan->timeout_s = uli_timeout_or(params->timeout_s, comm->timeout_s);
    plan->flags = params->flags;
    ULI_TRY(uli_plan_check_algo(params->algo));
    if (plan->flags & ULYX_PLAN_COPY_ENGINE && !comm->gpu)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "flags has COPY_ENGINE, which is for device memory only");
    ULI_TRY(uli_layout_create(
        &params->shape, params->docs_q, params->docs_k, &plan->layout));
    ULI_TRY(choose_operations(plan, params->operations));
    ULI_TRY(uli_plan_choose_algo(plan, params->algo, params->bytes_in_flight));
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
    ULI_TRY(uli_plan_create_schedule(plan));
    ULI_TRY(uli_plan_measure(plan));
    if (plan->by_batch)
        return uli_plan_packed_prepare(plan, params);
    if (comm->gpu)
        return uli_plan_gpu_prepare(plan, params);
    if (plan->flags & ULYX_PLAN_PROGRESS_THREAD) {
        ULI_TRY(uli_op_thread_hold(&comm->binding));
        plan->holds_thread = true;
    }
    return uli_plan_take_pieces(plan, params->bytes_in_flight);
}

/* ---- after the agreement ------------------------------------------------- */

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
    if (plan->by_batch)
        return uli_plan_packed_complete(plan, uli_deadline_in(plan->timeout_s));
    if (plan->comm->gpu)
        return uli_plan_gpu_complete(plan);
    exchange->report = report;
    exchange->op.by_library_thread = plan->holds_thread;
    for (int32_t p = 0; p < plan->comm->nranks; p++)
        if (uli_plan_shares(plan, p))
            ULI_TRY(uli_plan_connect(plan, p));
    ULI_TRY(exchange->schedule->connect(plan));
    uli_plan_build(plan);
    uli_plan_return_spare_rings(plan);
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
    sweep_graves(comm);
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
uli_plan_update(ulyx_plan_t *plan, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream)
{
    if (plan->gpu)
        return uli_plan_gpu_update(plan, docs_q, docs_k, stream);
    if (plan->packed)
        return uli_plan_packed_update(plan->packed, docs_q, docs_k, stream);
    ULI_TRY(uli_exchange_take(&plan->exchange));
    ulyx_status_t status = uli_layout_update(plan->layout, docs_q, docs_k);
    if (status == ULYX_SUCCESS && uli_layout_has_tables(plan->layout)) {
        uli_plan_remeasure(plan);
        uli_plan_build(plan);
        plan->exchange.schedule->rebuild(plan);
    }
    atomic_store(&plan->exchange.busy, false);
    return status;
}

/* Tells the peers; after that the plan is in its grave. */
static ulyx_status_t
leave(ulyx_plan_t *plan)
{
    if (plan->gpu)
        return uli_plan_gpu_leave(plan);
    if (plan->packed)
        return uli_plan_packed_leave(plan->packed);
    for (int32_t p = 0; p < plan->comm->nranks; p++)
        if (plan->exchange.pairs[p].shares)
            uli_post_closed(&plan->exchange, p);
    return ULYX_SUCCESS;
}

static void
bury(ulyx_plan_t *plan)
{
    struct uli_grave *grave = plan->grave;
    grave->pieces = plan->pieces;
    grave->nranks = plan->comm->nranks;
    for (int32_t p = 0; p < plan->comm->nranks; p++)
        grave->shares[p] = !plan->packed && plan->exchange.pairs[p].shares;
    grave->gpu = plan->gpu;
    grave->schedule = plan->exchange.schedule;
    grave->schedule_state = plan->exchange.schedule_state;
    grave->schedule->leave(grave->schedule_state);
    uli_list_append(&plan->comm->plan_graves, &grave->node);
    plan->grave = NULL;
}

ulyx_status_t
uli_plan_destroy(ulyx_plan_t *plan)
{
    ulyx_comm_t *comm = plan->comm;
    ULI_TRY(uli_exchange_take(&plan->exchange));
    ulyx_status_t status = leave(plan);
    if (status != ULYX_SUCCESS) {
        atomic_store(&plan->exchange.busy, false);
        return status;
    }
    bury(plan);
    free_plan(plan);
    atomic_fetch_sub(&comm->nplans, 1);
    sweep_graves(comm);
    return ULYX_SUCCESS;
}
