/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost of a range of query rows and the key rows that it needs, from sums
 * per document: O(log documents) per query, nothing stored per row or head.
 * Query rows are flattened, u = batch * S_q + row; so are key rows.
 */
#ifndef ULI_COLLECTIVES_LAYOUT_LAYOUT_COST_H
#define ULI_COLLECTIVES_LAYOUT_LAYOUT_COST_H

#include "collectives/layout/layout_mask.h"

/* The key rows that some queries attend to: their number, the number of maximal
 * runs (a run does not cross a batch item), the first row and the end of the
 * last. */
struct uli_kv_use {
    int64_t rows, runs, begin, end;
};

ulyx_status_t uli_cost_prepare(struct uli_layout *layout);
/* Pairs the documents and fills the sums.
 * Returns ERR_INVALID_ARGUMENT when queries and keys have different numbers of
 * documents. */
ulyx_status_t uli_cost_update(
    const struct uli_layout *layout, struct uli_tables *tables);

int32_t uli_key_axis(const struct uli_layout *layout);
/* Query rows per head: batch * S_q. */
int64_t uli_rows_per_head(const struct uli_layout *layout);

/* Cost of all positions before `position` in (head, batch, row) order. */
uli_u128 uli_cost_before(const struct uli_layout *layout,
    const struct uli_tables *tables, int64_t position);

/* The last document that begins at or before u; -1: none. */
int64_t uli_docs_at(const struct uli_layout *layout,
    const struct uli_tables *tables, int64_t u);

/* Flattened key rows that query rows [begin, end) of document doc attend to. */
struct uli_keys uli_doc_seen(const struct uli_layout *layout,
    const struct uli_tables *tables, int64_t doc, int64_t begin, int64_t end);

/* The flattened query rows that positions [begin, end) of (head, batch, row)
 * order have for one KV head, over all query heads that read that head: at most
 * two ranges, in order; unused ones are empty. */
struct uli_row_ranges {
    int64_t begin[2], end[2];
};
struct uli_row_ranges uli_rows_of_kv_head(const struct uli_layout *layout,
    int64_t group, int64_t kv_head, int64_t begin, int64_t end);

/* The keys that positions [begin, end) need of all heads of a HEADS_KV
 * family. */
struct uli_kv_use uli_kv_use_of(const struct uli_layout *layout,
    const struct uli_tables *tables, int64_t group, int64_t begin, int64_t end);

#endif
