/* SPDX-License-Identifier: Apache-2.0
 *
 * The counts that the cost model takes from a layout, against a walk over the
 * layout's moves; and the choice of schedule by a communicator's tuning file.
 */
#include "collectives/plan/plan_choose.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/dtype.h"
#include "base/status.h"
#include "collectives/layout/layout_cases.h"
#include "collectives/hier/layout_hier.h"
#include "comm/comm.h"
#include "support/test.h"

enum { HEADS = 64 };

/* Bytes between nodes in one operation. */
struct crossing {
    const struct uli_layout *layout;
    const int32_t *node_of;
    ulyx_direction_t direction;
    double direct;
};

static bool
count_crossing(void *context, const struct uli_move *move)
{
    struct crossing *x = context;
    const struct uli_shape *shape = uli_layout_shape(x->layout);
    const struct uli_shape_tensor *t = &shape->tensors[move->tensor];
    int64_t element = x->direction == ULYX_SEQ_TO_HEAD_ADJOINT
                          ? uli_dtype_size(t->partial_dtype)
                          : 0;
    int64_t elements = move->batches * move->rows * move->heads * t->dim;
    if (element == 0)
        element = t->elem_bytes;
    for (int32_t s = 0; s < move->nsources; s++)
        if (x->node_of[move->sources[s].rank] != x->node_of[move->dst.rank])
            x->direct += (double)(elements * element);
    return true;
}

/* Computes from all moves the bytes between nodes when every source sends
 * directly. */
static double
schedule_walk(const struct uli_layout *layout, const int32_t *node_of,
    ulyx_direction_t direction)
{
    const struct uli_shape *shape = uli_layout_shape(layout);
    struct uli_place *scratch =
        calloc((size_t)uli_layout_scratch(layout) + 1, sizeof(*scratch));
    struct crossing x = {layout, node_of, direction, 0};
    for (int32_t p = 0; p < shape->nranks; p++)
        for (int32_t t = 0; t < shape->ntensors; t++)
            uli_layout_each_move(
                layout, direction, t, p, -1, scratch, count_crossing, &x);
    free(scratch);
    return x.direct;
}

static void
item_ignore(void *context, const struct uli_hier_item *item)
{
    (void)context, (void)item;
}

/* Computes from the streams of the hierarchical schedule the bytes from each
 * node to each other node. */
static double
walk_hier(const struct uli_layout *layout, const int32_t *node_of,
    int32_t nnodes, ulyx_direction_t direction)
{
    int64_t lanes[ORACLE_MAX_RANKS];
    struct uli_hier_nodes nodes;
    double wire = 0;
    assert_status(uli_nodes_create(uli_layout_shape(layout)->nranks, nnodes,
                      node_of, &nodes),
        ULYX_SUCCESS);
    for (int32_t from = 0; from < nnodes; from++)
        for (int32_t to = 0; to < nnodes; to++) {
            struct uli_hier_bytes bytes = {0, 0};
            if (from == to)
                continue;
            assert_status(uli_hier_each_item(layout, &nodes, direction, from,
                              to, item_ignore, NULL, lanes, &bytes),
                ULYX_SUCCESS);
            wire += (double)bytes.wire;
        }
    uli_nodes_destroy(&nodes);
    return wire;
}

static int32_t
draw_nodes(struct test_random *random, int32_t nranks, int32_t *node_of)
{
    int32_t nodes = (int32_t)test_random_in(random, 1, nranks);
    for (int32_t r = 0; r < nranks; r++)
        node_of[r] = r < nodes ? (nodes - 1 - r)
                               : (int32_t)test_random_in(random, 0, nodes - 1);
    return nodes;
}

/* Whole heads and one sharded part: the counts are exact. */
static bool
is_exact(const struct uli_layout *layout)
{
    const struct uli_shape *shape = uli_layout_shape(layout);
    return shape->nparts == 1 && shape->parts[0].kind == ULYX_PART_SHARDED &&
           !uli_layout_packed(layout);
}

