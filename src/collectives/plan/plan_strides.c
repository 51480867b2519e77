/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors as sets of bytes: dense and given strides, extents, overlap. Indices
 * of an element:
 *
 *   sequence side  (batch, local row, head)       s_r rows, all heads
 *   head side      (batch, axis row, own head)    h_r heads
 *   PACKED         (packed row)                   n_r rows
 */
#include <string.h>
#include "base/dtype.h"
#include "base/size.h"
#include "base/status.h"
#include "collectives/plan/plan.h"

enum { OVERLAP_STEPS = 4096 };

static const char *const side_names[ULI_SIDES] = {
    ".seq_strides", ".head_strides", ".partial_strides"};

int64_t
uli_plan_elem_bytes(
    const struct uli_layout *layout, int32_t tensor, enum uli_side side)
{
    const struct uli_shape_tensor *t =
        &uli_layout_shape(layout)->tensors[tensor];
    if (side == ULI_SIDE_PARTIAL && t->partial_dtype != t->dtype)
        return uli_dtype_size(t->partial_dtype);
    return t->elem_bytes;
}

/* ---- counts -------------------------------------------------------------- */

struct counts {
    int64_t first;     /* row of the first element */
    int64_t at[3];     /* of batch, rows, heads */
    int64_t axis_rows; /* rows that the row stride passes over */
    int64_t dense_rows, dense_heads;
    bool packed;
};

/* most: the largest over all updates; else the present ones. */

static struct counts
rows_count(const struct uli_layout *layout, int32_t tensor, int32_t rank,
    enum uli_side side, bool most)
{
    const struct uli_shape *shape = uli_layout_shape(layout);
    const struct uli_shape_tensor *t = &shape->tensors[tensor];
    struct counts c = {0, {shape->batch, 0, t->heads}, 0, 0, t->heads, false};
    int64_t first;
    if (side == ULI_SIDE_SEQ) {
        c.at[1] = most ? uli_layout_max_seq_rows(layout, t->part, rank)
                       : uli_layout_seq_rows(layout, t->part, rank);
        c.dense_rows =
            most ? c.at[1] : uli_layout_seq_rows(layout, t->part, rank);
    } else if (uli_layout_packed(layout)) {
        c.packed = true;
        c.at[0] = c.at[2] = 1;
        c.at[1] = most ? uli_layout_max_packed_rows(layout, tensor)
                       : uli_layout_packed_rows(layout, tensor, rank);
    } else {
        uli_layout_heads(layout, tensor, rank, &first, &c.at[2]);
        int32_t axis = shape->parts[t->part].axis;
        c.at[1] = most ? uli_layout_max_part_rows(layout, t->part)
                       : shape->parts[t->part].rows;
        c.first = most ? uli_layout_max_first_row(layout, t->part)
                       : uli_layout_first_row(layout, t->part);
        c.dense_rows = most ? uli_layout_max_axis_rows(layout, axis)
                            : uli_layout_axis_rows(layout, axis);
        c.dense_heads = c.at[2];
    }
    c.axis_rows = uli_max(c.dense_rows, c.at[1]);
    return c;
}

/* ---- strides ------------------------------------------------------------- */

static ulyx_status_t
stride_overflow(const struct uli_strided *tensor)
{
    return uli_error(ULYX_ERR_OVERFLOW,
        "%s[%d]%s: the tensor's bytes do not fit 64 bits", tensor->name,
        tensor->number, tensor->field);
}

