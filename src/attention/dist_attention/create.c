/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates and destroys a distributed attention.
 *
 * One agreement round comes first. It exchanges the outcomes of all ranks,
 * compares the fields that plans do not compare, and finds the smallest ceiling
 * and the most threads. From these every rank chooses the same head groups. A
 * rank that fails later gives the failure as its outcome in the creation of the
 * next plan, so that all ranks get the failure. All ranks make the plans in the
 * same order.
 */
#include "attention/dist_attention/memory.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/dtype.h"
#include "base/handle.h"
#include "base/status.h"
#include "collectives/exchange/mover.h"

#define INVALID(...) uli_error(ULYX_ERR_INVALID_ARGUMENT, __VA_ARGS__)

void
uli_dist_params_free(struct uli_dist_params *params)
{
    if (!params)
        return;
    uli_held_free(&params->held);
    free(params);
}

static void
free_dist(struct ulyx_dist_attention *dist)
{
    for (int32_t g = 0; g < dist->ngroups; g++) {
        free(dist->groups[g].kv_map);
        free(dist->groups[g].segments[0]);
        free(dist->groups[g].segments[1]);
    }
    free(dist->groups);
    for (int i = 0; i < 4; i++) {
        free(dist->docs[i / 2][i % 2].begin);
        free(dist->docs[i / 2][i % 2].length);
    }
    for (int i = 0; i < 2 * ULI_MAX_PARTS; i++)
        free(dist->part_rows[i % 2].splits[i / 2]);
    uli_dist_params_free(dist->params);
    free(dist->user);
    dist->memory->close(dist);
    uli_handle_free(dist);
}

/* ---- defaults and checks ------------------------------------------------- */

static ulyx_status_t
complete_heads(struct uli_dist_params *params)
{
    ulyx_dist_attention_params_t *p = &params->p;
    if (!p->kv_heads)
        p->kv_heads = p->heads;
    if (p->heads % p->kv_heads)
        return INVALID("heads is %lld, must be a multiple of kv_heads (%lld)",
            (long long)p->heads, (long long)p->kv_heads);
    if (!p->dim_v)
        p->dim_v = p->dim_qk;
    if (params->shape.head_splits && p->head_groups > 1)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "head_splits is given and head_groups is %d: head_splits needs one "
            "group",
            p->head_groups);
    return ULYX_SUCCESS;
}

static ulyx_status_t
complete_parts(struct ulyx_dist_attention *dist)
{
    const struct uli_shape *shape = &dist->params->shape;
    for (int32_t i = 0; i < shape->nparts; i++) {
        const struct uli_shape_part *part = &shape->parts[i];
        int32_t axis = part->axis;
        if (dist->nparts[axis] == ULI_AXIS_PARTS)
            return INVALID("parts[%d].axis is %d, which has %d parts already",
                i, axis, ULI_AXIS_PARTS);
        int64_t most = part->row_capacity ? part->row_capacity : part->rows;
        dist->rows_change |= part->row_capacity > 0;
        if (!uli_size_add(
                dist->most_rows[axis], most, &dist->most_rows[axis]) ||
            !uli_size_add(dist->rows[axis], part->rows, &dist->rows[axis]))
            return INVALID(
                "parts[%d].rows is %lld: rows of axis %d do not fit 63 bits", i,
                (long long)part->rows, axis);
        dist->part_of[axis][dist->nparts[axis]++] = i;
    }
    if (!dist->nparts[0])
        return INVALID("no part has axis 0, that of the queries");
    if (!dist->nparts[1]) {
        memcpy(dist->part_of[1], dist->part_of[0], sizeof(dist->part_of[0]));
        dist->nparts[1] = dist->nparts[0];
        dist->rows[1] = dist->rows[0];
        dist->most_rows[1] = dist->most_rows[0];
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
dist_complete(struct ulyx_dist_attention *dist)
{
    ulyx_dist_attention_params_t *p = &dist->params->p;
    if (p->dtype < ULYX_DTYPE_F64 || p->dtype > ULYX_DTYPE_F16)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "dtype is %d: set dtype of ulyx_dist_attention_params_t to "
            "ULYX_DTYPE_F64, _F32, _BF16 or _F16",
            p->dtype);
    if (p->dim_qk == 0)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "dim_qk is 0, must be 1 to 512: set dim_qk of "
            "ulyx_dist_attention_params_t");
    ULI_TRY(complete_heads(dist->params));
    ULI_TRY(complete_parts(dist));
    dist->elem_bytes = uli_dtype_size(p->dtype);
    dist->stat_dtype =
        p->dtype == ULYX_DTYPE_F64 ? ULYX_DTYPE_F64 : ULYX_DTYPE_F32;
    dist->stat_bytes = uli_dtype_size(dist->stat_dtype);
    if (!p->param_dtype)
        p->param_dtype = dist->stat_dtype;
    dist->has_backward = !(p->flags & ULYX_DIST_ATTENTION_FORWARD_ONLY);
    dist->threads = p->threads;
    return uli_dist_take_docs(dist);
}

