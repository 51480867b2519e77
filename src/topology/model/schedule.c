/* SPDX-License-Identifier: Apache-2.0
 *
 * What the flows of all schedules have in common; see schedule.h. The bytes of
 * a pair are a product s_i * d_j (demand.h), so all sums over peers follow from
 * sums over nodes and over rails, and building a schedule takes O(nranks).
 *
 *     d_j = own_j + shared_j: what j reads
 *     w_j = own_j + its part of what its node shares: what arrives at j from
 *           other nodes
 *     c_n = own of its ranks + what they share, once: what leaves node n
 */
#include "topology/model/schedule_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"

/* ---- the table ----------------------------------------------------------- */

#define NAME(ID, name)  [ULI_ALGO_##ID] = #name,
#define MODEL(ID, name) [ULI_ALGO_##ID] = &uli_model_of_##name,

const char *
uli_algo_name(enum uli_algo algo)
{
    static const char *const names[ULI_ALGOS] = {ULI_SCHEDULE_LIST(NAME)};
    return names[algo];
}

const struct uli_schedule_model *
uli_schedule_model_of(enum uli_algo algo)
{
    static const struct uli_schedule_model *const models[ULI_ALGOS] = {
        ULI_SCHEDULE_LIST(MODEL)};
    return models[algo];
}

bool
uli_algo_parse(const char *name, enum uli_algo *algo_p)
{
    for (int algo = 0; algo < ULI_ALGOS; algo++)
        if (strcmp(name, uli_algo_name(algo)) == 0) {
            *algo_p = algo;
            return true;
        }
    return false;
}

void
uli_algo_names(char *text_p, size_t bytes)
{
    size_t length = 0;
    text_p[0] = 0;
    for (int algo = 0; algo < ULI_ALGOS && length < bytes; algo++)
        length += (size_t)snprintf(text_p + length, bytes - length, "%s%s",
            algo == 0              ? ""
            : algo < ULI_ALGOS - 1 ? ", "
                                   : " or ",
            uli_algo_name(algo));
}

/* ---- sums ---------------------------------------------------------------- */

static void
load_add_rank(
    struct uli_load *load, const struct uli_schedule_builder *b, int32_t r)
{
    double sends = uli_builder_sends(b, r), reads = uli_builder_reads(b, r);
    load->sends += sends;
    load->carries += (double)b->f.from.own[r];
    load->reads += reads;
    load->weight += uli_builder_weight(b, r);
    load->shared += (double)b->f.to.shared[r];
    load->senders += sends > 0;
    load->readers += reads > 0;
}

static void
builder_free_loads(struct uli_schedule_builder *b)
{
    free(b->nodes);
    free(b->rails);
}

static ulyx_status_t
builder_add_loads(struct uli_schedule_builder *b)
{
    const struct uli_demand *x = b->x;
    b->nodes = calloc((size_t)x->nodes, sizeof(*b->nodes));
    b->rails = calloc((size_t)x->ranks_per_node, sizeof(*b->rails));
    if (!b->nodes || !b->rails) {
        builder_free_loads(b);
        return uli_error(ULYX_ERR_NO_MEMORY, "schedule: no memory");
    }
    for (int32_t r = 0; r < x->nranks; r++) {
        load_add_rank(&b->all, b, r);
        load_add_rank(&b->nodes[x->node[r]], b, r);
        b->rails[x->place[r]].weight += uli_builder_weight(b, r);
        b->rails[x->place[r]].ranks++;
    }
    for (int32_t n = 0; n < x->nodes; n++) {
        b->nodes[n].carries += (double)b->f.from.node_shared[n];
        b->all.carries += (double)b->f.from.node_shared[n];
    }
    return ULYX_SUCCESS;
}

/* ---- flows --------------------------------------------------------------- */

/* Chooses the class and the congestion of the links between nodes. `share` is
 * the fraction of a rank's traffic between nodes that passes the spine. On a
 * rail fabric, local rank i of all nodes of a unit is at one leaf switch, so
 * the spine carries traffic to another local rank number and traffic out of the
 * unit. The congestion also has the number of ranks per NIC, which send at the
 * same time. */
static void
builder_choose_wire(struct uli_schedule_builder *b)
{
    bool on_rails = uli_schedule_model_of(b->algo)->traits & ULI_SCHEDULE_RAILS;
    double nodes = b->x->nodes, unit = (double)b->model->unit_nodes;
    double outside = nodes > unit ? (nodes - unit) / (nodes - 1) : 0;
    double other_rail = on_rails ? 0 : 1 - 1.0 / b->x->ranks_per_node;
    double share = 1 - (1 - outside) * (1 - other_rail);
    b->wire = share > 0 ? ULI_MODEL_SPINE : ULI_MODEL_NIC;
    b->congestion = fmax(1, share * b->model->taper / b->model->efficiency);
    if (b->model->nics > 0)
        b->congestion *= fmax(1, b->x->ranks_per_node / b->model->nics);
}

/* Most ranks have equal flows, so a flow that equals the longest one is
 * skipped. */
void
uli_builder_offer(const struct uli_schedule_builder *b,
    struct uli_longest_flow *longest, double messages, double bytes)
{
    struct uli_flow flow = longest->flow;
    flow.messages = bytes > 0 ? messages : 0;
    flow.bytes = bytes;
    flow.congestion = flow.class == b->x->local ? 1 : b->congestion;
    if (flow.messages == longest->flow.messages && bytes == longest->flow.bytes)
        return;
    double busy_s = uli_model_occupancy(b->model, &flow);
    if (busy_s > longest->busy_s)
        *longest = (struct uli_longest_flow){flow, busy_s};
}

void
uli_phase_set(struct uli_phase *phase, const char *name,
    const struct uli_longest_flow *flows, int32_t nflows)
{
    phase->name = name;
    phase->nflows = nflows;
    for (int32_t i = 0; i < nflows; i++)
        phase->flows[i] = flows[i].flow;
}

ulyx_status_t
uli_schedule_build(const struct uli_demand *demand, ulyx_direction_t direction,
    const struct uli_model *model, enum uli_algo algo, int32_t chunks,
    struct uli_schedule *schedule_p)
{
    struct uli_schedule_builder b = {.x = demand,
        .model = model,
        .algo = algo,
        .f = uli_demand_factors(demand, direction),
        .direction = direction};
    struct uli_schedule s = {.algo = uli_algo_name(algo),
        .direction = direction,
        .chunks = chunks,
        .leaves_node = demand->nodes > 1};
    ULI_TRY(builder_add_loads(&b));
    builder_choose_wire(&b);
    uli_schedule_model_of(algo)->build(&b, &s);
    builder_free_loads(&b);
    *schedule_p = s;
    return ULYX_SUCCESS;
}