/* False: the bytes do not fit 64 bits. */
static bool
counts_dense(const struct counts *c, int64_t row_bytes,
    enum uli_stride_mark mark, int64_t dense_p[3])
{
    dense_p[0] = dense_p[2] = 0;
    dense_p[1] = row_bytes;
    if (c->packed)
        return true;
    bool rows_inside = mark == ULI_STRIDES_STATISTIC;
    int64_t inner = rows_inside ? c->dense_rows : c->dense_heads;
    int64_t outer = rows_inside ? c->dense_heads : c->dense_rows;
    dense_p[rows_inside ? 1 : 2] = row_bytes;
    dense_p[rows_inside ? 2 : 1] = uli_sat_mul(row_bytes, inner);
    dense_p[0] = uli_sat_mul(dense_p[rows_inside ? 2 : 1], outer);
    return dense_p[1] < INT64_MAX && dense_p[0] < INT64_MAX;
}

/* The stride of a dimension with one index is whatever the caller's framework
 * left there: the dense stride takes its place. */
static void
strides_ignore(const struct uli_strided *tensor, int64_t strides[3])
{
    const int64_t *counts = tensor->counts;
    const int64_t sizes[3] = {counts[0], tensor->axis_rows, counts[2]};
    bool empty = !counts[0] || !counts[1] || !counts[2];
    for (int d = 0; d < 3; d++)
        if (empty || sizes[d] <= 1)
            strides[d] = tensor->dense[d];
}

/* Checks that dimensions nest: each stride is at least the span of the smaller
 * ones. Else elements overlap (INVALID_ARGUMENT), or the bytes do not fit 64
 * bits (OVERFLOW). */
static ulyx_status_t
strides_nest(const int64_t counts[3], const int64_t strides[3],
    int64_t run_bytes, int64_t first)
{
    int64_t hull = run_bytes, done[3] = {0, 0, 0}, span;
    for (int pass = 0; pass < 3; pass++) {
        int best = -1;
        for (int d = 0; d < 3; d++)
            if (!done[d] && (best < 0 || strides[d] < strides[best]))
                best = d;
        done[best] = 1;
        if (counts[best] <= 1)
            continue;
        if (strides[best] < hull)
            return ULYX_ERR_INVALID_ARGUMENT;
        if (!uli_size_mul(strides[best], counts[best] - 1, &span) ||
            !uli_size_add(hull, span, &hull))
            return ULYX_ERR_OVERFLOW;
    }
    return uli_size_mul(first, strides[1], &span) &&
                   uli_size_add(hull, span, &hull)
               ? ULYX_SUCCESS
               : ULYX_ERR_OVERFLOW;
}

/* The tensor is some of the heads of a tensor with seq_heads heads. */
static void
counts_widen(struct counts *c, enum uli_side side, int64_t seq_heads)
{
    if (side == ULI_SIDE_SEQ && seq_heads)
        c->dense_heads = seq_heads;
}

static ulyx_status_t
check_negative(const struct uli_strided *tensor, const int64_t strides[3])
{
    for (int d = 0; d < 3; d++)
        if (strides[d] < 0)
            return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                "%s[%d]%s[%d] is %lld, must not be negative", tensor->name,
                tensor->number, tensor->field, d, (long long)strides[d]);
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_nested(const struct uli_strided *tensor, const int64_t strides[3])
{
    const int64_t *counts = tensor->counts;
    if (!counts[0] || !counts[1] || !counts[2])
        return ULYX_SUCCESS;
    ulyx_status_t status =
        strides_nest(counts, strides, tensor->run_bytes, tensor->first);
    if (status == ULYX_SUCCESS)
        return status;
    return uli_error(status,
        "%s[%d]%s is {%lld, %lld, %lld}: batch %lld x rows %lld%s x heads %lld "
        "x %lld bytes %s",
        tensor->name, tensor->number, tensor->field, (long long)strides[0],
        (long long)strides[1], (long long)strides[2], (long long)counts[0],
        (long long)counts[1], tensor->rows_as ? tensor->rows_as : "",
        (long long)counts[2], (long long)tensor->run_bytes,
        status == ULYX_ERR_OVERFLOW ? "do not fit 64 bits" : "overlap");
}

