/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan's parameters by their tables, and what the tables do not say: strides,
 * and the element size of a dtype. What depends on the shape is checked by the
 * layout.
 */
#include "api/reshuffle_params.h"

#include <stdlib.h>
#include <string.h>
#include "api/params.h"
#include "base/dtype.h"
#include "base/status.h"
#include "collectives/plan/plan_fields.h"

enum { MAX_ELEM_BYTES = 4096 };

/* ---- tensors ------------------------------------------------------------- */

/* The library's elem_bytes is always set, the caller's for DTYPE_BYTES only. */
static ulyx_status_t
settle_elem_bytes(struct uli_shape_tensor *t, int i)
{
    int64_t most = t->dtype == ULYX_DTYPE_BYTES ? MAX_ELEM_BYTES : 0;
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

/* ---- the whole ----------------------------------------------------------- */

ulyx_status_t
uli_reshuffle_params_read(const ulyx_plan_params_t *given, int32_t nranks,
    bool hold, struct uli_reshuffle_params **params_p)
{
    ulyx_plan_params_t own;
    ULI_CHECK_POINTER(given);
    ULI_TRY(uli_struct_take(
        &uli_structs[ULI_STRUCT_PLAN_PARAMS], given, &own, NULL));
    struct uli_reshuffle_params *params = calloc(1, sizeof(*params));
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

void
uli_reshuffle_params_free(struct uli_reshuffle_params *params)
{
    if (!params)
        return;
    uli_held_free(&params->held);
    free(params);
}
