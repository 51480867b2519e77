/* SPDX-License-Identifier: Apache-2.0
 *
 * The plans of a head group, and a rank's part of the group.
 *
 * Sequence side: the caller's tensors of all heads, seen from the group's
 * first head on, so strides are those of the whole tensor. Head side: dense
 * [b, S, h_r, d], with statistics as [b, h_r, S]; PACKED: [n_r, d].
 */
#include "attention/dist_attention/memory.h"

#include <string.h>
#include "base/dtype.h"
#include "base/status.h"
#include "base/text.h"

/* One tensor of a plan set while its parameters are made. */
struct sketch {
    enum uli_head_tensor head;
    enum uli_dist_tensor seq; /* ULI_DIST_TENSORS: delta */
    int32_t axis;
};

/* The tensors of a plan set: one sketch for all parts of q, of k, of v, and so
 * on. Returns the number of sketches. */
static int
plan_set_sketch(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, enum uli_plan_set_kind kind,
    struct sketch *lines_p)
{
    static const struct sketch in[3] = {{ULI_HEAD_Q, ULI_DIST_Q, 0},
        {ULI_HEAD_K, ULI_DIST_K, 1}, {ULI_HEAD_V, ULI_DIST_V, 1}};
    static const struct sketch out[2] = {
        {ULI_HEAD_OUT, ULI_DIST_OUT, 0}, {ULI_HEAD_LSE, ULI_DIST_LSE, 0}};
    static const struct sketch grad[2] = {{ULI_HEAD_DOUT, ULI_DIST_DOUT, 0},
        {ULI_HEAD_DELTA, ULI_DIST_TENSORS, 0}};
    if (kind == ULI_PLAN_SET_IN) {
        memcpy(lines_p, in, sizeof(in));
        return 3;
    }
    if (kind == ULI_PLAN_SET_OUT) {
        memcpy(lines_p, out, sizeof(out));
        return dist->params->p.flags & ULYX_DIST_ATTENTION_LSE ? 2 : 1;
    }
    if (!dist->has_backward)
        return 0;
    if (kind == ULI_PLAN_SET_GRAD) {
        memcpy(lines_p, grad, sizeof(grad));
        return 2;
    }
    if (kind == ULI_PLAN_SET_DQ) {
        lines_p[0] = in[0];
        return group->cut;
    }
    memcpy(lines_p, in + 1, 2 * sizeof(in[0]));
    return group->last_piece ? 2 : 0;
}

static bool
is_statistic(enum uli_head_tensor tensor)
{
    return tensor == ULI_HEAD_LSE || tensor == ULI_HEAD_DELTA;
}

/* Whether the part's rows on a rank follow the documents. Statistics then have
 * room for the most rows. */
static bool
by_docs(const struct ulyx_dist_attention *dist, int32_t part)
{
    return dist->params->shape.parts[part].order == ULYX_TOKENS_ZIGZAG_DOCS;
}

void
uli_dist_seq_strides(const struct ulyx_dist_attention *dist,
    enum uli_dist_tensor tensor, int32_t axis, int32_t i, int64_t strides_p[3])
{
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    int32_t part = dist->part_of[axis][i];
    if (uli_dist_statistic(tensor)) {
        int64_t rows = by_docs(dist, part) ? dist->seq_rows_max[part]
                                           : dist->seq_rows[part];
        strides_p[1] = dist->stat_bytes;
        strides_p[2] = dist->stat_bytes * uli_max(rows, 1);
        strides_p[0] = strides_p[2] * p->heads;
        return;
    }
    if (tensor >= ULI_DIST_DQ)
        tensor = tensor == ULI_DIST_DQ   ? ULI_DIST_Q
                 : tensor == ULI_DIST_DK ? ULI_DIST_K
                                         : ULI_DIST_V;
    const int64_t *given = dist->params->strides[tensor][i];
    if (given[0] || given[1] || given[2]) {
        memcpy(strides_p, given, 3 * sizeof(int64_t));
        return;
    }
    bool wide = tensor == ULI_DIST_Q || tensor == ULI_DIST_K;
    strides_p[2] = (wide ? p->dim_qk : p->dim_v) * dist->elem_bytes;
    strides_p[1] = strides_p[2] * (axis ? p->kv_heads : p->heads);
    strides_p[0] = strides_p[1] * dist->seq_rows[part];
}

