/* SPDX-License-Identifier: Apache-2.0
 *
 * How the rows of a sharded part lie over the ranks. Every order is a list of
 * chunks in global order, each with an owner. A rank's local rows are its
 * chunks in global order, so local order is global order within a rank, and
 * chunks that touch are one span.
 *     contiguous   P chunks, chunk c to rank c
 *     zigzag       2P chunks, chunk c to rank c, or 2P-1-c from c = P on
 *     zigzag docs  2P chunks of each document and each gap between documents
 * n rows in m chunks: the first n mod m chunks have one row more.
 */
#include <assert.h>
#include <inttypes.h>
#include "collectives/layout/layout_private.h"

/* First row of chunk c of n rows in m chunks; c = m gives n. */
static int64_t
chunk_begin(int64_t rows, int64_t chunks, int64_t chunk)
{
    int64_t longer = rows % chunks;
    return chunk * (rows / chunks) + uli_min(chunk, longer);
}

/* Appends rows [row, row + rows) to the rank's spans, which end at *end_p. */
static void
spans_append(struct uli_row_spans *spans, int32_t rank, int64_t *end_p,
    int64_t row, int64_t rows)
{
    if (rows == 0)
        return;
    struct uli_row_span *span = &spans->span[*end_p];
    if (*end_p > spans->start[rank] && span[-1].row + span[-1].rows == row) {
        span[-1].rows += rows;
    } else {
        assert(*end_p < spans->capacity);
        span->row = row;
        span->rows = rows;
        span->local = spans->rows[rank];
        ++*end_p;
    }
    spans->rows[rank] += rows;
}

/* ---- fixed orders -------------------------------------------------------- */

static void
fill_contiguous(
    struct uli_row_spans *spans, int32_t nranks, const int64_t *splits)
{
    int64_t row = 0, end = 0;
    for (int32_t r = 0; r < nranks; r++) {
        spans->start[r] = end;
        spans_append(spans, r, &end, row, splits[r]);
        row += splits[r];
    }
    spans->start[nranks] = end;
}

/* The front halves lie in rank order, then the back halves in reverse order. */
static void
fill_zigzag(struct uli_row_spans *spans, int32_t nranks, int64_t rows,
    const int64_t *splits, const int64_t *fronts)
{
    int64_t front_row = 0, back_row = rows, end = 0;
    for (int32_t r = 0; r < nranks; r++) {
        int64_t back = splits[r] - fronts[r];
        spans->start[r] = end;
        spans_append(spans, r, &end, front_row, fronts[r]);
        front_row += fronts[r];
        back_row -= back;
        spans_append(spans, r, &end, back_row, back);
    }
    spans->start[nranks] = end;
}

/* Sets s_r of each rank and, for zigzag, the rows of its front chunk. */
static void
resolve_splits(const struct uli_shape *shape, const struct uli_shape_part *part,
    const int64_t *given, int64_t *splits, int64_t *fronts)
{
    int64_t ranks = shape->nranks;
    bool zigzag = part->order == ULYX_TOKENS_ZIGZAG;
    int64_t chunks = zigzag ? 2 * ranks : ranks;
    for (int64_t r = 0; r < ranks; r++) {
        if (given) {
            splits[r] = given[r];
            fronts[r] = splits[r] - splits[r] / 2;
            continue;
        }
        fronts[r] = splits[r] = chunk_begin(part->rows, chunks, r + 1) -
                                chunk_begin(part->rows, chunks, r);
        if (zigzag)
            splits[r] += chunk_begin(part->rows, chunks, chunks - r) -
                         chunk_begin(part->rows, chunks, chunks - 1 - r);
    }
}

static void
fill_fixed(const struct uli_layout *layout, struct uli_tables *tables,
    int32_t index, const int64_t *splits, const int64_t *fronts)
{
    const struct uli_shape_part *part = &layout->shape.parts[index];
    struct uli_row_spans *spans = &tables->spans[index];
    int32_t nranks = layout->shape.nranks;
    for (int32_t r = 0; r < nranks; r++)
        spans->rows[r] = 0;
    if (part->order == ULYX_TOKENS_ZIGZAG)
        fill_zigzag(spans, nranks, part->rows, splits, fronts);
    else
        fill_contiguous(spans, nranks, splits);
}

