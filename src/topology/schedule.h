/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange from sequence shards to head shards as schedules for the
 * model: direct, pairwise, hierarchical. Sizes come from counts: rank i sends
 * rank j rows_i times what j reads of a token.
 *
 *     direct    every rank to every other, all at once
 *     pairwise  the same messages, at most ULI_PAIRWISE_LIMIT at a time
 *     hier      gather: inside the node, to the local rank that has the
 *               destination's place in its node (modulo the ranks here, where
 *               nodes are unequal); wire: by that rank to the destination;
 *               spread: inside the destination's node.
 *               KV heads that several ranks of a node read come once, cut
 *               into equal parts over its ranks, so that no NIC carries more
 *               than another, and spread hands the parts on.
 */
#ifndef ULI_TOPOLOGY_SCHEDULE_H
#define ULI_TOPOLOGY_SCHEDULE_H

#include <stdio.h>
#include "topology/demand.h"

enum {
    ULI_PAIRWISE_LIMIT = 8,
    /* The most ranks of a node that hier takes: their records travel in one
     * put that is copied at once. */
    ULI_HIER_NODE_RANKS = 64,
};

enum uli_algo { ULI_ALGO_DIRECT, ULI_ALGO_PAIRWISE, ULI_ALGO_HIER, ULI_ALGOS };

const char *uli_algo_name(enum uli_algo algo);
/* False when it is not one of the names. */
bool uli_algo_parse(const char *name, enum uli_algo *algo_p);

/* The schedule, with the flows of its most loaded rank, in O(nranks).
 * Errors: NO_MEMORY. */
ulyx_status_t uli_schedule_build(const struct uli_demand *demand,
    const struct uli_model *model, enum uli_algo algo, int32_t chunks,
    struct uli_schedule *schedule_p);

/* Every message of the schedule in GOAL, the input of LogGOPSim and ATLAHS.
 * Errors: INVALID_ARGUMENT for more than 2^24 messages, NO_MEMORY, SYSTEM. */
ulyx_status_t uli_schedule_write_goal(
    const struct uli_demand *demand, enum uli_algo algo, FILE *file);

#endif