void
uli_dist_delta_strides(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, int32_t i, int64_t strides_p[3])
{
    int64_t rows = dist->seq_rows_max[dist->part_of[0][i]];
    strides_p[1] = dist->stat_bytes;
    strides_p[2] = dist->stat_bytes * uli_max(rows, 1);
    strides_p[0] = strides_p[2] * group->q_heads;
}

/* Dense strides are left to the plan, which fills them in at every update. */
static void
sketch_seq(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, const struct sketch *line, int32_t i,
    struct uli_plan_params *params, int32_t at)
{
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    int64_t *strides = params->strides[at][ULI_SIDE_SEQ];
    params->seq_heads[at] = line->axis ? p->kv_heads : p->heads;
    if (line->seq == ULI_DIST_TENSORS)
        uli_dist_delta_strides(dist, group, i, strides);
    else if (line->seq < ULI_DIST_STRIDED)
        memcpy(strides, dist->params->strides[line->seq][i],
            sizeof(dist->params->strides[line->seq][i]));
    else if (by_docs(dist, dist->part_of[0][i]))
        uli_dist_seq_strides(dist, line->seq, line->axis, i, strides);
    else
        params->dense_as[at][ULI_SIDE_SEQ] = ULI_STRIDES_STATISTIC;
}

static void
sketch_tensor(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, const struct sketch *line, int32_t i,
    struct uli_plan_params *params, int32_t at)
{
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    struct uli_shape_tensor *t = &params->shape.tensors[at];
    bool statistic = uli_head_statistic(line->head);
    bool wide = line->head == ULI_HEAD_Q || line->head == ULI_HEAD_K;
    t->part = dist->part_of[line->axis][i];
    t->ownership = line->axis ? ULYX_HEADS_KV : ULYX_HEADS_QUERY;
    t->dtype = statistic ? dist->stat_dtype : p->dtype;
    t->elem_bytes = statistic ? dist->stat_bytes : dist->elem_bytes;
    t->heads = line->axis ? group->kv_heads : group->q_heads;
    t->dim = statistic ? 1 : wide ? p->dim_qk : p->dim_v;
    if (line->axis && group->cut)
        t->partial_dtype = dist->stat_dtype; /* the accumulators' */
    if (params->shape.parts[t->part].kind == ULYX_PART_REPLICATED) {
        if (p->flags & ULYX_DIST_ATTENTION_FULL)
            t->flags |= ULYX_TENSOR_FULL;
        if (p->flags & ULYX_DIST_ATTENTION_GRAD_EQUAL)
            t->flags |= ULYX_TENSOR_GRAD_EQUAL;
    }
    if (statistic)
        params->dense_as[at][ULI_SIDE_HEAD] = ULI_STRIDES_STATISTIC;
    sketch_seq(dist, group, line, i, params, at);
}

static void
sketch_shape(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, struct uli_shape *shape)
{
    *shape = dist->params->shape;
    shape->nranks = dist->nranks;
    shape->heads = group->q_heads;
    shape->max_docs = dist->params->p.max_docs;
    shape->key_heads = group->kv_heads; /* all plan sets are cut alike */
}

/* Accumulators are whole KV heads, one on each of the first ranks. */
static void
sketch_holders(const struct uli_head_group *group, struct uli_shape *shape)
{
    shape->heads = group->holders;
    shape->work_split = ULYX_WORK_HEADS;
    shape->key_heads = 0;
}

static uint64_t
directions_of(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, enum uli_plan_set_kind kind)
{
    bool gives = dist->has_backward && !group->cut;
    switch (kind) {
    case ULI_PLAN_SET_IN:
        return UINT64_C(1) << ULYX_SEQ_TO_HEAD |
               (uint64_t)gives << ULYX_SEQ_TO_HEAD_ADJOINT;
    case ULI_PLAN_SET_OUT:
        return UINT64_C(1) << ULYX_HEAD_TO_SEQ;
    case ULI_PLAN_SET_GRAD:
        return UINT64_C(1) << ULYX_HEAD_TO_SEQ_ADJOINT;
    default:
        return UINT64_C(1) << ULYX_SEQ_TO_HEAD_ADJOINT;
    }
}

/* The sequence side of the plan set GRAD has dout, a tensor of the caller, and
 * delta, which lies in the workspace. So this side is in windows only if both
 * the caller's tensors and the workspace are. */
