/* SPDX-License-Identifier: Apache-2.0
 *
 * What each direction moves in a PACKED plan: one batch item and one head at a
 * time. Index map of a run {head, batch, rows [x0, x1), offset} of rank r and a
 * span of the sequence side in which axis row x lies at local row l:
 *     head[offset + x - x0]  <->  seq[batch][l][head]
 *
 * A row of keys may lie on several ranks. Where holders matter, rows are walked
 * in cells; within a cell the holders do not change or, where only the lowest
 * counts, the lowest holder does not.
 *
 * Order: towards the head side by source rank, run, span, cell; towards the
 * sequence side by head, batch item, span, cell.
 */
#include "collectives/layout/layout_moves.h"

/* Rows [begin, end) of the part. */
struct rows {
    int64_t begin, end;
};

static const struct uli_family *
family_of(const struct uli_visit *v)
{
    return &v->tables->family[v->layout->family_of[v->tensor]];
}

static const struct uli_run *
runs_of(const struct uli_visit *v, int32_t rank, int64_t *count_p)
{
    const struct uli_family *family = family_of(v);
    *count_p = family->start[rank + 1] - family->start[rank];
    return &family->run[family->start[rank]];
}

/* The rows of the part that a run has. */
static struct rows
rows_of_run(const struct uli_visit *v, const struct uli_run *run)
{
    struct rows rows;
    rows.begin = uli_max(0, run->row_begin - v->first_row);
    rows.end = uli_min(v->part->rows, run->row_end - v->first_row);
    return rows;
}

