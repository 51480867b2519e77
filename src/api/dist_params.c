/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributed attention's parameters by their table, with copies of what they
 * point to, and the tensors of its calls. What depends on the shape is checked
 * below.
 */
#include "api/dist_params.h"

#include <stdlib.h>
#include <string.h>
#include "api/params.h"
#include "base/params/held.h"
#include "base/status.h"

/* ---- parameters ---------------------------------------------------------- */

/* Strides come an array a tensor, an entry a part of its axis. */
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

/* What has been taken from the caller's arrays is not looked at there again. */
static void
forget_arrays(ulyx_dist_attention_params_t *p)
{
    p->parts = NULL;
    p->head_splits = NULL;
    p->q_strides = p->k_strides = p->v_strides = NULL;
    p->out_strides = p->dout_strides = NULL;
}

ulyx_status_t
uli_dist_params_read(const ulyx_dist_attention_params_t *given, int32_t nranks,
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

/* ---- calls --------------------------------------------------------------- */

static void
dist_take(const ulyx_dist_attention_t *dist, enum uli_dist_tensor tensor,
    int32_t axis, const void *const *pointers, struct uli_dist_call *call)
{
    call->given[tensor] = pointers != NULL;
    for (int32_t i = 0; pointers && i < dist->nparts[axis]; i++)
        call->tensors[tensor][i] = (void *)(uintptr_t)pointers[i];
}

/* The arrays stay the caller's, the structs may be of another version. */
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

ulyx_status_t
uli_dist_forward_read(const ulyx_dist_attention_t *dist,
    const ulyx_dist_attention_forward_t *given, struct uli_dist_call *call_p)
{
    ulyx_dist_attention_forward_t own;
    memset(call_p, 0, sizeof(*call_p));
    ULI_CHECK_POINTER(given);
    ULI_TRY(uli_struct_take(
        &uli_structs[ULI_STRUCT_DIST_ATTENTION_FORWARD], given, &own, NULL));
    dist_take(dist, ULI_DIST_Q, 0, own.q, call_p);
    dist_take(dist, ULI_DIST_K, 1, own.k, call_p);
    dist_take(dist, ULI_DIST_V, 1, own.v, call_p);
    dist_take(dist, ULI_DIST_OUT, 0, (const void *const *)own.out, call_p);
    dist_take(dist, ULI_DIST_LSE, 0, (const void *const *)own.lse, call_p);
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

ulyx_status_t
uli_dist_backward_read(const ulyx_dist_attention_t *dist,
    const ulyx_dist_attention_backward_t *given, struct uli_dist_call *call_p)
{
    ulyx_dist_attention_backward_t own;
    memset(call_p, 0, sizeof(*call_p));
    call_p->backward = true;
    ULI_CHECK_POINTER(given);
    ULI_TRY(uli_struct_take(
        &uli_structs[ULI_STRUCT_DIST_ATTENTION_BACKWARD], given, &own, NULL));
    dist_take(dist, ULI_DIST_Q, 0, own.q, call_p);
    dist_take(dist, ULI_DIST_K, 1, own.k, call_p);
    dist_take(dist, ULI_DIST_V, 1, own.v, call_p);
    dist_take(dist, ULI_DIST_OUT, 0, own.out, call_p);
    dist_take(dist, ULI_DIST_DOUT, 0, own.dout, call_p);
    dist_take(dist, ULI_DIST_DQ, 0, (const void *const *)own.dq, call_p);
    dist_take(dist, ULI_DIST_DK, 1, (const void *const *)own.dk, call_p);
    dist_take(dist, ULI_DIST_DV, 1, (const void *const *)own.dv, call_p);
    dist_take(dist, ULI_DIST_DLSE, 0, own.dlse, call_p);
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
