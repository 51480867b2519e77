/* SPDX-License-Identifier: Apache-2.0
 *
 * The index maths of a plan: which rows and heads of which tensor lie where,
 * and what each of the four directions moves. No I/O, no pointers, no strides,
 * no CUDA: everything here is a function of the shape that all ranks agree on
 * and of the document tables.
 *
 * Spaces. Axis row = the part's first row + row of the part (global token
 * order). Sequence side of a part on rank r: local rows 0 .. s_r - 1, all
 * heads. Head side on rank r: HEADS: all axis rows, heads [first_r, first_r +
 * n_r); PACKED: a list of segments {head, batch, rows}, one after another.
 */
#ifndef ULI_COLLECTIVES_LAYOUT_LAYOUT_H
#define ULI_COLLECTIVES_LAYOUT_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>
#include "ulyx/types.h"
#include "ulyx/reshuffle.h"

enum { ULI_MAX_PARTS = 8, ULI_TENSORS = 8 /* at most */ };

struct uli_shape_part {
    int32_t axis, kind, order;
    int64_t rows;
    const int64_t *splits; /* [nranks] or NULL */
    int64_t row_capacity;  /* most rows of any update; 0: rows never change */
};

struct uli_shape_tensor {
    int32_t part;
    int32_t ownership;
    int32_t dtype;
    int32_t partial_dtype; /* 0 = the default, set by uli_layout_create */
    uint64_t flags;
    int64_t elem_bytes; /* of dtype; always set */
    int64_t heads, dim;
};

/* Everything that all ranks agree on. Plain values: the caller of
 * uli_layout_create keeps the arrays alive during the call only. */
struct uli_shape {
    int32_t nranks;
    int64_t batch, heads;
    int32_t nparts, ntensors;
    struct uli_shape_part parts[ULI_MAX_PARTS];
    struct uli_shape_tensor tensors[ULI_TENSORS];
    const int64_t *head_splits; /* [nranks] or NULL */
    int32_t work_split;
    int32_t mask_kind, mask_align;
    int64_t mask_diagonal, mask_left, mask_right;
    int64_t row_cost, row_round; /* 0 = default */
    int64_t max_rows, max_kv_rows, max_segments, max_local_rows, max_docs;
    /* BALANCED: the cuts also respect the bounds of keys with this number of
     * heads, even if no tensor of this plan has them; 0 = none. So plans that
     * move the queries and the keys of one attention separately are cut
     * alike. */
    int64_t key_heads;
};

/* A document table after checking: disjoint ascending runs of flattened rows.
 * count = 0 with none = true: one document per batch item. */
struct uli_docs {
    bool none;
    int64_t count;
    const int64_t *begin;  /* [count] flattened: batch * S + row */
    const int64_t *length; /* [count] */
};

struct uli_layout;

/* Checks the shape and computes all tables. docs_* may be NULL (no table; with
 * one axis, docs_k NULL means docs_q). Tables are not read where nothing
 * depends on them. Defaults (0) are resolved: see uli_layout_shape. The first
 * argument error is reported by uli_error with field and value.
 * Returns SUCCESS; ERR_INVALID_ARGUMENT (negative or inconsistent values, h not
 * a multiple of a HEADS_KV tensor's heads, HEADS_QUERY heads != h, splits that
 * do not add up, zigzag per document with b != 1 or splits, maxima too small
 * for the table, with the values needed...); ERR_OVERFLOW; ERR_UNSUPPORTED;
 * ERR_NO_MEMORY. */
ulyx_status_t uli_layout_create(const struct uli_shape *shape,
    const ulyx_docs_t *docs_q, const ulyx_docs_t *docs_k,
    struct uli_layout **layout_p);
void uli_layout_destroy(struct uli_layout *layout);

/* New document tables within the maxima of creation; on an error nothing has
 * changed. Allocates nothing: creation has reserved two banks of tables, sized
 * by the maxima.
 * Returns SUCCESS, also for a BALANCED layout that is the same as HEADS: such a
 * layout may not depend on the tables, but they are checked all the same;
 * ERR_INVALID_ARGUMENT (a bad table, or one beyond a maximum, with the value
 * needed); ERR_UNSUPPORTED (the layout has no tables). */