static ulyx_status_t
reserve_spans(
    struct uli_layout *layout, struct uli_row_spans *spans, int64_t capacity)
{
    spans->capacity = capacity;
    ULI_TRY_RESERVE(layout, spans->start, layout->shape.nranks + 1);
    ULI_TRY_RESERVE(layout, spans->rows, layout->shape.nranks);
    ULI_TRY_RESERVE(layout, spans->span, capacity);
    return ULYX_SUCCESS;
}

/* Prepares rows that change. Each bank has its own; the most rows are the
 * capacity split evenly, or any number where the caller gives splits. */
static ulyx_status_t
prepare_changing(struct uli_layout *layout, int32_t index, int64_t capacity)
{
    struct uli_row_limits *limits = &layout->limits;
    const struct uli_shape_part *part = &layout->shape.parts[index];
    int64_t ranks = layout->shape.nranks;
    for (int b = 0; b < 2; b++) {
        ULI_TRY(reserve_spans(layout, &layout->bank[b].spans[index], capacity));
        ULI_TRY_RESERVE(layout, limits->splits[b][index], ranks);
    }
    ULI_TRY_RESERVE(layout, limits->fronts[index], ranks);
    ULI_TRY_RESERVE(layout, limits->seq_rows[index], ranks);
    resolve_splits(&layout->shape, part, NULL, limits->seq_rows[index],
        limits->fronts[index]);
    for (int64_t r = 0; r < ranks && limits->has_splits[index]; r++)
        limits->seq_rows[index][r] = part->row_capacity;
    return ULYX_SUCCESS;
}

static void
refill_changing(
    struct uli_layout *layout, struct uli_tables *tables, int32_t index)
{
    struct uli_row_limits *limits = &layout->limits;
    struct uli_shape_part *part = &layout->shape.parts[index];
    int64_t *splits = limits->splits[tables == &layout->bank[1]][index];
    bool given = limits->has_splits[index] && !limits->stretched;
    resolve_splits(&layout->shape, part, given ? part->splits : NULL, splits,
        limits->fronts[index]);
    fill_fixed(layout, tables, index, splits, limits->fronts[index]);
    part->splits = splits;
}

static ulyx_status_t
prepare_fixed(struct uli_layout *layout, int32_t index)
{
    struct uli_shape *shape = &layout->shape;
    struct uli_shape_part *part = &shape->parts[index];
    struct uli_row_spans *spans = &layout->bank[0].spans[index];
    int64_t ranks = shape->nranks;
    int64_t capacity = part->order == ULYX_TOKENS_ZIGZAG ? 2 * ranks : ranks;
    int64_t *splits, *fronts;
    if (part->row_capacity)
        return prepare_changing(layout, index, capacity);
    ULI_TRY(reserve_spans(layout, spans, capacity));
    ULI_TRY_RESERVE(layout, splits, ranks);
    ULI_TRY_RESERVE(layout, fronts, ranks);
    resolve_splits(shape, part, part->splits, splits, fronts);
    fill_fixed(layout, &layout->bank[0], index, splits, fronts);
    part->splits = splits;
    layout->bank[1].spans[index] = *spans;
    return ULYX_SUCCESS;
}

/* ---- zigzag per document ------------------------------------------------- */

/* Most documents and gaps that one table can make of a part. */
static int64_t
max_spans(const struct uli_shape *shape, int64_t rows)
{
    int64_t spans;
    if (!uli_size_mul_add(shape->max_docs, 2, 1, &spans))
        return rows;
    return uli_min(spans, rows);
}

static ulyx_status_t
prepare_docs(struct uli_layout *layout, int32_t index)
{
    struct uli_shape *shape = &layout->shape;
    int64_t rows = shape->parts[index].rows, ranks = shape->nranks;
    int64_t spans_most;
    if (!uli_size_mul(2 * ranks, max_spans(shape, rows), &spans_most))
        spans_most = rows;
    for (int b = 0; b < 2; b++) {
        struct uli_row_spans *spans = &layout->bank[b].spans[index];
        ULI_TRY(reserve_spans(layout, spans, uli_min(spans_most, rows)));
    }
    return ULYX_SUCCESS;
}

