/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that change: one plan serves all lengths, against obvious placement; and
 * what updates refuse.
 */
#include <stdlib.h>
#include <string.h>
#include "collectives/exchange/reshuffle_world.h"
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 4, LIMIT_S = 60 };

struct rows {
    struct world *w;
    struct case_rows given;
    bool differs; /* whether rank 0 keeps the old rows */
};

static int
create_body(int rank, int nranks, void *context)
{
    struct rows *u = context;
    (void)nranks;
    return !ranks_expect(world_create(u->w, rank) == ULYX_SUCCESS);
}

static int
destroy_body(int rank, int nranks, void *context)
{
    struct rows *u = context;
    (void)nranks;
    return !ranks_expect(ulyx_plan_destroy(u->w->plans[rank]) == ULYX_SUCCESS);
}

static int
update_body(int rank, int nranks, void *context)
{
    struct rows *u = context;
    ulyx_docs_t docs_q, docs_k;
    (void)nranks;
    if (u->differs && rank == 0)
        return 0;
    return !ranks_expect(
        ulyx_plan_update_rows(u->w->plans[rank], u->given.rows,
            u->given.has_splits ? u->given.splits : NULL,
            case_docs(&u->w->c, 0, &docs_q), case_docs(&u->w->c, 1, &docs_k),
            NULL) == ULYX_SUCCESS);
}

static int
run_body(int rank, int nranks, void *context)
{
    struct rows *u = context;
    bool good = true;
    (void)nranks;
    for (int i = 0; i < u->w->norder; i++)
        good &= ranks_expect(
            world_execute(u->w, rank, u->w->order[i]) == ULYX_SUCCESS);
    return !good;
}

/* Returns whether the first and last byte of each tensor lie where the plan
 * says. */
static int
extent_body(int rank, int nranks, void *context)
{
    struct rows *u = context;
    const struct world *w = u->w;
    bool good = true;
    (void)nranks;
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
            int64_t now, most;
            good &= ranks_expect(!ulyx_plan_get_extent(
                w->plans[rank], t, op, ULYX_SIDE_SRC, &now));
            good &= ranks_expect(!ulyx_plan_get_max_extent(
                w->plans[rank], t, op, ULYX_SIDE_SRC, &most));
            good &= ranks_expect(now <= most);
        }
    return !good;
}

static int
differ_body(int rank, int nranks, void *context)
{
    struct rows *u = context;
    (void)nranks;
    return !(
        ranks_expect(
            world_execute(u->w, rank, u->w->order[0]) == ULYX_ERR_MISMATCH) &&
        ranks_expect(strstr(ulyx_last_error(), "rows or document tables")));
}

/* ---- draws --------------------------------------------------------------- */

/* Draws other rows and documents, in the world's own layout too. */
static bool
draw_rows(struct rows *u, struct test_random *random)
{
    struct oracle_case *c = &u->w->c;
    ulyx_docs_t docs_q, docs_k;
    case_random_rows(c, random, &u->given);
    if (uli_layout_update_rows(u->w->layout, u->given.rows,
            u->given.has_splits ? u->given.splits : NULL,
            case_docs(c, 0, &docs_q), case_docs(c, 1, &docs_k)) != ULYX_SUCCESS)
        return false;
    oracle_free(&u->w->oracle);
    oracle_init(&u->w->oracle, c, NULL);
    world_fill_dense(u->w);
    return true;
}

static void
run_rows(struct world *w, struct test_random *random)
{
    struct rows u = {.w = w};
    int n = w->c.shape.nranks;
    assert_int_equal(ranks_run_threads(n, create_body, &u, LIMIT_S), 0);
    for (int i = 0; i < 4; i++) {
        uint64_t before = uli_layout_table_hash(w->layout);
        if (i && !draw_rows(&u, random))
            break; /* the documents exceed the case's maxima */
        world_fill(w);
        u.differs = n == 2 && i == 2 && w->c.shape.batch &&
                    uli_layout_table_hash(w->layout) != before;
        if (i)
            assert_int_equal(ranks_run_threads(n, update_body, &u, LIMIT_S), 0);
        if (u.differs) {
            assert_int_equal(ranks_run_threads(n, differ_body, &u, LIMIT_S), 0);
            u.differs = false;
            assert_int_equal(ranks_run_threads(n, update_body, &u, LIMIT_S), 0);
            world_fill(w);
        }
        assert_int_equal(ranks_run_threads(n, run_body, &u, LIMIT_S), 0);
        assert_int_equal(ranks_run_threads(n, extent_body, &u, LIMIT_S), 0);
        if (!world_check(w)) {
            case_print(&w->c);
            fail();
        }
    }
    assert_int_equal(ranks_run_threads(n, destroy_body, &u, LIMIT_S), 0);
}

