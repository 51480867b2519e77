/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedule in GOAL, read back: every send has its receive, bytes between
 * nodes are those of the schedule, and what an operation requires comes before
 * it.
 */
#include <stdlib.h>
#include <string.h>
#include "support/random.h"
#include "support/test.h"
#include "info_goal.h"

enum { RANKS = 24, TAGS = 3 };

struct totals {
    long long sent[RANKS][RANKS][TAGS], received[RANKS][RANKS][TAGS];
    int nranks, messages;
};

static void
read_line(struct totals *t, const char *line, int *rank)
{
    long long label, other, bytes;
    int peer, tag;
    if (sscanf(line, "num_ranks %d", &t->nranks) == 1 ||
        sscanf(line, "rank %d {", rank) == 1 || line[0] == '}')
        return;
    if (sscanf(line, "l%lld requires l%lld", &label, &other) == 2) {
        assert_true(other < label && other >= 1);
        return;
    }
    if (sscanf(line, "l%lld: send %lldb to %d tag %d", &label, &bytes, &peer,
            &tag) == 4) {
        t->sent[*rank][peer][tag] += bytes;
        t->messages++;
    } else if (sscanf(line, "l%lld: recv %lldb from %d tag %d", &label, &bytes,
                   &peer, &tag) == 4) {
        t->received[peer][*rank][tag] += bytes;
    } else {
        assert_non_null(strstr(line, ": calc 0"));
    }
}

static void
read_goal(char *text, struct totals *t)
{
    int rank = -1;
    char *rest = NULL;
    memset(t, 0, sizeof(*t));
    for (char *line = strtok_r(text, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest))
        read_line(t, line, &rank);
}

static void
goal_check(const struct uli_demand *x, int direction, enum uli_algo algo,
    int64_t peers)
{
    struct uli_model model;
    struct uli_schedule schedule;
    struct totals *t = malloc(sizeof(*t));
    char *text = NULL;
    size_t bytes = 0;
    double wire = 0;
    FILE *file = open_memstream(&text, &bytes);
    uli_model_defaults(&model);
    assert_status(
        uli_schedule_build(x, direction, &model, algo, 1, &schedule), 0);
    assert_status(info_write_goal(x, direction, algo, peers, file), 0);
    fclose(file);
    read_goal(text, t);
    assert_int_equal(t->nranks, x->nranks);
    assert_memory_equal(t->sent, t->received, sizeof(t->sent));
    for (int i = 0; i < x->nranks; i++)
        for (int j = 0; j < x->nranks; j++)
            for (int tag = 0; tag < TAGS; tag++)
                if (x->node[i] != x->node[j])
                    wire += (double)t->sent[i][j][tag];
    assert_true(wire == schedule.wire_bytes);
    for (int i = 0; i < x->nranks; i++)
        assert_true(t->sent[i][i][0] == 0);
    free(text);
    free(t);
}

static void
check_all(const struct uli_demand *x, int64_t peers)
{
    for (int direction = 0; direction < ULYX_DIRECTIONS; direction++)
        for (int algo = 0; algo < ULI_ALGOS; algo++)
            goal_check(x, direction, algo, peers);
}

/* Draws unequal nodes, ranks on them in any order, and any counts. */
static struct uli_demand
make_uneven(struct test_random *random)
{
    struct uli_demand x;
    int32_t nodes = (int32_t)test_random_in(random, 1, 5), node_of[RANKS];
    int32_t nranks = (int32_t)test_random_in(random, nodes, RANKS);
    for (int32_t r = 0; r < nranks; r++)
        node_of[r] =
            r < nodes ? r : (int32_t)test_random_in(random, 0, nodes - 1);
    for (int32_t r = 0; r < nranks; r++) {
        int32_t other = (int32_t)test_random_in(random, r, nranks - 1);
        int32_t kept = node_of[r];
        node_of[r] = node_of[other];
        node_of[other] = kept;
    }
    assert_status(uli_demand_create_empty(nranks, nodes, node_of, &x), 0);
    for (int32_t r = 0; r < nranks; r++) {
        x.rows[r] = test_random_in(random, 0, 50);
        x.reads.own[r] = test_random_in(random, 0, 3) * 64;
        x.reads.shared[r] = test_random_in(random, 0, 2) * 64;
        x.partials.own[r] = test_random_in(random, 0, 3) * 128;
        x.partials.shared[r] = test_random_in(random, 0, 2) * 128;
        x.gives[r] = test_random_in(random, 0, 2) * 64;
    }
    for (int32_t n = 0; n < nodes; n++) {
        x.reads.node_shared[n] = test_random_in(random, 0, 5) * 64;
        x.partials.node_shared[n] = test_random_in(random, 0, 5) * 128;
    }
    x.sums = test_random_in(random, 0, 1);
    return x;
}

static void
unequal_nodes_lose_nothing(void **state)
{
    (void)state;
    struct test_random random = {test_seed(8)};
    for (int64_t i = 0; i < test_draws(100); i++) {
        struct uli_demand x = make_uneven(&random);
        for (int32_t r = 0; r < x.nranks; r++)
            assert_int_equal(x.members[x.first[x.node[r]] + x.place[r]], r);
        check_all(&x, test_random_in(&random, 0, 12));
        uli_demand_destroy(&x);
    }
}

