/* SPDX-License-Identifier: Apache-2.0
 *
 * What the cost model and the choice need of a schedule: a row of a table, in
 * one file per schedule (schedule_direct.c has two rows: pairwise is direct
 * with a limit of peers). This header also has what these files share: sums
 * over the ranks of a demand, and the flow of the most loaded rank.
 */
#ifndef ULI_TOPOLOGY_MODEL_SCHEDULE_MODEL_H
#define ULI_TOPOLOGY_MODEL_SCHEDULE_MODEL_H

#include "topology/model/schedule.h"

/* ---- flows (schedule.c) -------------------------------------------------- */

/* Sums of the factors of demand.h over the ranks of one node, or over all
 * ranks. sends and reads: of all that the ranks send and read. carries: of what
 * leaves the nodes, with what ranks of a node share counted once. weight: of
 * what arrives from other nodes. shared: of what ranks read together with
 * others of their node. senders, readers: how many ranks send or read anything.
 */
struct uli_load {
    double sends, carries, reads, weight, shared;
    double senders, readers;
};

/* Sums over the ranks that have the same place in their nodes. */
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

/* The flow that takes longest of all ranks, and how long it takes. */
struct uli_longest_flow {
    struct uli_flow flow;
    double busy_s;
};

/* The factors of rank r: of what it sends, of what it reads, and of what
 * arrives at it from other nodes. */
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

/* Replaces *longest by the flow of a rank if that takes longer. The caller sets
 * longest->flow.class before the first call. */
void uli_builder_offer(const struct uli_schedule_builder *b,
    struct uli_longest_flow *longest, double messages, double bytes);
/* Fills in a phase with these flows. name is not copied. */
void uli_phase_set(struct uli_phase *phase_p, const char *name,
    const struct uli_longest_flow *flows, int32_t nflows);

/* ---- a schedule ---------------------------------------------------------- */

/* Properties of the schedule for the choice (choose.h). In the whole table one
 * row is PLAIN and one is SAFE. */
enum uli_schedule_trait {
    /* The schedule that is used within one node, where all schedules are
     * equal. */
    ULI_SCHEDULE_PLAIN = 1,
    /* The schedule that loads an unknown network least. It is chosen if the
     * links are meaningless, or if the gain of another schedule depends on
     * assumptions. */
    ULI_SCHEDULE_SAFE = 2,
    /* Sends to all peers at once, which may congest a network (incast, which
     * the model does not have). The model never chooses it on assumed links. */
    ULI_SCHEDULE_BURSTS = 4,
    /* Between nodes, only ranks with the same place send to each other. So on a
     * rail fabric no traffic inside a unit passes the spine. */
    ULI_SCHEDULE_RAILS = 8,
    /* Sends to at most the model's `peers` at one time. */
    ULI_SCHEDULE_LIMITS_PEERS = 16,
};

struct uli_schedule_model {
    uint32_t traits; /* of enum uli_schedule_trait */
    /* Can the exchange use this schedule? If not, why_p (which may be NULL)
     * gets what the schedule needs, as text that follows "needs". NULL:
     * always. */
    bool (*applicable)(
        const struct uli_demand *demand, char *why_p, size_t bytes);
    /* Fills in phases, nphases and wire_bytes of *schedule, whose other fields
     * are set. O(nranks). */
    void (*build)(
        const struct uli_schedule_builder *b, struct uli_schedule *schedule);
    /* Both NULL for a schedule without chunks. stream_bytes: the mean bytes of
     * a stream of the schedule that build has made. chunk_bytes: the bytes of a
     * chunk if a stream is to be cut into `parts` chunks, within the limits. */
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