ulyx_status_t
uli_strides_settle(const struct uli_strided *tensor, int64_t strides[3])
{
    if (strides[0] || strides[1] || strides[2])
        strides_ignore(tensor, strides);
    else
        memcpy(strides, tensor->dense, sizeof(tensor->dense));
    ULI_TRY(check_negative(tensor, strides));
    return check_nested(tensor, strides);
}

/* *fits_p: the dense strides fit 64 bits. */
static void
strided_of(const struct counts *c, int64_t row_bytes, enum uli_stride_mark mark,
    struct uli_strided *strided_p, bool *fits_p)
{
    memset(strided_p, 0, sizeof(*strided_p));
    memcpy(strided_p->counts, c->at, sizeof(c->at));
    strided_p->first = c->first;
    strided_p->axis_rows = c->axis_rows;
    strided_p->run_bytes = row_bytes;
    *fits_p = counts_dense(c, row_bytes, mark, strided_p->dense);
}

static int64_t
side_row_bytes(
    const struct uli_layout *layout, int32_t tensor, enum uli_side side)
{
    return uli_sat_mul(uli_layout_shape(layout)->tensors[tensor].dim,
        uli_plan_elem_bytes(layout, tensor, side));
}

/* For error texts: the field that gives the most rows of a side; "" where the
 * field is rows itself. */
static const char *
most_rows_as(
    const struct uli_layout *layout, int32_t tensor, enum uli_side side)
{
    const struct uli_shape *shape = uli_layout_shape(layout);
    const struct uli_shape_part *part =
        &shape->parts[shape->tensors[tensor].part];
    if (side != ULI_SIDE_SEQ && uli_layout_packed(layout))
        return " (the most of a rank)";
    if (side == ULI_SIDE_SEQ && part->kind == ULYX_PART_SHARDED &&
        part->order == ULYX_TOKENS_ZIGZAG_DOCS)
        return " (max_local_rows)";
    return part->row_capacity ? " (of row_capacity)" : "";
}

/* Fixes one side's strides; the tensor must have room for the most rows. */
static ulyx_status_t
fix_side(const struct uli_layout *layout, int32_t tensor, int32_t rank,
    enum uli_side side, int64_t seq_heads, uint8_t *mark, int64_t strides[3])
{
    struct counts c = rows_count(layout, tensor, rank, side, true);
    struct uli_strided strided;
    bool fits;
    counts_widen(&c, side, seq_heads);
    strided_of(
        &c, side_row_bytes(layout, tensor, side), *mark, &strided, &fits);
    strided.name = "tensors";
    strided.number = tensor;
    strided.field = side_names[side];
    strided.rows_as = most_rows_as(layout, tensor, side);
    if (strided.run_bytes == INT64_MAX)
        return stride_overflow(&strided);
    if (strides[0] || strides[1] || strides[2])
        *mark = ULI_STRIDES_GIVEN;
    else if (!fits)
        return stride_overflow(&strided);
    return uli_strides_settle(&strided, strides);
}

/* Replaces strides that are not GIVEN by the dense ones of the present rows. */
static void
fill_side(const struct uli_layout *layout, int32_t tensor, int32_t rank,
    enum uli_side side, int64_t seq_heads, enum uli_stride_mark mark,
    int64_t strides[3])
{
    struct counts c = rows_count(layout, tensor, rank, side, false);
    counts_widen(&c, side, seq_heads);
    if (mark != ULI_STRIDES_GIVEN)
        counts_dense(&c, side_row_bytes(layout, tensor, side), mark, strides);
}

