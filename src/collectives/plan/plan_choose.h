/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of a plan's schedule: the layout's moves as counts for the cost
 * model.
 */
#ifndef ULI_COLLECTIVES_PLAN_PLAN_CHOOSE_H
#define ULI_COLLECTIVES_PLAN_PLAN_CHOOSE_H

#include "collectives/layout/layout.h"
#include "topology/choose/choose.h"

/* How much each rank holds and reads of the tensors that are sharded, by the
 * document tables of creation. node_of[nranks]: the node of each rank. Exact
 * for whole heads and one part. With several parts a token is the mean of
 * theirs; on a PACKED side a rank's rows count as whole heads that it shares.
 * Errors: NO_MEMORY. The caller destroys *demand_p. */
ulyx_status_t uli_plan_demand(const struct uli_layout *layout, int32_t nodes,
    const int32_t *node_of, struct uli_demand *demand_p);

struct uli_plan_preference {
    uint64_t directions; /* bit per direction of the plan */
    int64_t bytes_in_flight;
    const char *algo; /* requested, or NULL */
    bool one_machine; /* some of the nodes are simulated */
};

/* uli_choose for the demand of a layout. Equal on all ranks where the arguments
 * are. */
ulyx_status_t uli_plan_choose(const struct uli_layout *layout, int32_t nodes,
    const int32_t *node_of, const struct uli_plan_preference *preference,
    const struct uli_planner *planner, struct uli_choice *choice_p);

#endif