static void
set_memory(const struct ulyx_dist_attention *dist, enum uli_plan_set_kind kind,
    struct uli_plan_params *params)
{
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    params->seq_memory = p->seq_memory;
    params->head_memory = p->head_memory;
    if (kind == ULI_PLAN_SET_GRAD && p->head_memory != ULYX_POINTER_WINDOW)
        params->seq_memory = ULYX_POINTER_ANY;
}

bool
uli_dist_plan_params(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, enum uli_plan_set_kind kind,
    int32_t plan, struct uli_plan_params *params_p)
{
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    struct sketch lines[3];
    int nlines = plan_set_sketch(dist, group, kind, lines);
    int32_t at = 0;
    memset(params_p, 0, sizeof(*params_p));
    sketch_shape(dist, group, &params_p->shape);
    if (kind == ULI_PLAN_SET_DKV)
        sketch_holders(group, &params_p->shape);
    for (int n = 0; n < nlines; n++)
        for (int32_t i = 0; i < dist->nparts[lines[n].axis]; i++, at++)
            if (at / ULI_TENSORS == plan)
                sketch_tensor(
                    dist, group, &lines[n], i, params_p, at % ULI_TENSORS);
    params_p->shape.ntensors =
        (int32_t)uli_min(at - plan * ULI_TENSORS, ULI_TENSORS);
    params_p->docs_q = uli_dist_docs_of(dist, 0);
    params_p->docs_k = uli_dist_docs_of(dist, 1);
    set_memory(dist, kind, params_p);
    params_p->directions = directions_of(dist, group, kind);
    params_p->max_sms = dist->exchange_sms;
    params_p->timeout_s = p->timeout_s;
    if (dist->ngroups > 1)
        params_p->flags = dist->memory->group_flags;
    return params_p->shape.ntensors > 0;
}

/* ---- what a rank holds --------------------------------------------------- */

static bool
size_of(int64_t rows, int64_t dim, int64_t elem_bytes, int64_t *bytes_p)
{
    int64_t bytes;
    if (!uli_size_mul(rows, dim, &bytes) ||
        !uli_size_mul(bytes, elem_bytes, &bytes) || bytes > INT64_MAX / 64)
        return false;
    *bytes_p = uli_round_up(bytes, 64);
    return true;
}

static void
set_dtypes(const struct ulyx_dist_attention *dist,
    const struct uli_layout *layout, struct uli_head_sizes *sizes)
{
    const struct uli_shape *shape = uli_layout_shape(layout);
    int32_t k = dist->nparts[0], v = k + dist->nparts[1];
    for (int i = 0; i < ULI_HEAD_TENSORS; i++)
        sizes->dtypes[i] = dist->params->p.dtype;
    sizes->dtypes[ULI_HEAD_LSE] = dist->stat_dtype;
    sizes->dtypes[ULI_HEAD_DELTA] = dist->stat_dtype;
    sizes->dtypes[ULI_HEAD_SEQ_DELTA] = dist->stat_dtype;
    sizes->dtypes[ULI_HEAD_PART_DK] = dist->stat_dtype;
    sizes->dtypes[ULI_HEAD_PART_DV] = dist->stat_dtype;
    sizes->dtypes[ULI_HEAD_DQ] = shape->tensors[0].partial_dtype;
    sizes->dtypes[ULI_HEAD_DK] = shape->tensors[k].partial_dtype;
    /* The plan may lack v, where a second plan of the set has it. The partials
     * of v have the type of those of k. */
    sizes->dtypes[ULI_HEAD_DV] =
        shape->tensors[v < shape->ntensors ? v : k].partial_dtype;
}

/* delta of this rank's rows, for all heads of the group. */
static bool
seq_delta_bytes(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, const struct uli_layout *layout,
    int32_t rank, int64_t *bytes_p)
{
    int64_t rows, bytes;
    *bytes_p = 0;
    for (int32_t i = 0; i < dist->nparts[0]; i++) {
        int32_t part = dist->part_of[0][i];
        if (!uli_size_mul(uli_layout_max_seq_rows(layout, part, rank),
                dist->params->p.batch * group->q_heads, &rows) ||
            !size_of(rows, 1, dist->stat_bytes, &bytes) ||
            !uli_size_add(*bytes_p, bytes, bytes_p))
            return false;
    }
    return true;
}

/* Rows x heads of a tensor on the head side. With BALANCED any rank may have
 * queries in any piece, so accumulators are there on all. */
