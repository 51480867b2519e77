/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost model's and the choice's part of a schedule: one row of a table,
 * one file per schedule (schedule_direct.c has two: pairwise is direct with a
 * limit of peers). Beside the row, what the files share: sums over the ranks
 * of a demand, and the flow of the most loaded rank.
 */
#ifndef ULI_TOPOLOGY_MODEL_SCHEDULE_MODEL_H
#define ULI_TOPOLOGY_MODEL_SCHEDULE_MODEL_H

#include "topology/model/schedule.h"

/* ---- flows (schedule.c) -------------------------------------------------- */

/* Of one node or of all nodes: the bytes that its ranks send to each other, and
 * that the node sends to others; the bytes that they receive (reads), and how
 * many of these come from other nodes (weight); and how many ranks do either.
 */
struct uli_load {
    double sends, carries, reads, weight, shared;
    double senders, readers;
};

/* The same of the ranks that have one place in their nodes. */
struct uli_rail_load {
    double weight, ranks;
};

/* The schedule of one direction while it is built. */
struct uli_schedule_builder {
    const struct uli_demand *x;
    struct uli_factors f;
    ulyx_direction_t direction;
    const struct uli_model *model;
    enum uli_algo algo;
    struct uli_load all, *nodes;
    struct uli_rail_load *rails; /* [ranks_per_node] */
    enum uli_model_class wire;
    double congestion;
};

/* The flow that takes longest over all ranks, and how long. */
struct uli_longest_flow {
    struct uli_flow flow;
    double busy_s;
};

/* Bytes that rank r sends, takes, and takes by wire: factors of products. */
static inline double
uli_builder_sends(const struct uli_schedule_builder *b, int32_t r)
{
    return (double)uli_holding_all(&b->f.from, r);
}
static inline double
uli_builder_reads(const struct uli_schedule_builder *b, int32_t r)
{
    return (double)uli_holding_all(&b->f.to, r);
}
static inline double
uli_builder_weight(const struct uli_schedule_builder *b, int32_t r)
{
    return (double)uli_demand_carried(b->x, &b->f.to, r);
}

/* Keeps the flow of a rank where it takes longer than the one that is kept; the
 * class is set before the first. */
void uli_builder_offer(const struct uli_schedule_builder *b,
    struct uli_longest_flow *longest, double messages, double bytes);
/* The phase with these flows. name: not copied. */
void uli_phase_set(struct uli_phase *phase_p, const char *name,
    const struct uli_longest_flow *flows, int32_t nflows);

/* ---- a schedule ---------------------------------------------------------- */

/* Properties of the schedule for the choice (choose.h). In the whole table one
 * row is PLAIN and one is SAFE. */
enum uli_schedule_trait {
    /* The schedule within one node, where all schedules are alike. */
    ULI_SCHEDULE_PLAIN = 1,
    /* Loads a network least of which nothing is known: taken where links mean
     * nothing, and where another one's gain hangs on assumptions. */
    ULI_SCHEDULE_SAFE = 2,
    /* Sends to all at once, which may jam a network (incast; the model has
     * none): never taken on links that are assumed. */
    ULI_SCHEDULE_BURSTS = 4,
    /* Crosses nodes between ranks of one place, so on a fabric of rails it
     * passes no spine within a unit. */
    ULI_SCHEDULE_RAILS = 8,
    /* Obeys the model's `peers`. */
    ULI_SCHEDULE_LIMITS_PEERS = 16,
};

struct uli_schedule_model {
    uint32_t traits; /* of enum uli_schedule_trait */
    /* Can the exchange go by it? Where not, `why_p` (which may be NULL) gets
     * what it takes, to follow "it takes". NULL: always. */
    bool (*applicable)(
        const struct uli_demand *demand, char *why_p, size_t bytes);
    /* Fills in phases, nphases and wire_bytes of *schedule, whose other fields
     * are set. O(nranks). */
    void (*build)(
        const struct uli_schedule_builder *b, struct uli_schedule *schedule);
    /* Of a schedule that goes in chunks; NULL: it goes in none. Mean bytes of a
     * stream of what build made; and of a chunk where such a stream is to be
     * cut into `parts`, within the limits. */
    double (*stream_bytes)(
        const struct uli_demand *demand, const struct uli_schedule *schedule);
    int64_t (*chunk_bytes)(const struct uli_demand *demand,
        const struct uli_chunk_limits *limits, double stream_bytes,
        int32_t parts);
};

const struct uli_schedule_model *uli_schedule_model_of(enum uli_algo algo);

#define ULI_SCHEDULE_MODEL(ID, name)                                           \
    extern const struct uli_schedule_model uli_model_of_##name;
ULI_SCHEDULE_LIST(ULI_SCHEDULE_MODEL)

#endif
