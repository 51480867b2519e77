/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost model: message times; the evaluator, compared with bounds of closed
 * formulas and with a simulation; and flows, compared with sums over all
 * pairs.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "support/random.h"
#include "support/test.h"
#include "topology/model/schedule_hier.h"
#include "topology/choose/tuning.h"

static void
message_times_are_linear_between_points(void **state)
{
    (void)state;
    struct uli_model_link link = {.npoints = 3,
        .bytes = {1000, 2000, 10000},
        .s_per_byte = {4e-9, 3e-9, 1e-9}};
    const double cases[][2] = {{10, 40e-9}, {1000, 4e-6}, {1500, 5e-6},
        {2000, 6e-6}, {6000, 8e-6}, {10000, 10e-6}, {50000, 50e-6}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double got = uli_model_message_time(&link, cases[i][0]);
        assert_true(fabs(got - cases[i][1]) < 1e-12);
    }
}

/* ---- closed formulas ----------------------------------------------------- */

/* Latency, overhead and rate of local links and of wire links; m: bytes per
 * pair. */
struct numbers {
    double local_l, local_o, local_g, wire_l, wire_o, wire_g, m;
    int32_t nodes, g;
};

/* Returns a model with these links in which nothing else costs time. */
static struct uli_model
make_model(const struct numbers *n)
{
    struct uli_model model;
    uli_model_defaults(&model);
    for (int c = 0; c < ULI_MODEL_CLASSES; c++) {
        bool wire = c == ULI_MODEL_NIC || c == ULI_MODEL_SPINE;
        struct uli_model_link *link = &model.links[c];
        link->latency_s = wire ? n->wire_l : n->local_l;
        link->send_s = wire ? n->wire_o : n->local_o;
        link->receive_s = 0;
        link->npoints = 1;
        link->s_per_byte[0] = wire ? n->wire_g : n->local_g;
    }
    model.launch_s = model.handoff_s = 0;
    model.efficiency = 1;
    return model;
}

/* A demand of m bytes from every rank to every other: P tokens and one head per
 * rank. */
static struct uli_demand
make_even(const struct numbers *n)
{
    struct uli_demand x;
    int64_t ranks = (int64_t)n->nodes * n->g;
    struct uli_demand_shape shape = {.nodes = n->nodes,
        .ranks_per_node = n->g,
        .seq = ranks,
        .batch = 1,
        .heads = ranks,
        .kv_heads = ranks,
        .dim = 1,
        .element_bytes = 1,
        .local = ULI_MODEL_NVLINK};
    assert_status(uli_demand_create(&shape, &x), ULYX_SUCCESS);
    for (int32_t r = 0; r < x.nranks; r++) {
        x.reads.own[r] = (int64_t)n->m;
        assert_int_equal(x.reads.shared[r], 0);
    }
    return x;
}

static double
numbers_predict(const struct numbers *n, enum uli_algo algo, int32_t chunks)
{
    struct uli_model model = make_model(n);
    struct uli_demand x = make_even(n);
    struct uli_schedule schedule;
    struct uli_prediction prediction;
    assert_status(uli_schedule_build(
                      &x, ULYX_SEQ_TO_HEAD, &model, algo, chunks, &schedule),
        ULYX_SUCCESS);
    uli_model_evaluate(&model, &schedule, &prediction);
    uli_demand_destroy(&x);
    return prediction.time_s;
}

/* low: max(k o, B G); high: k o + B G. */
struct bounds {
    double low, high;
};

static struct bounds
link_bounds(double k, double o, double bytes, double rate)
{
    return (struct bounds){fmax(k * o, bytes * rate), k * o + bytes * rate};
}

static void
expect_within(double time, double low, double high)
{
    if (!(time >= low * (1 - 1e-9) && time <= high * (1 + 1e-9)))
        fail_msg("%g s is not within %g and %g", time, low, high);
}

