/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks what only the public edge can: sizes of structs, codes, flags. What
 * depends on the shape is checked by the layout.
 */
#include "api/reshuffle_params.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api/params.h"
#include "base/dtype.h"
#include "base/size.h"
#include "base/status.h"

enum { MAX_ELEM_BYTES = 4096 };

static ulyx_status_t
refuse(const char *name, long long value, const char *rule)
{
    return uli_error(
        ULYX_ERR_INVALID_ARGUMENT, "%s is %lld, must be %s", name, value, rule);
}

/* ---- tensors ------------------------------------------------------------- */

static ulyx_status_t
check_tensor(const ulyx_tensor_t *t, int i)
{
    if (t->dtype < ULYX_DTYPE_BYTES || t->dtype > ULYX_DTYPE_F8_E5M2)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "tensors[%d].dtype is %d, which is no ULYX_DTYPE", i, t->dtype);
    if (t->dtype == ULYX_DTYPE_BYTES
            ? t->elem_bytes < 1 || t->elem_bytes > MAX_ELEM_BYTES
            : t->elem_bytes != 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "tensors[%d].elem_bytes is %lld, must be 1 to %d for DTYPE_BYTES "
            "and 0 for other dtypes",
            i, (long long)t->elem_bytes, MAX_ELEM_BYTES);
    if (t->flags & ~(ULYX_TENSOR_FULL | ULYX_TENSOR_GRAD_EQUAL))
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "tensors[%d].flags is 0x%llx: unknown bits", i,
            (unsigned long long)t->flags);
    return ULYX_SUCCESS;
}

static ulyx_status_t
read_tensors(const ulyx_plan_params_t *given, struct uli_plan_params *plan)
{
    ULI_TRY(uli_params_array(given->tensors, given->tensor_size,
        sizeof(ulyx_tensor_t), given->ntensors, ULI_MAX_TENSORS, "tensors"));
    plan->shape.ntensors = given->ntensors;
    for (int i = 0; i < given->ntensors; i++) {
        ulyx_tensor_t t;
        ULI_TRY(uli_params_element(
            &t, sizeof(t), given->tensors, given->tensor_size, i, "tensors"));
        ULI_TRY(check_tensor(&t, i));
        struct uli_shape_tensor *own = &plan->shape.tensors[i];
        own->part = t.part;
        own->ownership = t.ownership;
        own->dtype = t.dtype;
        own->partial_dtype = t.partial_dtype;
        own->flags = t.flags;
        own->elem_bytes = t.elem_bytes ? t.elem_bytes : uli_dtype_size(t.dtype);
        own->heads = t.heads;
        own->dim = t.dim;
        memcpy(plan->strides[i][ULI_SIDE_SEQ], t.seq_strides,
            sizeof(t.seq_strides));
        memcpy(plan->strides[i][ULI_SIDE_HEAD], t.head_strides,
            sizeof(t.head_strides));
        memcpy(plan->strides[i][ULI_SIDE_PARTIAL], t.partial_strides,
            sizeof(t.partial_strides));
    }
    return ULYX_SUCCESS;
}

/* ---- arrays kept for later ----------------------------------------------- */

static ulyx_status_t
hold_array(struct uli_reshuffle_params *params, const void **array_p,
    int64_t count, size_t bytes)
{
    if (!*array_p || count <= 0)
        return ULYX_SUCCESS;
    void *copy = count > INT64_MAX / 64 ? NULL : malloc((size_t)count * bytes);
    if (!copy)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a queued call");
    memcpy(copy, *array_p, (size_t)count * bytes);
    params->held[params->nheld++] = copy;
    *array_p = copy;
    return ULYX_SUCCESS;
}

static ulyx_status_t
hold_splits(struct uli_reshuffle_params *params, const int64_t **splits_p)
{
    const void *array = *splits_p;
    ULI_TRY(hold_array(params, &array, params->plan.shape.nranks, 8));
    *splits_p = array;
    return ULYX_SUCCESS;
}

static ulyx_status_t
hold_docs(struct uli_reshuffle_params *params, const ulyx_docs_t **docs_p,
    ulyx_docs_t *own)
{
    if (!*docs_p)
        return ULYX_SUCCESS;
    memcpy(own, *docs_p, sizeof(*own));
    if (own->size != sizeof(*own))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "docs.size is %zu, expected %zu", own->size, sizeof(*own));
    if (own->index_bytes != 4 && own->index_bytes != 8)
        return refuse("docs.index_bytes", own->index_bytes, "4 or 8");
    ULI_TRY(hold_array(params, &own->begin, own->count + !own->length,
        (size_t)own->index_bytes));
    ULI_TRY(
        hold_array(params, &own->length, own->count, (size_t)own->index_bytes));
    *docs_p = own;
    return ULYX_SUCCESS;
}

