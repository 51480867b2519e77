/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans on device memory through the public calls: random layouts, every byte
 * of every image compared with obvious placement. Also refusals, captures,
 * updates, deadlines, and several plans at once.
 */
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "emulate/driver/driver.h"
#include "emulate/plan/plan_plays.h"
#include "support/test.h"

#define good(call) assert_int_equal((call), cudaSuccess)

static struct world *
new_world(void)
{
    return calloc(1, sizeof(struct world));
}

static struct world *
plain_world(struct plan_scene *s, int64_t slot_bytes, uint64_t seed)
{
    struct test_random random = {seed};
    struct world *w = new_world();
    world_plain_case(w, s->nranks, 37, 8, 4, 5, ULYX_DTYPE_BF16);
    w->fixed_limits = true;
    w->slot_bytes = slot_bytes;
    assert_true(plan_draw(s, w, &random));
    return w;
}

/* ---- every byte ---------------------------------------------------------- */

/* Mostly few blocks. The emulator spends its time on the threads of blocks, and
 * many draws find more than many blocks. */
static int32_t
few_or_many(struct test_random *random)
{
    return (int32_t)test_random_in(
        random, 1, test_random_in(random, 0, 5) == 0 ? 8 : 2);
}

static void
run_draws(int32_t devices, uint64_t seed, int64_t draws, bool balanced)
{
    struct test_random random = {test_seed(seed)};
    struct plan_scene s;
    plan_open(&s, PLAN_RANKS, devices, 0);
    for (int64_t i = 0; i < draws; i++) {
        struct world *w = new_world();
        do
            case_random(&w->c, &random, PLAN_RANKS, balanced);
        while (w->c.shape.nranks != PLAN_RANKS);
        w->salt = i;
        w->max_sms = few_or_many(&random);
        if (!plan_draw(&s, w, &random)) {
            free(w);
            continue;
        }
        assert_status(plan_create(&s, w), ULYX_SUCCESS);
        plan_round(&s);
        plan_drop(&s);
    }
    plan_close(&s);
}

static void
every_byte_arrives_on_devices_of_their_own(void **state)
{
    (void)state;
    run_draws(4, 201, test_draws(12), false);
}

static void
every_byte_arrives_on_one_device(void **state)
{
    (void)state;
    run_draws(1, 202, test_draws(12), false);
}

static void
every_byte_arrives_balanced(void **state)
{
    (void)state;
    run_draws(2, 203, test_draws(12), true);
}

/* More plans than the device can hold the blocks of at one time. The later ones
 * take three launches per call. */
static void
plans_beyond_the_card_take_three_launches(void **state)
{
    enum { PLANS = 12 };
    struct plan_scene s;
    struct world *worlds[PLANS];
    char text[600];
    int three = 0;
    (void)state;
    plan_open(&s, 2, 1, 0);
    for (int i = 0; i < PLANS; i++) {
        worlds[i] = plain_world(&s, -1, 300 + (uint64_t)i);
        assert_status(plan_create(&s, worlds[i]), ULYX_SUCCESS);
        assert_status(
            ulyx_plan_describe(worlds[i]->plans[0], text, sizeof(text)),
            ULYX_SUCCESS);
        assert_non_null(strstr(text, "direct on device memory"));
        three += strstr(text, "three launches") != NULL;
        plan_round(&s);
    }
    assert_in_range(three, 1, PLANS - 1);
    for (int i = 0; i < PLANS; i++) {
        s.w = worlds[i];
        plan_drop(&s);
    }
    plan_close(&s);
}

/* The driver calls of a call: entering and leaving the context, setting and
 * restoring the capture mode, the query whether the stream is being captured,
 * and the event behind the kernel. The runtime launches the kernel. */
static void
a_call_enters_the_context_once(void **state)
{
    enum { PUSH_AND_POP = 2, MODES = 2, CAPTURING = 1, EVENT = 1 };
    struct plan_scene s;
    (void)state;
    for (int small = 0; small <= 1; small++) {
        plan_open(&s, 2, 1, 0);
        struct world *w = plain_world(&s, small ? 1 << 16 : -1, 317);
        assert_status(plan_create(&s, w), ULYX_SUCCESS);
        plan_upload(&s);
        for (int32_t r = 0; r < 2; r++) {
            long before = emu_driver_calls();
            assert_status(plan_execute(&s, r, 0), ULYX_SUCCESS);
            assert_int_equal(emu_driver_calls() - before,
                PUSH_AND_POP + MODES + CAPTURING + EVENT);
        }
        plan_sync(&s);
        plan_drop(&s);
        plan_close(&s);
    }
}