static void
check_formulas(const struct numbers *n)
{
    double p = n->nodes * n->g, g = n->g, m = n->m, away = p - g;
    struct bounds local =
        link_bounds(g - 1, n->local_o, (g - 1) * m, n->local_g);
    struct bounds wire = link_bounds(away, n->wire_o, away * m, n->wire_g);
    bool has_local = n->g > 1, has_wire = n->nodes > 1;
    double local_l = has_local ? n->local_l : 0;
    double wire_l = has_wire ? n->wire_l : 0;
    /* the windows of pairwise add at most their latencies, one after another */
    double w = 8; /* the default limit */
    double waits = away > w ? away / w * wire_l + 2 * wire.high : 0;
    expect_within(numbers_predict(n, ULI_ALGO_DIRECT, 1),
        fmax(local_l + local.low, wire_l + wire.low),
        fmax(local_l + local.high, wire_l + wire.high));
    expect_within(numbers_predict(n, ULI_ALGO_PAIRWISE, 1),
        fmax(local_l + local.low, wire_l + wire.low),
        fmax(local_l + local.high, waits + wire_l + 1.5 * wire.high));
    struct bounds a =
        link_bounds(g - 1, n->local_o, (g - 1) * n->nodes * m, n->local_g);
    struct bounds b =
        link_bounds(n->nodes - 1, n->wire_o, (n->nodes - 1) * g * m, n->wire_g);
    expect_within(numbers_predict(n, ULI_ALGO_HIER, 1),
        local_l + a.low + wire_l + b.low, local_l + a.high + wire_l + b.high);
}

static void
closed_formulas_bound_the_evaluator(void **state)
{
    (void)state;
    struct test_random random = {test_seed(5)};
    for (int64_t i = 0; i < test_draws(300); i++) {
        struct numbers n = {.local_l = 2e-6 * test_random_unit(&random),
            .local_o = 1e-6 * test_random_unit(&random),
            .local_g = 1e-10 * test_random_unit(&random),
            .wire_l = 9e-6 * test_random_unit(&random),
            .wire_o = 1e-6 * test_random_unit(&random),
            .wire_g = 1e-9 * test_random_unit(&random),
            .m = (double)(INT64_C(1) << test_random_in(&random, 0, 20)),
            .nodes = (int32_t)test_random_in(&random, 1, 20),
            .g = (int32_t)test_random_in(&random, 1, 9)};
        check_formulas(&n);
    }
}

/* A chain of ceil(log2 P) rounds, each with one message of half of all
 * bytes. */
static void
bruck_is_a_chain_of_phases(void **state)
{
    (void)state;
    struct numbers n = {0, 0, 0, 4e-6, 0.35e-6, 1 / 46e9, 64, 8, 8};
    struct uli_model model = make_model(&n);
    struct uli_schedule s = {.chunks = 1, .nphases = 1};
    struct uli_prediction prediction;
    double half = 64 * n.m / 2, total = 0, formula = 0;
    s.phases[0] = (struct uli_phase){.name = "round",
        .flows = {{ULI_MODEL_NIC, 1, half, 1, 0}},
        .nflows = 1};
    for (int round = 0; round < 6; round++) {
        uli_model_evaluate(&model, &s, &prediction);
        total += prediction.time_s;
        formula += n.wire_o + n.wire_l + half * n.wire_g;
    }
    expect_within(total, 6 * (n.wire_l + n.wire_o), formula);
}

/* A pipeline of C chunks takes at least as long as its slower phase and at most
 * as long as both phases one after another. More messages cost more
 * overhead. */
static void
chunks_overlap_phases(void **state)
{
    (void)state;
    struct numbers n = {1e-6, 0, 1 / 100e9, 4e-6, 0, 1 / 46e9, 1 << 20, 8, 8};
    double a = 7 * 8 * n.m * n.local_g, b = 7 * 8 * n.m * n.wire_g;
    double plain = numbers_predict(&n, ULI_ALGO_HIER, 1);
    double four = numbers_predict(&n, ULI_ALGO_HIER, 4);
    assert_true(fabs(plain - (5e-6 + a + b)) < 1e-9);
    assert_true(fabs(four - (5e-6 + a / 4 + b)) < 1e-9);
    n.wire_o = 1e-3;
    assert_true(numbers_predict(&n, ULI_ALGO_HIER, 4) >
                numbers_predict(&n, ULI_ALGO_HIER, 1));
}

