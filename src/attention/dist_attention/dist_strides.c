/* SPDX-License-Identifier: Apache-2.0
 *
 * Strides of tensors, given at creation or by a call. They are strides of whole
 * tensors, of which a head group has some of the heads. So this file checks,
 * once for all groups, that no two elements of a tensor overlap. Plans use the
 * strides of a call as they are completed here.
 */
#include <stdio.h>
#include <string.h>
#include "attention/dist_attention/dist_attention.h"
#include "base/status.h"

void
uli_dist_call_strides(const struct ulyx_dist_attention *dist,
    const struct uli_dist_call *call, enum uli_dist_tensor tensor, int32_t i,
    int64_t strides_p[3])
{
    if (call->strided[tensor])
        memcpy(strides_p, call->strides[tensor][i],
            sizeof(call->strides[tensor][i]));
    else
        uli_dist_seq_strides(dist, tensor, uli_dist_keys(tensor), i, strides_p);
}

/* all_rows: rows of all parts on this rank, either the present ones or the
 * most. */
static ulyx_status_t
settle_part(const struct ulyx_dist_attention *dist, const int64_t *all_rows,
    enum uli_dist_tensor tensor, int32_t i, int64_t strides[3])
{
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    bool keys = uli_dist_keys(tensor);
    int64_t rows = all_rows[dist->part_of[keys][i]];
    int64_t heads = keys ? p->kv_heads : p->heads;
    int64_t run =
        (uli_dist_wide(tensor) ? p->dim_qk : p->dim_v) * dist->elem_bytes;
    char name[32];
    snprintf(name, sizeof(name), "%s_strides", uli_dist_tensor_names[tensor]);
    const struct uli_strided strided = {.name = name,
        .field = "",
        .number = i,
        .counts = {p->batch, rows, heads},
        .dense = {run * heads * rows, run * heads, run},
        .axis_rows = rows,
        .run_bytes = run};
    return uli_strides_settle(&strided, strides);
}

ulyx_status_t
uli_dist_settle_strides(
    const struct ulyx_dist_attention *dist, struct uli_dist_call *call)
{
    for (int t = 0; t < ULI_DIST_TENSORS; t++)
        for (int32_t i = 0; call->strided[t] && call->given[t] &&
                            i < dist->nparts[uli_dist_keys(t)];
             i++)
            ULI_TRY(
                settle_part(dist, dist->seq_rows, t, i, call->strides[t][i]));
    return ULYX_SUCCESS;
}

/* Strides of creation must hold for the most rows. Each plan settles its own
 * strides from them. */
ulyx_status_t
uli_dist_check_strides(const struct ulyx_dist_attention *dist)
{
    int64_t strides[3];
    for (int t = 0; t < ULI_DIST_STRIDED; t++)
        for (int32_t i = 0; (t != ULI_DIST_DOUT || dist->has_backward) &&
                            i < dist->nparts[uli_dist_keys(t)];
             i++) {
            const int64_t *given = dist->params->strides[t][i];
            memcpy(strides, given, sizeof(strides));
            if (given[0] || given[1] || given[2])
                ULI_TRY(settle_part(dist, dist->seq_rows_max, t, i, strides));
        }
    return ULYX_SUCCESS;
}