static void
run_two_plans(int64_t slot_bytes)
{
    struct plan_scene a, b;
    plan_open(&a, 2, 1, 0);
    struct world *first = plain_world(&a, slot_bytes, 310);
    assert_status(plan_create(&a, first), ULYX_SUCCESS);
    b = a;
    b.keep = true;
    struct world *second = plain_world(&b, -1, 311);
    assert_status(plan_create(&b, second), ULYX_SUCCESS);
    plan_play_two(&a, &b, 10);
    plan_drop(&b);
    plan_drop(&a);
    plan_close(&a);
}

static void
two_plans_are_in_flight_in_different_orders(void **state)
{
    (void)state;
    run_two_plans(-1);
    run_two_plans(1 << 16);
}

/* ---- refusals ------------------------------------------------------------ */

static void
a_tensor_outside_of_windows_is_refused_everywhere(void **state)
{
    struct plan_scene s;
    (void)state;
    plan_open(&s, 3, 3, 0);
    struct world *w = plain_world(&s, -1, 400);
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    plan_play_refusal(&s);
    plan_play_strides(
        &s, 1 << 20, ULYX_ERR_INVALID_ARGUMENT, "is not inside a window");
    plan_drop(&s);
    plan_close(&s);
}

/* A refused call is on no stream for which the caller could wait. */
static void
a_plan_may_be_destroyed_right_after_a_refusal(void **state)
{
    struct plan_scene s;
    const void *src[ULI_TENSORS] = {NULL};
    void *dst[ULI_TENSORS] = {NULL};
    int32_t outside[64];
    (void)state;
    plan_open(&s, 3, 1, 0);
    struct world *w = plain_world(&s, -1, 406);
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    for (int t = 0; t < 3; t++)
        src[t] = dst[t] = outside;
    for (int32_t r = 0; r < 3; r++)
        assert_status(
            ulyx_reshuffle_execute(w->plans[r], 0, src, dst, s.streams[r]),
            ULYX_ERR_INVALID_ARGUMENT);
    plan_drop(&s);
    plan_close(&s);
}

static void
different_operations_are_a_mismatch(void **state)
{
    struct plan_scene s;
    (void)state;
    plan_open(&s, 2, 2, 0);
    struct world *w = plain_world(&s, 1 << 16, 401);
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    plan_play_mismatch(&s);
    plan_drop(&s);
    plan_close(&s);
}

static void
streams_that_take_turns_are_refused_where_ranks_share_a_device(void **state)
{
    struct plan_scene s;
    (void)state;
    plan_open(&s, 2, 1, 0);
    struct world *w = plain_world(&s, -1, 402);
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    plan_upload(&s);
    cudaStream_t own = s.streams[0];
    s.streams[0] = NULL;
    assert_status(plan_execute(&s, 0, 0), ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(ulyx_last_error(), "NULL stream"));
    s.streams[0] = own;
    assert_status(plan_execute(&s, 1, 0), ULYX_SUCCESS);
    plan_sync(&s);
    assert_status(plan_execute(&s, 1, 0), ULYX_ERR_PEER_REFUSED);
    assert_status(plan_execute(&s, 0, 0), ULYX_SUCCESS);
    plan_sync(&s);
    plan_round(&s);
    plan_drop(&s);
    plan_close(&s);
}

static void
a_destroyed_plan_is_named_by_the_next_call(void **state)
{
    struct plan_scene s;
    (void)state;
    plan_open(&s, 2, 2, 0);
    for (int small = 0; small < 2; small++) {
        struct world *w = plain_world(&s, small ? 1 << 16 : -1, 403);
        assert_status(plan_create(&s, w), ULYX_SUCCESS);
        plan_play_destroyed(&s);
        plan_drop(&s);
    }
    plan_close(&s);
}

/* ---- captures ------------------------------------------------------------ */

static void
a_captured_call_is_replayed_with_new_data(void **state)
{
    struct plan_scene s;
    (void)state;
    plan_open(&s, 2, 2, 0);
    struct world *w = plain_world(&s, -1, 404);
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    plan_play_capture(&s, 0, 1, 20);
    plan_drop(&s);
    plan_close(&s);
}