/* The cost of a chunk of `bytes` in a stage: fixed_s when the chunk is the
 * first to use the link, its bytes by a rate, and a latency on the way to the
 * next stage. */
struct stage {
    double latency_s, fixed_s, rate;
};

/* Simulates so many chunks, each of which passes all stages in turn, where a
 * stage passes one chunk at a time. Returns the end of the last chunk. */
static double
stages_simulate(const struct stage *stages, int count, int chunks, double bytes)
{
    double free_at[3] = {0}, at = 0;
    for (int c = 0; c < chunks; c++) {
        at = 0;
        for (int i = 0; i < count; i++) {
            at = fmax(at, free_at[i]) + bytes * stages[i].rate;
            at += c == 0 ? stages[i].fixed_s : 0;
            free_at[i] = at;
            at += stages[i].latency_s;
        }
    }
    return at;
}

/* Returns a link with measurements at sizes from 4 KiB to 16 MiB. */
static struct uli_model_link
stage_measure(const struct stage *stage)
{
    struct uli_model_link link = {
        .latency_s = stage->latency_s, .npoints = 7, .source = 3};
    for (int i = 0; i < link.npoints; i++) {
        link.bytes[i] = (double)(4096 << 2 * i);
        link.s_per_byte[i] = stage->rate + stage->fixed_s / link.bytes[i];
    }
    return link;
}

/* Chunks pass gather, wire and spread, one after another, between ranks of two
 * nodes. The table contains the fixed cost of a message at every size, but only
 * one chunk pays this cost. */
static void
one_chunk_pays_the_fixed_cost_of_a_message(void **state)
{
    (void)state;
    struct test_random random = {test_seed(8)};
    for (int64_t i = 0; i < test_draws(200); i++) {
        const double megabytes = (double)test_random_in(&random, 1, 8);
        const int chunks = 1 << test_random_in(&random, 0, 6);
        struct stage stages[3];
        double fixed_s = 0;
        struct uli_model model;
        struct uli_schedule s = {.chunks = chunks, .nphases = 3};
        struct uli_prediction prediction;
        uli_model_defaults(&model);
        model.launch_s = model.handoff_s = 0;
        for (int n = 0; n < 3; n++) {
            int class = n == 0   ? ULI_MODEL_NEAR
                        : n == 1 ? ULI_MODEL_NIC
                                 : ULI_MODEL_FAR;
            stages[n] = (struct stage){1e-4 * test_random_unit(&random),
                1e-3 * test_random_unit(&random),
                2e-8 * test_random_unit(&random)};
            fixed_s += stages[n].fixed_s;
            model.links[class] = stage_measure(&stages[n]);
            s.phases[n] = (struct uli_phase){.nflows = 1,
                .flows = {{(enum uli_model_class) class, 1, megabytes * 1e6, 1,
                    0, 0}}};
        }
        uli_model_evaluate(&model, &s, &prediction);
        double known =
            stages_simulate(stages, 3, chunks, megabytes * 1e6 / chunks);
        /* The first chunk of a slow stage may overlap the rest of an earlier
         * stage, which the model counts in full. */
        if (prediction.time_s < known * (1 - 1e-9) ||
            prediction.time_s > known + fixed_s)
            fail_msg("%d chunks of %g bytes: %g s, simulated %g", chunks,
                megabytes * 1e6 / chunks, prediction.time_s, known);
    }
}

/* Long messages cost more per byte because they leave a cache; chunks keep the
 * cost of their own size. */
static void
chunks_of_long_messages_cost_as_their_size(void **state)
{
    (void)state;
    struct uli_model model;
    struct uli_schedule s = {.chunks = 64, .nphases = 1};
    struct uli_prediction prediction;
    uli_model_defaults(&model);
    model.launch_s = model.handoff_s = 0;
    model.links[ULI_MODEL_NEAR] = (struct uli_model_link){
        .npoints = 2, .bytes = {65536, 4194304}, .s_per_byte = {1e-10, 4e-10}};
    s.phases[0] = (struct uli_phase){
        .nflows = 1, .flows = {{ULI_MODEL_NEAR, 1, 4194304, 1, 0, 0}}};
    uli_model_evaluate(&model, &s, &prediction);
    assert_true(fabs(prediction.time_s / (4194304 * 1e-10) - 1) < 1e-9);
    assert_true(fabs(prediction.busy_s - prediction.time_s) < 1e-12);
}

