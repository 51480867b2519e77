/* SPDX-License-Identifier: Apache-2.0
 *
 * What each direction moves, as rectangles of batches x rows x heads with one
 * destination and one list of sources. HEADS here, PACKED in layout_packed.c.
 *
 * HEADS, index map of a part whose first axis row is f, where rank r holds
 * heads [a_r, a_r + n_r) and a span of rows x .. x + n lies at local row l:
 *     head[b][f + x + i][k - a_r]  <->  seq[b][l + i][k]
 * Rows come from the spans, heads from ranges in closed form (layout_heads.c),
 * so an enumeration for one source costs its spans, not the number of ranks.
 *
 * Order: by source rank, then span; sums by head, then span. An enumeration for
 * one source is a subsequence of this.
 */
#include "collectives/layout/layout_moves.h"

bool
uli_visit_copy(const struct uli_visit *v, struct uli_extent extent,
    struct uli_place dst, struct uli_place src)
{
    v->scratch[0] = src;
    return uli_visit_sum(v, extent, dst, 1, false);
}

/* One source without conversion is a copy. */
bool
uli_visit_sum(const struct uli_visit *v, struct uli_extent extent,
    struct uli_place dst, int32_t count, bool converts)
{
    struct uli_move move;
    if (extent.batches <= 0 || extent.rows <= 0 || extent.heads <= 0)
        return true;
    move.kind = count > 1 || converts ? ULI_MOVE_SUM : ULI_MOVE_COPY;
    move.tensor = v->tensor;
    move.batches = extent.batches;
    move.rows = extent.rows;
    move.heads = extent.heads;
    move.dst = dst;
    move.nsources = count;
    move.sources = v->scratch;
    return v->fn(v->context, &move);
}

bool
uli_visit_zero(
    const struct uli_visit *v, struct uli_extent extent, struct uli_place dst)
{
    struct uli_move move;
    if (extent.batches <= 0 || extent.rows <= 0 || extent.heads <= 0)
        return true;
    move.kind = ULI_MOVE_ZERO;
    move.tensor = v->tensor;
    move.batches = extent.batches;
    move.rows = extent.rows;
    move.heads = extent.heads;
    move.dst = dst;
    move.nsources = 0;
    move.sources = v->scratch;
    return v->fn(v->context, &move);
}

/* ---- towards the head side ----------------------------------------------- */

/* head side of dst, heads [range) <- the owners of the rows */
static bool
rows_to_heads(
    const struct uli_visit *v, int64_t first, struct uli_head_range range)
{
    int64_t batches = v->layout->shape.batch;
    if (range.first >= range.end)
        return true;
    for (int32_t r = uli_visit_first(v); r < uli_visit_end(v); r++) {
        int64_t count;
        const struct uli_row_span *span = uli_visit_spans(v, r, &count);
        for (int64_t i = 0; i < count; i++)
            if (!uli_visit_copy(v,
                    uli_extent_of(
                        batches, span[i].rows, range.end - range.first),
                    uli_place_of(v->dst, 0, v->first_row + span[i].row,
                        range.first - first),
                    uli_place_of(r, 0, span[i].local, range.first)))
                return false;
    }
    return true;
}

/* head side of dst, heads [range) <- its own copy of a replicated part */
static bool
own_to_heads(
    const struct uli_visit *v, int64_t first, struct uli_head_range range)
{
    if (!uli_visit_has(v, v->dst))
        return true;
    return uli_visit_copy(v,
        uli_extent_of(
            v->layout->shape.batch, v->part->rows, range.end - range.first),
        uli_place_of(v->dst, 0, v->first_row, range.first - first),
        uli_place_of(v->dst, 0, 0, range.first));
}

/* head side of dst, heads [range) <- the sum of all ranks' copies */
static bool
copies_to_heads(
    const struct uli_visit *v, int64_t first, struct uli_head_range range)
{
    int32_t nranks = v->layout->shape.nranks;
    for (int32_t r = 0; r < nranks; r++)
        v->scratch[r] = uli_place_of(r, 0, 0, range.first);
    return uli_visit_sum(v,
        uli_extent_of(
            v->layout->shape.batch, v->part->rows, range.end - range.first),
        uli_place_of(v->dst, 0, v->first_row, range.first - first), nranks,
        false);
}

static bool
seq_to_head(const struct uli_visit *v)
{
    struct uli_head_range all = uli_heads_all(v->layout, v->tensor, v->dst);
    if (v->sharded)
        return rows_to_heads(v, all.first, all);
    return own_to_heads(v, all.first, all);
}

/* A rank that is not the lowest holder of its first head gets zeros there; it
 * is the lowest holder of all its other heads. */
static bool
head_to_seq_adjoint(const struct uli_visit *v)
{
    struct uli_head_range all = uli_heads_all(v->layout, v->tensor, v->dst);
    struct uli_head_range low = uli_heads_lowest(v->layout, v->tensor, v->dst);
    bool more;
    if (v->sharded)
        more = rows_to_heads(v, all.first, low);
    else if (v->grad_equal)
        more = own_to_heads(v, all.first, low);
    else
        more = copies_to_heads(v, all.first, low);
    if (!more || v->src >= 0)
        return more;
    return uli_visit_zero(v,
        uli_extent_of(v->layout->shape.batch, v->part->rows,
            uli_min(low.first, all.end) - all.first),
        uli_place_of(v->dst, 0, v->first_row, 0));
}

/* ---- towards the sequence side ------------------------------------------- */

