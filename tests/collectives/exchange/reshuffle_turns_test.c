/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges that take several turns for each peer (ULI_TURN_BYTES): shapes
 * whose boxes end a turn between two rows, within a run that is longer than a
 * turn, and in the middle of a tensor. Every byte is compared with the obvious
 * placement, in windows and in a mixture of windows and ordinary memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/dtype.h"
#include "collectives/exchange/exchange.h"
#include "collectives/exchange/reshuffle_world.h"
#include "support/ranks.h"
#include "support/test.h"

enum { LIMIT_S = 60, SEEDS = 1, WINDOW_BYTES = 256 << 20 };

/* kv_heads = 1 gives each rank all KV rows, which are one run per peer. */
static const struct shape {
    const char *what;
    int32_t nranks;
    int64_t rows, heads, kv_heads, dim;
} shapes[] = {
    {"rows that no turn holds a whole number of", 3, 700, 3, 3, 601},
    {"runs longer than a turn", 2, 3001, 2, 1, 150},
    {"one row is longer than a turn", 2, 5, 2, 2, 140001},
    {"several peers", 4, 2003, 8, 4, 160},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

/* The most bytes that a rank gives one peer; a turn or less would test nothing
 * here. */
static int64_t
most_bytes(const struct shape *shape)
{
    return shape->rows / shape->nranks * (shape->heads / shape->nranks) *
           shape->dim * uli_dtype_size(ULYX_DTYPE_BF16);
}

static int
shape_body(int rank, int nranks, void *context)
{
    struct world *w = context;
    (void)nranks;
    return !(world_runs(w, rank) &&
             ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS));
}

static void
shape_run(const struct shape *shape, uint64_t seed)
{
    struct test_random random = {seed};
    struct world_ranks *ranks = calloc(1, sizeof(*ranks));
    struct world *w = calloc(1, sizeof(*w));
    assert_true(ranks && w);
    world_ranks_init_sized(ranks, shape->nranks, WINDOW_BYTES);
    for (int memory = 1; memory < 3; memory++) {
        memset(ranks->used, 0, sizeof(ranks->used));
        world_plain_case(w, shape->nranks, shape->rows, shape->heads,
            shape->kv_heads, shape->dim, ULYX_DTYPE_BF16);
        assert_true(world_draw(w, ranks, &random, memory));
        world_fill(w);
        int failed = ranks_run_threads(shape->nranks, shape_body, w, LIMIT_S);
        if (failed || !world_check(w))
            fail_msg("%s, memory %d, seed %llu: wrong bytes", shape->what,
                memory, (unsigned long long)seed);
        world_free(w);
    }
    world_ranks_free(ranks);
    free(w);
    free(ranks);
}

static void
every_byte_arrives(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        assert_true(most_bytes(&shapes[i]) > ULI_TURN_BYTES);
        for (uint64_t seed = 1; seed <= SEEDS; seed++)
            shape_run(&shapes[i], seed);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_byte_arrives),
};

ULI_TEST_MAIN("ReshuffleTurns", tests)
