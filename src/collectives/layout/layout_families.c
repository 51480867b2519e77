/* SPDX-License-Identifier: Apache-2.0
 *
 * The head side of PACKED plans. Tensors with the same ownership and number of
 * heads are one family and share their runs; family 0 is HEADS_QUERY. Runs
 * follow from the cuts: a HEADS_QUERY family has the rows between two cuts. A
 * HEADS_KV family has the key rows that those rows attend to, found per KV head
 * in one walk over the documents.
 */
#include "collectives/layout/layout_balanced.h"

#include <assert.h>

/* Most units of `unit` positions that a run of n positions touches. */
static int64_t
units_touched(int64_t n, int64_t unit, int64_t units)
{
    if (n == 0 || unit == 0)
        return 0;
    int64_t whole = (n - 1) / unit, rest = (n - 1) % unit;
    return uli_min(units, whole + (rest > 0) + 1);
}

/* ---- bounds -------------------------------------------------------------- */

/* Sets the bounds that no run of max_rows query rows can exceed. */
static void
bound_family(struct uli_layout *layout, struct uli_family_info *family)
{
    const struct uli_shape *shape = &layout->shape;
    int64_t rows = layout->axis_rows[0], batch = shape->batch;
    if (!family->kv) {
        family->most_rows = shape->max_rows;
        family->most_segments =
            units_touched(shape->max_rows, rows, shape->heads * batch);
        family->most_lines = family->most_segments;
        return;
    }
    int64_t keys = layout->axis_rows[uli_key_axis(layout)];
    int64_t heads = units_touched(
        shape->max_rows, family->group * batch * rows, family->heads);
    family->most_heads = heads;
    family->most_lines = heads * batch;
    family->most_rows = heads * batch * keys;
    family->most_segments =
        uli_sat_mul(heads, uli_min(uli_sat_add(uli_docs_most(layout), 1),
                               batch * uli_div_up(keys, 2)));
}

static void
resolve_rows(struct uli_layout *layout)
{
    struct uli_shape *shape = &layout->shape;
    int64_t total = shape->heads * uli_rows_per_head(layout);
    if (shape->max_rows == 0) { /* twice the mean, in whole blocks */
        uli_u128 ranks = (uli_u128)shape->nranks;
        uli_u128 round = (uli_u128)shape->row_round;
        uli_u128 rows = (2 * (uli_u128)total + ranks - 1) / ranks;
        rows = (rows + round - 1) / round * round;
        shape->max_rows = rows < (uli_u128)total ? (int64_t)rows : total;
    }
    shape->max_rows = uli_min(shape->max_rows, total);
}

static void
resolve_bounds(struct uli_layout *layout)
{
    struct uli_shape *shape = &layout->shape;
    int64_t rows = 0, segments = 0;
    for (int32_t f = 0; f < layout->nfamilies; f++) {
        struct uli_family_info *family = &layout->family[f];
        bound_family(layout, family);
        segments = uli_max(segments, family->most_segments);
        if (family->kv)
            rows = uli_max(rows, family->most_rows);
    }
    if (shape->max_kv_rows == 0)
        shape->max_kv_rows = rows;
    if (shape->max_segments == 0)
        shape->max_segments = segments;
    for (int32_t f = 0; f < layout->nfamilies; f++) {
        struct uli_family_info *family = &layout->family[f];
        family->max_rows = family->most_rows;
        if (family->kv)
            family->max_rows = uli_min(shape->max_kv_rows, family->most_rows);
        family->max_segments =
            uli_min(shape->max_segments, family->most_segments);
    }
}

/* ---- preparation --------------------------------------------------------- */

/* The family of this kind and number of heads; adds one if there is none. */
static int32_t
family_like(struct uli_layout *layout, bool kv, int64_t heads)
{
    int32_t f = 0;
    while (f < layout->nfamilies &&
           (layout->family[f].kv != kv || layout->family[f].heads != heads))
        f++;
    if (f == layout->nfamilies) {
        layout->nfamilies++;
        layout->family[f].kv = kv;
        layout->family[f].heads = heads;
        layout->family[f].group = layout->shape.heads / heads;
    }
    return f;
}

static void
find_families(struct uli_layout *layout)
{
    const struct uli_shape *shape = &layout->shape;
    layout->nfamilies = 1;
    layout->family[0].heads = shape->heads;
    layout->family[0].group = 1;
    for (int32_t i = 0; i < shape->ntensors; i++) {
        const struct uli_shape_tensor *t = &shape->tensors[i];
        layout->family_of[i] =
            family_like(layout, t->ownership == ULYX_HEADS_KV, t->heads);
    }
    if (shape->key_heads)
        family_like(layout, true, shape->key_heads);
}

/* Most runs of all ranks together, as the least of three bounds. Cuts divide
 * the rows into intervals, and each cut adds one to the intervals that there
 * are without cuts. An interval of one query head and document has at most one
 * run of keys. An interval of one head of the family has at most one run per
 * document, and one more if both its ends lie in one document. max_segments
 * bounds the runs of each rank. */
static int64_t
runs_most(const struct uli_layout *layout, const struct uli_family_info *family)
{
    const struct uli_shape *shape = &layout->shape;
    int64_t units = family->kv ? uli_docs_most(layout) : shape->batch;
    int64_t by_query =
        uli_sat_add(uli_sat_mul(shape->heads, units), shape->nranks);
    int64_t by_head =
        uli_sat_mul(family->heads + shape->nranks, uli_sat_add(units, 1));
    return uli_min(uli_min(by_query, by_head),
        uli_sat_mul(family->max_segments, shape->nranks));
}