static bool
head_to_seq(const struct uli_visit *v)
{
    int64_t count, batches = v->layout->shape.batch;
    const struct uli_row_span *span = uli_visit_spans(v, v->dst, &count);
    for (int32_t r = uli_visit_first(v); r < uli_visit_end(v); r++) {
        int64_t first = uli_heads_all(v->layout, v->tensor, r).first;
        struct uli_head_range low = uli_heads_lowest(v->layout, v->tensor, r);
        for (int64_t i = 0; i < count && low.first < low.end; i++)
            if (!uli_visit_copy(v,
                    uli_extent_of(batches, span[i].rows, low.end - low.first),
                    uli_place_of(v->dst, 0, span[i].local, low.first),
                    uli_place_of(
                        r, 0, v->first_row + span[i].row, low.first - first)))
                return false;
    }
    return true;
}

/* Rows of dst, heads [range) <- the sum over those of ranks lo .. hi that have
 * heads. */
static bool
sum_holders(const struct uli_visit *v, struct uli_head_range range, int32_t lo,
    int32_t hi)
{
    int64_t count, batches = v->layout->shape.batch;
    const struct uli_row_span *span = uli_visit_spans(v, v->dst, &count);
    for (int64_t i = 0; i < count; i++) {
        int32_t holders = 0;
        for (int32_t r = lo; r <= hi; r++) {
            struct uli_head_range all = uli_heads_all(v->layout, v->tensor, r);
            if (all.first < all.end)
                v->scratch[holders++] = uli_place_of(
                    r, 0, v->first_row + span[i].row, range.first - all.first);
        }
        if (!uli_visit_sum(v,
                uli_extent_of(batches, span[i].rows, range.end - range.first),
                uli_place_of(v->dst, 0, span[i].local, range.first), holders,
                v->converts))
            return false;
    }
    return true;
}

/* The own share of a replicated part's gradient, and zeros on both sides of
 * it. */
static bool
own_share(const struct uli_visit *v)
{
    struct uli_head_range all = uli_heads_all(v->layout, v->tensor, v->dst);
    int64_t batches = v->layout->shape.batch, rows = v->part->rows;
    if (v->src < 0 &&
        !uli_visit_zero(v, uli_extent_of(batches, rows, all.first),
            uli_place_of(v->dst, 0, 0, 0)))
        return false;
    if (uli_visit_has(v, v->dst)) {
        v->scratch[0] = uli_place_of(v->dst, 0, v->first_row, 0);
        if (!uli_visit_sum(v, uli_extent_of(batches, rows, all.end - all.first),
                uli_place_of(v->dst, 0, 0, all.first), 1, v->converts))
            return false;
    }
    return v->src >= 0 ||
           uli_visit_zero(v, uli_extent_of(batches, rows, v->heads - all.end),
               uli_place_of(v->dst, 0, 0, all.end));
}

static bool
seq_to_head_adjoint(const struct uli_visit *v)
{
    if (!v->sharded && !v->full)
        return own_share(v);
    struct uli_head_range scope = {0, v->heads};
    if (v->src >= 0)
        scope = uli_heads_all(v->layout, v->tensor, v->src);
    for (int64_t head = scope.first; head < scope.end;) {
        int32_t lo, hi;
        struct uli_head_range cell = {head, 0};
        cell.end = uli_heads_cell(v->layout, v->tensor, head, &lo, &hi);
        if (!sum_holders(v, cell, lo, hi))
            return false;
        head = cell.end;
    }
    return true;
}

/* ---- entry --------------------------------------------------------------- */

typedef bool (*visit_fn)(const struct uli_visit *v);

static visit_fn
visit_of(const struct uli_layout *layout, ulyx_direction_t direction)
{
    bool packed = layout->packed;
    switch (direction) {
    case ULYX_SEQ_TO_HEAD:
        return packed ? uli_packed_seq_to_head : seq_to_head;
    case ULYX_HEAD_TO_SEQ:
        return packed ? uli_packed_head_to_seq : head_to_seq;
    case ULYX_SEQ_TO_HEAD_ADJOINT:
        return packed ? uli_packed_seq_to_head_adjoint : seq_to_head_adjoint;
    default:
        return packed ? uli_packed_head_to_seq_adjoint : head_to_seq_adjoint;
    }
}

bool
uli_layout_each_move(const struct uli_layout *layout,
    ulyx_direction_t direction, int32_t tensor, int32_t dst_rank,
    int32_t src_rank, struct uli_place *scratch, uli_move_fn visit,
    void *context)
{
    const struct uli_shape_tensor *t = &layout->shape.tensors[tensor];
    struct uli_visit v;
    v.layout = layout;
    v.tables = uli_layout_tables(layout);
    v.part = &layout->shape.parts[t->part];
    v.part_index = t->part;
    v.tensor = tensor;
    v.dst = dst_rank;
    v.src = src_rank;
    v.first_row = layout->first_row[t->part];
    v.heads = t->heads;
    v.sharded = v.part->kind == ULYX_PART_SHARDED;
    v.converts = t->partial_dtype != t->dtype;
    v.full = (t->flags & ULYX_TENSOR_FULL) != 0;
    v.grad_equal = (t->flags & ULYX_TENSOR_GRAD_EQUAL) != 0;
    v.scratch = scratch;
    v.fn = visit;
    v.context = context;
    return visit_of(layout, direction)(&v);
}

int32_t
uli_layout_scratch(const struct uli_layout *layout)
{
    return layout->shape.nranks;
}