/* Times in microseconds of the same schedules in SimGrid's SMPI (one
 * exchange, its barrier subtracted; NVLink 360 GB/s, NIC 46 GB/s, 0.35 us per
 * message), as measured once; P ranks, 8 per node. */
static void
predictions_are_near_a_simulation(void **state)
{
    static const struct {
        int32_t nodes;
        enum uli_algo algo;
        double m, us;
    } rows[] = {{8, ULI_ALGO_DIRECT, 1024, 23.1},
        {8, ULI_ALGO_DIRECT, 4096, 23.1}, {8, ULI_ALGO_DIRECT, 16384, 32.2},
        {8, ULI_ALGO_DIRECT, 65536, 96.8}, {8, ULI_ALGO_DIRECT, 262144, 348},
        {8, ULI_ALGO_HIER, 1024, 8.1}, {8, ULI_ALGO_HIER, 4096, 11.2},
        {8, ULI_ALGO_HIER, 16384, 28.7}, {8, ULI_ALGO_HIER, 65536, 99.7},
        {8, ULI_ALGO_HIER, 262144, 383}, {16, ULI_ALGO_DIRECT, 1024, 45.5},
        {16, ULI_ALGO_DIRECT, 4096, 45.5}, {16, ULI_ALGO_DIRECT, 16384, 65.9},
        {16, ULI_ALGO_HIER, 1024, 10.9}, {16, ULI_ALGO_HIER, 4096, 17.1},
        {16, ULI_ALGO_HIER, 16384, 56.2}, {16, ULI_ALGO_HIER, 65536, 207}};
    (void)state;
    double worst = 0, sum = 0;
    enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
    for (int i = 0; i < ROWS; i++) {
        struct numbers n = {0.5e-6, 0.35e-6, 1 / 360e9, 4e-6, 0.35e-6, 1 / 46e9,
            rows[i].m, rows[i].nodes, 8};
        double us = numbers_predict(&n, rows[i].algo, 1) * 1e6;
        double error = us / rows[i].us - 1;
        fprintf(stderr,
            "P=%3d %-6s %6.0f B: %6.1f us, simulated %6.1f, %+.0f %%\n",
            n.nodes * 8, uli_algo_name(rows[i].algo), n.m, us, rows[i].us,
            100 * error);
        worst = fmax(worst, fabs(error));
        sum += fabs(error);
    }
    fprintf(
        stderr, "mean %.1f %%, worst %.1f %%\n", 100 * sum / ROWS, 100 * worst);
    assert_true(worst <= 0.20);
    assert_true(sum / ROWS <= 0.10);
}

/* The same for operations and limits of peers: 64 ranks on 8 nodes, q, k and v
 * of 64 heads, rows tokens a rank, dimension 64, 16 bits. */
