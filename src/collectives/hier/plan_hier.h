/* SPDX-License-Identifier: Apache-2.0
 *
 * The hierarchical schedule of a plan: what its two files share.
 */
#ifndef ULI_COLLECTIVES_HIER_PLAN_HIER_H
#define ULI_COLLECTIVES_HIER_PLAN_HIER_H

#include "collectives/hier/hier.h"
#include "collectives/plan/plan.h"

/* The tables of one direction, over zeros, from the layout and this rank's
 * strides. Errors: NO_MEMORY; what was made is in *work_p, to be freed. */
ulyx_status_t uli_hier_build(
    struct ulyx_plan *plan, int direction, struct uli_hier_work *work_p);
/* Frees the tables and leaves zeros. */
void uli_hier_free_work(struct uli_hier *h, struct uli_hier_work *work);

#endif