static int64_t
rows_held(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, const struct uli_head_sizes *sizes,
    enum uli_head_tensor tensor)
{
    bool balanced = dist->params->p.work_split == ULYX_WORK_BALANCED;
    if (tensor == ULI_HEAD_PART_DK || tensor == ULI_HEAD_PART_DV)
        return group->cut && sizes->packed ? sizes->kv_rows : 0;
    if (group->cut && balanced &&
        (tensor == ULI_HEAD_DK || tensor == ULI_HEAD_DV))
        return dist->params->p.batch * dist->most_rows[1];
    return uli_head_keys(tensor) ? sizes->kv_rows : sizes->q_rows;
}

static ulyx_status_t
set_bytes(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, const struct uli_layout *layout,
    int32_t rank, struct uli_head_sizes *sizes)
{
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    bool fits = seq_delta_bytes(
        dist, group, layout, rank, &sizes->bytes[ULI_HEAD_SEQ_DELTA]);
    for (int i = 0; i < ULI_HEAD_TENSORS && fits; i++) {
        int64_t dim = uli_head_statistic(i) ? 1
                      : uli_head_wide(i)    ? p->dim_qk
                                            : p->dim_v;
        if (i != ULI_HEAD_SEQ_DELTA)
            fits = size_of(rows_held(dist, group, sizes, i), dim,
                uli_dtype_size(sizes->dtypes[i]), &sizes->bytes[i]);
    }
    return fits ? ULYX_SUCCESS
                : uli_error(ULYX_ERR_OVERFLOW,
                      "dist attention: the head side of %lld row%s and %lld "
                      "head%s does not fit 64 bits",
                      (long long)dist->most_rows[0],
                      uli_plural(dist->most_rows[0]), (long long)group->q_heads,
                      uli_plural(group->q_heads));
}

ulyx_status_t
uli_dist_measure(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, const struct uli_layout *layout,
    int32_t rank, int32_t threads, struct uli_head_sizes *sizes_p)
{
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    int32_t k = dist->nparts[0];
    memset(sizes_p, 0, sizeof(*sizes_p));
    sizes_p->packed = uli_layout_packed(layout);
    set_dtypes(dist, layout, sizes_p);
    if (sizes_p->packed) {
        int64_t most = uli_layout_shape(layout)->max_segments;
        sizes_p->q_heads = group->q_heads;
        sizes_p->kv_heads = group->kv_heads;
        sizes_p->q_rows = uli_layout_max_packed_rows(layout, 0);
        sizes_p->kv_rows = uli_layout_max_packed_rows(layout, k);
        sizes_p->max_segments[0] = uli_min(most, sizes_p->q_rows);
        sizes_p->max_segments[1] = uli_min(most, sizes_p->kv_rows);
    } else {
        uli_layout_heads(layout, 0, rank, &sizes_p->q_first, &sizes_p->q_heads);
        uli_layout_heads(
            layout, k, rank, &sizes_p->kv_first, &sizes_p->kv_heads);
        if (!uli_size_mul(p->batch * sizes_p->q_heads, dist->most_rows[0],
                &sizes_p->q_rows) ||
            !uli_size_mul(p->batch * sizes_p->kv_heads, dist->most_rows[1],
                &sizes_p->kv_rows))
            return uli_error(ULYX_ERR_OVERFLOW,
                "dist attention: batch * rows * heads does not fit 64 bits");
    }
    ULI_TRY(set_bytes(dist, group, layout, rank, sizes_p));
    for (int pass = 0; pass < (dist->has_backward ? 2 : 1); pass++)
        ULI_TRY(uli_dist_attention_bytes(dist, group, sizes_p, threads, pass,
            &sizes_p->attention_bytes[pass]));
    return ULYX_SUCCESS;
}

int64_t
uli_dist_bytes_now(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, enum uli_head_tensor tensor)
{
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    const struct uli_head_sizes *sizes = &group->sizes;
    bool keys = uli_head_keys(tensor);
    int64_t rows = p->batch * dist->rows[keys], bytes = 0;
    if (!dist->rows_change)
        return sizes->bytes[tensor];
    rows *= keys ? sizes->kv_heads : sizes->q_heads;
    size_of(rows,
        is_statistic(tensor)    ? 1
        : uli_head_wide(tensor) ? p->dim_qk
                                : p->dim_v,
        uli_dtype_size(sizes->dtypes[tensor]), &bytes);
    return bytes; /* at most sizes->bytes, which fits */
}