static void
operations_and_limits_are_near_a_simulation(void **state)
{
    enum { S2H, H2S, S2H_ADJ, H2S_ADJ };
    static const struct {
        int direction;
        enum uli_algo algo;
        int64_t peers, kv_heads, rows;
        double us;
    } rows[] = {{S2H, ULI_ALGO_PAIRWISE, 1, 64, 3, 245.3},
        {S2H, ULI_ALGO_PAIRWISE, 1, 64, 171, 457.7},
        {S2H, ULI_ALGO_PAIRWISE, 1, 64, 683, 1671.7},
        {S2H, ULI_ALGO_PAIRWISE, 2, 64, 683, 957.8},
        {S2H, ULI_ALGO_PAIRWISE, 4, 64, 43, 76.6},
        {S2H, ULI_ALGO_PAIRWISE, 4, 64, 683, 676.8},
        {S2H, ULI_ALGO_PAIRWISE, 8, 64, 3, 38.1},
        {S2H, ULI_ALGO_PAIRWISE, 8, 64, 43, 46.2},
        {S2H, ULI_ALGO_PAIRWISE, 8, 64, 683, 441.0},
        {S2H, ULI_ALGO_PAIRWISE, 16, 64, 171, 97.5},
        {S2H, ULI_ALGO_PAIRWISE, 32, 64, 683, 359.1},
        {H2S, ULI_ALGO_PAIRWISE, 8, 8, 43, 39.9},
        {H2S, ULI_ALGO_PAIRWISE, 8, 8, 683, 346.8},
        {H2S_ADJ, ULI_ALGO_PAIRWISE, 8, 8, 683, 371.9},
        {S2H_ADJ, ULI_ALGO_PAIRWISE, 8, 8, 683, 541.5},
        {S2H_ADJ, ULI_ALGO_DIRECT, 8, 8, 43, 42.6},
        {H2S_ADJ, ULI_ALGO_DIRECT, 8, 8, 171, 85.1},
        {S2H, ULI_ALGO_HIER, 8, 8, 683, 185.2},
        {H2S, ULI_ALGO_HIER, 8, 8, 43, 17.2},
        {H2S, ULI_ALGO_HIER, 8, 8, 683, 180.2},
        {S2H_ADJ, ULI_ALGO_HIER, 8, 8, 43, 21.2},
        {S2H_ADJ, ULI_ALGO_HIER, 8, 8, 683, 234.7},
        {H2S_ADJ, ULI_ALGO_HIER, 8, 8, 171, 96.5},
        {H2S_ADJ, ULI_ALGO_HIER, 8, 8, 683, 366.5}};
    static const int directions[] = {ULYX_SEQ_TO_HEAD, ULYX_HEAD_TO_SEQ,
        ULYX_SEQ_TO_HEAD_ADJOINT, ULYX_HEAD_TO_SEQ_ADJOINT};
    const struct numbers n = {
        0.5e-6, 0.35e-6, 1 / 360e9, 4e-6, 0.35e-6, 1 / 46e9, 0, 8, 8};
    (void)state;
    double worst = 0, sum = 0;
    enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
    for (int i = 0; i < ROWS; i++) {
        struct uli_demand_shape shape = {8, 8, 64 * rows[i].rows, 1, 64,
            rows[i].kv_heads, 64, 2, ULI_MODEL_NVLINK};
        struct uli_model model = make_model(&n);
        struct uli_demand x;
        struct uli_schedule s;
        struct uli_prediction p;
        model.peers = rows[i].peers;
        assert_status(uli_demand_create(&shape, &x), ULYX_SUCCESS);
        assert_status(uli_schedule_build(&x, directions[rows[i].direction],
                          &model, rows[i].algo, 1, &s),
            ULYX_SUCCESS);
        uli_model_evaluate(&model, &s, &p);
        uli_demand_destroy(&x);
        double error = p.time_s * 1e6 / rows[i].us - 1;
        if (fabs(error) > 0.12)
            fail_msg("row %d: %.1f us, simulated %.1f", i, p.time_s * 1e6,
                rows[i].us);
        worst = fmax(worst, fabs(error));
        sum += fabs(error);
    }
    fprintf(
        stderr, "mean %.1f %%, worst %.1f %%\n", 100 * sum / ROWS, 100 * worst);
    assert_true(sum / ROWS <= 0.06);
}

/* ---- flows against all pairs --------------------------------------------- */

static struct uli_demand
make_demand(struct test_random *random)
{
    struct uli_demand x;
    struct uli_demand_shape shape = {.nodes = test_random_in(random, 1, 5),
        .ranks_per_node = test_random_in(random, 1, 5),
        .seq = test_random_in(random, 1, 3000),
        .batch = test_random_in(random, 1, 3),
        .kv_heads = test_random_in(random, 1, 9),
        .dim = test_random_in(random, 1, 64),
        .element_bytes = 2,
        .local = ULI_MODEL_NVLINK};
    shape.heads = shape.kv_heads * test_random_in(random, 1, 6);
    assert_status(uli_demand_create(&shape, &x), ULYX_SUCCESS);
    for (int32_t r = 0; test_random_in(random, 0, 1) && r < x.nranks; r++)
        x.rows[r] = test_random_in(random, 0, 3) ? x.rows[r] * 2 : 0;
    return x;
}

/* Returns the bytes from i to j: i's tokens times j's share on the head side,
 * or the reverse. */