static ulyx_status_t
hold_all(struct uli_reshuffle_params *params)
{
    struct uli_shape *shape = &params->plan.shape;
    for (int i = 0; i < shape->nparts; i++)
        ULI_TRY(hold_splits(params, &shape->parts[i].splits));
    ULI_TRY(hold_splits(params, &shape->head_splits));
    ULI_TRY(hold_docs(params, &params->plan.docs_q, &params->docs[0]));
    return hold_docs(params, &params->plan.docs_k, &params->docs[1]);
}

/* ---- the whole ----------------------------------------------------------- */

static ulyx_status_t
check_scalars(const ulyx_plan_params_t *given)
{
    if (given->seq_memory != ULYX_POINTER_ANY &&
        given->seq_memory != ULYX_POINTER_WINDOW)
        return refuse("seq_memory", given->seq_memory, "a ULYX_POINTER code");
    if (given->head_memory != ULYX_POINTER_ANY &&
        given->head_memory != ULYX_POINTER_WINDOW)
        return refuse("head_memory", given->head_memory, "a ULYX_POINTER code");
    if (given->flags & ~(ULYX_PLAN_PROGRESS_THREAD | ULYX_PLAN_COPY_ENGINE))
        return uli_error(ULYX_ERR_UNSUPPORTED, "flags is 0x%llx: unknown bits",
            (unsigned long long)given->flags);
    if (given->max_sms < 0)
        return refuse("max_sms", given->max_sms, "at least 0");
    return uli_params_timeout(given->timeout_s);
}

static ulyx_status_t
read_parts(const ulyx_plan_params_t *given, struct uli_shape *shape)
{
    ULI_TRY(uli_params_array(given->parts, given->part_size,
        sizeof(ulyx_part_t), given->nparts, ULI_MAX_PARTS, "parts"));
    shape->nparts = given->nparts;
    for (int i = 0; i < given->nparts; i++) {
        ulyx_part_t part;
        ULI_TRY(uli_params_element(
            &part, sizeof(part), given->parts, given->part_size, i, "parts"));
        shape->parts[i].axis = part.axis;
        shape->parts[i].kind = part.kind;
        shape->parts[i].order = part.order;
        shape->parts[i].rows = part.rows;
        shape->parts[i].splits = part.splits;
    }
    return ULYX_SUCCESS;
}

static void
read_shape(
    const ulyx_plan_params_t *given, int32_t nranks, struct uli_shape *shape)
{
    shape->nranks = nranks;
    shape->batch = given->batch;
    shape->heads = given->heads;
    shape->head_splits = given->head_splits;
    shape->work_split = given->work_split;
    shape->mask_kind = given->mask_kind;
    shape->mask_align = given->mask_align;
    shape->mask_diagonal = given->mask_diagonal;
    shape->mask_left = given->mask_left;
    shape->mask_right = given->mask_right;
    shape->row_cost = given->row_cost;
    shape->row_round = given->row_round;
    shape->max_rows = given->max_rows;
    shape->max_kv_rows = given->max_kv_rows;
    shape->max_segments = given->max_segments;
    shape->max_local_rows = given->max_local_rows;
    shape->max_docs = given->max_docs;
}

ulyx_status_t
uli_reshuffle_params_read(const ulyx_plan_params_t *given, int32_t nranks,
    bool hold, struct uli_reshuffle_params **params_p)
{
    ulyx_plan_params_t own;
    ULI_CHECK_POINTER(given);
    ULI_TRY(uli_params_copy(
        &own, sizeof(own), sizeof(own), given, NULL, "ulyx_plan_params_t"));
    struct uli_reshuffle_params *params = calloc(1, sizeof(*params));
    if (!params)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    *params_p = params;
    struct uli_plan_params *plan = &params->plan;
    ULI_TRY(check_scalars(&own));
    plan->timeout_s = own.timeout_s;
    plan->docs_q = own.docs_q;
    plan->docs_k = own.docs_k;
    plan->seq_memory = own.seq_memory;
    plan->head_memory = own.head_memory;
    plan->flags = own.flags;
    plan->operations = own.operations;
    plan->algo = own.algo;
    plan->slot_bytes = own.slot_bytes;
    plan->max_sms = own.max_sms;
    plan->bytes_in_flight = own.bytes_in_flight;
    read_shape(&own, nranks, &plan->shape);
    ULI_TRY(read_parts(&own, &plan->shape));
    ULI_TRY(read_tensors(&own, plan));
    return hold ? hold_all(params) : ULYX_SUCCESS;
}

void
uli_reshuffle_params_free(struct uli_reshuffle_params *params)
{
    if (!params)
        return;
    for (int i = 0; i < params->nheld; i++)
        free(params->held[i]);
    free(params);
}
