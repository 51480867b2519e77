/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls of operator.h. Inside a group creations and calls queue for
 * a thread of their communicator: they compute, so ranks must run side by side.
 */
#include <stdio.h>
#include <string.h>
#include "api/group.h"
#include "api/operator_params.h"
#include "api/params.h"
#include "base/params/held.h"
#include "base/status.h"

/* ---- life ---------------------------------------------------------------- */

struct creation {
    ulyx_comm_t *comm;
    struct uli_operator_params *params;
    ulyx_status_t verdict;
    char text[256]; /* of the verdict */
    ulyx_operator_t **operator_p;
};

static ulyx_status_t
run_creation(void *context)
{
    struct creation *creation = context;
    double timeout_s = creation->params ? creation->params->p.timeout_s : 0;
    if (creation->verdict != ULYX_SUCCESS)
        uli_error_pass(creation->verdict, creation->text);
    return uli_operator_create(creation->comm, creation->params,
        creation->verdict, timeout_s, creation->operator_p);
}

ulyx_status_t
ulyx_operator_create(ulyx_comm_t *comm, const ulyx_operator_params_t *params,
    ulyx_operator_t **operator_p)
{
    struct creation creation = {.comm = comm, .operator_p = operator_p};
    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(comm);
    ULI_TRY(uli_api_host_only(comm, "operator_create"));
    if (!operator_p)
        creation.verdict =
            uli_error(ULYX_ERR_INVALID_ARGUMENT, "operator_p is NULL");
    else
        creation.verdict =
            uli_operator_params_read(params, comm->nranks, &creation.params);
    snprintf(creation.text, sizeof(creation.text), "%s", uli_error_text());
    if (!uli_group_active())
        return run_creation(&creation);
    ulyx_status_t status =
        uli_group_queue(comm, run_creation, &creation, sizeof(creation));
    if (status != ULYX_SUCCESS)
        uli_operator_params_free(creation.params);
    return status;
}

ulyx_status_t
ulyx_operator_destroy(ulyx_operator_t *op)
{
    ULI_TRY(uli_api_enter());
    return op ? uli_operator_destroy(op) : ULYX_SUCCESS;
}

ulyx_status_t
ulyx_operator_update(ulyx_operator_t *op, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream)
{
    ulyx_docs_t own[2];
    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(op);
    ULI_TRY(uli_api_stream(op->comm, stream));
    ULI_TRY(uli_docs_take(&docs_q, &own[0], "docs_q"));
    ULI_TRY(uli_docs_take(&docs_k, &own[1], "docs_k"));
    return uli_operator_update(op, docs_q, docs_k);
}

/* ---- calls --------------------------------------------------------------- */

struct execution {
    ulyx_operator_t *op;
    struct uli_operator_call call;
    ulyx_status_t verdict;
    char text[256];
};

static ulyx_status_t
run_execution(void *context)
{
    struct execution *execution = context;
    if (execution->verdict != ULYX_SUCCESS)
        uli_error_pass(execution->verdict, execution->text);
    return uli_operator_run(
        execution->op, &execution->call, execution->verdict);
}

static ulyx_status_t
run_or_queue(struct execution *execution, const void *stream)
{
    if (execution->verdict == ULYX_SUCCESS)
        execution->verdict = uli_api_stream(execution->op->comm, stream);
    snprintf(execution->text, sizeof(execution->text), "%s", uli_error_text());
    if (!uli_group_active())
        return run_execution(execution);
    return uli_group_queue(
        execution->op->comm, run_execution, execution, sizeof(*execution));
}

ulyx_status_t
ulyx_operator_forward(
    ulyx_operator_t *op, const ulyx_operator_forward_t *call, void *stream)
{
    struct execution execution = {.op = op};
    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(op);
    execution.verdict = uli_operator_forward_read(op, call, &execution.call);
    return run_or_queue(&execution, stream);
}

ulyx_status_t
ulyx_operator_backward(
    ulyx_operator_t *op, const ulyx_operator_backward_t *call, void *stream)
{
    struct execution execution = {.op = op};
    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(op);
    execution.verdict = uli_operator_backward_read(op, call, &execution.call);
    return run_or_queue(&execution, stream);
}

/* ---- queries ------------------------------------------------------------- */

ulyx_status_t
ulyx_operator_get_bytes(const ulyx_operator_t *op, int64_t *workspace_p,
    int64_t *saved_p, int64_t *held_p)
{
    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(op);
    if (workspace_p)
        *workspace_p = uli_max(
            op->passes[0].bytes, op->has_backward ? op->passes[1].bytes : 0);
    if (saved_p)
        *saved_p = op->saved_bytes;
    if (held_p)
        *held_p = uli_operator_held_bytes(op);
    return ULYX_SUCCESS;
}

/* Writes what there is room for. returns how many there are. */
static int64_t
give_saved(const ulyx_operator_t *op, int64_t capacity, size_t part_size,
    ulyx_operator_part_t *parts_p)
{
    int64_t count = 0;
    for (int32_t g = 0; g < op->ngroups; g++)
        for (int i = 0; i < ULI_SAVED_TENSORS; i++) {
            ulyx_operator_part_t part;
            if (!uli_operator_saved_part(op, g, i, &part))
                continue;
            if (count < capacity)
                uli_struct_give_element(&uli_structs[ULI_STRUCT_OPERATOR_PART],
                    &part, parts_p, part_size, count);
            count++;
        }
    return count;
}

ulyx_status_t
ulyx_operator_get_saved(const ulyx_operator_t *op, int64_t capacity,
    size_t part_size, ulyx_operator_part_t *parts_p, int64_t *count_p)
{
    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(op);
    ULI_CHECK_POINTER(count_p);
    if (capacity < 0 || (capacity && !parts_p))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "capacity is %lld and parts_p is %s", (long long)capacity,
            parts_p ? "given" : "NULL");
    ULI_TRY(uli_struct_element_size(
        &uli_structs[ULI_STRUCT_OPERATOR_PART], part_size, "parts_p"));
    *count_p = give_saved(op, capacity, part_size, parts_p);
    if (capacity && capacity < *count_p)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "capacity is %lld, needed are %lld", (long long)capacity,
            (long long)*count_p);
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_operator_get_times(
    const ulyx_operator_t *op, ulyx_operator_times_t *times_p)
{
    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(op);
    ULI_CHECK_POINTER(times_p);
    ulyx_operator_times_t times = op->times;
    uli_operator_traffic(op, &times.sent_bytes, &times.received_bytes);
    return uli_struct_give(
        &uli_structs[ULI_STRUCT_OPERATOR_TIMES], &times, times_p);
}

ulyx_status_t
ulyx_operator_get_plan(const ulyx_operator_t *op, int32_t group,
    const ulyx_plan_t **plan_p, int32_t *groups_p)
{
    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(op);
    ULI_CHECK_POINTER(plan_p);
    if (group < 0 || group >= op->ngroups)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "group is %d, must be 0 to %d", group, op->ngroups - 1);
    *plan_p = op->groups[group].bundles[ULI_BUNDLE_IN].plans[0];
    if (groups_p)
        *groups_p = op->ngroups;
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_operator_describe(
    const ulyx_operator_t *op, char *text_p, size_t text_bytes)
{
    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(op);
    ULI_CHECK_POINTER(text_p);
    if (text_bytes < 1)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT, "text_bytes is 0");
    uli_operator_describe(op, text_p, text_bytes);
    return ULYX_SUCCESS;
}
