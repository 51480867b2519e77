/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls that make, run and end plans.
 *
 * Parameters are read into the library's own structs here. An error in them
 * becomes the rank's outcome: the rank still takes part in the agreement (or
 * posts a refusal), so that its peers get the error instead of waiting.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/group.h"
#include "api/params.h"
#include "base/dtype.h"
#include "base/params/held.h"
#include "base/status.h"
#include "collectives/plan/plan.h"
#include "collectives/plan/plan_fields.h"
#include "ulyx/reshuffle.h"

enum { MAX_ELEM_BYTES = 4096 };

/* ---- parameters ---------------------------------------------------------- */

/* The parameters of a plan. Tables of fields read and check most of them;
 * strides, and element sizes that follow from the dtype, are read below. The
 * layout checks what depends on the shape. */
struct params {
    struct uli_plan_params plan;
    struct uli_held held; /* the copies to which plan points */
};

/* The caller sets elem_bytes for DTYPE_BYTES only; in the library's struct it
 * is always set. */
static ulyx_status_t
settle_elem_bytes(struct uli_shape_tensor *t, int i)
{
    int64_t most = t->dtype == ULYX_DTYPE_BYTES ? MAX_ELEM_BYTES : 0;
    if (most && !t->elem_bytes)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "tensors[%d].elem_bytes is 0, must be 1 to %d for DTYPE_BYTES: set "
            "elem_bytes, or another dtype, of ulyx_tensor_t",
            i, MAX_ELEM_BYTES);
    if (t->elem_bytes < (most != 0) || t->elem_bytes > most)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "tensors[%d].elem_bytes is %lld, must be 1 to %d for DTYPE_BYTES "
            "and 0 for other dtypes",
            i, (long long)t->elem_bytes, MAX_ELEM_BYTES);
    if (t->dtype != ULYX_DTYPE_BYTES)
        t->elem_bytes = uli_dtype_size(t->dtype);
    return ULYX_SUCCESS;
}

static ulyx_status_t
read_tensors(const ulyx_plan_params_t *given, struct uli_plan_params *plan)
{
    for (int i = 0; i < plan->shape.ntensors; i++) {
        ulyx_tensor_t t;
        uli_struct_element(&uli_structs[ULI_STRUCT_TENSOR], given->tensors,
            given->tensor_size, i, &t);
        ULI_TRY(settle_elem_bytes(&plan->shape.tensors[i], i));
        memcpy(plan->strides[i][ULI_SIDE_SEQ], t.seq_strides,
            sizeof(t.seq_strides));
        memcpy(plan->strides[i][ULI_SIDE_HEAD], t.head_strides,
            sizeof(t.head_strides));
        memcpy(plan->strides[i][ULI_SIDE_PARTIAL], t.partial_strides,
            sizeof(t.partial_strides));
    }
    return ULYX_SUCCESS;
}

/* hold: copy what the struct points to, for a call that runs later.
 * ownership: params_free frees *params_p, also after an error (it may then be
 * NULL). */
static ulyx_status_t
params_read(const ulyx_plan_params_t *given, int32_t nranks, bool hold,
    struct params **params_p)
{
    ulyx_plan_params_t own;
    ULI_CHECK_POINTER(given);
    ULI_TRY(uli_struct_take(
        &uli_structs[ULI_STRUCT_PLAN_PARAMS], given, &own, NULL));
    struct params *params = calloc(1, sizeof(*params));
    if (!params)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    *params_p = params;
    struct uli_plan_params *plan = &params->plan;
    struct uli_shape *shape = &plan->shape;
    shape->nranks = nranks;
    ULI_TRY(uli_fields_read(&uli_plan_fields, &own, plan));
    ULI_TRY(uli_fields_check(&uli_plan_fields, plan));
    ULI_TRY(uli_fields_read(&uli_shape_fields, &own, shape));
    ULI_TRY(read_tensors(&own, plan));
    ULI_TRY(
        uli_fields_hold(&uli_plan_fields, plan, nranks, hold, &params->held));
    return uli_fields_hold(
        &uli_shape_fields, shape, nranks, hold, &params->held);
}

static void
params_free(struct params *params)
{
    if (!params)
        return;
    uli_held_free(&params->held);
    free(params);
}

/* ---- creation ------------------------------------------------------------ */

/* An execute that is queued until the end of its group. The plan owns it. */
struct queued {
    struct uli_group_op entry;
    ulyx_plan_t *plan;
    struct uli_plan_call call; /* its arrays are the copies below, or NULL */
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    int64_t strides[2][ULI_TENSORS][3]; /* by ulyx_side_t */
    ulyx_request_t *request;
};

