/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs and key rows from sums per document; see layout_cost.h. Without a
 * document table the documents are the batch items, all alike: then only the
 * sums of one document are kept, at index 1.
 */
#include "collectives/layout/layout_cost.h"
#include "base/text.h"

#include <inttypes.h>

int32_t
uli_key_axis(const struct uli_layout *layout)
{
    return layout->naxes == 2;
}

int64_t
uli_rows_per_head(const struct uli_layout *layout)
{
    return layout->shape.batch * layout->axis_rows[0];
}

static int64_t
key_rows(const struct uli_layout *layout)
{
    return layout->axis_rows[uli_key_axis(layout)];
}

static bool
tables_alike(const struct uli_tables *tables)
{
    return tables->docs[0].none && tables->docs[1].none;
}

static struct uli_mask
mask_of_doc(const struct uli_layout *layout, const struct uli_tables *tables,
    int64_t doc)
{
    return uli_mask_of(&layout->shape, uli_docs_length(layout, tables, 0, doc),
        uli_docs_length(layout, tables, 1, doc));
}

struct uli_keys
uli_doc_seen(const struct uli_layout *layout, const struct uli_tables *tables,
    int64_t doc, int64_t begin, int64_t end)
{
    struct uli_mask mask = mask_of_doc(layout, tables, doc);
    struct uli_keys keys =
        uli_mask_seen(&mask, begin, uli_min(end, mask.q_rows));
    if (keys.first < keys.end) {
        int64_t first = uli_docs_begin(layout, tables, 1, doc);
        keys.first += first;
        keys.end += first;
    }
    return keys;
}

/* ---- sums ---------------------------------------------------------------- */

ulyx_status_t
uli_cost_prepare(struct uli_layout *layout)
{
    int64_t count = uli_sat_add(layout->shape.max_docs, 2);
    for (int b = 0; b < 2; b++) {
        struct uli_doc_sums *sums = &layout->bank[b].sums;
        ULI_TRY_RESERVE(layout, sums->cost, count);
        ULI_TRY_RESERVE(layout, sums->kv_rows, count);
        ULI_TRY_RESERVE(layout, sums->kv_runs, count);
        ULI_TRY_RESERVE(layout, sums->seen, count);
        ULI_TRY_RESERVE(layout, sums->seen_end, count);
    }
    return ULYX_SUCCESS;
}

/* Do keys that begin at `begin` continue a run that ends at `end`? */
static bool
rows_continue(const struct uli_layout *layout, int64_t end, int64_t begin)
{
    return end == begin && begin % key_rows(layout) != 0;
}

static void
sum_doc(const struct uli_layout *layout, struct uli_tables *tables, int64_t n)
{
    struct uli_doc_sums *sums = &tables->sums;
    struct uli_mask mask = mask_of_doc(layout, tables, n);
    struct uli_keys keys = uli_doc_seen(layout, tables, n, 0, mask.q_rows);
    bool any = keys.first < keys.end;
    sums->cost[n + 1] = sums->cost[n] + uli_mask_cost(&mask, mask.q_rows);
    sums->kv_rows[n + 1] = sums->kv_rows[n] + keys.end - keys.first;
    sums->kv_runs[n + 1] =
        sums->kv_runs[n] +
        (any && !rows_continue(layout, sums->seen_end[n], keys.first));
    sums->seen_end[n + 1] = any ? keys.end : sums->seen_end[n];
}

ulyx_status_t
uli_cost_update(const struct uli_layout *layout, struct uli_tables *tables)
{
    struct uli_doc_sums *sums = &tables->sums;
    int64_t count = uli_docs_count(layout, tables, 0);
    if (count != uli_docs_count(layout, tables, 1))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "docs_q has %" PRId64 " document%s, docs_k %" PRId64, count,
            uli_plural(count), uli_docs_count(layout, tables, 1));
    if (tables_alike(tables))
        count = uli_min(count, 1);
    sums->cost[0] = 0;
    sums->kv_rows[0] = sums->kv_runs[0] = 0;
    sums->seen_end[0] = -1;
    for (int64_t n = 0; n < count; n++)
        sum_doc(layout, tables, n);
    sums->seen[count] = count;
    for (int64_t n = count; n-- > 0;)
        sums->seen[n] =
            sums->kv_rows[n + 1] > sums->kv_rows[n] ? n : sums->seen[n + 1];
    return ULYX_SUCCESS;
}

