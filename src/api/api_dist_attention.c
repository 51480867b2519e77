/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls of dist_attention.h. Inside a group, creations and calls are
 * queued for a thread of their communicator: a call computes between its
 * exchanges, so ranks must run in parallel.
 */
#include <stdlib.h>
#include <string.h>
#include "api/group.h"
#include "api/params.h"
#include "attention/dist_attention/dist_attention.h"
#include "base/params/held.h"
#include "base/status.h"

/* ---- parameters ---------------------------------------------------------- */

/* Copies the strides: one array per tensor, with one entry per part of the
 * tensor's axis. */
static void
read_strides(struct uli_dist_params *params)
{
    const ulyx_dist_attention_params_t *p = &params->p;
    int32_t counts[2] = {0, 0};
    for (int32_t i = 0; i < params->shape.nparts; i++)
        counts[params->shape.parts[i].axis]++;
    if (!counts[1])
        counts[1] = counts[0];
    const int64_t(*given[ULI_DIST_STRIDED])[3] = {[ULI_DIST_Q] = p->q_strides,
        [ULI_DIST_K] = p->k_strides,
        [ULI_DIST_V] = p->v_strides,
        [ULI_DIST_OUT] = p->out_strides,
        [ULI_DIST_DOUT] = p->dout_strides ? p->dout_strides : p->out_strides};
    for (int t = 0; t < ULI_DIST_STRIDED; t++) {
        int32_t count = counts[t == ULI_DIST_K || t == ULI_DIST_V];
        for (int32_t i = 0; given[t] && i < count && i < ULI_AXIS_PARTS; i++)
            memcpy(params->strides[t][i], given[t][i], 3 * sizeof(int64_t));
    }
}

/* Clears the pointers to the caller's arrays, whose values have been copied. */
static void
forget_arrays(ulyx_dist_attention_params_t *p)
{
    p->parts = NULL;
    p->head_splits = NULL;
    p->q_strides = p->k_strides = p->v_strides = NULL;
    p->out_strides = p->dout_strides = NULL;
}

/* Copies everything that the struct points to.
 * ownership: uli_dist_params_free frees *params_p, also after an error (it may
 * then be NULL). */
static ulyx_status_t
dist_params_read(const ulyx_dist_attention_params_t *given, int32_t nranks,
    struct uli_dist_params **params_p)
{
    ULI_CHECK_POINTER(given);
    struct uli_dist_params *params = calloc(1, sizeof(*params));
    if (!params)
        return uli_error(
            ULYX_ERR_NO_MEMORY, "no memory for a distributed attention");
    *params_p = params;
    ULI_TRY(uli_struct_take(&uli_structs[ULI_STRUCT_DIST_ATTENTION_PARAMS],
        given, &params->p, NULL));
    ULI_TRY(uli_fields_read(&uli_dist_fields, &params->p, params));
    ULI_TRY(uli_fields_check(&uli_dist_fields, params));
    read_strides(params);
    forget_arrays(&params->p);
    return uli_fields_hold(
        &uli_dist_fields, params, nranks, true, &params->held);
}

/* ---- tensors of a call --------------------------------------------------- */

/* Copies the pointers and strides of a tensor, which have one entry per part.
 * Either array may be NULL. */
static void
dist_take(const ulyx_dist_attention_t *dist, enum uli_dist_tensor tensor,
    const void *const *pointers, const int64_t (*strides)[3],
    struct uli_dist_call *call)
{
    int32_t count = dist->nparts[uli_dist_keys(tensor)];

    call->given[tensor] = pointers != NULL;
    for (int32_t i = 0; pointers && i < count; i++)
        call->tensors[tensor][i] = (void *)(uintptr_t)pointers[i];
    call->strided[tensor] = strides != NULL;
    if (strides)
        memcpy(
            call->strides[tensor], strides, (size_t)count * sizeof(*strides));
}

/* Copies the structs, which may be of another version. Their arrays stay the
 * caller's. */
static ulyx_status_t
dist_take_docs(const ulyx_docs_t *docs_q, const ulyx_docs_t *docs_k,
    struct uli_dist_call *call)
{
    call->has_docs[0] = docs_q != NULL;
    call->has_docs[1] = docs_k != NULL;
    ULI_TRY(uli_docs_take(&docs_q, &call->docs[0], "docs_q"));
    return uli_docs_take(&docs_k, &call->docs[1], "docs_k");
}