ulyx_status_t
uli_families_prepare(struct uli_layout *layout)
{
    int64_t ranks = layout->shape.nranks;
    find_families(layout);
    resolve_rows(layout);
    resolve_bounds(layout);
    for (int b = 0; b < 2; b++) {
        struct uli_tables *tables = &layout->bank[b];
        ULI_TRY_RESERVE(layout, tables->cut, ranks + 1);
        for (int32_t f = 0; f < layout->nfamilies; f++) {
            struct uli_family *family = &tables->family[f];
            family->capacity = runs_most(layout, &layout->family[f]);
            ULI_TRY_RESERVE(layout, family->start, ranks + 1);
            ULI_TRY_RESERVE(layout, family->rows, ranks);
            ULI_TRY_RESERVE(layout, family->run, family->capacity);
        }
    }
    return ULYX_SUCCESS;
}

/* ---- runs ---------------------------------------------------------------- */

/* Appends to the runs of `rank`, which end at *end_p. Calls give rows whose
 * beginnings and ends never decrease within a head and batch item. */
static void
family_append(struct uli_family *family, int32_t rank, int64_t *end_p,
    int64_t head, int64_t batch, struct uli_keys rows)
{
    struct uli_run *run = &family->run[*end_p];
    if (*end_p > family->start[rank] && run[-1].head == head &&
        run[-1].batch == batch && run[-1].row_end >= rows.first) {
        family->rows[rank] += rows.end - run[-1].row_end;
        run[-1].row_end = rows.end;
        return;
    }
    assert(*end_p < family->capacity);
    run->head = head;
    run->batch = batch;
    run->row_begin = rows.first;
    run->row_end = rows.end;
    run->offset = family->rows[rank];
    family->rows[rank] += rows.end - rows.first;
    ++*end_p;
}

static void
fill_split(const struct uli_layout *layout, struct uli_tables *tables,
    struct uli_family *family, int32_t rank, int64_t *end_p)
{
    int64_t rows = layout->axis_rows[0], batch = layout->shape.batch;
    int64_t at = tables->cut[rank], end = tables->cut[rank + 1];
    while (at < end) {
        int64_t item = at / rows;
        int64_t last = uli_min(end, (item + 1) * rows);
        struct uli_keys range = {at % rows, last - item * rows};
        family_append(family, rank, end_p, item / batch, item % batch, range);
        at = last;
    }
}

/* Appends the keys of flattened query rows [begin, end), document by
 * document. */
static void
fill_range(const struct uli_layout *layout, struct uli_tables *tables,
    struct uli_family *family, int32_t rank, int64_t *end_p, int64_t head,
    int64_t begin, int64_t end)
{
    int64_t keys = layout->axis_rows[uli_key_axis(layout)];
    if (begin >= end)
        return;
    int64_t first = uli_max(0, uli_docs_at(layout, tables, begin));
    int64_t last = uli_docs_at(layout, tables, end - 1);
    for (int64_t doc = first; doc <= last; doc++) {
        int64_t base = uli_docs_begin(layout, tables, 0, doc);
        struct uli_keys seen = uli_doc_seen(
            layout, tables, doc, uli_max(0, begin - base), end - base);
        if (seen.first >= seen.end)
            continue;
        int64_t batch = seen.first / keys;
        seen.first -= batch * keys;
        seen.end -= batch * keys;
        family_append(family, rank, end_p, head, batch, seen);
    }
}

static void
fill_kv(const struct uli_layout *layout, struct uli_tables *tables, int32_t f,
    int32_t rank, int64_t *end_p)
{
    struct uli_family *family = &tables->family[f];
    int64_t group = layout->family[f].group;
    int64_t begin = tables->cut[rank], end = tables->cut[rank + 1];
    int64_t unit = group * uli_rows_per_head(layout);
    for (int64_t head = unit ? begin / unit : 0; head * unit < end; head++) {
        struct uli_row_ranges r =
            uli_rows_of_kv_head(layout, group, head, begin, end);
        for (int i = 0; i < 2; i++)
            fill_range(layout, tables, family, rank, end_p, head, r.begin[i],
                r.end[i]);
    }
}

void
uli_families_update(const struct uli_layout *layout, struct uli_tables *tables)
{
    int32_t ranks = layout->shape.nranks;
    for (int32_t f = 0; f < layout->nfamilies; f++) {
        struct uli_family *family = &tables->family[f];
        int64_t end = 0;
        for (int32_t r = 0; r < ranks; r++) {
            family->start[r] = end;
            family->rows[r] = 0;
            if (layout->family[f].kv)
                fill_kv(layout, tables, f, r, &end);
            else
                fill_split(layout, tables, family, r, &end);
        }
        family->start[ranks] = end;
    }
}

/* ---- queries ------------------------------------------------------------- */

static const struct uli_family *
family_of(const struct uli_layout *layout, int32_t tensor)
{
    return &uli_layout_tables(layout)->family[layout->family_of[tensor]];
}

int64_t
uli_layout_packed_rows(
    const struct uli_layout *layout, int32_t tensor, int32_t rank)
{
    return family_of(layout, tensor)->rows[rank];
}

int64_t
uli_layout_max_packed_rows(const struct uli_layout *layout, int32_t tensor)
{
    return layout->family[layout->family_of[tensor]].max_rows;
}

const struct uli_run *
uli_layout_runs(const struct uli_layout *layout, int32_t tensor, int32_t rank,
    int64_t *count_p)
{
    const struct uli_family *family = family_of(layout, tensor);
    *count_p = family->start[rank + 1] - family->start[rank];
    return &family->run[family->start[rank]];
}