/* Index of the first span that ends after the row. */
static int64_t
span_at(const struct uli_row_span *span, int64_t count, int64_t row)
{
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (span[middle].row + span[middle].rows > row)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static struct rows
rows_in_span(struct rows rows, const struct uli_row_span *span)
{
    rows.begin = uli_max(rows.begin, span->row);
    rows.end = uli_min(rows.end, span->row + span->rows);
    return rows;
}

/* The place of a row of the part in a run; in a span. */
static struct uli_place
in_run(const struct uli_visit *v, int32_t rank, const struct uli_run *run,
    int64_t row)
{
    return uli_place_of(
        rank, 0, run->offset + v->first_row + row - run->row_begin, 0);
}

static struct uli_place
in_span(int32_t rank, const struct uli_row_span *span, int64_t row,
    int64_t head, int64_t batch)
{
    return uli_place_of(rank, batch, span->local + row - span->row, head);
}

static struct uli_extent
extent_of(struct rows rows)
{
    return uli_extent_of(1, rows.end - rows.begin, 1);
}

/* ---- holders ------------------------------------------------------------- */

/* The last rank whose rows begin at or before a position. */
static int32_t
rank_at(const struct uli_visit *v, int64_t position)
{
    int32_t low = 0, high = v->layout->shape.nranks;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (v->tables->cut[middle] <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* A line of rows: one head of one batch item, and the ranks lo .. hi that may
 * hold some of it because they have rows of its query heads. */
struct line {
    int64_t head, batch;
    int32_t lo, hi;
};

static struct line
line_of(const struct uli_visit *v, int64_t head, int64_t batch)
{
    const struct uli_layout *layout = v->layout;
    int64_t unit = layout->family[layout->family_of[v->tensor]].group *
                   layout->shape.batch * layout->axis_rows[0];
    struct line line;
    line.head = head;
    line.batch = batch;
    line.lo = rank_at(v, head * unit);
    line.hi = rank_at(v, (head + 1) * unit - 1);
    return line;
}

/* The run of a rank that contains the row, else NULL. *end_p is lowered to the
 * row at which the answer changes. */
static const struct uli_run *
visit_holding(const struct uli_visit *v, struct line line, int32_t rank,
    int64_t row, int64_t *end_p)
{
    int64_t low = 0, high, axis_row = v->first_row + row;
    const struct uli_run *run = runs_of(v, rank, &high);
    const struct uli_run *end = run + high;
    while (low < high) { /* the first run that ends after the row */
        const struct uli_run *m = run + low + (high - low) / 2;
        if (m->head > line.head ||
            (m->head == line.head &&
                (m->batch > line.batch ||
                    (m->batch == line.batch && m->row_end > axis_row))))
            high = m - run;
        else
            low = m - run + 1;
    }
    run += low;
    if (run == end || run->head != line.head || run->batch != line.batch)
        return NULL;
    bool holds = run->row_begin <= axis_row;
    *end_p =
        uli_min(*end_p, (holds ? run->row_end : run->row_begin) - v->first_row);
    return holds ? run : NULL;
}

/* The cell that begins at rows.begin. Writes the places of all holders to
 * scratch or, with lowest, of the lowest; their number to *count_p. Returns the
 * cell. */
static struct rows
cell_at(const struct uli_visit *v, struct line line, struct rows rows,
    bool lowest, int32_t *count_p)
{
    *count_p = 0;
    for (int32_t r = line.lo; r <= line.hi; r++) {
        const struct uli_run *run =
            visit_holding(v, line, r, rows.begin, &rows.end);
        if (!run)
            continue;
        v->scratch[(*count_p)++] = in_run(v, r, run, rows.begin);
        if (lowest)
            break;
    }
    return rows;
}

/* ---- towards the head side ----------------------------------------------- */

/* Rows of one run of dst <- a span of rank src; with lowest, only the rows of
 * which dst is the lowest holder. */
static bool
span_to_run(const struct uli_visit *v, const struct uli_run *run, int32_t src,
    const struct uli_row_span *span, struct rows rows, bool lowest)
{
    struct line line = line_of(v, run->head, run->batch);
    while (rows.begin < rows.end) {
        struct rows cell = rows;
        if (lowest) {
            int32_t count;
            cell = cell_at(v, line, rows, true, &count);
        }
        if ((!lowest || v->scratch[0].rank == v->dst) &&
            !uli_visit_copy(v, extent_of(cell),
                in_run(v, v->dst, run, cell.begin),
                in_span(src, span, cell.begin, run->head, run->batch)))
            return false;
        rows.begin = cell.end;
    }
    return true;
}

static bool
spans_to_runs(const struct uli_visit *v, int32_t src, bool lowest)
{
    int64_t nruns, nspans;
    const struct uli_run *run = runs_of(v, v->dst, &nruns);
    const struct uli_row_span *span = uli_visit_spans(v, src, &nspans);
    for (int64_t i = 0; i < nruns; i++) {
        struct rows all = rows_of_run(v, &run[i]);
        if (all.begin >= all.end)
            continue;
        for (int64_t k = span_at(span, nspans, all.begin);
             k < nspans && span[k].row < all.end; k++)
            if (!span_to_run(v, &run[i], src, &span[k],
                    rows_in_span(all, &span[k]), lowest))
                return false;
    }
    return true;
}

bool
uli_packed_seq_to_head(const struct uli_visit *v)
{
    if (!v->sharded)
        return !uli_visit_has(v, v->dst) || spans_to_runs(v, v->dst, false);
    for (int32_t r = uli_visit_first(v); r < uli_visit_end(v); r++)
        if (!spans_to_runs(v, r, false))
            return false;
    return true;
}

/* One cell of a run of dst, in a replicated part, <- all copies. */
static bool
copies_to_cell(
    const struct uli_visit *v, const struct uli_run *run, struct rows cell)
{
    const struct uli_row_span *whole = &v->layout->whole[v->part_index];
    int32_t nranks = v->layout->shape.nranks;
    for (int32_t r = 0; r < nranks; r++)
        v->scratch[r] = in_span(r, whole, cell.begin, run->head, run->batch);
    return uli_visit_sum(
        v, extent_of(cell), in_run(v, v->dst, run, cell.begin), nranks, false);
}

/* Visits the cells of the runs of dst: with zeros, the cells of which dst is
 * not the lowest holder, as zeros; else the others, as the sum of all
 * copies. */
static bool
cells_of_runs(const struct uli_visit *v, bool zeros)
{
    int64_t nruns;
    const struct uli_run *run = runs_of(v, v->dst, &nruns);
    for (int64_t i = 0; i < nruns; i++) {
        struct line line = line_of(v, run[i].head, run[i].batch);
        struct rows rows = rows_of_run(v, &run[i]);
        while (rows.begin < rows.end) {
            int32_t count;
            struct rows cell = cell_at(v, line, rows, true, &count);
            bool mine = v->scratch[0].rank == v->dst;
            bool more = true;
            if (!mine && zeros)
                more = uli_visit_zero(
                    v, extent_of(cell), in_run(v, v->dst, &run[i], cell.begin));
            else if (mine && !zeros)
                more = copies_to_cell(v, &run[i], cell);
            if (!more)
                return false;
            rows.begin = cell.end;
        }
    }
    return true;
}

bool
uli_packed_head_to_seq_adjoint(const struct uli_visit *v)
{
    if (v->sharded) {
        for (int32_t r = uli_visit_first(v); r < uli_visit_end(v); r++)
            if (!spans_to_runs(v, r, true))
                return false;
    } else if (v->grad_equal) {
        if (uli_visit_has(v, v->dst) && !spans_to_runs(v, v->dst, true))
            return false;
    } else if (!cells_of_runs(v, false)) {
        return false;
    }
    return v->src >= 0 || cells_of_runs(v, true);
}

/* ---- towards the sequence side ------------------------------------------- */

/* Rows of dst in one span and one line <- their holders, or the lowest one. */
static bool
line_to_span(const struct uli_visit *v, struct line line, struct rows rows,
    const struct uli_row_span *span, bool lowest)
{
    while (rows.begin < rows.end) {
        int32_t count;
        struct rows cell = cell_at(v, line, rows, lowest, &count);
        struct uli_place dst =
            in_span(v->dst, span, cell.begin, line.head, line.batch);
        bool needed = v->src < 0 || !lowest || v->scratch[0].rank == v->src;
        if (count == 0) {
            if (!uli_visit_zero(v, extent_of(cell), dst))
                return false;
        } else if (needed && !uli_visit_sum(v, extent_of(cell), dst, count,
                                 !lowest && v->converts)) {
            return false;
        }
        rows.begin = cell.end;
    }
    return true;
}

static bool
line_to_spans(
    const struct uli_visit *v, struct line line, struct rows all, bool lowest)
{
    int64_t count;
    const struct uli_row_span *span = uli_visit_spans(v, v->dst, &count);
    if (all.begin >= all.end)
        return true;
    for (int64_t k = span_at(span, count, all.begin);
         k < count && span[k].row < all.end; k++)
        if (!line_to_span(
                v, line, rows_in_span(all, &span[k]), &span[k], lowest))
            return false;
    return true;
}

/* Visits all lines or, with one source, only the lines and rows of its runs. */
static bool
lines_to_spans(const struct uli_visit *v, bool lowest)
{
    if (v->src >= 0) {
        int64_t nruns;
        const struct uli_run *run = runs_of(v, v->src, &nruns);
        for (int64_t i = 0; i < nruns; i++)
            if (!line_to_spans(v, line_of(v, run[i].head, run[i].batch),
                    rows_of_run(v, &run[i]), lowest))
                return false;
        return true;
    }
    struct rows all;
    all.begin = 0;
    all.end = v->part->rows;
    for (int64_t head = 0; head < v->heads; head++)
        for (int64_t batch = 0; batch < v->layout->shape.batch; batch++)
            if (!line_to_spans(v, line_of(v, head, batch), all, lowest))
                return false;
    return true;
}

bool
uli_packed_head_to_seq(const struct uli_visit *v)
{
    return lines_to_spans(v, true);
}

/* ---- the own share of a replicated part's gradient ----------------------- */

/* One line: the rank's own runs, and zeros between them. *at_p: the next
 * run. */
static bool
own_line(const struct uli_visit *v, int64_t head, int64_t batch, int64_t *at_p)
{
    int64_t nruns, done = 0;
    const struct uli_run *run = runs_of(v, v->dst, &nruns);
    const struct uli_row_span *whole = &v->layout->whole[v->part_index];
    for (;
         *at_p < nruns && run[*at_p].head == head && run[*at_p].batch == batch;
         ++*at_p) {
        struct rows own = rows_of_run(v, &run[*at_p]), gap;
        if (own.begin >= own.end)
            continue;
        gap.begin = done;
        gap.end = own.begin;
        done = own.end;
        if (v->src < 0 && !uli_visit_zero(v, extent_of(gap),
                              in_span(v->dst, whole, gap.begin, head, batch)))
            return false;
        v->scratch[0] = in_run(v, v->dst, &run[*at_p], own.begin);
        if (!uli_visit_sum(v, extent_of(own),
                in_span(v->dst, whole, own.begin, head, batch), 1, v->converts))
            return false;
    }
    return v->src >= 0 ||
           uli_visit_zero(v, uli_extent_of(1, v->part->rows - done, 1),
               in_span(v->dst, whole, done, head, batch));
}

/* Heads below and above the rank's own are all zeros. */
static bool
own_lines(const struct uli_visit *v)
{
    int64_t first, count, at = 0, batches = v->layout->shape.batch;
    uli_layout_heads(v->layout, v->tensor, v->dst, &first, &count);
    if (v->src < 0 &&
        !uli_visit_zero(v, uli_extent_of(batches, v->part->rows, first),
            uli_place_of(v->dst, 0, 0, 0)))
        return false;
    for (int64_t head = first; head < first + count; head++)
        for (int64_t batch = 0; batch < batches; batch++)
            if (!own_line(v, head, batch, &at))
                return false;
    return v->src >= 0 ||
           uli_visit_zero(v,
               uli_extent_of(batches, v->part->rows, v->heads - first - count),
               uli_place_of(v->dst, 0, 0, first + count));
}

bool
uli_packed_seq_to_head_adjoint(const struct uli_visit *v)
{
    if (v->sharded || v->full)
        return lines_to_spans(v, false);
    return !uli_visit_has(v, v->dst) || own_lines(v);
}