ulyx_status_t
uli_plan_mark_strides(const struct uli_layout *layout, int32_t rank,
    const int64_t seq_heads[ULI_TENSORS], uli_strides_t strides[ULI_TENSORS],
    uli_stride_marks_t marks[ULI_TENSORS])
{
    for (int32_t t = 0; t < uli_layout_shape(layout)->ntensors; t++)
        for (int side = 0; side < ULI_SIDES; side++) {
            ULI_TRY(fix_side(layout, t, rank, (enum uli_side)side, seq_heads[t],
                &marks[t][side], strides[t][side]));
            fill_side(layout, t, rank, (enum uli_side)side, seq_heads[t],
                marks[t][side], strides[t][side]);
        }
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_plan_fix_strides(const struct uli_layout *layout, int32_t rank,
    uli_strides_t strides[ULI_TENSORS])
{
    const int64_t seq_heads[ULI_TENSORS] = {0};
    uli_stride_marks_t marks[ULI_TENSORS] = {{ULI_STRIDES_DENSE}};
    return uli_plan_mark_strides(layout, rank, seq_heads, strides, marks);
}

void
uli_plan_fill_strides(ulyx_plan_t *plan)
{
    for (int32_t p = 0; p < plan->comm->nranks; p++)
        for (int32_t t = 0; t < plan->exchange.ntensors; t++)
            for (int side = 0; side < ULI_SIDES; side++)
                fill_side(plan->layout, t, p, (enum uli_side)side,
                    plan->seq_heads[t], plan->ranks[p].stride_marks[t][side],
                    plan->ranks[p].strides[t][side]);
    memcpy(plan->info.strides, plan->ranks[plan->comm->rank].strides,
        sizeof(plan->info.strides));
}

/* ---- strides of a call --------------------------------------------------- */

/* The order that dense strides have in this plan. */
static enum uli_stride_mark
dense_mark(const ulyx_plan_t *plan, int32_t tensor, enum uli_side side)
{
    uint8_t mark = plan->info.stride_marks[tensor][side];
    return mark == ULI_STRIDES_STATISTIC ? ULI_STRIDES_STATISTIC
                                         : ULI_STRIDES_DENSE;
}

static ulyx_status_t
settle_call(ulyx_plan_t *plan, const char *name, int32_t tensor,
    enum uli_side side, const int64_t given[3], int64_t strides_p[3])
{
    const struct uli_layout *layout = plan->layout;
    struct counts c = rows_count(layout, tensor, plan->comm->rank, side, false);
    struct uli_strided strided;
    bool fits; /* true: creation has checked the most rows */
    counts_widen(&c, side, plan->seq_heads[tensor]);
    strided_of(&c, side_row_bytes(layout, tensor, side),
        dense_mark(plan, tensor, side), &strided, &fits);
    strided.name = name;
    strided.number = tensor;
    strided.field = "";
    memcpy(strides_p, given, sizeof(strided.dense));
    return uli_strides_settle(&strided, strides_p);
}

static bool
strides_usual(const ulyx_plan_t *plan, ulyx_direction_t direction)
{
    for (int source = 0; source < 2; source++) {
        enum uli_side side = uli_plan_side(direction, source);
        for (int32_t t = 0; t < plan->exchange.ntensors; t++)
            if (memcmp(plan->call.at[source][t], plan->info.strides[t][side],
                    sizeof(plan->call.at[source][t])))
                return false;
    }
    return true;
}

ulyx_status_t
uli_plan_take_strides(ulyx_plan_t *plan, const struct uli_plan_call *call)
{
    static const char *const names[2] = {"dst_strides", "src_strides"};
    const int64_t(*given[2])[3] = {call->dst_strides, call->src_strides};
    struct uli_call_strides *own = &plan->call;
    own->given = false;
    if (!given[0] && !given[1])
        return ULYX_SUCCESS;
    for (int source = 0; source < 2; source++) {
        enum uli_side side = uli_plan_side(call->direction, source);
        for (int32_t t = 0; t < plan->exchange.ntensors; t++) {
            int64_t *strides = own->at[source][t];
            struct uli_grid grid;
            if (given[source])
                ULI_TRY(settle_call(
                    plan, names[source], t, side, given[source][t], strides));
            else
                memcpy(strides, plan->info.strides[t][side],
                    sizeof(own->at[source][t]));
            uli_plan_grid(
                plan->layout, t, plan->comm->rank, side, strides, &grid);
            own->bytes[source][t] = uli_grid_extent(&grid);
        }
    }
    own->given = !strides_usual(plan, call->direction);
    return ULYX_SUCCESS;
}

bool
uli_plan_measure_strides(const struct uli_layout *layout, int32_t ntensors,
    int32_t rank, ulyx_direction_t direction, struct uli_call_strides *strides)
{
    for (int source = 0; source < 2; source++) {
        enum uli_side side = uli_plan_side(direction, source);
        for (int32_t t = 0; t < ntensors; t++) {
            struct counts c = rows_count(layout, t, rank, side, false);
            const int64_t *at = strides->at[source][t];
            int64_t bytes = side_row_bytes(layout, t, side), span;
            bool fits = at[0] >= 0 && at[1] >= 0 && at[2] >= 0 &&
                        uli_size_mul(c.first, at[1], &span) &&
                        uli_size_add(bytes, span, &bytes);
            bool empty = !c.at[0] || !c.at[1] || !c.at[2];
            for (int d = 0; d < 3 && fits && !empty; d++)
                fits = uli_size_mul(c.at[d] - 1, at[d], &span) &&
                       uli_size_add(bytes, span, &bytes);
            if (!fits)
                return false;
            strides->bytes[source][t] = empty ? 0 : bytes;
        }
    }
    return true;
}

/* ---- grids --------------------------------------------------------------- */

void
uli_plan_grid(const struct uli_layout *layout, int32_t tensor, int32_t rank,
    enum uli_side side, const int64_t strides[3], struct uli_grid *grid_p)
{
    struct counts c = rows_count(layout, tensor, rank, side, false);
    grid_p->first = c.first * strides[1];
    memcpy(grid_p->counts, c.at, sizeof(c.at));
    memcpy(grid_p->strides, strides, sizeof(grid_p->strides));
    grid_p->run_bytes = uli_layout_shape(layout)->tensors[tensor].dim *
                        uli_plan_elem_bytes(layout, tensor, side);
}

int64_t
uli_plan_max_extent(const ulyx_plan_t *plan, int32_t tensor, enum uli_side side)
{
    const struct uli_layout *layout = plan->layout;
    struct counts c = rows_count(layout, tensor, plan->comm->rank, side, true);
    counts_widen(&c, side, plan->seq_heads[tensor]);
    struct uli_grid grid = {.run_bytes = side_row_bytes(layout, tensor, side)};
    memcpy(grid.counts, c.at, sizeof(c.at));
    memcpy(
        grid.strides, plan->info.strides[tensor][side], sizeof(grid.strides));
    if (plan->info.stride_marks[tensor][side] != ULI_STRIDES_GIVEN)
        counts_dense(&c, grid.run_bytes, plan->info.stride_marks[tensor][side],
            grid.strides);
    grid.first = c.first * grid.strides[1];
    return uli_grid_extent(&grid);
}

static bool
grid_empty(const struct uli_grid *grid)
{
    return !grid->counts[0] || !grid->counts[1] || !grid->counts[2];
}

int64_t
uli_grid_extent(const struct uli_grid *grid)
{
    int64_t bytes = grid->first + grid->run_bytes;
    if (grid_empty(grid))
        return 0;
    for (int d = 0; d < 3; d++)
        bytes += (grid->counts[d] - 1) * grid->strides[d];
    return bytes;
}

/* A grid with its dimensions by stride, largest first; in bytes. */
struct runs {
    uintptr_t base;
    int64_t counts[3], strides[3], hull[4]; /* hull[d]: of dimensions >= d */
};

static void
grid_order(const struct uli_grid *grid, uintptr_t base, struct runs *runs_p)
{
    int at[3] = {0, 1, 2};
    for (int i = 0; i < 2; i++)
        for (int j = i + 1; j < 3; j++) {
            bool less = grid->counts[at[i]] == 1 ||
                        (grid->counts[at[j]] > 1 &&
                            grid->strides[at[i]] < grid->strides[at[j]]);
            if (less) {
                int held = at[i];
                at[i] = at[j];
                at[j] = held;
            }
        }
    runs_p->base = base + (uintptr_t)grid->first;
    runs_p->hull[3] = grid->run_bytes;
    for (int d = 2; d >= 0; d--) {
        runs_p->counts[d] = grid->counts[at[d]];
        runs_p->strides[d] = grid->strides[at[d]];
        runs_p->hull[d] =
            runs_p->hull[d + 1] + (runs_p->counts[d] - 1) * runs_p->strides[d];
    }
}

static bool runs_meet(const struct runs *a, int ad, uintptr_t a_at,
    const struct runs *b, int bd, uintptr_t b_at, int *steps);

/* For two outer dimensions with one stride (tensors interleaved in one
 * allocation) only the difference of the two indices counts. */
static bool
meet_in_step(const struct runs *a, int ad, uintptr_t a_at, const struct runs *b,
    int bd, int64_t distance, int *steps)
{
    int64_t stride = a->strides[ad];
    int64_t low = (distance - a->hull[ad + 1]) / stride - 1;
    int64_t high = (distance + b->hull[bd + 1]) / stride + 1;
    low = uli_max(low, 1 - b->counts[bd]);
    high = uli_min(high, a->counts[ad] - 1);
    for (int64_t t = low; t <= high; t++) {
        if (--*steps < 0)
            return false;
        if (runs_meet(a, ad + 1, a_at, b, bd + 1,
                a_at + (uintptr_t)(distance - t * stride), steps))
            return true;
    }
    return false;
}

/* Do runs of a from dimension ad on, at address a_at, meet those of b? Of the
 * sides with several runs, the one that spans more is opened: only those of its
 * indices are tried whose runs lie within the hull of the other side. */
static bool
runs_meet(const struct runs *a, int ad, uintptr_t a_at, const struct runs *b,
    int bd, uintptr_t b_at, int *steps)
{
    int64_t distance = (int64_t)(b_at - a_at); /* from a's first byte to b's */
    if (distance >= a->hull[ad] || -distance >= b->hull[bd])
        return false;
    while (ad < 3 && a->counts[ad] == 1)
        ad++;
    while (bd < 3 && b->counts[bd] == 1)
        bd++;
    if (ad == 3 && bd == 3)
        return true;
    if (ad < 3 && bd < 3 && a->strides[ad] == b->strides[bd])
        return meet_in_step(a, ad, a_at, b, bd, distance, steps);
    if (ad == 3 || (bd < 3 && a->hull[ad] < b->hull[bd]))
        return runs_meet(b, bd, b_at, a, ad, a_at, steps);
    int64_t stride = a->strides[ad];
    int64_t low = (distance - a->hull[ad + 1]) / stride;
    int64_t high = (distance + b->hull[bd]) / stride;
    low = uli_max(low, 0);
    high = uli_min(high, a->counts[ad] - 1);
    for (int64_t i = low; i <= high; i++) {
        if (--*steps < 0)
            return false;
        if (runs_meet(
                a, ad + 1, a_at + (uintptr_t)(i * stride), b, bd, b_at, steps))
            return true;
    }
    return false;
}

bool
uli_grid_overlap(const struct uli_grid *a, uintptr_t a_base,
    const struct uli_grid *b, uintptr_t b_base)
{
    struct runs ra, rb;
    int steps = OVERLAP_STEPS;
    if (grid_empty(a) || grid_empty(b))
        return false;
    grid_order(a, a_base, &ra);
    grid_order(b, b_base, &rb);
    return runs_meet(&ra, 0, ra.base, &rb, 0, rb.base, &steps);
}
