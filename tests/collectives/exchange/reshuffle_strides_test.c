/* SPDX-License-Identifier: Apache-2.0
 *
 * Strides of a call: a plan whose tensors lie elsewhere from call to call, at
 * some ranks and not at others, against obvious placement; and what is refused.
 */
#include <stdlib.h>
#include <string.h>
#include "collectives/exchange/reshuffle_world.h"
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 5, LIMIT_S = 60 };

/* ---- random draws -------------------------------------------------------- */

static int
create_body(int rank, int nranks, void *context)
{
    (void)nranks;
    return !ranks_expect(world_create(context, rank) == ULYX_SUCCESS);
}

static int
destroy_body(int rank, int nranks, void *context)
{
    struct world *w = context;
    (void)nranks;
    return !ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS);
}

static int
run_body(int rank, int nranks, void *context)
{
    struct world *w = context;
    bool good = true;
    (void)nranks;
    for (int i = 0; good && i < w->norder; i++)
        good =
            ranks_expect(world_execute(w, rank, w->order[i]) == ULYX_SUCCESS) &&
            ranks_expect(world_wire_agrees(w, rank, w->order[i]));
    return !good;
}

struct rows {
    struct world *w;
    struct case_rows given;
};

static int
update_body(int rank, int nranks, void *context)
{
    struct rows *u = context;
    ulyx_docs_t docs_q, docs_k;
    (void)nranks;
    return !ranks_expect(
        ulyx_plan_update_rows(u->w->plans[rank], u->given.rows,
            u->given.has_splits ? u->given.splits : NULL,
            case_docs(&u->w->c, 0, &docs_q), case_docs(&u->w->c, 1, &docs_k),
            NULL) == ULYX_SUCCESS);
}

/* Draws other rows for the world and its plans. Returns false when the
 * documents exceed the case's maxima. */
static bool
change_rows(struct world *w, struct test_random *random)
{
    struct rows u = {.w = w};
    struct oracle_case *c = &w->c;
    ulyx_docs_t docs_q, docs_k;
    case_random_rows(c, random, &u.given);
    if (uli_layout_update_rows(w->layout, u.given.rows,
            u.given.has_splits ? u.given.splits : NULL,
            case_docs(c, 0, &docs_q), case_docs(c, 1, &docs_k)) != ULYX_SUCCESS)
        return false;
    oracle_free(&w->oracle);
    oracle_init(&w->oracle, c, NULL);
    assert_int_equal(
        ranks_run_threads(c->shape.nranks, update_body, &u, LIMIT_S), 0);
    return true;
}

/* The first and last calls use the strides of creation; between them, only one
 * of two ranks may move its tensors. */
static void
run_world(struct world *w, struct test_random *random, bool rows)
{
    static const int one_in[] = {0, 2, 3, 1, 0};
    int n = w->c.shape.nranks;
    assert_int_equal(ranks_run_threads(n, create_body, w, LIMIT_S), 0);
    for (int i = 0; i < 5; i++) {
        if (rows && i % 2 && !change_rows(w, random))
            break;
        world_move(w, random, one_in[i]);
        world_fill(w);
        int failed = ranks_run_threads(n, run_body, w, LIMIT_S);
        if (failed || !world_check(w)) {
            case_print(&w->c);
            fail();
        }
    }
    assert_int_equal(ranks_run_threads(n, destroy_body, w, LIMIT_S), 0);
}

enum kind { PLAIN, BALANCED, ROWS };

static void
run_draws(const struct world_scene *scene)
{
    struct test_random random = {test_seed(scene->seed)};
    struct world *w = calloc(1, sizeof(*w));
    struct world_ranks *ranks = calloc(RANKS + 1, sizeof(*ranks));
    for (int32_t n = 1; n <= RANKS; n++)
        world_ranks_init(&ranks[n], n);
    for (int64_t draw = 0, draws = test_draws(scene->draws); draw < draws;) {
        case_random(&w->c, &random, RANKS, scene->kind == BALANCED);
        if (scene->kind == ROWS)
            case_random_capacities(&w->c, &random);
        if (!world_draw(w, &ranks[w->c.shape.nranks], &random, scene->memory)) {
            uli_layout_destroy(w->layout);
            continue;
        }
        w->flags = draw % 8 == 7 ? ULYX_PLAN_PROGRESS_THREAD : 0;
        w->salt = draw++;
        run_world(w, &random, scene->kind == ROWS);
        world_free(w);
    }
    for (int32_t n = 1; n <= RANKS; n++)
        world_ranks_free(&ranks[n]);
    free(ranks);
    free(w);
}

static void
run_scene(void **state)
{
    world_scene_run(*state, run_draws);
}

static const struct CMUnitTest tests[] = {
    WORLD_SCENE(windows, run_scene, NULL, NULL, 601, 60, 1, PLAIN),
    WORLD_SCENE(ordinary_memory_by_ring, run_scene, "ULYX_CMA", "off", 602, 60,
        0, PLAIN),
    WORLD_SCENE(ordinary_memory_read, run_scene, "ULYX_CMA_MIN_ROW", "8", 603,
        60, 0, PLAIN),
    WORLD_SCENE(
        mixed_memory, run_scene, "ULYX_CMA_MIN_ROW", "16", 604, 120, 2, PLAIN),
    WORLD_SCENE(balanced_work, run_scene, "ULYX_CMA_MIN_ROW", "16", 605, 80, 2,
        BALANCED),
    WORLD_SCENE(rows_that_change, run_scene, "ULYX_CMA_MIN_ROW", "16", 606, 80,
        2, ROWS),
};

ULI_TEST_MAIN("ReshuffleStrides", tests)