struct creation {
    ulyx_comm_t *comm;
    struct params *params;
    struct uli_outcome outcome; /* of reading params */
    ulyx_plan_t **plan_p;
};

static ulyx_status_t
run_creation(void *context)
{
    struct creation *creation = context;
    struct queued *queued = calloc(1, sizeof(*queued));
    ulyx_plan_t *plan = NULL;
    ulyx_status_t outcome = uli_outcome_recall(&creation->outcome);
    if (outcome == ULYX_SUCCESS && !queued)
        outcome = uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    ulyx_status_t status = uli_plan_create(creation->comm,
        creation->params ? &creation->params->plan : NULL, outcome,
        creation->params ? creation->params->plan.timeout_s : 0, &plan);
    params_free(creation->params);
    if (status != ULYX_SUCCESS) {
        free(queued);
        return status;
    }
    queued->plan = plan;
    plan->user = queued;
    plan->free_user = free;
    *creation->plan_p = plan;
    return ULYX_SUCCESS;
}

static void
free_creation(void *context)
{
    params_free(((struct creation *)context)->params);
}

ulyx_status_t
ulyx_plan_create(
    ulyx_comm_t *comm, const ulyx_plan_params_t *params, ulyx_plan_t **plan_p)
{
    struct creation creation = {.comm = comm, .plan_p = plan_p};
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    creation.outcome = uli_outcome_keep(
        plan_p ? params_read(
                     params, comm->nranks, uli_group_active(), &creation.params)
               : uli_error(ULYX_ERR_INVALID_ARGUMENT, "plan_p is NULL"));
    return uli_group_run(
        comm, run_creation, free_creation, &creation, sizeof(creation));
}

ulyx_status_t
ulyx_plan_update(ulyx_plan_t *plan, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream)
{
    ulyx_docs_t own[2];
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_PLAN, plan);
    ULI_TRY(uli_api_stream(plan->comm, stream));
    ULI_TRY(uli_docs_take(&docs_q, &own[0], "docs_q"));
    ULI_TRY(uli_docs_take(&docs_k, &own[1], "docs_k"));
    return uli_plan_update(plan, docs_q, docs_k, stream);
}

ulyx_status_t
ulyx_plan_update_rows(ulyx_plan_t *plan, const int64_t *rows,
    const int64_t *const *splits, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream)
{
    ulyx_docs_t own[2];
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_PLAN, plan);
    ULI_CHECK_POINTER(rows);
    ULI_TRY(uli_api_stream(plan->comm, stream));
    ULI_TRY(uli_docs_take(&docs_q, &own[0], "docs_q"));
    ULI_TRY(uli_docs_take(&docs_k, &own[1], "docs_k"));
    return uli_plan_update_rows(plan, rows, splits, docs_q, docs_k, stream);
}

static ulyx_status_t
destroy_idle(ulyx_plan_t *plan)
{
    if (!plan->user)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "the plan belongs to a distributed attention, which destroys it");
    if (((struct queued *)plan->user)->entry.queued)
        return uli_error(
            ULYX_ERR_BUSY, "an operation of the plan is queued in a group");
    return uli_plan_destroy(plan);
}

ulyx_status_t
ulyx_plan_destroy(ulyx_plan_t *plan)
{
    ULI_TRY(uli_api_enter());
    if (!plan)
        return ULYX_SUCCESS;
    ULI_TRY(uli_handle_close(ULI_HANDLE_PLAN, plan, "plan"));
    return uli_handle_closed(plan, destroy_idle(plan));
}

/* ---- execution ----------------------------------------------------------- */

static ulyx_status_t
start_queued(void *context)
{
    struct queued *q = context;
    return uli_plan_execute(q->plan, &q->call, &q->request);
}

static ulyx_status_t
wait_queued(void *context)
{
    struct queued *q = context;
    return q->request ? uli_request_wait(q->request) : ULYX_SUCCESS;
}

/* Copies the caller's array to one that outlives the call; NULL stays NULL. */
static const void *
array_hold(void *held, const void *given, int32_t count, size_t bytes)
{
    return given ? memcpy(held, given, (size_t)count * bytes) : NULL;
}