/* Chooses what forward saves; needs the ceiling. */
static void
complete_save(struct ulyx_dist_attention *dist)
{
    ulyx_save_mode_t save = dist->params->p.save;
    if (save == ULYX_SAVE_DEFAULT)
        save = dist->ceiling ? ULYX_SAVE_NONE : ULYX_SAVE_HEADS;
    dist->saves_heads = dist->has_backward && save == ULYX_SAVE_HEADS;
}

/* ---- agreement ----------------------------------------------------------- */

/* What a rank contributes: the fields that are compared; the ceiling (the
 * smallest of all is taken); the threads (the most of all are taken). */
enum { MAX_AGREED = 32 };
struct agreed {
    int64_t count, values[MAX_AGREED];
    int64_t ceiling, threads;
};

static void
fill_agreed(const struct ulyx_dist_attention *dist, struct agreed *mine)
{
    struct uli_agreed list = {.values = mine->values, .name_index = -1};
    assert(uli_agreed_most(&uli_dist_fields, 0) <= MAX_AGREED);
    uli_agreed_fields(&list, &uli_dist_fields, dist->params, dist->nranks);
    mine->count = list.count;
    mine->ceiling = dist->params->p.max_workspace_bytes;
    mine->threads = dist->params->p.threads;
}

/* Reports that value i differs between rank 0 and rank p. */
static ulyx_status_t
dist_differ(const struct ulyx_dist_attention *dist, const struct agreed *all,
    int32_t p, int32_t i)
{
    char name[64] = "";
    struct uli_agreed list = {
        .name_index = i, .name_p = name, .name_bytes = sizeof(name)};
    uli_agreed_fields(&list, &uli_dist_fields, dist->params, dist->nranks);
    return uli_agreed_differ(&list, "dist attention create", &all[0].values[i],
        &all[p].values[i], p);
}

static ulyx_status_t
check_peers(const struct ulyx_dist_attention *dist, const struct agreed *all,
    const int64_t *bytes, const ulyx_status_t *statuses)
{
    ulyx_comm_t *comm = dist->comm;
    char reason[ULI_REFUSAL_TEXT_BYTES];
    for (int32_t p = 0; p < comm->nranks; p++)
        if (statuses[p] != ULYX_SUCCESS || bytes[p] != sizeof(*all))
            return uli_error(uli_status_of_peer(statuses[p]),
                "dist attention create: rank %d refused: %s", p,
                uli_agree_reason(comm, p, reason));
    for (int32_t i = 0; i < all[0].count; i++)
        for (int32_t p = 1; p < comm->nranks; p++)
            if (all[p].values[i] != all[0].values[i])
                return dist_differ(dist, all, p, i);
    return ULYX_SUCCESS;
}

static void
take_limits(struct ulyx_dist_attention *dist, const struct agreed *all,
    int32_t *threads_p)
{
    *threads_p = 1;
    for (int32_t p = 0; p < dist->nranks; p++) {
        if (all[p].ceiling &&
            (!dist->ceiling || all[p].ceiling < dist->ceiling))
            dist->ceiling = all[p].ceiling;
        *threads_p = (int32_t)uli_max(*threads_p, all[p].threads);
    }
}

/* With an outcome other than SUCCESS this rank refuses; the outcome's text is
 * set, and dist may be NULL. */
