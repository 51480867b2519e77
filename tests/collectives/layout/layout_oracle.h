/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout computed slowly: tables with one entry per element, filled by a
 * walk over chunks, query heads and visible keys one by one. Shares no code
 * with the library; for BALANCED it takes the published cuts as given and
 * derives the rest from them.
 */
#ifndef TESTS_COLLECTIVES_LAYOUT_LAYOUT_ORACLE_H
#define TESTS_COLLECTIVES_LAYOUT_LAYOUT_ORACLE_H

#include <stdbool.h>
#include <stdint.h>
#include "collectives/layout/layout.h"

enum { ORACLE_MAX_DOCS = 32, ORACLE_MAX_RANKS = 16 };

/* A document table in the simplest form. */
struct oracle_docs {
    bool none;
    int64_t count;
    int64_t begin[ORACLE_MAX_DOCS], length[ORACLE_MAX_DOCS];
};

/* A shape and its tables, with their storage. */
struct oracle_case {
    struct uli_shape shape;
    int64_t splits[ULI_MAX_PARTS][ORACLE_MAX_RANKS];
    int64_t head_splits[ORACLE_MAX_RANKS];
    struct oracle_docs docs[2];
};

struct oracle {
    const struct oracle_case *c;
    int32_t nranks, naxes;
    int64_t batch, heads, rows[2], first_row[ULI_MAX_PARTS];
    /* [part] -> [rank * rows + row]: local row, or -1 */
    int64_t *local[ULI_MAX_PARTS];
    int64_t seq_rows[ULI_MAX_PARTS][ORACLE_MAX_RANKS];
    /* [tensor] -> [((rank * heads + head) * batch + b) * axis rows + row]: the
     * head's local number (HEADS) or the packed row (PACKED); -1 = the rank
     * does not have the row */
    int64_t *place[ULI_TENSORS];
    int64_t packed_rows[ULI_TENSORS][ORACLE_MAX_RANKS];
};

/* Returns the axis of keys. */
static inline int
oracle_key_axis(const struct oracle *o)
{
    return o->naxes == 2;
}

/* Stores the keys [first, end) that are visible to row i of a document of q_len
 * queries and k_len keys. */
void oracle_visible(const struct uli_shape *shape, int64_t i, int64_t q_len,
    int64_t k_len, int64_t *first_p, int64_t *end_p);

/* Returns the cost of a (batch, row) of queries, as BALANCED measures it. */
int64_t oracle_row_cost(
    const struct oracle *o, int64_t row_cost, int64_t batch, int64_t row);

/* cuts: for a PACKED layout, [nranks + 1] positions in (head, batch, row)
 * order; NULL for HEADS. The caller frees each oracle with oracle_free. */
void oracle_init(
    struct oracle *o, const struct oracle_case *c, const int64_t *cuts);
void oracle_free(struct oracle *o);

/* Returns an index into place[]. */
static inline int64_t
oracle_place(const struct oracle *o, int32_t tensor, int32_t rank, int64_t head,
    int64_t batch, int64_t axis_row)
{
    const struct uli_shape_tensor *t = &o->c->shape.tensors[tensor];
    int axis = o->c->shape.parts[t->part].axis;
    return o->place[tensor][((rank * t->heads + head) * o->batch + batch) *
                                o->rows[axis] +
                            axis_row];
}

#endif