ulyx_status_t uli_layout_update(struct uli_layout *layout,
    const ulyx_docs_t *docs_q, const ulyx_docs_t *docs_k);

/* As above, with other rows: rows[nparts]; splits[nparts], an array [nranks]
 * for each part that creation gave splits, NULL for the others (splits NULL: no
 * part has any). Documents are read where the layout depends on them; NULL:
 * none.
 * Returns as uli_layout_update; INVALID_ARGUMENT also where rows exceed their
 * capacity or change in a part without one, or splits do not add up. */
ulyx_status_t uli_layout_update_rows(struct uli_layout *layout,
    const int64_t *rows, const int64_t *const *splits,
    const ulyx_docs_t *docs_q, const ulyx_docs_t *docs_k);
/* The errors of rows and splits alone; nothing changes. */
ulyx_status_t uli_layout_check_rows(const struct uli_layout *layout,
    const int64_t *rows, const int64_t *const *splits);
bool uli_layout_rows_change(const struct uli_layout *layout);
/* stretch: sets the rows of all parts to their capacities, evenly split, until
 * relax sets them back. No update moves more than a stretched layout does,
 * except where uli_layout_moves_anything is true. Does nothing where no part's
 * rows change, or where a part has the order ZIGZAG_DOCS. relax takes the
 * document tables of creation, and fails only if the caller has changed them
 * meanwhile. */
void uli_layout_stretch(struct uli_layout *layout);
ulyx_status_t uli_layout_relax(struct uli_layout *layout,
    const ulyx_docs_t *docs_q, const ulyx_docs_t *docs_k);
/* May an update move anything between any two ranks? */
bool uli_layout_moves_anything(const struct uli_layout *layout);

/* Can an update change anything: document tables (ZIGZAG_DOCS or BALANCED over
 * documents) or rows? table_hash: a 64-bit hash of their present contents,
 * equal on all ranks that hold the same; 0 when nothing can change. */
bool uli_layout_has_tables(const struct uli_layout *layout);
uint64_t uli_layout_table_hash(const struct uli_layout *layout);

/* The shape with all defaults resolved, and splits and head_splits filled
 * in. */
const struct uli_shape *uli_layout_shape(const struct uli_layout *layout);

/* Bytes of memory that the layout holds. */
int64_t uli_layout_bytes(const struct uli_layout *layout);

/* ---- the sequence side --------------------------------------------------- */

/* A run of rows: part rows [row, row + rows) are local rows [local, ...). */
struct uli_row_span {
    int64_t row, rows, local;
};

int64_t uli_layout_axis_rows(const struct uli_layout *layout, int32_t axis);
int64_t uli_layout_first_row(const struct uli_layout *layout, int32_t part);
/* The most rows of an axis, the highest first row of a part, and the most rows
 * of a part, over all updates. */
int64_t uli_layout_max_axis_rows(const struct uli_layout *layout, int32_t axis);
int64_t uli_layout_max_first_row(const struct uli_layout *layout, int32_t part);
int64_t uli_layout_max_part_rows(const struct uli_layout *layout, int32_t part);
int64_t uli_layout_seq_rows(
    const struct uli_layout *layout, int32_t part, int32_t rank);
/* The largest s_r that any table within the maxima can give. */
int64_t uli_layout_max_seq_rows(
    const struct uli_layout *layout, int32_t part, int32_t rank);
/* Spans in local order, non-empty and maximal; the array is the layout's. A
 * replicated part is one span. */
const struct uli_row_span *uli_layout_row_spans(const struct uli_layout *layout,
    int32_t part, int32_t rank, int64_t *count_p);

/* ---- the head side ------------------------------------------------------- */

/* PACKED: a segment of axis rows [row_begin, row_end) of one head and batch
 * item, at packed rows [offset, offset + row_end - row_begin). */
struct uli_run {
    int64_t head, batch, row_begin, row_end; /* axis rows */
    int64_t offset;                          /* packed row */
};

/* Is the head side of the plan PACKED (BALANCED, h mod P != 0)? */
bool uli_layout_packed(const struct uli_layout *layout);
/* HEADS: the range of heads that the rank holds. PACKED: from its lowest head
 * to its highest. */
