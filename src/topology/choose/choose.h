/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of a schedule and the reason for it, from counts and from link
 * parameters, which are measured (in a tuning file) or assumed. All inputs are
 * equal on all ranks of a communicator: the counts come from what the plan
 * agrees on, and the file is that of the site. So all ranks make the same
 * choice without communication; the creation of a plan compares the results.
 */
#ifndef ULI_TOPOLOGY_CHOOSE_CHOOSE_H
#define ULI_TOPOLOGY_CHOOSE_CHOOSE_H

#include "base/settings.h"
#include "topology/choose/tuning.h"

enum {
    ULI_CHOOSE_CHUNKS = 4, /* chunks of hier on unknown links */
    ULI_REASON_BYTES = 192,
    ULI_WHY_BYTES = 96
};

/* Link parameters, rules, and the settings of schedules, read once per
 * communicator. */
struct uli_planner {
    struct uli_model model;
    struct uli_tuning tuning;
    struct uli_chunk_limits limits;
};

/* Copies ULYX_NET_PEERS, ULYX_NET_CHUNK and ULYX_NET_FLIGHT to the planner. */
void uli_planner_apply(
    struct uli_planner *planner, const struct uli_settings *settings);

/* Loads the assumed parameters, replaces those that the file of ULYX_TUNING (if
 * set) gives, and applies the settings. Does not read this machine's topology,
 * because nodes may differ.
 * Errors: as uli_tuning_read. */
ulyx_status_t uli_planner_load(
    const struct uli_settings *settings, struct uli_planner *planner_p);

/* The cost of an exchange by one schedule: of each direction in the demand, and
 * of all of them together. */
struct uli_estimate {
    enum uli_algo algo;
    int64_t chunk_bytes; /* for hier, equal in all directions; else 0 */
    double time_s;
    int32_t slowest; /* direction */
    struct uli_schedule schedules[ULYX_DIRECTIONS];
    struct uli_prediction predictions[ULYX_DIRECTIONS];
};

/* The choice and, if the model has made it, the best of the other schedules. */
struct uli_choice {
    enum uli_algo algo;
    struct uli_estimate best, other;
    char reason[ULI_REASON_BYTES];
};

/* Can the schedule be chosen for the exchange? If not, why_p (which may be
 * NULL) gets the limit: "at most 64 ranks per node, not 65". */
bool uli_can_choose(const struct uli_demand *demand, enum uli_algo algo,
    char *why_p, size_t bytes);

/* Chooses the schedule for all directions of an exchange. The first of these
 * decides: `algo` (of the caller, else ULYX_ALGO; NULL or "" for none); on one
 * node, always direct; the first rule that fits; the model.
 *
 * If a file or a machine's description gives the links between nodes, the model
 * chooses its fastest schedule. If the links are assumed, it chooses pairwise,
 * which loads an unknown network least (the model has no incast); or hier, if
 * hier is faster than pairwise both on the assumed links and on slow links (10
 * Gb/s, TCP), because such a gain does not depend on the assumption. For nodes
 * that share a machine the assumed links are meaningless, and the choice is
 * pairwise.
 *
 * A mean stream of hier is cut into the best number of chunks from 1 to 16,
 * into the number that a rule gives, or into ULI_CHOOSE_CHUNKS if the links are
 * meaningless; the limits may change the number. Allocates temporary memory
 * only; O(nranks).
 * Errors: INVALID_ARGUMENT (unknown algo), UNSUPPORTED (the caller requests
 * hier, and a node has too many ranks for it; the model does not consider hier
 * then, and a rule that names hier gives pairwise, with the reason),
 * NO_MEMORY. */
ulyx_status_t uli_choose(const struct uli_planner *planner,
    const struct uli_demand *demand, const char *algo,
    struct uli_choice *choice_p);

#endif
