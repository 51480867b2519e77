/* SPDX-License-Identifier: Apache-2.0
 *
 * The hierarchical schedule against obvious placement, which the direct
 * schedule also matches bit for bit: random layouts, memory classes and chunks,
 * on nodes that are made up in several ways. Every byte of every buffer is
 * compared, and the bytes that leave each node are counted: each must leave
 * once.
 */
#include "collectives/exchange/reshuffle_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "collectives/hier/hier.h"
#include "support/ranks.h"
#include "support/test.h"

enum { MAX_RANKS = 8, LIMIT_S = 60 };

/* ---- nodes --------------------------------------------------------------- */

/* The ranks of a node are consecutive, or in another order. */
struct nodes {
    int ranks_per_node;
    bool shuffled;
    struct world_ranks ranks[MAX_RANKS + 1];
};

/* The ranks of a communicator in another order; each rank keeps its node. */
static void
comms_shuffle(ulyx_comm_t **comms, int32_t nranks)
{
    ulyx_comm_t *shuffled[MAX_RANKS];
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int32_t r = 0; r < nranks; r++) {
        int32_t key = (r * 3 + 1) % nranks; /* ties by old rank */
        assert_status(ulyx_comm_split(comms[r], 0, key, NULL, &shuffled[r]),
            ULYX_SUCCESS);
    }
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
    for (int32_t r = 0; r < nranks; r++)
        assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
    for (int32_t r = 0; r < nranks; r++)
        comms[shuffled[r]->rank] = shuffled[r];
}

static void
ranks_init(struct world_ranks *ranks, int32_t nranks, bool shuffled)
{
    memset(ranks, 0, sizeof(*ranks));
    ranks->nranks = nranks;
    ranks->only = -1;
    assert_status(
        ulyx_comm_create_local(nranks, NULL, ranks->comms), ULYX_SUCCESS);
    if (shuffled)
        comms_shuffle(ranks->comms, nranks);
    world_ranks_attach(ranks);
}

static struct nodes *
nodes_new(int ranks_per_node, bool shuffled)
{
    struct nodes *nodes = calloc(1, sizeof(*nodes));
    char text[16];
    snprintf(text, sizeof(text), "%d", ranks_per_node);
    setenv("ULYX_RANKS_PER_NODE", text, 1);
    for (int32_t n = 2; n <= MAX_RANKS; n++)
        ranks_init(&nodes->ranks[n], n, shuffled);
    unsetenv("ULYX_RANKS_PER_NODE");
    return nodes;
}

static void
nodes_free(struct nodes *nodes)
{
    for (int32_t n = 2; n <= MAX_RANKS; n++)
        world_ranks_free(&nodes->ranks[n]);
    free(nodes);
}

/* ---- a draw -------------------------------------------------------------- */

static int
rank_body(int rank, int nranks, void *context)
{
    struct world *w = context;
    (void)nranks;
    return !world_runs(w, rank);
}

/* Counts the sums that a rank takes from other nodes; before each there may be
 * a gap. */
static int64_t
count_sums(const struct uli_hier *hier, int op)
{
    int64_t count = 0;
    for (int32_t i = 0; i < hier->nrails; i++) {
        const struct uli_hier_stream *stream = &hier->work[op].streams[i];
        for (int64_t k = 0; k < stream->ntakes; k++)
            count += stream->takes[k].sum;
    }
    return count;
}

/* The bytes that the ranks carry are those that must cross between nodes, plus
 * the gaps of less than 8 bytes before sums. world_runs compares the bytes
 * actually put after each call. */
static bool
wire_as_counted(const struct world *w, int op)
{
    struct world_wire wire = world_wire(w, op);
    int64_t carried = 0, once = 0, direct = 0, sums = 0;
    for (int32_t r = 0; r < w->ranks->nranks; r++) {
        const struct uli_hier *hier = uli_hier_of(&w->plans[r]->exchange);
        if (!hier)
            return wire.once == 0; /* all ranks are on one node */
        carried += hier->work[op].carried_bytes;
        sums += count_sums(hier, op);
        once += hier->local ? 0 : hier->work[op].node.wire;
        direct += hier->local ? 0 : hier->work[op].node.direct;
    }
    if (carried >= wire.once && carried - wire.once <= 7 * sums &&
        once == wire.once && direct == wire.direct)
        return true;
    fprintf(stderr,
        "operation %d: ranks carry %" PRId64 ", nodes send %" PRId64
        " in place of %" PRId64 "; must be %" PRId64 " for %" PRId64 "\n",
        op, carried, once, direct, wire.once, wire.direct);
    return false;
}

static bool
run_world(struct world *w)
{
    bool good =
        ranks_run_threads(w->c.shape.nranks, rank_body, w, LIMIT_S) == 0;
    good = good && world_check(w);
    for (int op = 0; good && op < ULYX_DIRECTIONS; op++)
        if (w->directions >> op & 1)
            good = wire_as_counted(w, op);
    for (int32_t r = 0; r < w->c.shape.nranks; r++)
        if (w->plans[r])
            assert_status(ulyx_plan_destroy(w->plans[r]), ULYX_SUCCESS);
    return good;
}

static void
run_draws(uint64_t seed, int ranks_per_node, bool shuffled, bool balanced)
{
    struct test_random random = {test_seed(seed)};
    struct world *w = calloc(1, sizeof(*w));
    struct nodes *nodes = nodes_new(ranks_per_node, shuffled);
    for (int64_t i = 0, draws = test_draws(6); i < draws; i++) {
        uint64_t state = random.state;
        do
            case_random(&w->c, &random, MAX_RANKS, balanced);
        while (w->c.shape.nranks < 2);
        w->salt = i;
        w->algo = "hier";
        memset(w->plans, 0, sizeof(w->plans));
        if (!world_draw(w, &nodes->ranks[w->c.shape.nranks], &random, 2)) {
            uli_layout_destroy(w->layout);
            continue;
        }
        world_fill(w);
        if (!run_world(w)) {
            printf("draw %" PRId64 ", state %" PRIu64 "\n", i, state);
            case_print(&w->c);
            fail();
        }
        world_free(w);
    }
    nodes_free(nodes);
    free(w);
}

static void
one_rank_a_node(void **state)
{
    (void)state;
    run_draws(301, 1, false, false);
}

static void
two_ranks_a_node(void **state)
{
    (void)state;
    run_draws(302, 2, false, false);
}

static void
unequal_nodes(void **state)
{
    (void)state;
    run_draws(303, 3, false, false);
}

static void
ranks_of_a_node_apart(void **state)
{
    (void)state;
    run_draws(304, 3, true, false);
}

static void
balanced_work(void **state)
{
    (void)state;
    run_draws(305, 3, true, true);
    run_draws(306, 4, false, true);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_rank_a_node),
    cmocka_unit_test(two_ranks_a_node),
    cmocka_unit_test(unequal_nodes),
    cmocka_unit_test(ranks_of_a_node_apart),
    cmocka_unit_test(balanced_work),
};

ULI_TEST_MAIN("ReshuffleHier", tests)
