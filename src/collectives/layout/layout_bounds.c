/* SPDX-License-Identifier: Apache-2.0
 *
 * How many moves an enumeration can have, over all document tables.
 *
 * HEADS: (spans) x (head ranges), exact but for zigzag per document.
 *
 * PACKED: two lists of intervals on one line (a head of a batch item) meet in
 * at most as many places as both lists together have members. Let a rank have R
 * runs on at most l lines. There are L = heads x batch lines in all, p spans,
 * and c cells (rows with the same holders, layout_packed.c). Then
 *     runs against spans      R + l p
 *     cells against spans     c + l p, or c + L p on all ranks
 * Cells change where some rank's run of keys begins or ends: at the two ends of
 * the keys that a whole document attends to, and twice where a cut falls into a
 * document. So c is at most the sum over the heads of 2 documents + batch, plus
 * 2 P. It is also at most 2 N + lines for N runs of all ranks, which
 * max_segments bounds. There are never more moves than rows.
 */
#include "collectives/layout/layout_private.h"

/* Most spans of a part on a rank. */
static int64_t
spans_most(const struct uli_layout *layout, int32_t part, int32_t rank)
{
    const struct uli_shape *shape = &layout->shape;
    const struct uli_shape_part *p = &shape->parts[part];
    int64_t count, spans;
    if (p->kind == ULYX_PART_SHARDED && p->order == ULYX_TOKENS_ZIGZAG_DOCS) {
        if (!uli_size_mul_add(shape->max_docs, 4, 2, &spans))
            spans = INT64_MAX; /* two chunks of each document and gap */
        return uli_min(spans, uli_layout_max_seq_rows(layout, part, rank));
    }
    if (uli_rows_refill(layout, part))
        return layout->bank[0].spans[part].capacity / shape->nranks;
    uli_layout_row_spans(layout, part, rank, &count);
    return p->kind == ULYX_PART_REPLICATED ? 1 : count;
}

/* The sum over the ranks that src stands for (-1: all). */
static int64_t
spans_of_all(const struct uli_layout *layout, int32_t part, int32_t src)
{
    int64_t sum = 0;
    if (src >= 0)
        return spans_most(layout, part, src);
    for (int32_t r = 0; r < layout->shape.nranks; r++)
        sum = uli_sat_add(sum, spans_most(layout, part, r));
    return sum;
}

/* ---- HEADS --------------------------------------------------------------- */

static int64_t
lowest_ranges(const struct uli_layout *layout, int32_t tensor, int32_t src)
{
    int64_t sum = 0;
    for (int32_t r = 0; r < layout->shape.nranks; r++) {
        struct uli_head_range low = uli_heads_lowest(layout, tensor, r);
        if (src < 0 || src == r)
            sum += low.end > low.first;
    }
    return sum;
}

static int64_t
tensor_cells(const struct uli_layout *layout, int32_t tensor, int32_t src)
{
    struct uli_head_range scope = {0, layout->shape.tensors[tensor].heads};
    int64_t sum = 0;
    if (src >= 0)
        scope = uli_heads_all(layout, tensor, src);
    while (scope.first < scope.end) {
        int32_t lo, hi;
        scope.first = uli_heads_cell(layout, tensor, scope.first, &lo, &hi);
        sum++;
    }
    return sum;
}

static int64_t
bound_heads(const struct uli_layout *layout, ulyx_direction_t direction,
    int32_t tensor, int32_t dst, int32_t src)
{
    const struct uli_shape_tensor *t = &layout->shape.tensors[tensor];
    bool sharded = layout->shape.parts[t->part].kind == ULYX_PART_SHARDED;
    int64_t dst_spans = spans_most(layout, t->part, dst);
    switch (direction) {
    case ULYX_SEQ_TO_HEAD:
        return sharded ? spans_of_all(layout, t->part, src) : 1;
    case ULYX_HEAD_TO_SEQ:
        return uli_sat_mul(dst_spans, lowest_ranges(layout, tensor, src));
    case ULYX_SEQ_TO_HEAD_ADJOINT:
        if (!sharded && !(t->flags & ULYX_TENSOR_FULL))
            return 3;
        return uli_sat_mul(dst_spans, tensor_cells(layout, tensor, src));
    default:
        return uli_sat_add(sharded ? spans_of_all(layout, t->part, src) : 1, 1);
    }
}