static void
run_draws(uint64_t seed, int64_t draws, int memory)
{
    struct test_random random = {test_seed(seed)};
    struct world *w = calloc(1, sizeof(*w));
    struct world_ranks *ranks = calloc(RANKS + 1, sizeof(*ranks));
    for (int32_t n = 1; n <= RANKS; n++)
        world_ranks_init(&ranks[n], n);
    for (int64_t draw = 0; draw < draws;) {
        case_random(&w->c, &random, RANKS, draw % 4 == 3);
        case_random_capacities(&w->c, &random);
        if (!world_draw(w, &ranks[w->c.shape.nranks], &random, memory)) {
            uli_layout_destroy(w->layout);
            continue;
        }
        w->salt = draw++;
        run_rows(w, &random);
        world_free(w);
    }
    for (int32_t n = 1; n <= RANKS; n++)
        world_ranks_free(&ranks[n]);
    free(ranks);
    free(w);
}

static void
windows(void **state)
{
    (void)state;
    run_draws(501, test_draws(60), 1);
}

static void
ordinary_memory_by_ring(void **state)
{
    (void)state;
    setenv("ULYX_CMA", "off", 1);
    run_draws(502, test_draws(60), 0);
    unsetenv("ULYX_CMA");
}

static void
mixed_memory(void **state)
{
    (void)state;
    setenv("ULYX_CMA_MIN_ROW", "16", 1);
    run_draws(503, test_draws(120), 2);
    unsetenv("ULYX_CMA_MIN_ROW");
}

/* ---- refusals ------------------------------------------------------------ */

static bool
rows_refused(ulyx_status_t status, ulyx_status_t expected, const char *text)
{
    return ranks_expect(status == expected) &
           ranks_expect(strstr(ulyx_last_error(), text) != NULL);
}

/* Two parts: 20 rows of at most 30, with splits, and 8 rows that never
 * change. */
static void
refusal_params(ulyx_plan_params_t *p, ulyx_part_t parts[2], ulyx_tensor_t *t,
    const int64_t *splits)
{
    *p = (ulyx_plan_params_t)ULYX_PLAN_PARAMS_INIT;
    parts[0] = parts[1] = (ulyx_part_t)ULYX_PART_INIT;
    *t = (ulyx_tensor_t)ULYX_TENSOR_INIT;
    parts[0].rows = 20, parts[0].row_capacity = 30, parts[0].splits = splits;
    parts[1].rows = 8;
    t->dtype = ULYX_DTYPE_F32, t->heads = 6, t->dim = 4;
    p->heads = 6, p->parts = parts, p->nparts = 2;
    p->tensors = t, p->ntensors = 1;
}