static ulyx_status_t
check_timeout(double timeout_s)
{
    if (timeout_s >= 0)
        return ULYX_SUCCESS;
    return uli_error(
        ULYX_ERR_INVALID_ARGUMENT, "timeout_s is negative or not a number");
}

static ulyx_status_t
dist_forward_read(const ulyx_dist_attention_t *dist,
    const ulyx_dist_attention_forward_t *given, struct uli_dist_call *call_p)
{
    ulyx_dist_attention_forward_t own;
    memset(call_p, 0, sizeof(*call_p));
    ULI_CHECK_POINTER(given);
    ULI_TRY(uli_struct_take(
        &uli_structs[ULI_STRUCT_DIST_ATTENTION_FORWARD], given, &own, NULL));
    dist_take(dist, ULI_DIST_Q, own.q, own.q_strides, call_p);
    dist_take(dist, ULI_DIST_K, own.k, own.k_strides, call_p);
    dist_take(dist, ULI_DIST_V, own.v, own.v_strides, call_p);
    dist_take(dist, ULI_DIST_OUT, (const void *const *)own.out, own.out_strides,
        call_p);
    dist_take(dist, ULI_DIST_LSE, (const void *const *)own.lse, NULL, call_p);
    call_p->sinks = own.sinks;
    call_p->alibi_slopes = own.alibi_slopes;
    call_p->workspace = own.workspace;
    call_p->workspace_bytes = own.workspace_bytes;
    call_p->saved = own.saved;
    call_p->saved_bytes = own.saved_bytes;
    call_p->rows = own.rows;
    call_p->splits = own.splits;
    call_p->timeout_s = own.timeout_s;
    ULI_TRY(dist_take_docs(own.docs_q, own.docs_k, call_p));
    return check_timeout(own.timeout_s);
}

static ulyx_status_t
dist_backward_read(const ulyx_dist_attention_t *dist,
    const ulyx_dist_attention_backward_t *given, struct uli_dist_call *call_p)
{
    ulyx_dist_attention_backward_t own;
    memset(call_p, 0, sizeof(*call_p));
    call_p->backward = true;
    ULI_CHECK_POINTER(given);
    ULI_TRY(uli_struct_take(
        &uli_structs[ULI_STRUCT_DIST_ATTENTION_BACKWARD], given, &own, NULL));
    dist_take(dist, ULI_DIST_Q, own.q, own.q_strides, call_p);
    dist_take(dist, ULI_DIST_K, own.k, own.k_strides, call_p);
    dist_take(dist, ULI_DIST_V, own.v, own.v_strides, call_p);
    dist_take(dist, ULI_DIST_OUT, own.out, own.out_strides, call_p);
    dist_take(dist, ULI_DIST_DOUT, own.dout, own.dout_strides, call_p);
    dist_take(
        dist, ULI_DIST_DQ, (const void *const *)own.dq, own.dq_strides, call_p);
    dist_take(
        dist, ULI_DIST_DK, (const void *const *)own.dk, own.dk_strides, call_p);
    dist_take(
        dist, ULI_DIST_DV, (const void *const *)own.dv, own.dv_strides, call_p);
    dist_take(dist, ULI_DIST_DLSE, own.dlse, NULL, call_p);
    call_p->sinks = own.sinks;
    call_p->alibi_slopes = own.alibi_slopes;
    call_p->d_sink = own.d_sink;
    call_p->workspace = own.workspace;
    call_p->workspace_bytes = own.workspace_bytes;
    call_p->saved = (void *)(uintptr_t)own.saved; /* only read */
    call_p->saved_bytes = own.saved_bytes;
    call_p->rows = own.rows;
    call_p->splits = own.splits;
    call_p->timeout_s = own.timeout_s;
    ULI_TRY(dist_take_docs(own.docs_q, own.docs_k, call_p));
    return check_timeout(own.timeout_s);
}

/* ---- saved tensors ------------------------------------------------------- */

/* Writes as many saved tensors as there is room for. returns the number of all
 * saved tensors. */
