/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a plan.
 *
 * What can fail at one rank alone comes before the agreement where possible:
 * layout, tables, arena blocks. A failure there is this rank's outcome, and an
 * error of all ranks. What needs the other ranks' records comes after the
 * agreement: the connections to peers and, for plans on devices, some memory.
 * A failure there fails the communicator, unless the mover makes it an error of
 * all ranks by a gather of its own.
 *
 * A plan ends without waiting for peers: the plan is freed at once, the state
 * of its mover when all peers have left the plan (mover.h).
 */
#include "collectives/plan/plan.h"

#include <stdlib.h>
#include <string.h>
#include "base/handle.h"
#include "base/size.h"
#include "base/status.h"
#include "collectives/exchange/mover.h"

/* ---- freeing ------------------------------------------------------------- */

/* The mover's state has been freed or retired before. */
static void
free_plan(ulyx_plan_t *plan)
{
    uli_plan_free_tables(plan);
    uli_layout_destroy(plan->layout);
    free(plan->exchange.pairs);
    free(plan->ranks);
    free(plan->bounce_at);
    free(plan->extents);
    if (plan->user)
        plan->free_user(plan->user);
    uli_handle_free(plan);
}

/* Frees a plan whose creation has failed. Without an agreement no peer has the
 * addresses of its blocks. If `complete` has failed after the agreement, either
 * it has failed on all ranks, and no rank calls the plan, or the communicator
 * has failed, and no later plan gets the blocks. */
static void
drop_plan(ulyx_plan_t *plan)
{
    if (plan->state)
        plan->mover->destroy(plan->comm, plan->state, true);
    free_plan(plan);
}

/* ---- before the agreement ------------------------------------------------ */

static ulyx_status_t
choose_directions(ulyx_plan_t *plan, uint64_t requested)
{
    plan->directions = requested;
    if (requested >> ULYX_DIRECTIONS)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "directions is 0x%llx: bits above %d are not defined",
            (unsigned long long)requested, ULYX_DIRECTIONS - 1);
    for (int direction = 0; direction < ULYX_DIRECTIONS; direction++) {
        if (requested >> direction & 1)
            ULI_TRY(uli_layout_direction_check(plan->layout, direction));
        else if (!requested &&
                 uli_layout_direction_exists(plan->layout, direction))
            plan->directions |= UINT64_C(1) << direction;
    }
    return ULYX_SUCCESS;
}

static void
choose_limits(ulyx_plan_t *plan, const struct uli_plan_params *params)
{
    const struct uli_settings *settings = &plan->comm->settings;
    int64_t slot =
        params->slot_bytes ? params->slot_bytes : settings->slot_bytes;
    plan->slot_limit = uli_max(slot, 0) / ULI_LINE * ULI_LINE;
}

static bool
plan_allocate(ulyx_plan_t *plan)
{
    size_t nranks = (size_t)plan->comm->nranks;
    plan->exchange.pairs = calloc(nranks, sizeof(*plan->exchange.pairs));
    plan->ranks = calloc(nranks, sizeof(*plan->ranks));
    plan->bounce_at = calloc(nranks, sizeof(*plan->bounce_at));
    plan->extents =
        calloc(nranks * ULI_SIDES * ULI_TENSORS, sizeof(*plan->extents));
    return plan->exchange.pairs && plan->ranks && plan->bounce_at &&
           plan->extents;
}

static ulyx_status_t
prepare_strides(ulyx_plan_t *plan, const struct uli_plan_params *params)
{
    struct uli_rank_info *info = &plan->info;
    memcpy(info->strides, params->strides, sizeof(info->strides));
    memcpy(info->stride_marks, params->dense_as, sizeof(info->stride_marks));
    memcpy(plan->seq_heads, params->seq_heads, sizeof(plan->seq_heads));
    return uli_plan_mark_strides(plan->layout, plan->comm->rank,
        plan->seq_heads, info->strides, info->stride_marks);
}