static void
schedules_compare(const struct uli_layout *layout, struct test_random *random)
{
    struct uli_settings settings;
    struct uli_planner planner;
    struct uli_demand demand;
    int32_t node_of[ORACLE_MAX_RANKS];
    int32_t nodes =
        draw_nodes(random, uli_layout_shape(layout)->nranks, node_of);
    memset(&settings, 0, sizeof(settings));
    assert_status(uli_planner_load(&settings, &planner), ULYX_SUCCESS);
    assert_status(uli_plan_demand(layout, nodes, node_of, &demand), 0);
    for (int o = 0; o < ULYX_DIRECTIONS; o++) {
        struct uli_schedule direct, hier;
        if (!uli_layout_direction_exists(layout, o))
            continue;
        assert_status(uli_schedule_build(&demand, o, &planner.model,
                          ULI_ALGO_DIRECT, 1, &direct),
            ULYX_SUCCESS);
        assert_status(uli_schedule_build(
                          &demand, o, &planner.model, ULI_ALGO_HIER, 1, &hier),
            ULYX_SUCCESS);
        double moved = schedule_walk(layout, node_of, o);
        double streamed = walk_hier(layout, node_of, nodes, o);
        if (direct.wire_bytes != moved || hier.wire_bytes != streamed)
            fail_msg("operation %d: %g and %g by counts, %g by moves, %g by "
                     "streams",
                o, direct.wire_bytes, hier.wire_bytes, moved, streamed);
    }
    uli_demand_destroy(&demand);
}

static void
counts_are_what_the_layout_moves(void **state)
{
    (void)state;
    struct test_random random = {test_seed(41)};
    struct oracle_case *c = malloc(sizeof(*c));
    int64_t wanted = test_draws(200);
    for (int64_t draw = 0; draw < wanted;) {
        struct uli_layout *layout;
        case_random(c, &random, ORACLE_MAX_RANKS, false);
        if (case_create(c, &layout) != ULYX_SUCCESS)
            continue;
        if (is_exact(layout) && c->shape.heads <= HEADS) {
            schedules_compare(layout, &random);
            draw++;
        }
        uli_layout_destroy(layout);
    }
    free(c);
}

/* For any layout no count is negative, and the same numbers always give the
 * same choice. */
static void
every_layout_has_a_choice(void **state)
{
    (void)state;
    struct test_random random = {test_seed(42)};
    struct oracle_case *c = malloc(sizeof(*c));
    struct uli_settings settings;
    struct uli_planner planner;
    memset(&settings, 0, sizeof(settings));
    assert_status(uli_planner_load(&settings, &planner), ULYX_SUCCESS);
    for (int64_t draw = 0; draw < test_draws(200); draw++) {
        struct uli_layout *layout;
        struct uli_demand demand;
        struct uli_choice one, two;
        int32_t node_of[ORACLE_MAX_RANKS];
        case_random(c, &random, ORACLE_MAX_RANKS, draw % 2);
        if (case_create(c, &layout) != ULYX_SUCCESS)
            continue;
        int32_t nranks = c->shape.nranks;
        int32_t nodes = draw_nodes(&random, nranks, node_of);
        assert_status(uli_plan_demand(layout, nodes, node_of, &demand), 0);
        for (int32_t r = 0; r < nranks; r++)
            assert_true(demand.rows[r] >= 0 && demand.reads.own[r] >= 0 &&
                        demand.reads.shared[r] >= 0);
        uli_demand_destroy(&demand);
        const struct uli_plan_preference preference = {
            (uint64_t)test_random_in(&random, 1, 15), 0, NULL, false};
        assert_status(uli_plan_choose(
                          layout, nodes, node_of, &preference, &planner, &one),
            0);
        assert_status(uli_plan_choose(
                          layout, nodes, node_of, &preference, &planner, &two),
            0);
        assert_int_equal(one.algo, two.algo);
        assert_string_equal(one.reason, two.reason);
        uli_layout_destroy(layout);
    }
    free(c);
}

/* ---- what ulyx_info says ------------------------------------------------- */

/* Makes q, k and v of the shape that `ulyx_info plan --nodes` takes. */
static struct uli_layout *
layout_of(const struct uli_demand_shape *s)
{
    struct uli_shape shape = {.nranks = (int32_t)(s->nodes * s->ranks_per_node),
        .batch = s->batch,
        .heads = s->heads,
        .nparts = 1,
        .ntensors = 3,
        .parts = {{.kind = ULYX_PART_SHARDED, .rows = s->seq}}};
    struct uli_layout *layout;
    for (int t = 0; t < 3; t++)
        shape.tensors[t] = (struct uli_shape_tensor){
            .ownership = t ? ULYX_HEADS_KV : ULYX_HEADS_QUERY,
            .dtype = ULYX_DTYPE_BF16,
            .elem_bytes = s->element_bytes,
            .heads = t ? s->kv_heads : s->heads,
            .dim = s->dim};
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout), 0);
    return layout;
}

static void
assert_same_holding(const struct uli_holding *a, const struct uli_holding *b,
    const struct uli_demand *x)
{
    for (int32_t r = 0; r < x->nranks; r++) {
        assert_int_equal(a->own[r], b->own[r]);
        assert_int_equal(a->shared[r], b->shared[r]);
    }
    for (int32_t n = 0; n < x->nodes; n++)
        assert_int_equal(a->node_shared[n], b->node_shared[n]);
}

