/* SPDX-License-Identifier: Apache-2.0
 *
 * What calls and updates of a plan on device memory may change: strides and
 * rows, with random layouts. Every byte of every image is compared with obvious
 * placement, after calls, and after replays of calls that were captured before
 * the change.
 */
#include <stdlib.h>
#include <string.h>
#include "emulate/plan/plan_plays.h"
#include "support/test.h"

#define good(call) assert_int_equal((call), cudaSuccess)

/* ---- draws --------------------------------------------------------------- */

enum kind { PLAIN, BALANCED, ROWS };

static void
draw_case(struct world *w, struct test_random *random, enum kind kind)
{
    do {
        case_random(&w->c, random, PLAN_RANKS, kind == BALANCED);
        if (kind == ROWS)
            case_random_capacities(&w->c, random);
    } while (w->c.shape.nranks != PLAN_RANKS);
    w->max_sms = (int32_t)test_random_in(random, 1, 2);
}

/* Makes plans of a random layout that the library takes. */
static struct world *
draw_plan(struct plan_scene *s, struct test_random *random, enum kind kind)
{
    for (;;) {
        struct world *w = calloc(1, sizeof(*w));
        assert_non_null(w);
        draw_case(w, random, kind);
        if (plan_draw(s, w, random)) {
            assert_status(plan_create(s, w), ULYX_SUCCESS);
            return w;
        }
        free(w);
    }
}

/* Draws other rows for the world and its plans. Returns false if the documents
 * exceed the case's maxima. */
static bool
change_rows(struct plan_scene *s, struct test_random *random)
{
    struct world *w = s->w;
    struct case_rows given;
    ulyx_docs_t docs_q, docs_k;
    case_random_rows(&w->c, random, &given);
    const int64_t *const *splits = given.has_splits ? given.splits : NULL;
    if (uli_layout_update_rows(w->layout, given.rows, splits,
            case_docs(&w->c, 0, &docs_q),
            case_docs(&w->c, 1, &docs_k)) != ULYX_SUCCESS)
        return false;
    for (int32_t r = 0; r < s->nranks; r++)
        assert_status(ulyx_plan_update_rows(w->plans[r], given.rows, splits,
                          case_docs(&w->c, 0, &docs_q),
                          case_docs(&w->c, 1, &docs_k), s->streams[r]),
            ULYX_SUCCESS);
    oracle_free(&w->oracle);
    oracle_init(&w->oracle, &w->c, NULL);
    world_fill_dense(w);
    return true;
}

/* ---- captures ------------------------------------------------------------ */

static void
calls_capture(struct plan_scene *s, int op, cudaGraphExec_t *exec)
{
    for (int32_t r = 0; r < s->nranks; r++) {
        cudaGraph_t graph;
        good(cudaSetDevice(r % s->devices));
        good(cudaStreamBeginCapture(
            s->streams[r], cudaStreamCaptureModeThreadLocal));
        assert_status(plan_execute(s, r, op), ULYX_SUCCESS);
        good(cudaStreamEndCapture(s->streams[r], &graph));
        good(cudaGraphInstantiate(&exec[r], graph, 0));
        good(cudaGraphDestroy(graph));
    }
}

static void
calls_replay(struct plan_scene *s, int op, cudaGraphExec_t *exec)
{
    plan_upload(s);
    for (int32_t r = 0; r < s->nranks; r++)
        good(cudaGraphLaunch(exec[r], s->streams[r]));
    plan_sync(s);
    plan_expect(s, op);
}

static void
calls_drop(struct plan_scene *s, cudaGraphExec_t *exec)
{
    for (int32_t r = 0; r < s->nranks; r++)
        good(cudaGraphExecDestroy(exec[r]));
}

/* ---- strides ------------------------------------------------------------- */

/* The first and last calls use the strides of creation. Between them, some
 * ranks move some of their tensors. A replay has the strides of its capture. */
static void
run_strides(struct plan_scene *s, struct test_random *random, enum kind kind)
{
    static const int one_in[] = {0, 2, 3, 1, 0};
    struct world *w = s->w;
    for (int i = 0; i < 5; i++) {
        cudaGraphExec_t exec[PLAN_RANKS];
        if (kind == ROWS && i % 2 && !change_rows(s, random))
            return;
        world_move(w, random, one_in[i]);
        plan_place(s);
        if (i == 3)
            calls_capture(s, ULYX_SEQ_TO_HEAD, exec);
        plan_round(s);
        if (i == 3) {
            calls_replay(s, ULYX_SEQ_TO_HEAD, exec);
            calls_drop(s, exec);
        }
    }
}

