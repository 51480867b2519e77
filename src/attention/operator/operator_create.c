/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of an operator.
 *
 * First one agreement round: verdicts, what the plans will not compare, the
 * smallest ceiling and the most threads. From there every rank chooses the
 * same head groups. What may fail at one rank alone after that is the verdict
 * with which it makes its next plan, so all learn of it. Plans come in the same
 * order on all ranks.
 */
#include "attention/operator/operator.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/pool.h"
#include "base/dtype.h"
#include "base/status.h"

#define INVALID(...) uli_error(ULYX_ERR_INVALID_ARGUMENT, __VA_ARGS__)

void
uli_operator_params_free(struct uli_operator_params *params)
{
    if (!params)
        return;
    uli_held_free(&params->held);
    free(params);
}

static void
free_operator(struct ulyx_operator *op)
{
    for (int32_t g = 0; g < op->ngroups; g++) {
        free(op->groups[g].kv_map);
        free(op->groups[g].segments[0]);
        free(op->groups[g].segments[1]);
    }
    free(op->groups);
    for (int i = 0; i < 4; i++) {
        free(op->docs[i / 2][i % 2].begin);
        free(op->docs[i / 2][i % 2].length);
    }
    uli_operator_params_free(op->params);
    free(op->user);
    free(op);
}

/* ---- settling ------------------------------------------------------------ */

static ulyx_status_t
settle_heads(struct uli_operator_params *params)
{
    ulyx_operator_params_t *p = &params->p;
    if (!p->kv_heads)
        p->kv_heads = p->heads;
    if (p->heads % p->kv_heads)
        return INVALID("heads is %lld, must be a multiple of kv_heads (%lld)",
            (long long)p->heads, (long long)p->kv_heads);
    if (!p->dim_v)
        p->dim_v = p->dim_qk;
    if (params->shape.head_splits && p->head_groups > 1)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "head_splits with head_groups %d: splits are those of one group",
            p->head_groups);
    return ULYX_SUCCESS;
}