static double
pair_bytes(const struct uli_demand *x, int o, int32_t i, int32_t j)
{
    switch (o) {
    case ULYX_SEQ_TO_HEAD:
        return (double)(x->rows[i] * (x->reads.own[j] + x->reads.shared[j]));
    case ULYX_SEQ_TO_HEAD_ADJOINT:
        return (
            double)(x->rows[j] * (x->partials.own[i] + x->partials.shared[i]));
    case ULYX_HEAD_TO_SEQ:
        return (double)(x->rows[j] * x->gives[i]);
    default:
        return (double)(x->rows[i] * x->gives[j]);
    }
}

/* Computes the bytes between nodes by a loop over all pairs. With hier, bytes
 * that a node shares count once, to the node or from it. */
static double
wire_bytes(const struct uli_demand *x, int o, bool hier)
{
    bool to = o == ULYX_SEQ_TO_HEAD, from = o == ULYX_SEQ_TO_HEAD_ADJOINT;
    const struct uli_holding *h = to ? &x->reads : &x->partials;
    double sum = 0;
    for (int32_t i = 0; i < x->nranks; i++) {
        for (int32_t j = 0; j < x->nranks; j++)
            if (x->node[i] != x->node[j])
                sum += hier && to     ? (double)(x->rows[i] * h->own[j])
                       : hier && from ? (double)(x->rows[j] * h->own[i])
                                      : pair_bytes(x, o, i, j);
        for (int32_t n = 0; hier && (to || from) && n < x->nodes; n++)
            if (x->node[i] != n)
                sum += (double)(x->rows[i] * h->node_shared[n]);
    }
    return sum;
}

/* Returns the time that the slowest rank needs at the wire with direct, in or
 * out. */
static double
slowest_wire(const struct uli_demand *x, int o, const struct uli_model *model)
{
    double slowest = 0;
    for (int32_t r = 0; r < x->nranks; r++)
        for (int in = 0; in < 2; in++) {
            struct uli_flow flow = {ULI_MODEL_SPINE, 0, 0, 1, 0};
            for (int32_t p = 0; p < x->nranks; p++) {
                double bytes =
                    in ? pair_bytes(x, o, p, r) : pair_bytes(x, o, r, p);
                if (x->node[p] == x->node[r])
                    continue;
                flow.messages += bytes > 0;
                flow.bytes += bytes;
            }
            slowest = fmax(slowest, uli_model_occupancy(model, &flow));
        }
    return slowest;
}

static void
check_direction(
    const struct uli_demand *x, int o, const struct uli_model *model)
{
    struct uli_schedule direct, hier;
    struct uli_prediction prediction;
    assert_status(uli_schedule_build(x, o, model, ULI_ALGO_DIRECT, 1, &direct),
        ULYX_SUCCESS);
    assert_status(
        uli_schedule_build(x, o, model, ULI_ALGO_HIER, 1, &hier), ULYX_SUCCESS);
    assert_true(direct.wire_bytes == wire_bytes(x, o, false));
    assert_true(hier.wire_bytes == wire_bytes(x, o, true));
    uli_model_evaluate(model, &direct, &prediction);
    assert_true(fabs(prediction.time_s - slowest_wire(x, o, model)) < 1e-12);
}

static void
flows_are_sums_over_pairs(void **state)
{
    (void)state;
    struct test_random random = {test_seed(6)};
    struct numbers n = {0, 0, 0, 0, 1e-6, 1e-10, 0, 0, 0};
    struct uli_model model = make_model(&n);
    for (int64_t i = 0; i < test_draws(300); i++) {
        struct uli_demand x = make_demand(&random);
        for (int o = 0; o < ULYX_DIRECTIONS; o++)
            check_direction(&x, o, &model);
        uli_demand_destroy(&x);
    }
}

/* Each rank sends all heads once, for any number of readers. Partial sums of
 * 16-bit tensors are wider where any head is shared. */
