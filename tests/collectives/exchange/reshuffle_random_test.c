/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange against obvious placement, over random draws of everything:
 * layouts, strides, alignments, memory classes per rank and side, slots, ring
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

enum kind { PLAIN, BALANCED };

static void
run_draws(const struct world_scene *scene)
{
    struct test_random random = {test_seed(scene->seed)};
    struct world *w = calloc(1, sizeof(*w));
    struct set *set = calloc(1, sizeof(*set));
    set_init(set);
    for (int64_t i = 0, draws = test_draws(scene->draws); i < draws; i++) {
        uint64_t state = random.state;
        case_random(&w->c, &random, MAX_RANKS, scene->kind == BALANCED);
        w->salt = i;
        if (!world_draw(
                w, &set->ranks[w->c.shape.nranks], &random, scene->memory)) {
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
run_scene(void **state)
{
    world_scene_run(*state, run_draws);
}

static const struct CMUnitTest tests[] = {
    WORLD_SCENE(windows, run_scene, NULL, NULL, 101, 150, 1, PLAIN),
    WORLD_SCENE(ordinary_memory_by_ring, run_scene, "ULYX_CMA", "off", 102, 150,
        0, PLAIN),
    WORLD_SCENE(ordinary_memory_read, run_scene, "ULYX_CMA_MIN_ROW", "8", 103,
        150, 0, PLAIN),
    WORLD_SCENE(
        mixed_memory, run_scene, "ULYX_CMA_MIN_ROW", "16", 104, 400, 2, PLAIN),
    WORLD_SCENE(balanced_work, run_scene, "ULYX_CMA_MIN_ROW", "16", 105, 300, 2,
        BALANCED),
};

ULI_TEST_MAIN("ReshuffleRandom", tests)