static void
assert_same_choice(
    const struct uli_planner *planner, const struct uli_demand_shape *shape)
{
    int32_t nranks = (int32_t)(shape->nodes * shape->ranks_per_node);
    int32_t *node_of = calloc((size_t)nranks, sizeof(*node_of));
    struct uli_layout *layout = layout_of(shape);
    struct uli_demand counted, computed;
    struct uli_choice plans, tools;
    for (int32_t r = 0; r < nranks; r++)
        node_of[r] = r / (int32_t)shape->ranks_per_node;
    assert_status(
        uli_plan_demand(layout, (int32_t)shape->nodes, node_of, &counted),
        ULYX_SUCCESS);
    assert_status(uli_demand_create(shape, &computed), ULYX_SUCCESS);
    for (int32_t r = 0; r < nranks; r++) {
        assert_int_equal(counted.rows[r], computed.rows[r]);
        assert_int_equal(counted.gives[r], computed.gives[r]);
    }
    assert_same_holding(&counted.reads, &computed.reads, &computed);
    assert_same_holding(&counted.partials, &computed.partials, &computed);
    assert_int_equal(counted.sums, computed.sums);
    const struct uli_plan_preference preference = {
        computed.directions, 0, NULL, false};
    assert_status(uli_plan_choose(layout, (int32_t)shape->nodes, node_of,
                      &preference, planner, &plans),
        ULYX_SUCCESS);
    assert_status(uli_choose(planner, &computed, NULL, &tools), ULYX_SUCCESS);
    assert_int_equal(plans.algo, tools.algo);
    assert_int_equal(plans.best.chunk_bytes, tools.best.chunk_bytes);
    assert_true(plans.best.time_s == tools.best.time_s);
    assert_string_equal(plans.reason, tools.reason);
    uli_demand_destroy(&counted);
    uli_demand_destroy(&computed);
    uli_layout_destroy(layout);
    free(node_of);
}

/* From 2 to 4,096 ranks the tool's counts and choices equal a plan's. */
static void
the_tool_prints_what_plans_choose(void **state)
{
    (void)state;
    static const int64_t nodes[] = {2, 3, 8, 64, 512};
    static const int64_t heads[][2] = {{8, 8}, {14, 2}, {64, 8}, {4096, 512}};
    struct uli_settings settings;
    struct uli_planner planner;
    memset(&settings, 0, sizeof(settings));
    assert_status(uli_planner_load(&settings, &planner), ULYX_SUCCESS);
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++)
        for (int64_t g = 1; g <= 8; g += g == 1 ? 2 : 5)
            for (size_t k = 0; k < sizeof(heads) / sizeof(heads[0]); k++) {
                struct uli_demand_shape shape = {nodes[i], g, 100003, 2,
                    heads[k][0], heads[k][1], 64, 2, ULI_MODEL_NEAR};
                assert_same_choice(&planner, &shape);
            }
}

/* ---- tuning files -------------------------------------------------------- */

/* ULYX_TUNING is read when a communicator is created; creation returns its
 * errors. */
static void
communicators_read_the_tuning_file(void **state)
{
    (void)state;
    char path[] = "/tmp/ulyx-plan-choose-XXXXXX";
    const char good[] = "ulyx tuning 1\nrule nodes=2- -> pairwise\n";
    const char bad[] = "ulyx tuning 1\nrule nodes=2- -> unheard\n";
    ulyx_comm_t *comms[2];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, good, sizeof(good) - 1), sizeof(good) - 1);
    setenv("ULYX_TUNING", path, 1);
    assert_status(ulyx_comm_create_local(2, NULL, comms), ULYX_SUCCESS);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(comms[r]->planner->tuning.nrules, 1);
        assert_int_equal(
            comms[r]->planner->tuning.rules[0].algo, ULI_ALGO_PAIRWISE);
        assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
    }
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(fd, bad, sizeof(bad) - 1, 0), sizeof(bad) - 1);
    assert_status(
        ulyx_comm_create_local(2, NULL, comms), ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(uli_error_text(), ":2: unheard: expected direct"));
    close(fd);
    unlink(path);
    assert_status(ulyx_comm_create_local(2, NULL, comms), ULYX_ERR_SYSTEM);
    unsetenv("ULYX_TUNING");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(counts_are_what_the_layout_moves),
    cmocka_unit_test(every_layout_has_a_choice),
    cmocka_unit_test(the_tool_prints_what_plans_choose),
    cmocka_unit_test(communicators_read_the_tuning_file),
};

ULI_TEST_MAIN("PlanChoose", tests)