static ulyx_status_t
plan_queue(ulyx_plan_t *plan, const struct uli_plan_call *call)
{
    struct queued *q = plan->user;
    int32_t n = plan->exchange.ntensors;
    if (!q->entry.queued) {
        q->entry.start = start_queued;
        q->entry.wait = wait_queued;
        q->entry.context = q;
        q->call = *call;
        q->call.src = array_hold(q->src, call->src, n, sizeof(void *));
        q->call.dst = call->dst ? q->dst : NULL;
        (void)array_hold(q->dst, call->dst, n, sizeof(void *));
        q->call.src_strides = array_hold(q->strides[ULYX_SIDE_SRC],
            call->src_strides, n, sizeof(*call->src_strides));
        q->call.dst_strides = array_hold(q->strides[ULYX_SIDE_DST],
            call->dst_strides, n, sizeof(*call->dst_strides));
    }
    return uli_group_queue_op(&q->entry);
}

ulyx_status_t
ulyx_reshuffle_execute(ulyx_plan_t *plan, ulyx_direction_t direction,
    const void *const src[], void *const dst[], void *stream)
{
    return ulyx_reshuffle_execute_strided(
        plan, direction, src, NULL, dst, NULL, stream);
}

ulyx_status_t
ulyx_reshuffle_execute_strided(ulyx_plan_t *plan, ulyx_direction_t direction,
    const void *const src[], const int64_t (*src_strides)[3], void *const dst[],
    const int64_t (*dst_strides)[3], void *stream)
{
    const struct uli_plan_call call = {.direction = direction,
        .src = src,
        .src_strides = src_strides,
        .dst = dst,
        .dst_strides = dst_strides,
        .stream = stream,
        .awaited = !uli_group_active()};
    ulyx_request_t *request;
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_PLAN, plan);
    if (!call.awaited)
        return plan_queue(plan, &call);
    ULI_TRY(uli_plan_execute(plan, &call, &request));
    return request ? uli_request_wait(request) : ULYX_SUCCESS;
}

ulyx_status_t
ulyx_reshuffle_refuse(ulyx_plan_t *plan, ulyx_direction_t direction,
    const char *reason, void *stream)
{
    const struct uli_plan_call call = {
        .direction = direction, .stream = stream};
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_PLAN, plan);
    if (uli_group_active())
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "ulyx_reshuffle_refuse does not work in a group: call it outside");
    if (direction < 0 || direction >= ULYX_DIRECTIONS)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "direction is %d, must be 0 to %d", direction, ULYX_DIRECTIONS - 1);
    char text[ULI_REFUSAL_TEXT_BYTES];
    ulyx_status_t status = uli_error(
        ULYX_ERR_INVALID_ARGUMENT, "%s", reason ? reason : "reason is NULL");
    snprintf(text, sizeof(text), "%s", uli_error_text());
    return uli_plan_refuse_call(plan, &call, status, text);
}

ulyx_status_t
ulyx_reshuffle_start(ulyx_plan_t *plan, ulyx_direction_t direction,
    const void *const src[], void *const dst[], double timeout_s,
    ulyx_request_t **request_p)
{
    return ulyx_reshuffle_start_strided(
        plan, direction, src, NULL, dst, NULL, timeout_s, request_p);
}

ulyx_status_t
ulyx_reshuffle_start_strided(ulyx_plan_t *plan, ulyx_direction_t direction,
    const void *const src[], const int64_t (*src_strides)[3], void *const dst[],
    const int64_t (*dst_strides)[3], double timeout_s,
    ulyx_request_t **request_p)
{
    const struct uli_plan_call call = {.direction = direction,
        .src = src,
        .src_strides = src_strides,
        .dst = dst,
        .dst_strides = dst_strides,
        .timeout_s = timeout_s};
    ulyx_request_t *request;
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_PLAN, plan);
    if (!request_p)
        return uli_plan_refuse(
            plan, ULYX_ERR_INVALID_ARGUMENT, "request_p is NULL");
    if (!(timeout_s >= 0))
        return uli_plan_refuse(plan, ULYX_ERR_INVALID_ARGUMENT,
            "timeout_s is negative or not a number");
    ULI_TRY(uli_plan_start(plan, &call, &request));
    *request_p = request;
    return ULYX_SUCCESS;
}

/* A request is the first member of its plan, so both have one handle. */
static ulyx_status_t
check_request(const ulyx_request_t *request)
{
    ULI_CHECK_POINTER(request);
    if (uli_handle_lives(ULI_HANDLE_PLAN, request))
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "request belongs to no plan: its plan was "
        "destroyed, or start did not return it");
}

ulyx_status_t
ulyx_request_test(ulyx_request_t *request)
{
    ULI_TRY(uli_api_enter());
    ULI_TRY(check_request(request));
    return uli_request_test(request);
}

ulyx_status_t
ulyx_request_wait(ulyx_request_t *request)
{
    ULI_TRY(uli_api_enter());
    ULI_TRY(check_request(request));
    return uli_request_wait(request);
}