static ulyx_status_t
dist_create_agree(ulyx_comm_t *comm, struct ulyx_dist_attention *dist,
    ulyx_status_t outcome, uli_deadline_t deadline, int32_t *threads_p)
{
    size_t nranks = (size_t)comm->nranks;
    struct agreed mine = {0};
    struct agreed *all = calloc(nranks, sizeof(*all));
    int64_t *bytes = calloc(nranks, sizeof(*bytes));
    ulyx_status_t *statuses = calloc(nranks, sizeof(*statuses));
    const struct uli_gather gather = {.call = ULI_CALL_DIST_ATTENTION,
        .mine = &mine,
        .bytes = sizeof(mine),
        .max_bytes = sizeof(mine),
        .all_p = all,
        .bytes_p = bytes,
        .status_p = statuses,
        .deadline = deadline};
    ulyx_status_t status;
    if (outcome == ULYX_SUCCESS && (!all || !bytes || !statuses))
        outcome =
            uli_error(ULYX_ERR_NO_MEMORY, "dist attention create: no memory");
    if (outcome != ULYX_SUCCESS) {
        status =
            uli_agree_refuse(comm, ULI_CALL_DIST_ATTENTION, outcome, deadline);
    } else {
        fill_agreed(dist, &mine);
        status = uli_agree_gather(comm, &gather);
    }
    if (status == ULYX_SUCCESS)
        status = check_peers(dist, all, bytes, statuses);
    if (status == ULYX_SUCCESS) {
        take_limits(dist, all, threads_p);
        complete_save(dist);
    }
    free(all);
    free(bytes);
    free(statuses);
    return status;
}

/* ---- plans --------------------------------------------------------------- */

/* All ranks have the same mover. A mover that takes no hash would not detect
 * that a rank has other documents, and results would be wrong. */
static ulyx_status_t
check_mover(const ulyx_plan_t *plan)
{
    if (plan->mover->takes_hash)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_UNSUPPORTED,
        "dist attention: the mover %s does not compare the documents of ranks",
        plan->mover->name);
}