void uli_layout_heads(const struct uli_layout *layout, int32_t tensor,
    int32_t rank, int64_t *first_p, int64_t *count_p);
/* PACKED only: n_r, its bound over all tables, and the segments in offset order
 * (head, batch, row ascending). */
int64_t uli_layout_packed_rows(
    const struct uli_layout *layout, int32_t tensor, int32_t rank);
int64_t uli_layout_max_packed_rows(
    const struct uli_layout *layout, int32_t tensor);
const struct uli_run *uli_layout_runs(const struct uli_layout *layout,
    int32_t tensor, int32_t rank, int64_t *count_p);
/* Attention cost of a rank's rows, by the measure of BALANCED; for describe. */
int64_t uli_layout_cost(const struct uli_layout *layout, int32_t rank);

/* ---- what a direction moves ---------------------------------------------- */

/* The direction's name for messages, "seq_to_head", ...; any number is
 * allowed. */
const char *uli_direction_name(ulyx_direction_t direction);

/* Does the direction exist for all tensors (sums need a float dtype)? If not:
 * ERR_UNSUPPORTED, naming the tensor. */
ulyx_status_t uli_layout_direction_check(
    const struct uli_layout *layout, ulyx_direction_t direction);
/* The same question for a valid direction; reports no error. */
bool uli_layout_direction_exists(
    const struct uli_layout *layout, ulyx_direction_t direction);

enum uli_move_kind {
    ULI_MOVE_COPY, /* bytes of one source, dtype unchanged */
    ULI_MOVE_SUM,  /* sum in rank order of nsources >= 1 partials, converted
                    * from the source's dtype to the destination's */
    ULI_MOVE_ZERO, /* no source: zeros */
};

/* Where a rectangle begins at one rank, in that rank's own indices. row: local
 * row of the part on the sequence side; on the head side axis row (HEADS) or
 * packed row (PACKED, with batch = head = 0). head: global on the sequence
 * side, counted from the rank's first head on the head side. */
struct uli_place {
    int32_t rank;
    int64_t batch, row, head;
};

/* A rectangle of batches x rows x heads x dim elements with one destination and
 * one list of sources, in rank order. PACKED: batches = heads = 1. */
struct uli_move {
    enum uli_move_kind kind;
    int32_t tensor;
    int64_t batches, rows, heads; /* all > 0 */
    struct uli_place dst;
    int32_t nsources;
    const struct uli_place *sources; /* valid during the visit only */
};

/* Called per move; returns false to end the enumeration early. */
typedef bool (*uli_move_fn)(void *context, const struct uli_move *move);

/* Visits the moves of one tensor to dst_rank. Together they cover each element
 * of the destination exactly once, in a fixed order that is equal on all ranks.
 * src_rank >= 0: only moves with src_rank as a source, at a cost that does not
 * grow with P where the shape allows it; -1: all. Allocates nothing; scratch
 * has room for uli_layout_scratch() places.
 *   SEQ_TO_HEAD          dst head side <- token owner (replicated: itself)
 *   HEAD_TO_SEQ          dst seq side <- lowest holder; no holder: ZERO
 *   SEQ_TO_HEAD_ADJOINT  dst seq side <- sum over holders (SUM when several
 *                        or when partial_dtype != dtype, else COPY); no
 *                        holder: ZERO; replicated: own share else ZERO, or
 *                        with FULL the sum on every rank
 *   HEAD_TO_SEQ_ADJOINT  dst head side: the lowest holder <- token owner,
 *                        other holders ZERO; replicated: SUM of all ranks'
 *                        copies, or with GRAD_EQUAL this rank's own copy
 * returns false when the visitor ended the enumeration. */
bool uli_layout_each_move(const struct uli_layout *layout,
    ulyx_direction_t direction, int32_t tensor, int32_t dst_rank,
    int32_t src_rank, struct uli_place *scratch, uli_move_fn visit,
    void *context);
int32_t uli_layout_scratch(const struct uli_layout *layout);

/* Upper bound of the number of moves that uli_layout_each_move visits, over all
 * tables within the maxima. */
int64_t uli_layout_max_moves(const struct uli_layout *layout,
    ulyx_direction_t direction, int32_t tensor, int32_t dst_rank,
    int32_t src_rank);

#endif