static ulyx_status_t
plan_prepare(ulyx_plan_t *plan, const struct uli_plan_params *params)
{
    ulyx_comm_t *comm = plan->comm;
    plan->timeout_s = uli_timeout_or(params->timeout_s, comm->timeout_s);
    plan->flags = params->flags;
    ULI_TRY(uli_plan_check_algo(params->algo));
    ULI_TRY(uli_layout_create(
        &params->shape, params->docs_q, params->docs_k, &plan->layout));
    uli_layout_stretch(plan->layout);
    ULI_TRY(choose_directions(plan, params->directions));
    plan->mover = uli_mover_choose(plan, params->algo);
    ULI_TRY(plan->mover->check(plan, params));
    if (uli_layout_rows_change(plan->layout) && !plan->mover->update_rows)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "row_capacity: plans by %s do not change rows", plan->mover->name);
    ULI_TRY(uli_plan_choose_algo(plan, params->algo, params->bytes_in_flight));
    ULI_TRY(prepare_strides(plan, params));
    plan->info.memory[0] = params->seq_memory;
    plan->info.memory[1] = params->head_memory;
    plan->info.cma_min_row = uli_reader_min_row(comm);
    plan->info.probe = (uint64_t)(uintptr_t)&uli_tr_probe_word;
    choose_limits(plan, params);
    plan->exchange.ntensors = params->shape.ntensors;
    if (!plan_allocate(plan))
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    ULI_TRY(plan->mover->prepare(plan, params));
    return uli_layout_relax(plan->layout, params->docs_q, params->docs_k);
}

/* ---- public to the layers above ------------------------------------------ */

ulyx_status_t
uli_plan_create(ulyx_comm_t *comm, const struct uli_plan_params *params,
    ulyx_status_t outcome, double timeout_s, ulyx_plan_t **plan_p)
{
    uli_deadline_t outer, deadline;
    ulyx_plan_t *plan = NULL;
    ULI_TRY(uli_comm_check(comm));
    comm->retired_destroy = uli_retired_destroy;
    uli_retired_sweep(comm);
    deadline = uli_comm_call_begin(comm, timeout_s, &outer);
    if (outcome == ULYX_SUCCESS) {
        plan = uli_handle_new(ULI_HANDLE_PLAN, sizeof(*plan));
        if (!plan) {
            outcome = uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
        } else {
            uli_handle_belong(plan, comm);
            plan->comm = comm;
            uli_exchange_init(&plan->exchange, comm, ULI_CALL_RESHUFFLE);
            outcome = plan_prepare(plan, params);
        }
    }
    ulyx_status_t status = uli_plan_agree(comm, plan, outcome, deadline);
    if (status == ULYX_SUCCESS)
        status = plan->mover->complete(plan);
    uli_comm_call_end(comm, outer);
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
    return plan->mover->update(plan, docs_q, docs_k, stream);
}

ulyx_status_t
uli_plan_update_rows(ulyx_plan_t *plan, const int64_t *rows,
    const int64_t *const *splits, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream)
{
    if (!plan->mover->update_rows)
        return uli_layout_update_rows(
            plan->layout, rows, splits, docs_q, docs_k); /* refuses */
    return plan->mover->update_rows(plan, rows, splits, docs_q, docs_k, stream);
}

ulyx_status_t
uli_plan_leave(ulyx_plan_t *plan)
{
    ULI_TRY(uli_exchange_take(&plan->exchange));
    ulyx_status_t status = plan->mover->leave(plan);
    if (status != ULYX_SUCCESS)
        atomic_store(&plan->exchange.busy, false);
    return status;
}

ulyx_status_t
uli_plan_destroy(ulyx_plan_t *plan)
{
    ulyx_comm_t *comm = plan->comm;
    if (plan->state->plan)
        ULI_TRY(uli_plan_leave(plan));
    uli_retired_add(comm, plan->state);
    uli_retired_sweep(comm);
    free_plan(plan);
    atomic_fetch_sub(&comm->nplans, 1);
    return ULYX_SUCCESS;
}
