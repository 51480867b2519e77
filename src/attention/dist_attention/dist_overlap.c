/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that no output of a call shares a byte with anything else that the
 * call reads or writes. A result of one head group may be stored before the
 * inputs of another group are read. So an output may not lie on an input
 * either, in whatever order a single group reads and writes.
 */
#include "attention/dist_attention/pass.h"

#include <stdio.h>
#include "base/dtype.h"
#include "base/status.h"

/* Memory that a call uses: a tensor of a part, or an array. */
struct region {
    const char *name;
    int32_t part; /* -1: no tensor */
    bool output;
    uintptr_t base;
    struct uli_grid grid;
};

enum { OTHER_REGIONS = 5 };
struct regions {
    int32_t count;
    struct region at[ULI_DIST_TENSORS * ULI_AXIS_PARTS + OTHER_REGIONS];
};

static void
regions_add(struct regions *all, const struct region *region)
{
    if (region->base && uli_grid_extent(&region->grid) > 0)
        all->at[all->count++] = *region;
}

static void
add_array(struct regions *all, const char *name, const void *base,
    int64_t bytes, bool output)
{
    struct region region = {.name = name,
        .part = -1,
        .output = output,
        .base = (uintptr_t)base,
        .grid = {.counts = {1, 1, 1}, .run_bytes = bytes}};
    regions_add(all, &region);
}

static void
add_tensor(struct regions *all, const struct ulyx_dist_attention *dist,
    const struct uli_dist_call *call, enum uli_dist_tensor tensor,
    const char *name, bool output)
{
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    bool keys = uli_dist_keys(tensor), wide = uli_dist_wide(tensor);
    bool statistic = uli_dist_statistic(tensor);
    for (int32_t i = 0; i < dist->nparts[keys]; i++) {
        struct region region = {.name = name,
            .part = i,
            .output = output,
            .base = (uintptr_t)call->tensors[tensor][i],
            .grid = {
                .counts = {p->batch, dist->seq_rows[dist->part_of[keys][i]],
                    keys ? p->kv_heads : p->heads},
                .run_bytes = statistic ? dist->stat_bytes
                                       : (wide ? p->dim_qk : p->dim_v) *
                                             dist->elem_bytes}};
        uli_dist_call_strides(dist, call, tensor, i, region.grid.strides);
        regions_add(all, &region);
    }
}

static bool
is_output(const struct uli_dist_call *call, enum uli_dist_tensor tensor)
{
    if (call->backward)
        return tensor >= ULI_DIST_DQ && tensor <= ULI_DIST_DV;
    return tensor == ULI_DIST_OUT || tensor == ULI_DIST_LSE;
}

/* Backward does not read q, k, v where heads are saved. */
static bool
is_used(const struct ulyx_dist_attention *dist,
    const struct uli_dist_call *call, enum uli_dist_tensor tensor)
{
    bool input = tensor <= ULI_DIST_V;
    return call->given[tensor] &&
           !(input && call->backward && dist->saves_heads);
}

static void
list_regions(const struct ulyx_dist_attention *dist,
    const struct uli_dist_call *call, struct regions *all)
{
    int64_t params =
        dist->params->p.heads * uli_dtype_size(dist->params->p.param_dtype);
    all->count = 0;
    for (int t = 0; t < ULI_DIST_TENSORS; t++)
        if (is_used(dist, call, t))
            add_tensor(all, dist, call, t, uli_dist_tensor_names[t],
                is_output(call, t));
    add_array(
        all, "workspace", call->workspace, uli_dist_workspace(dist), true);
    add_array(all, "saved", call->saved, dist->saved_now, !call->backward);
    add_array(all, "sinks", call->sinks, params, false);
    add_array(all, "alibi_slopes", call->alibi_slopes, params, false);
    add_array(all, "d_sink", call->d_sink, params, true);
}

static ulyx_status_t
regions_meet(const struct region *output, const struct region *other)
{
    char names[2][48];
    const struct region *both[2] = {output, other};
    for (int i = 0; i < 2; i++)
        if (both[i]->part < 0)
            snprintf(names[i], sizeof(names[i]), "%s", both[i]->name);
        else
            snprintf(names[i], sizeof(names[i]), "%s[%d]", both[i]->name,
                both[i]->part);
    return uli_error(
        ULYX_ERR_INVALID_ARGUMENT, "%s overlaps %s", names[0], names[1]);
}

ulyx_status_t
uli_dist_check_overlap(
    const struct ulyx_dist_attention *dist, const struct uli_dist_call *call)
{
    struct regions all;
    list_regions(dist, call, &all);
    for (int32_t i = 0; i < all.count; i++)
        for (int32_t j = 0; j < all.count; j++) {
            const struct region *a = &all.at[i], *b = &all.at[j];
            if (!a->output || i == j || (b->output && j < i))
                continue;
            if (uli_grid_overlap(&a->grid, a->base, &b->grid, b->base))
                return regions_meet(a, b);
        }
    return ULYX_SUCCESS;
}