static ulyx_status_t
settle_parts(struct ulyx_operator *op)
{
    const struct uli_shape *shape = &op->params->shape;
    for (int32_t i = 0; i < shape->nparts; i++) {
        const struct uli_shape_part *part = &shape->parts[i];
        int32_t axis = part->axis;
        if (op->nparts[axis] == ULI_AXIS_PARTS)
            return INVALID("parts[%d].axis is %d, which has %d parts already",
                i, axis, ULI_AXIS_PARTS);
        if (!uli_size_add(op->rows[axis], part->rows, &op->rows[axis]))
            return INVALID(
                "parts[%d].rows is %lld: rows of axis %d do not fit 63 bits", i,
                (long long)part->rows, axis);
        op->part_of[axis][op->nparts[axis]++] = i;
    }
    if (!op->nparts[0])
        return INVALID("no part has axis 0, the queries'");
    if (!op->nparts[1]) {
        memcpy(op->part_of[1], op->part_of[0], sizeof(op->part_of[0]));
        op->nparts[1] = op->nparts[0];
        op->rows[1] = op->rows[0];
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
operator_settle(struct ulyx_operator *op)
{
    ulyx_operator_params_t *p = &op->params->p;
    if (p->dtype < ULYX_DTYPE_F64 || p->dtype > ULYX_DTYPE_F16)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "dtype is %d: the operator has F64, F32, BF16 and F16", p->dtype);
    ULI_TRY(settle_heads(op->params));
    ULI_TRY(settle_parts(op));
    op->elem_bytes = uli_dtype_size(p->dtype);
    op->stat_dtype =
        p->dtype == ULYX_DTYPE_F64 ? ULYX_DTYPE_F64 : ULYX_DTYPE_F32;
    op->stat_bytes = uli_dtype_size(op->stat_dtype);
    op->has_backward = !(p->flags & ULYX_OPERATOR_FORWARD_ONLY);
    op->threads = p->threads ? p->threads : uli_pool_cores();
    op->timeout_s = uli_timeout_or(p->timeout_s, op->comm->timeout_s);
    return uli_operator_take_docs(op);
}

/* ---- agreement ----------------------------------------------------------- */

/* The agreed fields, and what everybody takes the least or the most of. */
enum { MAX_AGREED = 32 };
struct agreed {
    int64_t count, values[MAX_AGREED];
    int64_t ceiling, threads;
};

static void
fill_agreed(const struct ulyx_operator *op, struct agreed *mine)
{
    struct uli_agreed list = {.values = mine->values, .wanted = -1};
    assert(uli_agreed_most(&uli_operator_fields, 0) <= MAX_AGREED);
    uli_agreed_fields(
        &list, &uli_operator_fields, op->params, op->comm->nranks);
    mine->count = list.count;
    mine->ceiling = op->params->p.max_workspace_bytes;
    mine->threads = op->threads;
}

/* Value i is not the same on rank 0 and rank p. */
static ulyx_status_t
operator_differ(const struct ulyx_operator *op, const struct agreed *all,
    int32_t p, int32_t i)
{
    char name[64] = "";
    struct uli_agreed list = {
        .wanted = i, .name_p = name, .name_bytes = sizeof(name)};
    uli_agreed_fields(
        &list, &uli_operator_fields, op->params, op->comm->nranks);
    return uli_agreed_differ(
        &list, "operator create", &all[0].values[i], &all[p].values[i], p);
}

static ulyx_status_t
check_peers(const struct ulyx_operator *op, const struct agreed *all,
    const int64_t *bytes, const ulyx_status_t *statuses)
{
    const ulyx_comm_t *comm = op->comm;
    for (int32_t p = 0; p < comm->nranks; p++)
        if (statuses[p] != ULYX_SUCCESS || bytes[p] != sizeof(*all))
            return uli_error(ULYX_ERR_PEER_REFUSED,
                "operator create: rank %d refused: %s", p,
                uli_status_text(statuses[p]));
    for (int32_t i = 0; i < all[0].count; i++)
        for (int32_t p = 1; p < comm->nranks; p++)
            if (all[p].values[i] != all[0].values[i])
                return operator_differ(op, all, p, i);
    return ULYX_SUCCESS;
}

static void
take_limits(
    struct ulyx_operator *op, const struct agreed *all, int32_t *threads_p)
{
    *threads_p = 1;
    for (int32_t p = 0; p < op->comm->nranks; p++) {
        if (all[p].ceiling && (!op->ceiling || all[p].ceiling < op->ceiling))
            op->ceiling = all[p].ceiling;
        *threads_p = (int32_t)uli_max(*threads_p, all[p].threads);
    }
    ulyx_save_mode_t save = op->params->p.save;
    if (save == ULYX_SAVE_DEFAULT)
        save = op->ceiling ? ULYX_SAVE_NONE : ULYX_SAVE_HEADS;
    op->saves_heads = op->has_backward && save == ULYX_SAVE_HEADS;
}

/* op NULL: this rank refuses with the verdict, whose text is set. */
static ulyx_status_t
operator_create_agree(ulyx_comm_t *comm, struct ulyx_operator *op,
    ulyx_status_t verdict, uli_deadline_t deadline, int32_t *threads_p)
{
    size_t nranks = (size_t)comm->nranks;
    struct agreed mine = {0};
    char text[256];
    snprintf(text, sizeof(text), "%s", uli_error_text());
    struct agreed *all = calloc(nranks, sizeof(*all));
    int64_t *bytes = calloc(nranks, sizeof(*bytes));
    ulyx_status_t *statuses = calloc(nranks, sizeof(*statuses));
    bool memory = all && bytes && statuses;
    if (!memory && verdict == ULYX_SUCCESS) {
        verdict = ULYX_ERR_NO_MEMORY;
        snprintf(text, sizeof(text), "operator create: no memory to agree");
    }
    if (verdict == ULYX_SUCCESS)
        fill_agreed(op, &mine);
    ulyx_status_t status = uli_agree_gather(comm, ULI_CALL_OPERATOR, verdict,
        &mine, verdict == ULYX_SUCCESS ? (int64_t)sizeof(mine) : 0,
        memory ? (int64_t)sizeof(mine) : 0, all, memory ? bytes : NULL,
        memory ? statuses : NULL, deadline);
    if (verdict != ULYX_SUCCESS &&
        (status == ULYX_SUCCESS || status == ULYX_ERR_MISMATCH))
        status = uli_error_pass(verdict, text);
    if (status == ULYX_SUCCESS)
        status = check_peers(op, all, bytes, statuses);
    if (status == ULYX_SUCCESS)
        take_limits(op, all, threads_p);
    free(all);
    free(bytes);
    free(statuses);
    return status;
}

/* ---- plans --------------------------------------------------------------- */

static ulyx_status_t
make_group(struct ulyx_operator *op, struct uli_head_group *group,
    ulyx_status_t *verdict)
{
    struct uli_plan_params params;
    for (int kind = 0; kind < ULI_BUNDLES; kind++) {
        struct uli_bundle *bundle = &group->bundles[kind];
        while (uli_operator_plan_params(
            op, group, kind, bundle->nplans, &params)) {
            ULI_TRY(uli_plan_create(op->comm, &params, *verdict,
                params.timeout_s, &bundle->plans[bundle->nplans]));
            bundle->nplans++;
            bundle->ntensors += params.shape.ntensors;
        }
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
make_plans(struct ulyx_operator *op, ulyx_status_t verdict)
{
    if (verdict != ULYX_SUCCESS) /* the first plan tells it */
        return uli_plan_create(
            op->comm, NULL, verdict, op->timeout_s, &(ulyx_plan_t *){NULL});
    for (int32_t g = 0; g < op->ngroups; g++)
        ULI_TRY(make_group(op, &op->groups[g], &verdict));
    uli_operator_take_tables(op);
    return ULYX_SUCCESS;
}

/* ---- life ---------------------------------------------------------------- */

static ulyx_status_t
destroy_plans(struct ulyx_operator *op)
{
    ulyx_status_t status = ULYX_SUCCESS;
    for (int32_t g = 0; g < op->ngroups; g++)
        for (int kind = 0; kind < ULI_BUNDLES; kind++) {
            struct uli_bundle *bundle = &op->groups[g].bundles[kind];
            for (int32_t i = 0; i < bundle->nplans; i++) {
                ulyx_status_t one = uli_plan_destroy(bundle->plans[i]);
                status = status == ULYX_SUCCESS ? one : status;
            }
            bundle->nplans = 0;
        }
    return status;
}

/* Allocates and settles: what fails is the rank's verdict. */
static ulyx_status_t
operator_create_prepare(ulyx_comm_t *comm, struct uli_operator_params *params,
    struct ulyx_operator **op_p)
{
    struct ulyx_operator *op = calloc(1, sizeof(*op));
    if (!op) {
        uli_operator_params_free(params);
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for an operator");
    }
    op->comm = comm;
    op->params = params;
    *op_p = op;
    return operator_settle(op);
}

ulyx_status_t
uli_operator_create(ulyx_comm_t *comm, struct uli_operator_params *params,
    ulyx_status_t verdict, double timeout_s, ulyx_operator_t **op_p)
{
    struct ulyx_operator *op = NULL;
    char text[256];
    int32_t threads;
    uli_deadline_t deadline =
        uli_deadline_in(uli_timeout_or(timeout_s, comm->timeout_s));
    if (verdict == ULYX_SUCCESS)
        verdict = operator_create_prepare(comm, params, &op);
    else
        uli_operator_params_free(params);
    ulyx_status_t status =
        operator_create_agree(comm, op, verdict, deadline, &threads);
    if (status == ULYX_SUCCESS)
        status = make_plans(op, uli_operator_chunk(op, threads));
    if (status == ULYX_SUCCESS) {
        *op_p = op;
        return ULYX_SUCCESS;
    }
    snprintf(text, sizeof(text), "%s", uli_error_text());
    if (op) {
        destroy_plans(op);
        free_operator(op);
    }
    return uli_error_pass(status, text);
}

ulyx_status_t
uli_operator_destroy(ulyx_operator_t *op)
{
    bool idle = false;
    if (!atomic_compare_exchange_strong(&op->busy, &idle, true))
        return uli_error(ULYX_ERR_BUSY, "a call of the operator is in flight");
    ulyx_status_t status = destroy_plans(op);
    free_operator(op);
    return status;
}
