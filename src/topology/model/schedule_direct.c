/* SPDX-License-Identifier: Apache-2.0
 *
 * The model of direct and of pairwise, in which every rank sends to every other
 * rank. Pairwise sends the same messages as direct, but to a limited number of
 * ranks of other nodes at one time.
 */
#include "topology/model/schedule_model.h"

#include <math.h>

/* ---- flows --------------------------------------------------------------- */

/* Limits a flow to w = `peers` streams at one time, unless the flow is of
 * partials or has no more than w streams. A rank whose w streams all go to busy
 * peers leaves its own link idle. It does so less, the nearer w is to the
 * number k of all streams, and the more bytes the rank has to send itself:
 *
 *     idle = 1 + 4 (1/w - 1/k) (bytes of the mean rank / its own)^2
 *
 * as simulations of the same schedules give it for 1 to 32 of 56 peers and 8 of
 * 120 (perf/PERFORMANCE.md). */
static void
flow_hold_back(const struct uli_schedule_builder *b, double mean_bytes,
    struct uli_flow *flow)
{
    bool adds = b->direction == ULYX_SEQ_TO_HEAD_ADJOINT && b->x->sums;
    double limit = (double)b->model->peers, k = flow->messages;
    if (adds || limit <= 0 || k <= limit)
        return;
    double evenness = fmin(1, mean_bytes / flow->bytes);
    flow->window = limit;
    flow->idle = 1 + 4 * (1 / limit - 1 / k) * evenness * evenness;
}

/* flows: local out, local in, wire out, wire in */
static void
direct_build(const struct uli_schedule_builder *b, struct uli_schedule *s)
{
    bool limited =
        uli_schedule_model_of(b->algo)->traits & ULI_SCHEDULE_LIMITS_PEERS;
    const struct uli_demand *x = b->x;
    const struct uli_load *all = &b->all;
    struct uli_longest_flow flows[4] = {{.flow.class = x->local},
        {.flow.class = x->local}, {.flow.class = b->wire},
        {.flow.class = b->wire}};
    for (int32_t r = 0; r < x->nranks; r++) {
        const struct uli_load *node = &b->nodes[x->node[r]];
        double sends = uli_builder_sends(b, r), reads = uli_builder_reads(b, r);
        uli_builder_offer(b, &flows[0], node->readers - (reads > 0),
            sends * (node->reads - reads));
        uli_builder_offer(b, &flows[1], node->senders - (sends > 0),
            reads * (node->sends - sends));
        uli_builder_offer(b, &flows[2], all->readers - node->readers,
            sends * (all->reads - node->reads));
        uli_builder_offer(b, &flows[3], all->senders - node->senders,
            reads * (all->sends - node->sends));
    }
    s->nphases = 1;
    for (int32_t n = 0; n < x->nodes; n++)
        s->wire_bytes += b->nodes[n].sends * (all->reads - b->nodes[n].reads);
    for (int32_t i = 2; limited && i < 4; i++)
        flow_hold_back(b, s->wire_bytes / x->nranks, &flows[i].flow);
    uli_phase_set(&s->phases[0], uli_algo_name(b->algo), flows, 4);
}

/* ---- the rows ------------------------------------------------------------ */

const struct uli_schedule_model uli_model_of_direct = {
    .traits = ULI_SCHEDULE_PLAIN | ULI_SCHEDULE_BURSTS,
    .build = direct_build,
};

const struct uli_schedule_model uli_model_of_pairwise = {
    .traits = ULI_SCHEDULE_SAFE | ULI_SCHEDULE_LIMITS_PEERS,
    .build = direct_build,
};