static ulyx_status_t
make_group(struct ulyx_dist_attention *dist, struct uli_head_group *group,
    ulyx_status_t *outcome)
{
    struct uli_plan_params params;
    for (int kind = 0; kind < ULI_PLAN_SETS; kind++) {
        struct uli_plan_set *plan_set = &group->plan_sets[kind];
        while (uli_dist_plan_params(
            dist, group, kind, plan_set->nplans, &params)) {
            params.in_turn_with = uli_dist_first_plan(dist); /* one stream */
            ULI_TRY(uli_plan_create(dist->comm, &params, *outcome,
                params.timeout_s, &plan_set->plans[plan_set->nplans]));
            ULI_TRY(check_mover(plan_set->plans[plan_set->nplans++]));
            plan_set->ntensors += params.shape.ntensors;
        }
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
make_plans(struct ulyx_dist_attention *dist, ulyx_status_t outcome)
{
    if (outcome != ULYX_SUCCESS) /* sent in creating the first plan */
        return uli_plan_create(
            dist->comm, NULL, outcome, dist->timeout_s, &(ulyx_plan_t *){NULL});
    for (int32_t g = 0; g < dist->ngroups; g++)
        ULI_TRY(make_group(dist, &dist->groups[g], &outcome));
    uli_dist_take_tables(dist);
    return ULYX_SUCCESS;
}

/* ---- create and destroy -------------------------------------------------- */

/* BUSY: a plan is in flight. This plan and the plans that were not reached
 * stay. */
static ulyx_status_t
destroy_plans(struct ulyx_dist_attention *dist)
{
    ulyx_status_t status = ULYX_SUCCESS;
    for (int32_t g = 0; g < dist->ngroups; g++)
        for (int kind = 0; kind < ULI_PLAN_SETS; kind++) {
            struct uli_plan_set *plan_set = &dist->groups[g].plan_sets[kind];
            while (plan_set->nplans > 0) {
                ulyx_status_t one =
                    uli_plan_destroy(plan_set->plans[plan_set->nplans - 1]);
                if (one == ULYX_ERR_BUSY)
                    return one;
                plan_set->nplans--;
                status = status == ULYX_SUCCESS ? one : status;
            }
        }
    return status;
}

/* Makes the object and completes its parameters. params belongs to the object,
 * or is freed where there is no memory. An error becomes the rank's outcome;
 * *dist_p is set wherever the object was made. */
static ulyx_status_t
dist_create_prepare(struct uli_dist_params *params, int32_t nranks,
    int32_t rank, ulyx_memory_kind_t kind, struct ulyx_dist_attention **dist_p)
{
    const struct uli_dist_memory *memory = uli_dist_memory_of(kind);
    struct ulyx_dist_attention *dist =
        uli_handle_new(ULI_HANDLE_DIST_ATTENTION, sizeof(*dist));
    if (!dist) {
        uli_dist_params_free(params);
        return uli_error(
            ULYX_ERR_NO_MEMORY, "no memory for a distributed attention");
    }
    dist->memory = memory ? memory : &uli_dist_memory_host;
    dist->nranks = nranks;
    dist->rank = rank;
    dist->params = params;
    *dist_p = dist;
    if (!memory)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "memory is CUDA: ulyx was built without CUDA");
    ULI_TRY(dist_complete(dist));
    return memory->check_params(&params->p);
}

static ulyx_status_t
create_for_comm(ulyx_comm_t *comm, struct uli_dist_params *params,
    struct ulyx_dist_attention **dist_p)
{
    ULI_TRY(dist_create_prepare(
        params, comm->nranks, comm->rank, comm->memory_kind, dist_p));
    struct ulyx_dist_attention *dist = *dist_p;
    uli_handle_belong(dist, comm);
    dist->comm = comm;
    dist->timeout_s = uli_timeout_or(params->p.timeout_s, comm->timeout_s);
    if (!dist->threads)
        dist->threads = comm->cores;
    return dist->memory->open(dist);
}

static ulyx_status_t
chunk_on_memory(struct ulyx_dist_attention *dist, int32_t threads)
{
    ULI_TRY(dist->memory->enter(dist));
    ulyx_status_t status = uli_dist_chunk(dist, threads);
    if (status == ULYX_SUCCESS)
        status = dist->memory->settle(dist);
    return dist->memory->leave(status);
}

ulyx_status_t
uli_dist_create(ulyx_comm_t *comm, struct uli_dist_params *params,
    ulyx_status_t outcome, double timeout_s, ulyx_dist_attention_t **dist_p)
{
    struct ulyx_dist_attention *dist = NULL;
    char text[256];
    int32_t threads;
    uli_deadline_t outer,
        deadline = uli_comm_call_begin(comm, timeout_s, &outer);
    if (outcome == ULYX_SUCCESS)
        outcome = create_for_comm(comm, params, &dist);
    else
        uli_dist_params_free(params);
    ulyx_status_t status =
        dist_create_agree(comm, dist, outcome, deadline, &threads);
    if (status == ULYX_SUCCESS)
        status = make_plans(dist, chunk_on_memory(dist, threads));
    uli_comm_call_end(comm, outer);
    if (status == ULYX_SUCCESS) {
        *dist_p = dist;
        return ULYX_SUCCESS;
    }
    snprintf(text, sizeof(text), "%s", uli_error_text());
    if (dist) {
        destroy_plans(dist);
        free_dist(dist);
    }
    return uli_error_pass(status, text);
}

ulyx_status_t
uli_dist_destroy(ulyx_dist_attention_t *dist)
{
    bool idle = false;
    if (!dist->leaving &&
        !atomic_compare_exchange_strong(&dist->busy, &idle, true))
        return uli_error(
            ULYX_ERR_BUSY, "a call of distributed attention is in flight");
    ulyx_status_t status = dist->memory->idle(dist);
    if (status == ULYX_ERR_BUSY) {
        atomic_store(&dist->busy, dist->leaving);
        return status;
    }
    status = destroy_plans(dist);
    dist->leaving = status == ULYX_ERR_BUSY;
    if (!dist->leaving)
        free_dist(dist);
    return status;
}

/* ---- sizes alone --------------------------------------------------------- */

ulyx_status_t
uli_dist_measure_params(struct uli_dist_params *params, int32_t nranks,
    int32_t rank, ulyx_dist_attention_t **dist_p)
{
    struct ulyx_dist_attention *dist = NULL;
    ulyx_status_t status =
        dist_create_prepare(params, nranks, rank, params->p.memory, &dist);
    if (status == ULYX_SUCCESS) {
        dist->ceiling = params->p.max_workspace_bytes;
        dist->threads = (int32_t)uli_max(dist->threads, 1);
        complete_save(dist);
        status = uli_dist_chunk(dist, dist->threads);
    }
    if (status == ULYX_SUCCESS)
        *dist_p = dist;
    else
        uli_dist_measured_free(dist);
    return status;
}

void
uli_dist_measured_free(ulyx_dist_attention_t *dist)
{
    if (dist)
        free_dist(dist);
}