static void
heads_are_sent_once_and_partial_sums_are_wide(void **state)
{
    (void)state;
    struct test_random random = {test_seed(9)};
    for (int64_t i = 0; i < test_draws(200); i++) {
        struct uli_demand_shape shape = {test_random_in(&random, 1, 4),
            test_random_in(&random, 1, 6), 100, 1, 0,
            test_random_in(&random, 1, 9), 16, 2, ULI_MODEL_NEAR};
        shape.heads = shape.kv_heads * test_random_in(&random, 1, 6);
        struct uli_demand x;
        int64_t gives = 0, reads = 0, partials = 0;
        assert_status(uli_demand_create(&shape, &x), ULYX_SUCCESS);
        for (int32_t r = 0; r < x.nranks; r++) {
            gives += x.gives[r];
            reads += uli_holding_all(&x.reads, r);
            partials += uli_holding_all(&x.partials, r);
        }
        int64_t q = 32 * shape.heads, all = q + 64 * shape.kv_heads;
        assert_int_equal(gives, all);
        assert_int_equal(x.sums, reads > all);
        assert_int_equal(partials, x.sums ? q + 2 * (reads - q) : reads);
        uli_demand_destroy(&x);
    }
}

/* Limits of outstanding peers: no limit, and a limit that is never reached,
 * give the time of direct. Other limits are never faster, and they do not delay
 * streams of partial sums. */
static void
limits_of_peers_never_shorten_a_schedule(void **state)
{
    (void)state;
    struct uli_demand_shape shape = {
        8, 8, 1 << 17, 1, 64, 8, 128, 2, ULI_MODEL_NVLINK};
    struct uli_demand x;
    struct uli_model model;
    struct uli_schedule s;
    struct uli_prediction p[2];
    uli_model_defaults(&model);
    assert_status(uli_demand_create(&shape, &x), ULYX_SUCCESS);
    for (int o = 0; o < ULYX_DIRECTIONS; o++) {
        assert_status(
            uli_schedule_build(&x, o, &model, ULI_ALGO_DIRECT, 1, &s), 0);
        uli_model_evaluate(&model, &s, &p[0]);
        for (model.peers = 0; model.peers <= 64; model.peers += 8) {
            assert_status(
                uli_schedule_build(&x, o, &model, ULI_ALGO_PAIRWISE, 1, &s), 0);
            uli_model_evaluate(&model, &s, &p[1]);
            if (model.peers == 0 || model.peers >= 56 ||
                o == ULYX_SEQ_TO_HEAD_ADJOINT)
                assert_true(p[1].time_s == p[0].time_s);
            else
                assert_true(p[1].time_s > p[0].time_s);
        }
        model.peers = 8;
    }
    uli_demand_destroy(&x);
}

/* A chunk is the requested fraction of a stream, within the limits and in whole
 * lines. */
static void
chunks_keep_within_the_limits(void **state)
{
    (void)state;
    struct numbers n = {.m = 64, .nodes = 4, .g = 2};
    struct uli_demand x = make_even(&n);
    const struct uli_chunk_limits none = {0, 0}, some = {128 << 10, 4 << 20};
    const struct uli_chunk_limits flight = {128 << 10, 8 << 10};
    assert_int_equal(uli_hier_chunk_bytes(&x, &none, 1 << 20, 4), 256 << 10);
    assert_int_equal(uli_hier_chunk_bytes(&x, &some, 1 << 20, 4), 128 << 10);
    assert_int_equal(uli_hier_chunk_bytes(&x, &some, 100000, 1), 99968);
    assert_int_equal(uli_hier_chunk_bytes(&x, &some, 100000, 16), 16 << 10);
    assert_int_equal(uli_hier_chunk_bytes(&x, &flight, 1 << 20, 1), 2 << 10);
    x.flight_bytes = 64 << 10; /* K = 4 places of it */
    assert_int_equal(uli_hier_chunk_bytes(&x, &some, 1 << 20, 4), 16 << 10);
    x.flight_bytes = 100;
    assert_int_equal(uli_hier_chunk_bytes(&x, &some, 1 << 20, 4), 64);
    uli_demand_destroy(&x);
}

/* With hier, KV heads go to a node once. `ratio`: the bytes that direct sends
 * between nodes, relative to hier. */
