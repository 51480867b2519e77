/* SPDX-License-Identifier: Apache-2.0
 *
 * The arguments of one enumeration of moves: what layout_moves.c and
 * layout_packed.c share.
 */
#ifndef ULI_COLLECTIVES_LAYOUT_LAYOUT_MOVES_H
#define ULI_COLLECTIVES_LAYOUT_LAYOUT_MOVES_H

#include "collectives/layout/layout_private.h"

struct uli_visit {
    const struct uli_layout *layout;
    const struct uli_tables *tables;
    const struct uli_shape_part *part;
    int32_t part_index, tensor, dst, src; /* src = -1: all */
    int64_t first_row;                    /* of the part on its axis */
    int64_t heads;                        /* of the tensor */
    bool sharded;
    bool converts; /* partial_dtype is not dtype */
    bool full, grad_equal;
    struct uli_place *scratch;
    uli_move_fn fn;
    void *context;
};

/* The size of a move. */
struct uli_extent {
    int64_t batches, rows, heads;
};

static inline struct uli_extent
uli_extent_of(int64_t batches, int64_t rows, int64_t heads)
{
    struct uli_extent extent;
    extent.batches = batches;
    extent.rows = rows;
    extent.heads = heads;
    return extent;
}

static inline struct uli_place
uli_place_of(int32_t rank, int64_t batch, int64_t row, int64_t head)
{
    struct uli_place place;
    place.rank = rank;
    place.batch = batch;
    place.row = row;
    place.head = head;
    return place;
}

static inline bool
uli_visit_has(const struct uli_visit *v, int32_t rank)
{
    return v->src < 0 || v->src == rank;
}

/* The ranks to try as sources: [first, end). */
static inline int32_t
uli_visit_first(const struct uli_visit *v)
{
    return v->src < 0 ? 0 : v->src;
}

static inline int32_t
uli_visit_end(const struct uli_visit *v)
{
    return v->src < 0 ? v->layout->shape.nranks : v->src + 1;
}

/* Spans of the visit's part on a rank. */
static inline const struct uli_row_span *
uli_visit_spans(const struct uli_visit *v, int32_t rank, int64_t *count_p)
{
    if (!v->sharded) {
        *count_p = v->part->rows > 0;
        return &v->layout->whole[v->part_index];
    }
    const struct uli_row_spans *spans = &v->tables->spans[v->part_index];
    *count_p = spans->start[rank + 1] - spans->start[rank];
    return &spans->span[spans->start[rank]];
}

/* Each returns false when the visitor has ended the enumeration; an empty
 * extent is not visited. The sources of a sum are v->scratch[0 .. count). */
bool uli_visit_copy(const struct uli_visit *v, struct uli_extent extent,
    struct uli_place dst, struct uli_place src);
bool uli_visit_zero(
    const struct uli_visit *v, struct uli_extent extent, struct uli_place dst);
bool uli_visit_sum(const struct uli_visit *v, struct uli_extent extent,
    struct uli_place dst, int32_t count, bool converts);

/* ---- layout_packed.c: the four directions of a PACKED plan --------------- */
bool uli_packed_seq_to_head(const struct uli_visit *v);
bool uli_packed_head_to_seq(const struct uli_visit *v);
bool uli_packed_seq_to_head_adjoint(const struct uli_visit *v);
bool uli_packed_head_to_seq_adjoint(const struct uli_visit *v);

#endif