/* ---- PACKED -------------------------------------------------------------- */

static int64_t
own_share_most(const struct uli_layout *layout, int64_t runs, int64_t heads)
{
    int64_t lines = uli_sat_mul(heads, layout->shape.batch);
    return uli_sat_add(uli_sat_add(uli_sat_mul(2, runs), lines), 2);
}

/* Most cells on all lines of `heads` heads of a HEADS_KV family: by documents
 * and cuts, or by the ends of as many runs as the caller's max_segments
 * allows. */
static int64_t
cells_most(const struct uli_layout *layout, int32_t family, int64_t heads)
{
    int64_t lines = uli_sat_mul(heads, layout->shape.batch);
    int64_t by_docs =
        uli_sat_add(uli_sat_mul(uli_sat_mul(2, heads), uli_docs_most(layout)),
            2 * (int64_t)layout->shape.nranks);
    int64_t by_runs = uli_sat_mul(2, layout->bank[0].family[family].capacity);
    return uli_sat_add(lines, uli_min(by_docs, by_runs));
}

static int64_t
bound_packed_to_head(const struct uli_layout *layout,
    ulyx_direction_t direction, int32_t tensor, int32_t src)
{
    const struct uli_shape_tensor *t = &layout->shape.tensors[tensor];
    bool sharded = layout->shape.parts[t->part].kind == ULYX_PART_SHARDED;
    int32_t f = layout->family_of[tensor];
    const struct uli_family_info *family = &layout->family[f];
    int64_t spans = sharded ? spans_of_all(layout, t->part, src) : 1;
    int64_t moves = uli_sat_add(
        family->max_segments, uli_sat_mul(family->most_lines, spans));
    if (direction == ULYX_HEAD_TO_SEQ_ADJOINT && family->kv)
        moves = uli_sat_add(/* copies, then zeros */
            moves, uli_sat_mul(2, cells_most(layout, f, family->most_heads)));
    return uli_min(family->max_rows, moves);
}

static int64_t
bound_packed_to_seq(const struct uli_layout *layout, ulyx_direction_t direction,
    int32_t tensor, int32_t dst, int32_t src)
{
    const struct uli_shape_tensor *t = &layout->shape.tensors[tensor];
    bool sharded = layout->shape.parts[t->part].kind == ULYX_PART_SHARDED;
    int32_t f = layout->family_of[tensor];
    const struct uli_family_info *family = &layout->family[f];
    int64_t all_lines = uli_sat_mul(t->heads, layout->shape.batch);
    int64_t lines = src < 0 ? all_lines : family->most_lines;
    int64_t borders = layout->shape.nranks + family->max_segments;
    if (direction == ULYX_SEQ_TO_HEAD_ADJOINT && !sharded &&
        !(t->flags & ULYX_TENSOR_FULL))
        return own_share_most(layout, family->max_segments, t->heads);
    if (family->kv)
        borders =
            cells_most(layout, f, src < 0 ? t->heads : family->most_heads);
    int64_t rows =
        uli_sat_mul(all_lines, uli_layout_max_seq_rows(layout, t->part, dst));
    return uli_min(
        rows, uli_sat_add(uli_sat_mul(lines, spans_most(layout, t->part, dst)),
                  borders));
}

int64_t
uli_layout_max_moves(const struct uli_layout *layout,
    ulyx_direction_t direction, int32_t tensor, int32_t dst_rank,
    int32_t src_rank)
{
    if (layout->packed && (direction == ULYX_SEQ_TO_HEAD ||
                              direction == ULYX_HEAD_TO_SEQ_ADJOINT))
        return bound_packed_to_head(layout, direction, tensor, src_rank);
    if (layout->packed)
        return bound_packed_to_seq(
            layout, direction, tensor, dst_rank, src_rank);
    return bound_heads(layout, direction, tensor, dst_rank, src_rank);
}