static void
draw_strides(int32_t devices, uint64_t seed, int64_t draws, enum kind kind)
{
    struct test_random random = {test_seed(seed)};
    struct plan_scene s;
    plan_open(&s, PLAN_RANKS, devices, 0);
    for (int64_t draw = 0; draw < draws; draw++) {
        draw_plan(&s, &random, kind);
        run_strides(&s, &random, kind);
        plan_drop(&s);
    }
    plan_close(&s);
}

static void
tensors_move_from_call_to_call(void **state)
{
    (void)state;
    draw_strides(4, 651, test_draws(6), PLAIN);
}

static void
tensors_move_where_ranks_share_a_device(void **state)
{
    (void)state;
    draw_strides(1, 652, test_draws(4), PLAIN);
}

static void
tensors_of_balanced_work_move(void **state)
{
    (void)state;
    draw_strides(2, 653, test_draws(4), BALANCED);
}

static void
tensors_move_and_rows_change(void **state)
{
    (void)state;
    draw_strides(2, 654, test_draws(4), ROWS);
}

/* ---- rows ---------------------------------------------------------------- */

static void
run_rows(struct plan_scene *s, struct test_random *random)
{
    cudaGraphExec_t exec[PLAN_RANKS];
    plan_round(s);
    calls_capture(s, ULYX_SEQ_TO_HEAD, exec);
    for (int i = 0; i < 3 && change_rows(s, random); i++) {
        plan_round(s);
        calls_replay(s, ULYX_SEQ_TO_HEAD, exec);
    }
    calls_drop(s, exec);
}

static void
rows_change_for_calls_and_replays(void **state)
{
    struct test_random random = {test_seed(655)};
    struct plan_scene s;
    (void)state;
    plan_open(&s, PLAN_RANKS, 2, 0);
    for (int64_t draw = 0; draw < test_draws(8); draw++) {
        draw_plan(&s, &random, ROWS);
        run_rows(&s, &random);
        plan_drop(&s);
    }
    plan_close(&s);
}

/* A world of two ranks that has `rows` rows now and at most `most`. */
static struct world *
plain_rows(struct plan_scene *s, int64_t rows, int64_t most)
{
    struct test_random random = {656};
    struct world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    world_plain_case(w, 2, rows, 4, 2, 8, ULYX_DTYPE_BF16);
    w->c.shape.parts[0].row_capacity = most;
    w->fixed_limits = true;
    w->slot_bytes = 1 << 12;
    assert_true(plan_draw(s, w, &random));
    assert_status(plan_create(s, w), ULYX_SUCCESS);
    return w;
}

/* A capture records one kind of kernel. Therefore the maximum number of rows,
 * not the present one, decides whether a call goes by slots. */
static void
the_most_rows_choose_slots(void **state)
{
    struct plan_scene s;
    char text[600];
    (void)state;
    plan_open(&s, 2, 2, 0);
    for (int small = 0; small < 2; small++) {
        struct world *w = plain_rows(&s, 8, small ? 24 : 400);
        assert_status(
            ulyx_plan_describe(w->plans[0], text, sizeof(text)), ULYX_SUCCESS);
        assert_int_equal(strstr(text, "by slot (small)") != NULL, small);
        plan_round(&s);
        plan_drop(&s);
    }
    plan_close(&s);
}

static void
refused_rows_leave_the_old_ones(void **state)
{
    struct plan_scene s;
    cudaGraph_t graph;
    (void)state;
    plan_open(&s, 2, 2, 0);
    struct world *w = plain_rows(&s, 20, 30);
    assert_status(ulyx_plan_update_rows(
                      w->plans[0], (int64_t[]){31}, NULL, NULL, NULL, NULL),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(
        strstr(ulyx_last_error(), "rows[0] is 31, must be 0 to 30"));
    good(cudaSetDevice(0));
    good(
        cudaStreamBeginCapture(s.streams[0], cudaStreamCaptureModeThreadLocal));
    assert_status(ulyx_plan_update_rows(w->plans[0], (int64_t[]){21}, NULL,
                      NULL, NULL, s.streams[0]),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(ulyx_last_error(), "captured"));
    good(cudaStreamEndCapture(s.streams[0], &graph));
    good(cudaGraphDestroy(graph));
    plan_round(&s);
    plan_drop(&s);
    plan_close(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(tensors_move_from_call_to_call),
    cmocka_unit_test(tensors_move_where_ranks_share_a_device),
    cmocka_unit_test(tensors_of_balanced_work_move),
    cmocka_unit_test(tensors_move_and_rows_change),
    cmocka_unit_test(rows_change_for_calls_and_replays),
    cmocka_unit_test(the_most_rows_choose_slots),
    cmocka_unit_test(refused_rows_leave_the_old_ones),
};

ULI_TEST_MAIN("EmulateVary", tests)
