/* SPDX-License-Identifier: Apache-2.0
 *
 * Rectangles that ranks of one node read from another, and their cutting: what
 * layout_hier.c and layout_hier_rects.c share.
 */
#ifndef ULI_COLLECTIVES_HIER_LAYOUT_HIER_RECTS_H
#define ULI_COLLECTIVES_HIER_LAYOUT_HIER_RECTS_H

#include "collectives/hier/layout_hier.h"

/* One reader's rectangle. `key` identifies its bytes: of a copy, their place at
 * the source; of a sum, the place of the result, with rank -1 where that is the
 * same place of the same tensor on all ranks. */
struct uli_hier_rect {
    bool sum;
    int32_t tensor;
    int64_t batches, rows, heads;
    struct uli_place key, dst;
    int32_t ngivers;
    int64_t givers; /* index in the pool */
};

struct uli_hier_rects {
    struct uli_hier_rect *at;
    int64_t count, capacity;
    struct uli_place *pool;
    int64_t npool, pool_capacity;
    bool failed; /* no memory */
};

void uli_hier_rects_free(struct uli_hier_rects *rects);
/* Adds the rectangle; `givers` are copied into the pool. */
void uli_hier_rects_add(struct uli_hier_rects *rects, struct uli_hier_rect rect,
    const struct uli_place *givers);

/* Cuts copies until any two have the same bytes or none in common, and sorts
 * all: copies first, then by key, then by reader. */
void uli_hier_rects_cut(struct uli_hier_rects *rects);
/* Are a and b the same bytes? */
bool uli_hier_rects_same(const struct uli_hier_rects *rects,
    const struct uli_hier_rect *a, const struct uli_hier_rect *b);

#endif