static int64_t
give_saved(const ulyx_dist_attention_t *dist, int64_t capacity,
    size_t tensor_size, ulyx_saved_tensor_t *tensors_p)
{
    int64_t count = 0;
    for (int32_t g = 0; g < dist->ngroups; g++)
        for (int i = 0; i < ULI_SAVED_TENSORS; i++) {
            ulyx_saved_tensor_t tensor;
            if (!uli_dist_saved_tensor(dist, g, i, &tensor))
                continue;
            if (count < capacity)
                uli_struct_give_element(&uli_structs[ULI_STRUCT_SAVED_TENSOR],
                    &tensor, tensors_p, tensor_size, count);
            count++;
        }
    return count;
}

static ulyx_status_t
check_saved(int64_t capacity, size_t tensor_size,
    const ulyx_saved_tensor_t *tensors_p, const int64_t *count_p)
{
    ULI_CHECK_POINTER(count_p);
    if (capacity < 0 || (capacity && !tensors_p))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "capacity is %lld and tensors_p is %s", (long long)capacity,
            tensors_p ? "given" : "NULL");
    return uli_struct_element_size(
        &uli_structs[ULI_STRUCT_SAVED_TENSOR], tensor_size, "tensors_p");
}

static ulyx_status_t
give_all_saved(const ulyx_dist_attention_t *dist, int64_t capacity,
    size_t tensor_size, ulyx_saved_tensor_t *tensors_p, int64_t *count_p)
{
    *count_p = give_saved(dist, capacity, tensor_size, tensors_p);
    if (capacity && capacity < *count_p)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "capacity is %lld, needed are %lld", (long long)capacity,
            (long long)*count_p);
    return ULYX_SUCCESS;
}

/* ---- life ---------------------------------------------------------------- */

struct creation {
    ulyx_comm_t *comm;
    struct uli_dist_params *params;
    struct uli_outcome outcome; /* of reading params */
    ulyx_dist_attention_t **dist_p;
};

static ulyx_status_t
run_creation(void *context)
{
    struct creation *creation = context;
    double timeout_s = creation->params ? creation->params->p.timeout_s : 0;
    return uli_dist_create(creation->comm, creation->params,
        uli_outcome_recall(&creation->outcome), timeout_s, creation->dist_p);
}

static void
free_creation(void *context)
{
    uli_dist_params_free(((struct creation *)context)->params);
}

ulyx_status_t
ulyx_dist_attention_create(ulyx_comm_t *comm,
    const ulyx_dist_attention_params_t *params, ulyx_dist_attention_t **dist_p)
{
    struct creation creation = {.comm = comm, .dist_p = dist_p};
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    creation.outcome = uli_outcome_keep(
        dist_p ? dist_params_read(params, comm->nranks, &creation.params)
               : uli_error(ULYX_ERR_INVALID_ARGUMENT, "dist_p is NULL"));
    return uli_group_run(
        comm, run_creation, free_creation, &creation, sizeof(creation));
}

ulyx_status_t
ulyx_dist_attention_destroy(ulyx_dist_attention_t *dist)
{
    ULI_TRY(uli_api_enter());
    if (!dist)
        return ULYX_SUCCESS;
    ULI_TRY(uli_handle_close(ULI_HANDLE_DIST_ATTENTION, dist, "dist"));
    return uli_handle_closed(dist, uli_dist_destroy(dist));
}

ulyx_status_t
ulyx_dist_attention_update(ulyx_dist_attention_t *dist,
    const ulyx_docs_t *docs_q, const ulyx_docs_t *docs_k, void *stream)
{
    ulyx_docs_t own[2];
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_DIST_ATTENTION, dist);
    ULI_TRY(uli_api_stream(dist->comm, stream));
    ULI_TRY(uli_docs_take(&docs_q, &own[0], "docs_q"));
    ULI_TRY(uli_docs_take(&docs_k, &own[1], "docs_k"));
    return uli_dist_update(
        dist, &(struct uli_dist_change){
                  .stream = stream, .docs_q = docs_q, .docs_k = docs_k});
}

