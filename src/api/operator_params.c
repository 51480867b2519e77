/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks what only the public edge can: sizes of structs, codes, flags; takes
 * copies. What depends on the shape is checked below.
 */
#include "api/operator_params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/params.h"
#include "base/status.h"

enum { ALL_FLAGS = 15 };

static ulyx_status_t
refuse(const char *name, long long value, const char *rule)
{
    return uli_error(
        ULYX_ERR_INVALID_ARGUMENT, "%s is %lld, must be %s", name, value, rule);
}

/* ---- arrays -------------------------------------------------------------- */

static ulyx_status_t
hold(struct uli_operator_params *params, const void **array_p, int64_t bytes)
{
    if (!*array_p)
        return ULYX_SUCCESS;
    void *copy = malloc((size_t)(bytes > 0 ? bytes : 1));
    if (!copy)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for an operator");
    if (bytes > 0)
        memcpy(copy, *array_p, (size_t)bytes);
    params->held[params->nheld++] = copy;
    *array_p = copy;
    return ULYX_SUCCESS;
}

static ulyx_status_t
hold_int64(
    struct uli_operator_params *params, const int64_t **array_p, int64_t count)
{
    const void *array = *array_p;
    ULI_TRY(hold(params, &array, count * 8));
    *array_p = array;
    return ULYX_SUCCESS;
}

static ulyx_status_t
read_parts(struct uli_operator_params *params, int32_t nranks)
{
    ulyx_operator_params_t *p = &params->p;
    ULI_TRY(uli_params_array(p->parts, p->part_size, sizeof(ulyx_part_t),
        p->nparts, ULI_MAX_PARTS, "parts"));
    for (int32_t i = 0; i < p->nparts; i++) {
        ULI_TRY(uli_params_element(&params->parts[i], sizeof(ulyx_part_t),
            p->parts, p->part_size, i, "parts"));
        ULI_TRY(hold_int64(params, &params->parts[i].splits, nranks));
    }
    p->parts = params->parts;
    p->part_size = sizeof(ulyx_part_t);
    return hold_int64(params, &p->head_splits, nranks);
}

/* Strides come an array a tensor, an entry a part of its axis. */
static void
read_strides(struct uli_operator_params *params)
{
    ulyx_operator_params_t *p = &params->p;
    int32_t counts[2] = {0, 0};
    for (int32_t i = 0; i < p->nparts; i++)
        if (params->parts[i].axis == 0 || params->parts[i].axis == 1)
            counts[params->parts[i].axis]++;
    if (!counts[1])
        counts[1] = counts[0];
    const int64_t(*given[ULI_OP_STRIDED])[3] = {[ULI_OP_Q] = p->q_strides,
        [ULI_OP_K] = p->k_strides,
        [ULI_OP_V] = p->v_strides,
        [ULI_OP_OUT] = p->out_strides,
        [ULI_OP_DOUT] = p->dout_strides ? p->dout_strides : p->out_strides};
    for (int t = 0; t < ULI_OP_STRIDED; t++) {
        int32_t count = counts[t == ULI_OP_K || t == ULI_OP_V];
        for (int32_t i = 0; given[t] && i < count && i < ULI_AXIS_PARTS; i++)
            memcpy(params->strides[t][i], given[t][i], 3 * sizeof(int64_t));
    }
}

static ulyx_status_t
read_docs(struct uli_operator_params *params, const ulyx_docs_t **docs_p,
    ulyx_docs_t *own, const char *name)
{
    if (!*docs_p)
        return ULYX_SUCCESS;
    ULI_TRY(uli_params_copy(
        own, sizeof(*own), sizeof(size_t), *docs_p, NULL, name));
    own->size = sizeof(*own);
    *docs_p = own;
    if (own->count < 0 || own->count > INT32_MAX)
        return refuse("the count of documents", own->count, "0 to 2^31 - 1");
    if (own->index_bytes != 4 && own->index_bytes != 8)
        return refuse("index_bytes of documents", own->index_bytes, "4 or 8");
    ULI_TRY(hold(params, &own->begin,
        (own->count + (own->length == NULL)) * own->index_bytes));
    return hold(params, &own->length, own->count * own->index_bytes);
}

/* ---- the whole ----------------------------------------------------------- */

static ulyx_status_t
check_scalars(const ulyx_operator_params_t *p)
{
    if (p->seq_memory != ULYX_POINTER_ANY &&
        p->seq_memory != ULYX_POINTER_WINDOW)
        return refuse("seq_memory", p->seq_memory, "a ULYX_POINTER code");
    if (p->head_memory != ULYX_POINTER_ANY &&
        p->head_memory != ULYX_POINTER_WINDOW)
        return refuse("head_memory", p->head_memory, "a ULYX_POINTER code");
    if (p->save < ULYX_SAVE_DEFAULT || p->save > ULYX_SAVE_NONE)
        return refuse("save", p->save, "a ULYX_SAVE code");
    if (p->flags & ~(uint64_t)ALL_FLAGS)
        return uli_error(ULYX_ERR_UNSUPPORTED, "flags is 0x%llx: unknown bits",
            (unsigned long long)p->flags);
    if (p->head_groups < 0)
        return refuse("head_groups", p->head_groups, "at least 0");
    if (p->max_workspace_bytes < 0)
        return refuse(
            "max_workspace_bytes", p->max_workspace_bytes, "at least 0");
    if (p->threads < 0)
        return refuse("threads", p->threads, "at least 0");
    return uli_params_timeout(p->timeout_s);
}