static bool
replace_docs(struct plan_scene *s, struct test_random *random)
{
    struct world *w = s->w;
    ulyx_docs_t docs_q, docs_k;
    if (!world_replace_docs(w, random))
        return false;
    for (int32_t r = 0; r < s->nranks; r++)
        assert_status(
            ulyx_plan_update(w->plans[r], case_docs(&w->c, 0, &docs_q),
                case_docs(&w->c, 1, &docs_k), s->streams[r]),
            ULYX_SUCCESS);
    return true;
}

static void
capture_all(struct plan_scene *s, int op, cudaGraphExec_t *exec)
{
    for (int32_t r = 0; r < s->nranks; r++) {
        cudaGraph_t graph;
        good(cudaSetDevice(r % s->devices));
        good(cudaStreamBeginCapture(
            s->streams[r], cudaStreamCaptureModeThreadLocal));
        assert_status(plan_execute(s, r, op), ULYX_SUCCESS);
        assert_status(
            ulyx_plan_update(s->w->plans[r], NULL, NULL, s->streams[r]),
            ULYX_ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(ulyx_last_error(), "captured"));
        good(cudaStreamEndCapture(s->streams[r], &graph));
        good(cudaGraphInstantiate(&exec[r], graph, 0));
        good(cudaGraphDestroy(graph));
    }
}

/* Calls after an update, and replays of calls that were captured before the
 * update. */
static void
run_updates(struct plan_scene *s, struct test_random *random)
{
    cudaGraphExec_t exec[PLAN_RANKS];
    capture_all(s, ULYX_SEQ_TO_HEAD, exec);
    for (int i = 0; i < 4; i++) {
        if (!replace_docs(s, random))
            continue;
        plan_round(s);
        plan_upload(s);
        for (int32_t r = 0; r < s->nranks; r++)
            good(cudaGraphLaunch(exec[r], s->streams[r]));
        plan_sync(s);
        plan_expect(s, ULYX_SEQ_TO_HEAD);
    }
    for (int32_t r = 0; r < s->nranks; r++)
        good(cudaGraphExecDestroy(exec[r]));
}

static void
updates_hold_for_calls_and_replays_after_them(void **state)
{
    struct test_random random = {test_seed(204)};
    int64_t draws = test_draws(6);
    struct plan_scene s;
    (void)state;
    plan_open(&s, PLAN_RANKS, 2, 0);
    while (draws > 0) {
        struct world *w = new_world();
        do
            case_random(&w->c, &random, PLAN_RANKS, true);
        while (w->c.shape.nranks != PLAN_RANKS);
        w->max_sms = few_or_many(&random);
        if (!plan_draw(&s, w, &random)) {
            free(w);
            continue;
        }
        assert_status(plan_create(&s, w), ULYX_SUCCESS);
        if (uli_layout_has_tables(w->layout)) {
            run_updates(&s, &random);
            draws--;
        }
        plan_drop(&s);
    }
    plan_close(&s);
}

/* ---- deadlines ----------------------------------------------------------- */

static void
a_rank_that_does_not_come_is_named_after_the_deadline(void **state)
{
    struct plan_scene s;
    (void)state;
    plan_open(&s, 2, 2, 0.3);
    struct world *w = plain_world(&s, -1, 405);
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    plan_play_late(&s);
    plan_destroy_all(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_byte_arrives_on_devices_of_their_own),
    cmocka_unit_test(every_byte_arrives_on_one_device),
    cmocka_unit_test(every_byte_arrives_balanced),
    cmocka_unit_test(plans_beyond_the_card_take_three_launches),
    cmocka_unit_test(a_call_enters_the_context_once),
    cmocka_unit_test(two_plans_are_in_flight_in_different_orders),
    cmocka_unit_test(a_tensor_outside_of_windows_is_refused_everywhere),
    cmocka_unit_test(a_plan_may_be_destroyed_right_after_a_refusal),
    cmocka_unit_test(different_operations_are_a_mismatch),
    cmocka_unit_test(
        streams_that_take_turns_are_refused_where_ranks_share_a_device),
    cmocka_unit_test(a_destroyed_plan_is_named_by_the_next_call),
    cmocka_unit_test(a_captured_call_is_replayed_with_new_data),
    cmocka_unit_test(updates_hold_for_calls_and_replays_after_them),
    cmocka_unit_test(a_rank_that_does_not_come_is_named_after_the_deadline),
};

ULI_TEST_MAIN("EmulatePlan", tests)