ulyx_status_t
ulyx_dist_attention_update_rows(ulyx_dist_attention_t *dist,
    const int64_t *rows, const int64_t *const *splits,
    const ulyx_docs_t *docs_q, const ulyx_docs_t *docs_k, void *stream)
{
    ulyx_docs_t own[2];
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_DIST_ATTENTION, dist);
    ULI_CHECK_POINTER(rows);
    ULI_TRY(uli_api_stream(dist->comm, stream));
    ULI_TRY(uli_docs_take(&docs_q, &own[0], "docs_q"));
    ULI_TRY(uli_docs_take(&docs_k, &own[1], "docs_k"));
    return uli_dist_update(dist, &(struct uli_dist_change){.stream = stream,
                                     .docs_q = docs_q,
                                     .docs_k = docs_k,
                                     .rows = rows,
                                     .splits = splits});
}

/* ---- calls --------------------------------------------------------------- */

struct execution {
    ulyx_dist_attention_t *dist;
    struct uli_dist_call call;
    struct uli_outcome outcome;
};

static ulyx_status_t
run_execution(void *context)
{
    struct execution *execution = context;
    return uli_dist_run(execution->dist, &execution->call,
        uli_outcome_recall(&execution->outcome));
}

/* outcome: the status of reading the call. */
static ulyx_status_t
run_or_queue(struct execution *execution, ulyx_status_t outcome, void *stream)
{
    ulyx_comm_t *comm = execution->dist->comm;
    execution->call.stream = stream;
    execution->outcome = uli_outcome_keep(
        outcome == ULYX_SUCCESS ? uli_api_stream(comm, stream) : outcome);
    return uli_group_run(
        comm, run_execution, NULL, execution, sizeof(*execution));
}

ulyx_status_t
ulyx_dist_attention_forward(ulyx_dist_attention_t *dist,
    const ulyx_dist_attention_forward_t *call, void *stream)
{
    struct execution execution = {.dist = dist};
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_DIST_ATTENTION, dist);
    ulyx_status_t outcome = dist_forward_read(dist, call, &execution.call);
    return run_or_queue(&execution, outcome, stream);
}

ulyx_status_t
ulyx_dist_attention_backward(ulyx_dist_attention_t *dist,
    const ulyx_dist_attention_backward_t *call, void *stream)
{
    struct execution execution = {.dist = dist};
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_DIST_ATTENTION, dist);
    ulyx_status_t outcome = dist_backward_read(dist, call, &execution.call);
    return run_or_queue(&execution, outcome, stream);
}

ulyx_status_t
ulyx_dist_attention_refuse(ulyx_dist_attention_t *dist,
    ulyx_attention_pass_t pass, const char *reason, void *stream)
{
    struct execution execution = {.dist = dist};
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_DIST_ATTENTION, dist);
    if (pass != ULYX_ATTENTION_PASS_FORWARD &&
        pass != ULYX_ATTENTION_PASS_BACKWARD)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "pass is %d: not a ULYX_ATTENTION_PASS code", pass);
    execution.call.backward = pass == ULYX_ATTENTION_PASS_BACKWARD;
    return run_or_queue(&execution,
        uli_error(ULYX_ERR_INVALID_ARGUMENT, "%s",
            reason ? reason : "reason is NULL"),
        stream);
}

/* ---- sizes without a communicator ---------------------------------------- */

/* A measurement chooses neither threads nor kernel, so params must give them if
 * a size depends on them. */
static ulyx_status_t
check_measure(const struct uli_dist_params *params, bool workspace)
{
    const ulyx_dist_attention_params_t *p = &params->p;
    const char *what = workspace                ? "the workspace"
                       : p->max_workspace_bytes ? "the size under "
                                                  "max_workspace_bytes"
                                                : NULL;
    if (p->memory != ULYX_MEMORY_HOST)
        return ULYX_SUCCESS; /* threads are not used, and the current device
                              * decides the kernel */
    if (what && !p->threads)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "threads is 0: %s depends on it, set threads of "
            "ulyx_dist_attention_params_t",
            what);
    if (what && !p->kernel)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "kernel is NULL: %s depends on it, set kernel of "
            "ulyx_dist_attention_params_t to a name of "
            "ulyx_attention_list_kernels",
            what);
    return ULYX_SUCCESS;
}