static void
messages_are_those_of_the_schedule(void **state)
{
    (void)state;
    struct test_random random = {test_seed(7)};
    for (int64_t i = 0; i < test_draws(60); i++) {
        struct uli_demand x;
        struct uli_demand_shape shape = {test_random_in(&random, 1, 4),
            test_random_in(&random, 1, 6), test_random_in(&random, 1, 500), 1,
            0, test_random_in(&random, 1, 6), 16, 2, ULI_MODEL_NEAR};
        shape.heads = shape.kv_heads * test_random_in(&random, 1, 6);
        assert_status(uli_demand_create(&shape, &x), 0);
        check_all(&x, test_random_in(&random, 0, 12));
        uli_demand_destroy(&x);
    }
}

/* The shared heads are worked out by hand. Each rank must get exactly what it
 * reads alone and what other ranks pass to it, and no node may get a head
 * twice. */
static void
every_reader_gets_its_heads(void **state)
{
    (void)state;
    struct uli_demand x;
    struct uli_demand_shape shape = {2, 4, 64, 1, 8, 2, 1, 1, ULI_MODEL_NEAR};
    assert_status(uli_demand_create(&shape, &x), 0);
    /* 8 query heads, two KV heads with four readers each, all on one node. */
    for (int r = 0; r < 8; r++) {
        assert_int_equal(x.reads.own[r], 1);
        assert_int_equal(x.reads.shared[r], 2);
        assert_int_equal(
            uli_demand_carried(&x, &x.reads, r), r % 4 < 2 ? 2 : 1);
    }
    assert_int_equal(x.reads.node_shared[0], 2);
    uli_demand_destroy(&x);
    /* 14 query heads, two KV heads, on 4 ranks: 4 4 3 3. */
    shape = (struct uli_demand_shape){1, 4, 64, 1, 14, 2, 1, 1, ULI_MODEL_NEAR};
    assert_status(uli_demand_create(&shape, &x), 0);
    const int64_t own[] = {4, 4, 3, 3}, shared[] = {2, 4, 2, 2};
    assert_memory_equal(x.reads.own, own, sizeof(own));
    assert_memory_equal(x.reads.shared, shared, sizeof(shared));
    assert_int_equal(x.reads.node_shared[0], 4);
    for (int to = 0; to < 4; to++) {
        int64_t handed = 0;
        for (int from = 0; from < 4; from++)
            handed += uli_demand_handed(&x, &x.reads, from, to);
        assert_int_equal(handed, shared[to]);
    }
    uli_demand_destroy(&x);
}

static void
large_files_are_refused(void **state)
{
    (void)state;
    struct uli_demand x;
    struct uli_demand_shape shape = {
        1024, 8, 8192, 1, 8192, 8192, 1, 1, ULI_MODEL_NEAR};
    assert_status(uli_demand_create(&shape, &x), 0);
    assert_status(
        info_write_goal(&x, ULYX_SEQ_TO_HEAD, ULI_ALGO_DIRECT, 8, stderr),
        ULYX_ERR_INVALID_ARGUMENT);
    uli_demand_destroy(&x);
}

/* Nearly all messages are those of the one large node. */
static void
large_files_of_unequal_nodes_are_refused(void **state)
{
    (void)state;
    enum { LARGE = 5000, NODES = 200 };
    static int32_t node_of[LARGE + NODES - 1];
    struct uli_demand x;
    for (int32_t n = 1; n < NODES; n++)
        node_of[LARGE + n - 1] = n;
    assert_status(
        uli_demand_create_empty(LARGE + NODES - 1, NODES, node_of, &x), 0);
    assert_status(
        info_write_goal(&x, ULYX_SEQ_TO_HEAD, ULI_ALGO_HIER, 8, stderr),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(ulyx_last_error(), " 51024601 messages"));
    uli_demand_destroy(&x);
}

static void
full_disks_are_reported(void **state)
{
    (void)state;
    struct uli_demand x;
    struct uli_demand_shape shape = {2, 2, 64, 1, 4, 4, 1, 1, ULI_MODEL_NEAR};
    FILE *file = fopen("/dev/full", "w");
    if (!file)
        test_skip("no /dev/full");
    assert_status(uli_demand_create(&shape, &x), 0);
    assert_status(info_write_goal(&x, ULYX_SEQ_TO_HEAD, ULI_ALGO_HIER, 8, file),
        ULYX_ERR_SYSTEM);
    fclose(file);
    uli_demand_destroy(&x);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(unequal_nodes_lose_nothing),
    cmocka_unit_test(messages_are_those_of_the_schedule),
    cmocka_unit_test(every_reader_gets_its_heads),
    cmocka_unit_test(large_files_are_refused),
    cmocka_unit_test(large_files_of_unequal_nodes_are_refused),
    cmocka_unit_test(full_disks_are_reported),
};

ULI_TEST_MAIN("Goal", tests)
