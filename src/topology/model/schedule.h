/* SPDX-License-Identifier: Apache-2.0
 *
 * The four directions of an exchange as schedules for the model: direct,
 * pairwise, hierarchical. Sizes come from counts (demand.h).
 *
 *     direct    every rank to every other, all at once
 *     pairwise  the same messages, at most the model's `peers` at a time to
 *               other nodes; all at once if partials are added, because those
 *               streams are not limited
 *     hier      gather: inside the node, to the local rank that has the
 *               destination's place in its node (modulo the ranks here, where
 *               nodes are unequal); wire: by that rank to the destination;
 *               spread: inside the destination's node.
 *               KV heads that several ranks of a node read come once, cut
 *               into equal parts over its ranks, so that no NIC carries more
 *               than another, and spread hands the parts on. Partials are
 *               added in the gathering node, which sends their sum once.
 */
#ifndef ULI_TOPOLOGY_MODEL_SCHEDULE_H
#define ULI_TOPOLOGY_MODEL_SCHEDULE_H

#include "base/schedules.h"
#include "topology/model/demand.h"

/* ULI_ALGO_DIRECT, ...: the rows of the list. */
#define ULI_ALGO_ID(ID, name) ULI_ALGO_##ID,
enum uli_algo { ULI_SCHEDULE_LIST(ULI_ALGO_ID) ULI_ALGOS };

const char *uli_algo_name(enum uli_algo algo);
/* False: `name` is not one of the names. */
bool uli_algo_parse(const char *name, enum uli_algo *algo_p);
/* "direct, pairwise or hier" */
void uli_algo_names(char *text_p, size_t bytes);

/* The schedule of a direction, with the flows of its most loaded rank, in
 * O(nranks). Errors: NO_MEMORY. */
ulyx_status_t uli_schedule_build(const struct uli_demand *demand,
    ulyx_direction_t direction, const struct uli_model *model,
    enum uli_algo algo, int32_t chunks, struct uli_schedule *schedule_p);

/* The settings that bound chunks: ULYX_NET_CHUNK, ULYX_NET_FLIGHT; 0: none. */
struct uli_chunk_limits {
    int64_t chunk_bytes, flight_bytes;
};

#endif