static ulyx_status_t
measure_params(const ulyx_dist_attention_params_t *params, int32_t nranks,
    int32_t rank, bool workspace, ulyx_dist_attention_t **dist_p)
{
    struct uli_dist_params *own = NULL;
    if (nranks < 1)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "nranks is %d, must be at least 1", nranks);
    if (rank < 0 || rank >= nranks)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "rank is %d, must be 0 to %d", rank, nranks - 1);
    ulyx_status_t status = dist_params_read(params, nranks, &own);
    if (status == ULYX_SUCCESS)
        status = check_measure(own, workspace);
    if (status == ULYX_SUCCESS)
        return uli_dist_measure_params(own, nranks, rank, dist_p);
    uli_dist_params_free(own);
    return status;
}

ulyx_status_t
ulyx_dist_attention_measure(const ulyx_dist_attention_params_t *params,
    int32_t nranks, int32_t rank, int64_t *workspace_p, int64_t *saved_p)
{
    ulyx_dist_attention_t *dist = NULL;
    ULI_TRY(measure_params(params, nranks, rank, workspace_p != NULL, &dist));
    if (workspace_p)
        *workspace_p = uli_dist_workspace(dist);
    if (saved_p)
        *saved_p = dist->saved_bytes;
    uli_dist_measured_free(dist);
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_dist_attention_measure_saved(const ulyx_dist_attention_params_t *params,
    int32_t nranks, int32_t rank, int64_t capacity, size_t tensor_size,
    ulyx_saved_tensor_t *tensors_p, int64_t *count_p)
{
    ulyx_dist_attention_t *dist = NULL;
    ULI_TRY(check_saved(capacity, tensor_size, tensors_p, count_p));
    ULI_TRY(measure_params(params, nranks, rank, false, &dist));
    ulyx_status_t status =
        give_all_saved(dist, capacity, tensor_size, tensors_p, count_p);
    uli_dist_measured_free(dist);
    return status;
}

/* ---- queries ------------------------------------------------------------- */

ulyx_status_t
ulyx_dist_attention_get_bytes(const ulyx_dist_attention_t *dist,
    int64_t *workspace_p, int64_t *saved_p, int64_t *held_p)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_DIST_ATTENTION, dist);
    if (workspace_p)
        *workspace_p = uli_dist_workspace(dist);
    if (saved_p)
        *saved_p = dist->saved_bytes;
    if (held_p)
        *held_p = uli_dist_held_bytes(dist);
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_dist_attention_get_saved_bytes(
    const ulyx_dist_attention_t *dist, int64_t *bytes_p)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_DIST_ATTENTION, dist);
    ULI_CHECK_POINTER(bytes_p);
    *bytes_p = dist->saved_now;
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_dist_attention_get_saved(const ulyx_dist_attention_t *dist,
    int64_t capacity, size_t tensor_size, ulyx_saved_tensor_t *tensors_p,
    int64_t *count_p)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_DIST_ATTENTION, dist);
    ULI_TRY(check_saved(capacity, tensor_size, tensors_p, count_p));
    return give_all_saved(dist, capacity, tensor_size, tensors_p, count_p);
}

ulyx_status_t
ulyx_dist_attention_get_times(
    const ulyx_dist_attention_t *dist, ulyx_dist_attention_times_t *times_p)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_DIST_ATTENTION, dist);
    ULI_CHECK_POINTER(times_p);
    ulyx_dist_attention_times_t times = dist->times;
    uli_dist_traffic(dist, &times.sent_bytes, &times.received_bytes);
    return uli_struct_give(
        &uli_structs[ULI_STRUCT_DIST_ATTENTION_TIMES], &times, times_p);
}

ulyx_status_t
ulyx_dist_attention_get_plan(const ulyx_dist_attention_t *dist, int32_t group,
    const ulyx_plan_t **plan_p, int32_t *groups_p)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_DIST_ATTENTION, dist);
    ULI_CHECK_POINTER(plan_p);
    if (group < 0 || group >= dist->ngroups)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "group is %d, must be 0 to %d", group, dist->ngroups - 1);
    *plan_p = dist->groups[group].plan_sets[ULI_PLAN_SET_IN].plans[0];
    if (groups_p)
        *groups_p = dist->ngroups;
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_dist_attention_describe(
    const ulyx_dist_attention_t *dist, char *text_p, size_t text_bytes)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_DIST_ATTENTION, dist);
    ULI_CHECK_POINTER(text_p);
    if (text_bytes < 1)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT, "text_bytes is 0");
    uli_dist_describe(dist, text_p, text_bytes);
    return ULYX_SUCCESS;
}
