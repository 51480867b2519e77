/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange against obvious placement, over random draws of everything:
 * layouts, strides, alignments, memory classes a rank and side, slots, ring
 * chunks. Every byte of every buffer is compared, gaps and guards included.
 */
#include "collectives/exchange/reshuffle_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "support/ranks.h"
#include "support/test.h"

enum { MAX_RANKS = 9, LIMIT_S = 60 };

static int
rank_body(int rank, int nranks, void *context)
{
    struct world *w = context;
    (void)nranks;
    return !world_runs(w, rank) ||
           !ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS);
}

struct set {
    struct world_ranks ranks[MAX_RANKS + 1];
};

static void
set_init(struct set *set)
{
    for (int32_t n = 1; n <= MAX_RANKS; n++)
        world_ranks_init(&set->ranks[n], n);
}

static void
set_free(struct set *set)
{
    for (int32_t n = 1; n <= MAX_RANKS; n++)
        world_ranks_free(&set->ranks[n]);
}

static void
run_draws(uint64_t seed, int64_t draws, int memory, bool balanced)
{
    struct test_random random = {test_seed(seed)};
    struct world *w = calloc(1, sizeof(*w));
    struct set *set = calloc(1, sizeof(*set));
    set_init(set);
    for (int64_t i = 0; i < draws; i++) {
        uint64_t state = random.state;
        case_random(&w->c, &random, MAX_RANKS, balanced);
        w->salt = i;
        if (!world_draw(w, &set->ranks[w->c.shape.nranks], &random, memory)) {
            uli_layout_destroy(w->layout);
            continue;
        }
        world_fill(w);
        int failed =
            ranks_run_threads(w->c.shape.nranks, rank_body, w, LIMIT_S);
        if (failed || !world_check(w)) {
            printf("draw %" PRId64 ", state %" PRIu64 "\n", i, state);
            case_print(&w->c);
            fail();
        }
        world_free(w);
    }
    set_free(set);
    free(set);
    free(w);
}

static void
windows(void **state)
{
    (void)state;
    run_draws(101, test_draws(150), 1, false);
}

static void
ordinary_memory_by_ring(void **state)
{
    (void)state;
    setenv("ULYX_CMA", "off", 1);
    run_draws(102, test_draws(150), 0, false);
    unsetenv("ULYX_CMA");
}

static void
ordinary_memory_read(void **state)
{
    (void)state;
    setenv("ULYX_CMA_MIN_ROW", "8", 1);
    run_draws(103, test_draws(150), 0, false);
    unsetenv("ULYX_CMA_MIN_ROW");
}

static void
mixed_memory(void **state)
{
    (void)state;
    setenv("ULYX_CMA_MIN_ROW", "16", 1);
    run_draws(104, test_draws(400), 2, false);
    unsetenv("ULYX_CMA_MIN_ROW");
}

static void
balanced_work(void **state)
{
    (void)state;
    setenv("ULYX_CMA_MIN_ROW", "16", 1);
    run_draws(105, test_draws(300), 2, true);
    unsetenv("ULYX_CMA_MIN_ROW");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(windows),
    cmocka_unit_test(ordinary_memory_by_ring),
    cmocka_unit_test(ordinary_memory_read),
    cmocka_unit_test(mixed_memory),
    cmocka_unit_test(balanced_work),
};

ULI_TEST_MAIN("ReshuffleRandom", tests)
