/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys that ranges of a document's rows attend to (base/mask.h), and their
 * cost, in closed form.
 */
#ifndef ULI_COLLECTIVES_LAYOUT_LAYOUT_MASK_H
#define ULI_COLLECTIVES_LAYOUT_LAYOUT_MASK_H

#include "base/mask.h"
#include "collectives/layout/layout_private.h"

/* A half-open run; an empty run is {0, 0}. */
struct uli_keys {
    int64_t first, end;
};

struct uli_mask uli_mask_of(
    const struct uli_shape *shape, int64_t q_rows, int64_t k_rows);

/* The keys that rows [begin, end) attend to together: one run, because the keys
 * of consecutive rows overlap or touch. */
struct uli_keys uli_mask_seen(
    const struct uli_mask *mask, int64_t begin, int64_t end);

/* Sum over rows [0, rows) of the keys in the tiles that the row touches. */
uli_u128 uli_mask_cost(const struct uli_mask *mask, int64_t rows);

#endif