/* Appends the two chunks of one document that the rank has; rows are relative
 * to the part. */
static void
append_span(struct uli_row_spans *spans, int32_t nranks, int32_t rank,
    int64_t *end_p, int64_t begin, int64_t end)
{
    int64_t chunks = 2 * (int64_t)nranks, rows = end - begin;
    int64_t pair[2] = {rank, chunks - 1 - rank};
    for (int i = 0; i < 2; i++) {
        int64_t first = chunk_begin(rows, chunks, pair[i]);
        int64_t last = chunk_begin(rows, chunks, pair[i] + 1);
        spans_append(spans, rank, end_p, begin + first, last - first);
    }
}

/* Walks documents and gaps, cut to the part's rows. */
static void
fill_docs(const struct uli_layout *layout, struct uli_tables *tables,
    int32_t index, int32_t rank, int64_t *end_p)
{
    const struct uli_shape_part *part = &layout->shape.parts[index];
    struct uli_row_spans *spans = &tables->spans[index];
    int64_t first = layout->first_row[index], done = 0;
    int64_t count = uli_docs_count(layout, tables, part->axis);
    for (int64_t n = 0; n < count && done < part->rows; n++) {
        int64_t begin = uli_docs_begin(layout, tables, part->axis, n) - first;
        int64_t end = begin + uli_docs_length(layout, tables, part->axis, n);
        begin = uli_max(begin, done);
        end = uli_min(end, part->rows);
        if (end <= begin)
            continue;
        append_span(spans, layout->shape.nranks, rank, end_p, done, begin);
        append_span(spans, layout->shape.nranks, rank, end_p, begin, end);
        done = end;
    }
    append_span(spans, layout->shape.nranks, rank, end_p, done, part->rows);
}

static ulyx_status_t
update_part(
    const struct uli_layout *layout, struct uli_tables *tables, int32_t index)
{
    struct uli_row_spans *spans = &tables->spans[index];
    int64_t end = 0, most = 0;
    for (int32_t r = 0; r < layout->shape.nranks; r++) {
        spans->start[r] = end;
        spans->rows[r] = 0;
        fill_docs(layout, tables, index, r, &end);
        most = uli_max(most, spans->rows[r]);
    }
    spans->start[layout->shape.nranks] = end;
    if (most > layout->shape.max_local_rows)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "max_local_rows is %" PRId64 ", these documents need %" PRId64
            " in part %d",
            layout->shape.max_local_rows, most, index);
    return ULYX_SUCCESS;
}

/* ---- called from layout.c ------------------------------------------------ */

/* A rank gets less than one row above the mean from each document. */
static void
default_max_local(struct uli_layout *layout, int64_t rows)
{
    struct uli_shape *shape = &layout->shape;
    int64_t bound = uli_min(rows,
        uli_sat_add(uli_div_up(rows, shape->nranks), max_spans(shape, rows)));
    shape->max_local_rows = uli_max(shape->max_local_rows, bound);
}

ulyx_status_t
uli_orders_prepare(struct uli_layout *layout, int32_t part)
{
    const struct uli_shape_part *p = &layout->shape.parts[part];
    layout->whole[part].rows = p->rows;
    if (p->kind == ULYX_PART_REPLICATED)
        return ULYX_SUCCESS;
    if (p->order != ULYX_TOKENS_ZIGZAG_DOCS)
        return prepare_fixed(layout, part);
    layout->has_docs_order = true;
    if (!layout->max_local_given)
        default_max_local(layout, p->rows);
    return prepare_docs(layout, part);
}

ulyx_status_t
uli_orders_update(struct uli_layout *layout, struct uli_tables *tables)
{
    for (int32_t i = 0; i < layout->shape.nparts; i++) {
        const struct uli_shape_part *part = &layout->shape.parts[i];
        if (uli_rows_refill(layout, i))
            refill_changing(layout, tables, i);
        else if (part->kind == ULYX_PART_SHARDED &&
                 part->order == ULYX_TOKENS_ZIGZAG_DOCS)
            ULI_TRY(update_part(layout, tables, i));
    }
    return ULYX_SUCCESS;
}
