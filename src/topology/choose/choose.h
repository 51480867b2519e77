/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of a schedule: from counts and from link parameters, measured (a
 * tuning file's) or assumed, to an algorithm and the reason for it. All inputs
 * are equal on all ranks of a communicator: the counts come from what the plan
 * agrees on, and the file is the site's. So all ranks choose alike without
 * communication; a plan's creation compares the results.
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

/* Takes over ULYX_NET_PEERS, ULYX_NET_CHUNK and ULYX_NET_FLIGHT. */
void uli_planner_apply(
    struct uli_planner *planner, const struct uli_settings *settings);

/* The assumed parameters, overlaid with ULYX_TUNING's where that is set, and
 * the settings' values. Does not read this machine's topology: nodes may
 * differ. Errors: as uli_tuning_read. */
ulyx_status_t uli_planner_load(
    const struct uli_settings *settings, struct uli_planner *planner_p);

/* The cost of an exchange by one schedule: of each direction in the demand, and
 * of all of them together. */
struct uli_estimate {
    enum uli_algo algo;
    int64_t chunk_bytes; /* of hier, equal for all directions; else 0 */
    double time_s;
    int32_t slowest; /* direction */
    struct uli_schedule schedules[ULYX_DIRECTIONS];
    struct uli_prediction predictions[ULYX_DIRECTIONS];
};

/* The choice and, where the model made it, the best of the other schedules. */
struct uli_choice {
    enum uli_algo algo;
    struct uli_estimate best, other;
    char reason[ULI_REASON_BYTES];
};

/* Can the schedule be chosen for the exchange? If not, why_p (which may be
 * NULL) gets the limit: "at most 64 ranks per node, not 65". */
bool uli_can_choose(const struct uli_demand *demand, enum uli_algo algo,
    char *why_p, size_t bytes);

/* The schedule for all directions of an exchange: forced by `algo` (the
 * caller's, else ULYX_ALGO; NULL or "" for none), else direct on one node, else
 * by the first rule that fits, else by the model.
 *
 * Where a file or a machine's description gives the links between nodes, the
 * model's fastest is taken. Where they are assumed it is pairwise, which loads
 * an unknown network least (the model has no incast), or hier where that is
 * faster than pairwise both by the assumed links and by slow ones (10 Gb/s,
 * TCP): such a gain does not depend on the assumption. For nodes that share a
 * machine, assumed links say nothing: pairwise.
 *
 * A mean stream of hier is cut into the best number of parts from 1 to 16,
 * into a rule's number, or into ULI_CHOOSE_CHUNKS where the links mean
 * nothing; the limits may change the number. Pure except for temporary memory;
 * O(nranks). Errors: INVALID_ARGUMENT (unknown algo), UNSUPPORTED (hier is
 * requested and a node is too large for it; otherwise it is left out, with
 * that reason where a rule names it), NO_MEMORY. */
ulyx_status_t uli_choose(const struct uli_planner *planner,
    const struct uli_demand *demand, const char *algo,
    struct uli_choice *choice_p);

#endif
