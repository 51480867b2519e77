/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedule of a plan: what the layout moves, as counts for the cost model.
 */
#ifndef ULI_COLLECTIVES_PLAN_PLAN_CHOOSE_H
#define ULI_COLLECTIVES_PLAN_PLAN_CHOOSE_H

#include "collectives/layout/layout.h"
#include "topology/choose/choose.h"

/* Who holds and reads how much of the tensors that are sharded, by the document
 * tables of creation; ranks lie on nodes as node_of[nranks] says. Exact for
 * whole heads and one part; with several parts a token is the mean of theirs,
 * and on a PACKED side a rank's rows count as whole heads that it shares.
 * Errors: NO_MEMORY. The caller destroys *demand_p. */
ulyx_status_t uli_plan_demand(const struct uli_layout *layout, int32_t nodes,
    const int32_t *node_of, struct uli_demand *demand_p);

struct uli_plan_preference {
    uint64_t directions; /* bits, those of the plan */
    int64_t bytes_in_flight;
    const char *algo; /* asked for, or NULL */
    bool one_machine; /* of the nodes some are made up */
};

/* uli_choose for that demand. Equal on all ranks, as the arguments are. */
ulyx_status_t uli_plan_choose(const struct uli_layout *layout, int32_t nodes,
    const int32_t *node_of, const struct uli_plan_preference *preference,
    const struct uli_planner *planner, struct uli_choice *choice_p);

#endif