static void
shared_heads_cross_once(void **state)
{
    static const struct {
        int64_t nodes, heads, kv;
        double ratio;
    } rows[] = {{8, 64, 8, 2.4}, {16, 128, 8, 2.4}, {1, 32, 8, 0},
        {4, 64, 8, 1.6}, {2, 64, 8, 1.2}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct uli_demand_shape shape = {rows[i].nodes, 8, 131072, 1,
            rows[i].heads, rows[i].kv, 128, 2, ULI_MODEL_NVLINK};
        struct uli_model model;
        struct uli_demand x;
        struct uli_schedule direct, hier;
        uli_model_defaults(&model);
        assert_status(uli_demand_create(&shape, &x), ULYX_SUCCESS);
        assert_status(uli_schedule_build(&x, ULYX_SEQ_TO_HEAD, &model,
                          ULI_ALGO_DIRECT, 1, &direct),
            ULYX_SUCCESS);
        assert_status(uli_schedule_build(&x, ULYX_SEQ_TO_HEAD, &model,
                          ULI_ALGO_HIER, 1, &hier),
            ULYX_SUCCESS);
        if (rows[i].ratio > 0)
            assert_true(fabs(direct.wire_bytes / hier.wire_bytes -
                             rows[i].ratio) < 1e-6);
        else
            assert_true(direct.wire_bytes == 0 && hier.wire_bytes == 0);
        uli_demand_destroy(&x);
    }
}

/* Aggregation is faster below the crossover and never much slower above it. */
static void
the_crossover_is_where_it_should_be(void **state)
{
    (void)state;
    struct numbers n = {
        0.5e-6, 0.35e-6, 1 / 360e9, 4e-6, 0.35e-6, 1 / 46e9, 0, 0, 8};
    for (n.nodes = 8; n.nodes <= 512; n.nodes *= 4)
        for (n.m = 256; n.m <= 1 << 20; n.m *= 4) {
            double direct = numbers_predict(&n, ULI_ALGO_DIRECT, 1);
            double hier = fmin(numbers_predict(&n, ULI_ALGO_HIER, 1),
                numbers_predict(&n, ULI_ALGO_HIER, 8));
            if (n.m <= 4096)
                assert_true(hier < direct);
            else
                assert_true(hier < 1.06 * direct);
        }
}

static void
bad_shapes_are_refused(void **state)
{
    (void)state;
    struct uli_demand x;
    const struct uli_demand_shape good = {
        2, 2, 64, 1, 8, 2, 64, 2, ULI_MODEL_NEAR};
    struct uli_demand_shape shape = good;
    shape.kv_heads = 3;
    assert_status(uli_demand_create(&shape, &x), ULYX_ERR_INVALID_ARGUMENT);
    shape = good;
    shape.seq = 0;
    assert_status(uli_demand_create(&shape, &x), ULYX_ERR_INVALID_ARGUMENT);
    shape = good;
    shape.nodes = ULI_DEMAND_RANKS_MAX;
    assert_status(uli_demand_create(&shape, &x), ULYX_ERR_INVALID_ARGUMENT);
    shape.nodes = INT64_MAX;
    assert_status(uli_demand_create(&shape, &x), ULYX_ERR_INVALID_ARGUMENT);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(message_times_are_linear_between_points),
    cmocka_unit_test(closed_formulas_bound_the_evaluator),
    cmocka_unit_test(bruck_is_a_chain_of_phases),
    cmocka_unit_test(chunks_overlap_phases),
    cmocka_unit_test(one_chunk_pays_the_fixed_cost_of_a_message),
    cmocka_unit_test(chunks_of_long_messages_cost_as_their_size),
    cmocka_unit_test(predictions_are_near_a_simulation),
    cmocka_unit_test(operations_and_limits_are_near_a_simulation),
    cmocka_unit_test(flows_are_sums_over_pairs),
    cmocka_unit_test(heads_are_sent_once_and_partial_sums_are_wide),
    cmocka_unit_test(limits_of_peers_never_shorten_a_schedule),
    cmocka_unit_test(chunks_keep_within_the_limits),
    cmocka_unit_test(shared_heads_cross_once),
    cmocka_unit_test(the_crossover_is_where_it_should_be),
    cmocka_unit_test(bad_shapes_are_refused),
};

ULI_TEST_MAIN("Model", tests)