/* ---- cost ---------------------------------------------------------------- */

int64_t
uli_docs_at(
    const struct uli_layout *layout, const struct uli_tables *tables, int64_t u)
{
    const struct uli_docs *docs = &tables->docs[0];
    int64_t low = -1, high = docs->count;
    if (docs->none)
        return u / layout->axis_rows[0];
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (docs->begin[middle] <= u)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The number of keys that rows [0, u) of one head see, summed over the rows. */
static uli_u128
keys_before(
    const struct uli_layout *layout, const struct uli_tables *tables, int64_t u)
{
    const uli_u128 *cost = tables->sums.cost;
    if (u == 0)
        return 0;
    int64_t doc = uli_docs_at(layout, tables, u - 1);
    if (doc < 0)
        return 0;
    struct uli_mask mask = mask_of_doc(layout, tables, doc);
    int64_t rows =
        uli_min(mask.q_rows, u - uli_docs_begin(layout, tables, 0, doc));
    uli_u128 before =
        tables_alike(tables) ? (uli_u128)doc * cost[1] : cost[doc];
    return before + uli_mask_cost(&mask, rows);
}

uli_u128
uli_cost_before(const struct uli_layout *layout,
    const struct uli_tables *tables, int64_t position)
{
    int64_t per_head = uli_rows_per_head(layout);
    if (per_head == 0)
        return 0;
    uli_u128 head = (uli_u128)(position / per_head);
    int64_t u = position % per_head;
    uli_u128 cost = keys_before(layout, tables, u) +
                    (uli_u128)position * (uli_u128)layout->shape.row_cost;
    if (head > 0)
        cost += head * keys_before(layout, tables, per_head);
    return cost;
}

/* A layout that is not packed has no sums per document: its cost counts each
 * batch item as one document. */
int64_t
uli_layout_cost(const struct uli_layout *layout, int32_t rank)
{
    const struct uli_tables *tables = uli_layout_tables(layout);
    uli_u128 cost;
    if (layout->packed) {
        cost = uli_cost_before(layout, tables, tables->cut[rank + 1]) -
               uli_cost_before(layout, tables, tables->cut[rank]);
    } else {
        int64_t rows = layout->axis_rows[0];
        struct uli_mask mask =
            uli_mask_of(&layout->shape, rows, key_rows(layout));
        uli_u128 heads =
            (uli_u128)(layout->head_begin[rank + 1] - layout->head_begin[rank]);
        cost = uli_mask_cost(&mask, rows) +
               (uli_u128)rows * (uli_u128)layout->shape.row_cost;
        cost *= heads * (uli_u128)layout->shape.batch;
    }
    return cost < INT64_MAX ? (int64_t)cost : INT64_MAX;
}

/* ---- keys ---------------------------------------------------------------- */

/* The union of the keys of a and b, where the query rows of b come after those
 * of a. Both ends of the keys of a row never fall from one row to the next, and
 * the keys of different documents are apart. So of the runs, only the last run
 * of a and the first run of b can overlap or be adjacent. */
static struct uli_kv_use
uses_join(
    const struct uli_layout *layout, struct uli_kv_use a, struct uli_kv_use b)
{
    if (a.runs == 0)
        return b;
    if (b.runs == 0)
        return a;
    bool one = a.end > b.begin || rows_continue(layout, a.end, b.begin);
    struct uli_kv_use both = {
        a.rows + b.rows, a.runs + b.runs - one, a.begin, uli_max(a.end, b.end)};
    if (a.end > b.begin)
        both.rows -= a.end - b.begin;
    return both;
}

static struct uli_kv_use
use_of_keys(struct uli_keys keys)
{
    struct uli_kv_use use = {
        keys.end - keys.first, keys.first < keys.end, keys.first, keys.end};
    return use;
}

/* The keys of all rows of documents [first, end). */
static struct uli_kv_use
use_of_docs(const struct uli_layout *layout, const struct uli_tables *tables,
    int64_t first, int64_t end)
{
    const struct uli_doc_sums *sums = &tables->sums;
    struct uli_kv_use use = {0, 0, 0, 0};
    bool same = tables_alike(tables);
    int64_t seen = same ? first : sums->seen[first];
    if (seen >= end || (same && sums->kv_runs[1] == 0))
        return use;
    use.begin = uli_doc_seen(layout, tables, seen, 0, INT64_MAX).first;
    if (same) {
        use.rows = (end - first) * sums->kv_rows[1];
        use.runs = end - first;
        use.end = (end - 1) * key_rows(layout) + sums->seen_end[1];
    } else {
        use.rows = sums->kv_rows[end] - sums->kv_rows[seen];
        use.runs = 1 + sums->kv_runs[end] - sums->kv_runs[seen + 1];
        use.end = sums->seen_end[end];
    }
    return use;
}

static struct uli_kv_use
use_of_range(const struct uli_layout *layout, const struct uli_tables *tables,
    int64_t begin, int64_t end)
{
    struct uli_kv_use use = {0, 0, 0, 0};
    if (begin >= end)
        return use;
    int64_t first = uli_docs_at(layout, tables, begin);
    int64_t last = uli_docs_at(layout, tables, end - 1);
    if (last < 0)
        return use;
    int64_t last_begin = uli_docs_begin(layout, tables, 0, last);
    int64_t from = 0;
    if (first == last)
        from = begin - last_begin;
    else if (first >= 0)
        use = use_of_keys(uli_doc_seen(layout, tables, first,
            begin - uli_docs_begin(layout, tables, 0, first), INT64_MAX));
    if (first < last)
        use = uses_join(
            layout, use, use_of_docs(layout, tables, first + 1, last));
    return uses_join(layout, use,
        use_of_keys(
            uli_doc_seen(layout, tables, last, from, end - last_begin)));
}

struct uli_row_ranges
uli_rows_of_kv_head(const struct uli_layout *layout, int64_t group,
    int64_t kv_head, int64_t begin, int64_t end)
{
    int64_t per_head = uli_rows_per_head(layout);
    int64_t base = kv_head * group * per_head;
    struct uli_row_ranges ranges = {{0, 0}, {0, 0}};
    begin = uli_max(begin - base, 0);
    end = uli_min(end - base, group * per_head);
    if (begin >= end)
        return ranges;
    int64_t heads = (end - 1) / per_head - begin / per_head;
    int64_t from = begin % per_head, to = (end - 1) % per_head + 1;
    if (heads == 0) { /* [from, to) of one head */
        ranges.begin[0] = from;
        ranges.end[0] = to;
    } else if (heads > 1 || to >= from) { /* every row of some head */
        ranges.end[0] = per_head;
    } else { /* the end of one head and the beginning of the next */
        ranges.end[0] = to;
        ranges.begin[1] = from;
        ranges.end[1] = per_head;
    }
    return ranges;
}

/* Heads between the first and the last are whole. */
struct uli_kv_use
uli_kv_use_of(const struct uli_layout *layout, const struct uli_tables *tables,
    int64_t group, int64_t begin, int64_t end)
{
    struct uli_kv_use total = {0, 0, 0, 0};
    int64_t per_head = uli_rows_per_head(layout), unit = group * per_head;
    if (begin >= end)
        return total;
    int64_t first = begin / unit, last = (end - 1) / unit;
    for (int64_t head = first; head <= last;
         head = head < last ? last : last + 1) {
        struct uli_row_ranges r =
            uli_rows_of_kv_head(layout, group, head, begin, end);
        struct uli_kv_use use = uses_join(layout,
            use_of_range(layout, tables, r.begin[0], r.end[0]),
            use_of_range(layout, tables, r.begin[1], r.end[1]));
        total.rows += use.rows;
        total.runs += use.runs;
    }
    if (last - first > 1) {
        struct uli_kv_use whole = use_of_range(layout, tables, 0, per_head);
        total.rows += (last - first - 1) * whole.rows;
        total.runs += (last - first - 1) * whole.runs;
    }
    return total;
}
