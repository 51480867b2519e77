/* SPDX-License-Identifier: Apache-2.0
 *
 * BALANCED: cutting (head, batch, row) order into runs of equal cost, and the
 * runs that follow from the cuts.
 */
#ifndef ULI_COLLECTIVES_LAYOUT_LAYOUT_BALANCED_H
#define ULI_COLLECTIVES_LAYOUT_LAYOUT_BALANCED_H

#include "collectives/layout/layout_cost.h"

/* layout_families.c: finds which tensors share runs, bounds each family over
 * all tables, and reserves memory for the runs of both banks. Resolves
 * row_cost, row_round, max_rows, max_kv_rows and max_segments. */
ulyx_status_t uli_families_prepare(struct uli_layout *layout);
/* Fills the runs from the cuts. */
void uli_families_update(
    const struct uli_layout *layout, struct uli_tables *tables);

/* layout_balanced.c: fills tables->cut.
 * Returns ERR_INVALID_ARGUMENT with the values needed when no cut respects the
 * maxima. */
ulyx_status_t uli_balanced_cut(
    const struct uli_layout *layout, struct uli_tables *tables);

#endif