ulyx_status_t
uli_operator_params_read(const ulyx_operator_params_t *given, int32_t nranks,
    struct uli_operator_params **params_p)
{
    ULI_CHECK_POINTER(given);
    struct uli_operator_params *params = calloc(1, sizeof(*params));
    if (!params)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for an operator");
    *params_p = params;
    ulyx_operator_params_t *p = &params->p;
    ULI_TRY(uli_params_copy(
        p, sizeof(*p), sizeof(*p), given, NULL, "ulyx_operator_params_t"));
    ULI_TRY(check_scalars(p));
    ULI_TRY(read_parts(params, nranks));
    read_strides(params);
    ULI_TRY(read_docs(params, &p->docs_q, &params->docs[0], "docs_q"));
    ULI_TRY(read_docs(params, &p->docs_k, &params->docs[1], "docs_k"));
    if (!p->kernel)
        return ULYX_SUCCESS;
    if ((size_t)snprintf(params->kernel, sizeof(params->kernel), "%s",
            p->kernel) >= sizeof(params->kernel))
        return uli_error(ULYX_ERR_UNSUPPORTED, "kernel: no name is so long");
    p->kernel = params->kernel;
    return ULYX_SUCCESS;
}

/* ---- calls --------------------------------------------------------------- */

static void
take(const ulyx_operator_t *op, enum uli_operator_tensor tensor, int32_t axis,
    const void *const *pointers, struct uli_operator_call *call)
{
    call->given[tensor] = pointers != NULL;
    for (int32_t i = 0; pointers && i < op->nparts[axis]; i++)
        call->tensors[tensor][i] = (void *)(uintptr_t)pointers[i];
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
uli_operator_forward_read(const ulyx_operator_t *op,
    const ulyx_operator_forward_t *given, struct uli_operator_call *call_p)
{
    ulyx_operator_forward_t own;
    memset(call_p, 0, sizeof(*call_p));
    ULI_CHECK_POINTER(given);
    ULI_TRY(uli_params_copy(&own, sizeof(own), sizeof(own), given, NULL,
        "ulyx_operator_forward_t"));
    take(op, ULI_OP_Q, 0, own.q, call_p);
    take(op, ULI_OP_K, 1, own.k, call_p);
    take(op, ULI_OP_V, 1, own.v, call_p);
    take(op, ULI_OP_OUT, 0, (const void *const *)own.out, call_p);
    take(op, ULI_OP_LSE, 0, (const void *const *)own.lse, call_p);
    call_p->sinks = own.sinks;
    call_p->alibi_slopes = own.alibi_slopes;
    call_p->workspace = own.workspace;
    call_p->workspace_bytes = own.workspace_bytes;
    call_p->saved = own.saved;
    call_p->saved_bytes = own.saved_bytes;
    call_p->timeout_s = own.timeout_s;
    return check_timeout(own.timeout_s);
}

ulyx_status_t
uli_operator_backward_read(const ulyx_operator_t *op,
    const ulyx_operator_backward_t *given, struct uli_operator_call *call_p)
{
    ulyx_operator_backward_t own;
    memset(call_p, 0, sizeof(*call_p));
    call_p->backward = true;
    ULI_CHECK_POINTER(given);
    ULI_TRY(uli_params_copy(&own, sizeof(own), sizeof(own), given, NULL,
        "ulyx_operator_backward_t"));
    take(op, ULI_OP_Q, 0, own.q, call_p);
    take(op, ULI_OP_K, 1, own.k, call_p);
    take(op, ULI_OP_V, 1, own.v, call_p);
    take(op, ULI_OP_OUT, 0, own.out, call_p);
    take(op, ULI_OP_DOUT, 0, own.dout, call_p);
    take(op, ULI_OP_DQ, 0, (const void *const *)own.dq, call_p);
    take(op, ULI_OP_DK, 1, (const void *const *)own.dk, call_p);
    take(op, ULI_OP_DV, 1, (const void *const *)own.dv, call_p);
    call_p->sinks = own.sinks;
    call_p->alibi_slopes = own.alibi_slopes;
    call_p->d_sink = own.d_sink;
    call_p->workspace = own.workspace;
    call_p->workspace_bytes = own.workspace_bytes;
    call_p->saved = (void *)(uintptr_t)own.saved; /* only read */
    call_p->saved_bytes = own.saved_bytes;
    call_p->timeout_s = own.timeout_s;
    return check_timeout(own.timeout_s);
}
