/* SPDX-License-Identifier: Apache-2.0
 *
 * The model of the hierarchical schedule: gather inside the node, wire between
 * nodes, spread inside the destination's node; see schedule.h.
 */
#include "topology/model/schedule_hier.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include "base/size.h"
#include "topology/model/schedule_model.h"

/* ---- flows --------------------------------------------------------------- */

static bool
hier_applicable(const struct uli_demand *x, char *why_p, size_t bytes)
{
    if (x->nodes == 1 || x->ranks_per_node <= ULI_HIER_NODE_RANKS)
        return true;
    if (why_p)
        snprintf(why_p, bytes, "at most %d ranks per node, not %" PRId32,
            ULI_HIER_NODE_RANKS, x->ranks_per_node);
    return false;
}

/* The load of the ranks to which rank r sends by wire, those whose place equals
 * r's place modulo the number of ranks of r's node; r itself is included. */
static struct uli_rail_load
rail_load_of(const struct uli_schedule_builder *b, int32_t r)
{
    const struct uli_demand *x = b->x;
    int32_t step = uli_demand_node_ranks(x, x->node[r]);
    struct uli_rail_load rail = {0, 0};
    for (int32_t p = x->place[r]; p < x->ranks_per_node; p += step) {
        rail.weight += b->rails[p].weight;
        rail.ranks += b->rails[p].ranks;
    }
    return rail;
}

static void
hier_build(const struct uli_schedule_builder *b, struct uli_schedule *s)
{
    const struct uli_demand *x = b->x;
    const struct uli_load *all = &b->all;
    struct uli_longest_flow gather[2] = {
        {.flow.class = x->local}, {.flow.class = x->local}};
    struct uli_longest_flow wire[2] = {
        {.flow.class = b->wire}, {.flow.class = b->wire}};
    struct uli_longest_flow spread[2] = {
        {.flow.class = x->local}, {.flow.class = x->local}};
    for (int32_t r = 0; r < x->nranks; r++) {
        const struct uli_load *node = &b->nodes[x->node[r]];
        const struct uli_rail_load rail = rail_load_of(b, r);
        double sends = uli_builder_sends(b, r), reads = uli_builder_reads(b, r);
        double weight = uli_builder_weight(b, r), mine = rail.weight - weight;
        double shared = (double)b->f.to.shared[r];
        double away = all->carries - node->carries;
        double g = uli_demand_node_ranks(x, x->node[r]);
        uli_builder_offer(b, &gather[0], g - 1,
            sends * (all->weight - node->weight - mine + node->reads - reads));
        uli_builder_offer(
            b, &gather[1], g - 1, (node->sends - sends) * (mine + reads));
        uli_builder_offer(b, &wire[0], rail.ranks - 1, node->carries * mine);
        uli_builder_offer(b, &wire[1], x->nodes - 1, away * weight);
        /* each shared byte comes from one of the g ranks of the node, which may
         * be r */
        uli_builder_offer(
            b, &spread[0], g - 1, away * (node->shared - shared) / g);
        uli_builder_offer(b, &spread[1], g - 1, away * shared * (g - 1) / g);
    }
    s->nphases = spread[0].flow.messages > 0 ? 3 : 2;
    uli_phase_set(&s->phases[0], "gather", gather, 2);
    uli_phase_set(&s->phases[1], "wire", wire, 2);
    uli_phase_set(&s->phases[2], "spread", spread, 2);
    for (int32_t n = 0; n < x->nodes; n++)
        s->wire_bytes +=
            b->nodes[n].carries * (all->weight - b->nodes[n].weight);
}

/* ---- chunks -------------------------------------------------------------- */

enum {
    MIN_CHUNK_BYTES = 64,
    /* A short stream is cut into chunks too, but not into chunks shorter than
     * this, because a shorter message costs nearly as much. */
    MIN_PART_BYTES = 16 << 10,
    FLIGHTS = 64, /* limit of the bytes in flight of all streams of a rank, as a
                   * multiple of the limit of one stream */
};

double
uli_hier_stream_bytes(
    const struct uli_demand *x, const struct uli_schedule *schedule)
{
    double streams = ((double)x->nodes - 1) * x->nranks;
    return streams > 0 ? schedule->wire_bytes / streams : 0;
}

/* The most streams that a rank carries: one to each rank of another node whose
 * place equals its own modulo the number of ranks of its node, one from each
 * other node, and its own. */
static int64_t
streams_most(const struct uli_demand *x)
{
    int64_t most = 1;
    for (int32_t n = 0; n < x->nodes; n++) {
        int32_t here = uli_demand_node_ranks(x, n);
        int64_t streams = x->nodes; /* of the first rank, which has the most */
        for (int32_t m = 0; m < x->nodes; m++)
            if (m != n)
                streams += (uli_demand_node_ranks(x, m) + here - 1) / here;
        most = streams > most ? streams : most;
    }
    return most;
}

int64_t
uli_hier_chunk_bytes(const struct uli_demand *x,
    const struct uli_chunk_limits *limits, double stream_bytes, int32_t parts)
{
    int64_t flight = x->flight_bytes ? x->flight_bytes : limits->flight_bytes;
    int64_t most = INT64_MAX;
    if (flight > 0)
        most = flight;
    if (limits->flight_bytes > 0)
        most = uli_min(most, limits->flight_bytes * FLIGHTS / streams_most(x));
    most /= ULI_HIER_CHUNKS;
    if (limits->chunk_bytes > 0)
        most = uli_min(most, limits->chunk_bytes);
    int64_t ideal = (int64_t)ceil(stream_bytes / parts);
    int64_t chunk = uli_min(uli_max(ideal, MIN_PART_BYTES), most);
    return uli_max(chunk / MIN_CHUNK_BYTES * MIN_CHUNK_BYTES, MIN_CHUNK_BYTES);
}

/* ---- the row ------------------------------------------------------------- */

const struct uli_schedule_model uli_model_of_hier = {
    .traits = ULI_SCHEDULE_RAILS,
    .applicable = hier_applicable,
    .build = hier_build,
    .stream_bytes = uli_hier_stream_bytes,
    .chunk_bytes = uli_hier_chunk_bytes,
};
