/* SPDX-License-Identifier: Apache-2.0
 *
 * Flows of the schedules; see schedule.h. The byte counts of a pair are a
 * product s_i * d_j (demand.h), so all sums over peers come from sums over
 * nodes and over rails, and a schedule costs O(nranks).
 *
 *     d_j = own_j + shared_j       what j takes
 *     w_j = own_j + its part of what its node shares: what crosses to j
 *     c_n = own of its ranks + what they share, once: what leaves node n
 */
#include "topology/schedule.h"

#include "base/size.h"
#include "base/status.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *
uli_algo_name(enum uli_algo algo)
{
    static const char *const names[ULI_ALGOS] = {"direct", "pairwise", "hier"};
    return names[algo];
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

/* ---- sums ---------------------------------------------------------------- */

/* Of a node or of all: what its ranks send to each other and what the node
 * sends elsewhere, what they take (reads) and what of it comes from elsewhere
 * (weight), and how many of them do either. */
struct sum {
    double sends, carries, reads, weight, shared;
    double senders, readers;
};

struct rail {
    double weight, ranks;
};

struct sums {
    struct sum all, *nodes;
    struct rail *rails; /* [ranks_per_node] over the ranks with one place */
};

static double
sends_of(const struct uli_factors *f, int32_t r)
{
    return (double)uli_holding_all(&f->from, r);
}

static double
reads_of(const struct uli_factors *f, int32_t r)
{
    return (double)uli_holding_all(&f->to, r);
}

static double
weight_of(const struct uli_demand *x, const struct uli_factors *f, int32_t r)
{
    return (double)uli_demand_carried(x, &f->to, r);
}

static void
add_rank(struct sum *sum, const struct uli_demand *x,
    const struct uli_factors *f, int32_t r)
{
    sum->sends += sends_of(f, r);
    sum->carries += (double)f->from.own[r];
    sum->reads += reads_of(f, r);
    sum->weight += weight_of(x, f, r);
    sum->shared += (double)f->to.shared[r];
    sum->senders += sends_of(f, r) > 0;
    sum->readers += reads_of(f, r) > 0;
}

static void
free_sums(struct sums *sums)
{
    free(sums->nodes);
    free(sums->rails);
}

static ulyx_status_t
make_sums(
    const struct uli_demand *x, const struct uli_factors *f, struct sums *sums)
{
    memset(sums, 0, sizeof(*sums));
    sums->nodes = calloc((size_t)x->nodes, sizeof(*sums->nodes));
    sums->rails = calloc((size_t)x->ranks_per_node, sizeof(*sums->rails));
    if (!sums->nodes || !sums->rails) {
        free_sums(sums);
        return uli_error(ULYX_ERR_NO_MEMORY, "schedule: no memory");
    }
    for (int32_t r = 0; r < x->nranks; r++) {
        add_rank(&sums->all, x, f, r);
        add_rank(&sums->nodes[x->node[r]], x, f, r);
        sums->rails[x->place[r]].weight += weight_of(x, f, r);
        sums->rails[x->place[r]].ranks++;
    }
    for (int32_t n = 0; n < x->nodes; n++) {
        sums->nodes[n].carries += (double)f->from.node_shared[n];
        sums->all.carries += (double)f->from.node_shared[n];
    }
    return ULYX_SUCCESS;
}

/* ---- flows --------------------------------------------------------------- */

struct builder {
    const struct uli_demand *x;
    struct uli_factors f;
    ulyx_operation_t operation;
    const struct uli_model *model;
    struct sums sums;
    enum uli_model_class wire;
    double congestion;
};

/* Share of a rank's traffic between nodes that passes the spine: on a rail
 * fabric, where local rank i of all nodes of a unit shares a leaf, what goes
 * to another local number or out of the unit. And how many ranks a NIC serves:
 * they send at the same time. */
static void
choose_wire(struct builder *b, bool on_rails)
{
    double nodes = b->x->nodes, unit = (double)b->model->unit_nodes;
    double outside = nodes > unit ? (nodes - unit) / (nodes - 1) : 0;
    double other_rail = on_rails ? 0 : 1 - 1.0 / b->x->ranks_per_node;
    double share = 1 - (1 - outside) * (1 - other_rail);
    b->wire = share > 0 ? ULI_MODEL_SPINE : ULI_MODEL_NIC;
    b->congestion = fmax(1, share * b->model->taper / b->model->efficiency);
    if (b->model->nics > 0)
        b->congestion *= fmax(1, b->x->ranks_per_node / b->model->nics);
}

/* The flow that takes longest over all ranks, and how long. */
struct kept {
    struct uli_flow flow;
    double busy_s;
};

/* Ranks are mostly alike, so what is the same as the longest is passed over. */
static void
offer(const struct builder *b, struct kept *kept, double messages, double bytes)
{
    struct uli_flow flow = kept->flow;
    flow.messages = bytes > 0 ? messages : 0;
    flow.bytes = bytes;
    flow.congestion = flow.class == b->x->local ? 1 : b->congestion;
    if (flow.messages == kept->flow.messages && bytes == kept->flow.bytes)
        return;
    double busy_s = uli_model_occupancy(b->model, &flow);
    if (busy_s > kept->busy_s)
        *kept = (struct kept){flow, busy_s};
}

static void
set_phase(struct uli_phase *phase, const char *name, const struct kept *kept,
    int32_t nflows)
{
    phase->name = name;
    phase->nflows = nflows;
    for (int32_t i = 0; i < nflows; i++)
        phase->flows[i] = kept[i].flow;
}

/* The ranks that rank r sends to by wire: those whose place is r's modulo the
 * ranks of r's node, and r itself. */
static struct rail
rail_of(const struct builder *b, int32_t r)
{
    const struct uli_demand *x = b->x;
    int32_t step = uli_demand_node_ranks(x, x->node[r]);
    struct rail rail = {0, 0};
    for (int32_t p = x->place[r]; p < x->ranks_per_node; p += step) {
        rail.weight += b->sums.rails[p].weight;
        rail.ranks += b->sums.rails[p].ranks;
    }
    return rail;
}

/* Holds back the streams of a flow, but those of partials and where all fit. A
 * rank whose w streams all go to busy peers leaves its own link idle, the less
 * the nearer w comes to all k, and the less the more it has to do itself:
 *
 *     idle = 1 + 4 (1/w - 1/k) (bytes of the mean rank / its own)^2
 *
 * as simulations of the same schedules give it for 1 to 32 of 56 peers and 8 of
 * 120 (perf/PERFORMANCE.md). */
static void
hold_back(const struct builder *b, double mean_bytes, struct uli_flow *flow)
{
    bool adds = b->operation == ULYX_SEQ_TO_HEAD_ADJOINT && b->x->sums;
    double limit = (double)b->model->peers, k = flow->messages;
    if (adds || limit <= 0 || k <= limit)
        return;
    double evenness = fmin(1, mean_bytes / flow->bytes);
    flow->window = limit;
    flow->idle = 1 + 4 * (1 / limit - 1 / k) * evenness * evenness;
}

/* flows: local out, local in, wire out, wire in */
static void
build_direct(struct builder *b, struct uli_schedule *s, bool pairwise)
{
    const struct uli_demand *x = b->x;
    const struct sum *all = &b->sums.all;
    struct kept flows[4] = {{.flow.class = x->local}, {.flow.class = x->local},
        {.flow.class = b->wire}, {.flow.class = b->wire}};
    for (int32_t r = 0; r < x->nranks; r++) {
        const struct sum *node = &b->sums.nodes[x->node[r]];
        double sends = sends_of(&b->f, r), reads = reads_of(&b->f, r);
        offer(b, &flows[0], node->readers - (reads > 0),
            sends * (node->reads - reads));
        offer(b, &flows[1], node->senders - (sends > 0),
            reads * (node->sends - sends));
        offer(b, &flows[2], all->readers - node->readers,
            sends * (all->reads - node->reads));
        offer(b, &flows[3], all->senders - node->senders,
            reads * (all->sends - node->sends));
    }
    s->nphases = 1;
    for (int32_t n = 0; n < x->nodes; n++)
        s->wire_bytes +=
            b->sums.nodes[n].sends * (all->reads - b->sums.nodes[n].reads);
    for (int32_t i = 2; pairwise && i < 4; i++)
        hold_back(b, s->wire_bytes / x->nranks, &flows[i].flow);
    set_phase(&s->phases[0], pairwise ? "pairwise" : "direct", flows, 4);
}

static void
build_hier(struct builder *b, struct uli_schedule *s)
{
    const struct uli_demand *x = b->x;
    const struct sum *all = &b->sums.all;
    struct kept gather[2] = {
        {.flow.class = x->local}, {.flow.class = x->local}};
    struct kept wire[2] = {{.flow.class = b->wire}, {.flow.class = b->wire}};
    struct kept spread[2] = {
        {.flow.class = x->local}, {.flow.class = x->local}};
    for (int32_t r = 0; r < x->nranks; r++) {
        const struct sum *node = &b->sums.nodes[x->node[r]];
        const struct rail rail = rail_of(b, r);
        double sends = sends_of(&b->f, r), reads = reads_of(&b->f, r);
        double weight = weight_of(x, &b->f, r), mine = rail.weight - weight;
        double shared = (double)b->f.to.shared[r];
        double away = all->carries - node->carries;
        double g = uli_demand_node_ranks(x, x->node[r]);
        offer(b, &gather[0], g - 1,
            sends * (all->weight - node->weight - mine + node->reads - reads));
        offer(b, &gather[1], g - 1, (node->sends - sends) * (mine + reads));
        offer(b, &wire[0], rail.ranks - 1, node->carries * mine);
        offer(b, &wire[1], x->nodes - 1, away * weight);
        /* each shared byte comes from one of g ranks, one of which is r */
        offer(b, &spread[0], g - 1, away * (node->shared - shared) / g);
        offer(b, &spread[1], g - 1, away * shared * (g - 1) / g);
    }
    s->nphases = spread[0].flow.messages > 0 ? 3 : 2;
    set_phase(&s->phases[0], "gather", gather, 2);
    set_phase(&s->phases[1], "wire", wire, 2);
    set_phase(&s->phases[2], "spread", spread, 2);
    for (int32_t n = 0; n < x->nodes; n++)
        s->wire_bytes +=
            b->sums.nodes[n].carries * (all->weight - b->sums.nodes[n].weight);
}

ulyx_status_t
uli_schedule_build(const struct uli_demand *demand, ulyx_operation_t operation,
    const struct uli_model *model, enum uli_algo algo, int32_t chunks,
    struct uli_schedule *schedule_p)
{
    struct builder b = {.x = demand,
        .model = model,
        .f = uli_demand_factors(demand, operation),
        .operation = operation};
    struct uli_schedule s = {.algo = uli_algo_name(algo),
        .operation = operation,
        .chunks = chunks,
        .leaves_node = demand->nodes > 1};
    ULI_TRY(make_sums(demand, &b.f, &b.sums));
    choose_wire(&b, algo == ULI_ALGO_HIER);
    if (algo == ULI_ALGO_HIER)
        build_hier(&b, &s);
    else
        build_direct(&b, &s, algo == ULI_ALGO_PAIRWISE);
    free_sums(&b.sums);
    *schedule_p = s;
    return ULYX_SUCCESS;
}

/* ---- chunks of hier ------------------------------------------------------ */

enum {
    MIN_CHUNK_BYTES = 64,
    /* A stream of few bytes is cut too, but not below what a message costs. */
    MIN_PART_BYTES = 16 << 10,
    FLIGHTS =
        64, /* bytes under way of all streams of a rank, in those of one */
};

double
uli_hier_stream_bytes(
    const struct uli_demand *x, const struct uli_schedule *schedule)
{
    double streams = ((double)x->nodes - 1) * x->nranks;
    return streams > 0 ? schedule->wire_bytes / streams : 0;
}

/* The most streams that a rank carries: to ranks of other nodes whose place is
 * its own modulo the ranks of its node, from each other node, and its own. */
static int64_t
most_streams(const struct uli_demand *x)
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
        most = uli_min(most, limits->flight_bytes * FLIGHTS / most_streams(x));
    most /= ULI_HIER_CHUNKS;
    if (limits->chunk_bytes > 0)
        most = uli_min(most, limits->chunk_bytes);
    int64_t wanted = (int64_t)ceil(stream_bytes / parts);
    int64_t chunk = uli_min(uli_max(wanted, MIN_PART_BYTES), most);
    return uli_max(chunk / MIN_CHUNK_BYTES * MIN_CHUNK_BYTES, MIN_CHUNK_BYTES);
}