static bool
update_refusals(ulyx_plan_t *plan)
{
    static const int64_t odd[] = {9, 5, 5, 5}, even[] = {5, 5, 5, 5};
    static const int64_t below[] = {-5, 20, 0, 5};
    const int64_t *s[2] = {even, NULL};
    bool good = ranks_expect(
        !ulyx_plan_update_rows(plan, (int64_t[]){20, 8}, s, NULL, NULL, NULL));
    good &= rows_refused(
        ulyx_plan_update_rows(plan, (int64_t[]){31, 8}, s, NULL, NULL, NULL),
        ULYX_ERR_INVALID_ARGUMENT, "rows[0] is 31, must be 0 to 30");
    good &= rows_refused(
        ulyx_plan_update_rows(plan, (int64_t[]){-1, 8}, s, NULL, NULL, NULL),
        ULYX_ERR_INVALID_ARGUMENT, "rows[0] is -1");
    good &= rows_refused(
        ulyx_plan_update_rows(plan, (int64_t[]){20, 9}, s, NULL, NULL, NULL),
        ULYX_ERR_INVALID_ARGUMENT, "rows[1] is 9: the part has 8");
    good &= rows_refused(
        ulyx_plan_update_rows(plan, (int64_t[]){20, 8}, NULL, NULL, NULL, NULL),
        ULYX_ERR_INVALID_ARGUMENT, "splits[0] is NULL");
    s[0] = odd;
    good &= rows_refused(
        ulyx_plan_update_rows(plan, (int64_t[]){20, 8}, s, NULL, NULL, NULL),
        ULYX_ERR_INVALID_ARGUMENT, "parts[0].splits add up to 24");
    s[0] = below;
    good &= rows_refused(
        ulyx_plan_update_rows(plan, (int64_t[]){20, 8}, s, NULL, NULL, NULL),
        ULYX_ERR_INVALID_ARGUMENT, "parts[0].splits[0] is -5");
    good &= rows_refused(ulyx_plan_update_rows(plan, NULL, s, NULL, NULL, NULL),
        ULYX_ERR_INVALID_ARGUMENT, "rows is NULL");
    int64_t rows;
    good &= ranks_expect(!ulyx_plan_get_seq_rows(plan, 0, 3, &rows));
    return good & ranks_expect(rows == 5);
}

static bool
creation_refusals(
    ulyx_comm_t *comm, int rank, ulyx_plan_params_t *p, ulyx_part_t *part)
{
    ulyx_plan_t *plan;
    bool good;
    part->row_capacity = 19;
    good = rows_refused(ulyx_plan_create(comm, p, &plan),
        ULYX_ERR_INVALID_ARGUMENT, "parts[0].rows is 20, its row_capacity 19");
    part->row_capacity = -1;
    good &= rows_refused(ulyx_plan_create(comm, p, &plan),
        ULYX_ERR_INVALID_ARGUMENT, "row_capacity is -1");
    part->row_capacity = rank == 2 ? 40 : 30;
    good &= rows_refused(ulyx_plan_create(comm, p, &plan), ULYX_ERR_MISMATCH,
        "row_capacity is 30 on rank 0 and 40 on rank 2");
    part->row_capacity = 30;
    p->work_split = ULYX_WORK_BALANCED; /* 6 heads over 4 ranks */
    good &= rows_refused(ulyx_plan_create(comm, p, &plan), ULYX_ERR_UNSUPPORTED,
        "row_capacity with work_split BALANCED");
    part->row_capacity = 0;
    p->work_split = ULYX_WORK_HEADS;
    good &= ranks_expect(!ulyx_plan_create(comm, p, &plan));
    good &= rows_refused(
        ulyx_plan_update_rows(plan, (int64_t[]){20, 8}, NULL, NULL, NULL, NULL),
        ULYX_ERR_UNSUPPORTED, "no part has a row_capacity");
    return good & ranks_expect(!ulyx_plan_destroy(plan));
}

static int
refusal_body(int rank, int nranks, void *context)
{
    static const int64_t splits[] = {20, 0, 0, 0};
    ulyx_comm_t *comm = ((ulyx_comm_t **)context)[rank];
    ulyx_plan_params_t p;
    ulyx_part_t parts[2];
    ulyx_tensor_t t;
    ulyx_plan_t *plan;
    (void)nranks;
    refusal_params(&p, parts, &t, splits);
    if (!ranks_expect(!ulyx_plan_create(comm, &p, &plan)))
        return 1;
    bool good = update_refusals(plan);
    good &= ranks_expect(!ulyx_plan_destroy(plan));
    return !(creation_refusals(comm, rank, &p, &parts[0]) & good);
}

static void
refused_rows_leave_the_old_ones(void **state)
{
    (void)state;
    ulyx_comm_t *comms[RANKS];
    assert_status(ulyx_comm_create_local(RANKS, NULL, comms), ULYX_SUCCESS);
    assert_int_equal(ranks_run_threads(RANKS, refusal_body, comms, LIMIT_S), 0);
    for (int r = 0; r < RANKS; r++)
        assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(refused_rows_leave_the_old_ones),
    cmocka_unit_test(windows),
    cmocka_unit_test(ordinary_memory_by_ring),
    cmocka_unit_test(mixed_memory),
};

ULI_TEST_MAIN("ReshuffleRows", tests)
