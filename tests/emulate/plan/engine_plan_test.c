/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans by copy engines, through the public calls, on emulated devices: random
 * layouts in chunks of a few KiB. Every byte of every image is compared with
 * obvious placement and written once. Also refusals, captures, deadlines and
 * aborts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "emulate/exchange/payload.h"
#include "emulate/driver/driver.h"
#include "emulate/plan/plan_plays.h"
#include "support/test.h"

#define good(call) assert_int_equal((call), cudaSuccess)

enum { SMALLEST_FLIGHT = 8192 }; /* two chunks of the least size */

static struct world *
new_world(void)
{
    struct world *w = calloc(1, sizeof(struct world));
    assert_non_null(w);
    w->flags = ULYX_PLAN_COPY_ENGINE;
    w->fixed_limits = true;
    w->slot_bytes = -1;
    w->bytes_in_flight = SMALLEST_FLIGHT;
    return w;
}

static struct world *
plain_world(struct plan_scene *s, int64_t rows, uint64_t seed)
{
    struct test_random random = {seed};
    struct world *w = new_world();
    world_plain_case(w, s->nranks, rows, 8, 4, 5, ULYX_DTYPE_BF16);
    assert_true(plan_draw(s, w, &random));
    return w;
}

static const char *
plan_described(const struct world *w, int32_t rank)
{
    static char text[1200];
    assert_status(
        ulyx_plan_describe(w->plans[rank], text, sizeof(text)), ULYX_SUCCESS);
    return text;
}

/* ---- every byte ---------------------------------------------------------- */

/* Draws cases. Copy engines take some of them and refuse the others by name. */
static void
run_draws(int32_t nranks, int32_t devices, uint64_t seed, int64_t draws)
{
    static const int64_t flights[] = {SMALLEST_FLIGHT, 20000, 0};
    struct test_random random = {test_seed(seed)};
    struct plan_scene s;
    plan_open(&s, nranks, devices, 0);
    for (int64_t i = 0; i < draws; i++) {
        struct world *w = new_world();
        do
            case_random(&w->c, &random, nranks, i % 4 == 3);
        while (w->c.shape.nranks != nranks);
        w->salt = i;
        w->bytes_in_flight = flights[test_random_in(&random, 0, 2)];
        if (test_random_in(&random, 0, 4) == 0)
            w->slot_bytes = 4096;
        if (!plan_draw(&s, w, &random)) {
            free(w);
            continue;
        }
        assert_status(plan_create(&s, w), ULYX_SUCCESS);
        assert_non_null(strstr(plan_described(w, 0),
            uli_layout_has_tables(w->layout)
                ? "no copy engines: document tables"
                : "engine on device memory (copy engines, by the plan's flag"));
        plan_round(&s);
        plan_round(&s); /* once more with the same slots and flags */
        plan_drop(&s);
    }
    plan_close(&s);
}

static void
every_byte_arrives_on_devices_of_their_own(void **state)
{
    (void)state;
    run_draws(4, 4, 601, test_draws(12));
}

static void
every_byte_arrives_on_one_device(void **state)
{
    (void)state;
    run_draws(3, 1, 602, test_draws(10));
}

static void
every_byte_arrives_at_two_ranks_and_at_one(void **state)
{
    (void)state;
    run_draws(2, 2, 603, test_draws(10));
    run_draws(1, 1, 604, test_draws(5));
}

/* Returns the number of copies that the description gives for the plan's first
 * direction. */
static long
copies_described(const struct world *w, int32_t rank)
{
    const char *at = strstr(plan_described(w, rank), " copies per call");
    assert_non_null(at);
    while (at[-1] >= '0' && at[-1] <= '9')
        at--;
    return strtol(at, NULL, 10);
}

/* A call enters the context once for all its copies. */
static void
a_copy_costs_one_call_of_the_driver(void **state)
{
    enum { CONTEXT = 4, CAPTURING = 2, FORK_AND_JOIN = 4, EVENT = 1 };
    struct plan_scene s;
    (void)state;
    plan_open(&s, 2, 2, 0);
    struct world *w = plain_world(&s, 200, 607);
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    plan_upload(&s);
    for (int32_t r = 0; r < 2; r++) {
        long copies = copies_described(w, r), before = emu_driver_calls();
        assert_true(copies > 4);
        assert_status(plan_execute(&s, r, 0), ULYX_SUCCESS);
        assert_int_equal(emu_driver_calls() - before,
            CONTEXT + CAPTURING + FORK_AND_JOIN + EVENT + copies);
    }
    plan_sync(&s);
    plan_drop(&s);
    plan_close(&s);
}

static int64_t
payload_of(struct plan_scene *s, int32_t rank, int op)
{
    int64_t bytes = 0;
    for (int32_t t = 0; t < s->w->c.shape.ntensors; t++)
        bytes += payload_bytes(s->w, rank, op, t);
    return bytes;
}

/* A second write of a byte is a fault at once; here the bytes of windows that
 * were never written are counted. */
static void
every_byte_of_a_destination_is_written_once(void **state)
{
    struct test_random random = {test_seed(605)};
    struct plan_scene s;
    (void)state;
    plan_open(&s, 3, 2, 0);
    for (int64_t i = 0, draws = test_draws(4); i < draws;) {
        struct world *w = new_world();
        do
            case_random(&w->c, &random, 3, false);
        while (w->c.shape.nranks != 3);
        if (!plan_draw(&s, w, &random)) {
            free(w);
            continue;
        }
        assert_status(plan_create(&s, w), ULYX_SUCCESS);
        plan_upload(&s);
        for (int op = 0; op < ULYX_DIRECTIONS; op++) {
            if (!(w->directions >> op & 1))
                continue;
            for (int32_t r = 0; r < 3; r++)
                assert_int_equal(emu_track(s.windows[r], PLAN_WINDOW_BYTES), 0);
            plan_execute_all(&s, op);
            plan_sync(&s);
            for (int32_t r = 0; r < 3; r++)
                assert_int_equal(
                    emu_track_check(s.windows[r], PLAN_WINDOW_BYTES),
                    PLAN_WINDOW_BYTES - payload_of(&s, r, op));
        }
        assert_int_equal(emu_fault_count(), 0);
        plan_drop(&s);
        i++;
    }
    plan_close(&s);
}

/* The number of rounds grows with the rows, but the receive buffer that the
 * plan uses does not. */
static void
many_rounds_go_through_two_slots(void **state)
{
    struct plan_scene s;
    (void)state;
    plan_open(&s, 4, 2, 0);
    for (int64_t rows = 1200; rows <= 2400; rows *= 2) {
        struct world *w = plain_world(&s, rows, 610);
        assert_status(plan_create(&s, w), ULYX_SUCCESS);
        const char *text = plan_described(w, 1);
        assert_non_null(
            strstr(text, "receive buffer of 2 x 4096 bytes per peer"));
        int rounds = 0;
        const char *at = strstr(text, "to peers in ");
        assert_non_null(at);
        assert_int_equal(sscanf(at, "to peers in %d rounds", &rounds), 1);
        assert_in_range(rounds, rows / 400, rows / 20);
        plan_round(&s);
        plan_round(&s);
        plan_drop(&s);
    }
    plan_close(&s);
}

/* Tensors are dense and shards contiguous, so one copy per tensor, peer and
 * direction is enough. */
static void
copies_are_as_few_as_the_layout_permits(void **state)
{
    struct plan_scene s;
    struct test_random random = {611};
    (void)state;
    plan_open(&s, 2, 2, 0);
    struct world *w = new_world();
    world_plain_case(w, 2, 64, 4, 4, 8, ULYX_DTYPE_BF16);
    w->bytes_in_flight = 0;
    assert_true(plan_draw(&s, w, &random));
    for (int32_t r = 0; r < 2; r++)
        w->dense[r] = true;
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    assert_non_null(strstr(plan_described(w, 0),
        "seq_to_head: 9 copies per call (3 to peers in 1 round, 3 from the "
        "receive buffer in 1, 3 own)"));
    assert_non_null(strstr(plan_described(w, 0), "receive buffer of 1 x "));
    for (int32_t r = 0; r < 2; r++)
        assert_status(ulyx_plan_destroy(w->plans[r]), ULYX_SUCCESS);
    world_free(w);
    free(w);
    plan_close(&s);
}

/* ---- hints --------------------------------------------------------------- */

static void
a_flag_that_ranks_do_not_share_is_a_mismatch(void **state)
{
    struct plan_scene s;
    (void)state;
    plan_open(&s, 2, 2, 0);
    struct world *w = plain_world(&s, 37, 620);
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int32_t r = 0; r < 2; r++) {
        w->flags = r ? ULYX_PLAN_COPY_ENGINE : 0;
        assert_status(world_create(w, r), ULYX_SUCCESS);
    }
    assert_status(ulyx_group_end(), ULYX_ERR_MISMATCH);
    assert_non_null(strstr(ulyx_last_error(), "chunk of copy engines"));
    world_free(w);
    free(w);
    plan_close(&s);
}

static void
a_setting_is_a_hint_for_all_plans(void **state)
{
    struct plan_scene s;
    (void)state;
    setenv("ULYX_GPU_MODE", "engine", 1);
    setenv("ULYX_ENGINE_CHUNK", "8K", 1);
    plan_open(&s, 2, 1, 0);
    unsetenv("ULYX_GPU_MODE");
    unsetenv("ULYX_ENGINE_CHUNK");
    struct world *w = plain_world(&s, 900, 621);
    w->flags = 0;
    w->bytes_in_flight = 0;
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    assert_non_null(
        strstr(plan_described(w, 0), "by ULYX_GPU_MODE; receive buffer of 2 x "
                                     "8192 bytes"));
    plan_round(&s);
    plan_drop(&s);
    plan_close(&s);
}

static void
host_memory_has_no_copy_engines(void **state)
{
    struct world_ranks ranks;
    struct test_random random = {622};
    struct world *w = new_world();
    (void)state;
    world_ranks_init(&ranks, 1);
    world_plain_case(w, 1, 37, 8, 4, 5, ULYX_DTYPE_BF16);
    assert_true(world_draw(w, &ranks, &random, 0));
    assert_status(world_create(w, 0), ULYX_ERR_UNSUPPORTED);
    assert_non_null(strstr(ulyx_last_error(), "device memory only"));
    world_free(w);
    free(w);
    world_ranks_free(&ranks);
}

/* ---- refusals ------------------------------------------------------------ */

/* Rank 0 refuses call 1. Its peers still push into its receive buffer, and
 * their next call returns the refusal. */
static void
a_refused_call_is_named_by_the_next(void **state)
{
    struct plan_scene s;
    (void)state;
    plan_open(&s, 3, 3, 0);
    struct world *w = plain_world(&s, 900, 630);
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    plan_play_refusal(&s);
    plan_play_strides(&s, 2, ULYX_ERR_UNSUPPORTED,
        "not those of creation: tensors of plans by engine");
    plan_drop(&s);
    plan_close(&s);
}

static void
different_operations_are_a_mismatch(void **state)
{
    struct plan_scene s;
    (void)state;
    plan_open(&s, 2, 2, 0);
    struct world *w = plain_world(&s, 900, 631);
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    plan_play_mismatch(&s);
    plan_drop(&s);
    plan_close(&s);
}

static void
a_destroyed_plan_is_named_by_the_next_call(void **state)
{
    struct plan_scene s;
    (void)state;
    plan_open(&s, 2, 2, 0);
    struct world *w = plain_world(&s, 900, 632);
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    plan_play_destroyed(&s);
    plan_drop(&s);
    plan_close(&s);
}

/* ---- captures ------------------------------------------------------------ */

static void
a_captured_call_is_replayed_with_new_data(void **state)
{
    struct plan_scene s;
    (void)state;
    plan_open(&s, 3, 2, 0);
    struct world *w = plain_world(&s, 600, 640);
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    plan_play_capture(&s, 0, 2, 8);
    plan_drop(&s);
    plan_close(&s);
}

/* During a capture the plan's own stream belongs to the capture. */
static void
a_call_beside_a_capture_is_refused(void **state)
{
    struct plan_scene s;
    cudaGraph_t graph[2];
    cudaStream_t caught[2];
    (void)state;
    plan_open(&s, 2, 2, 0);
    struct world *w = plain_world(&s, 600, 643);
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    plan_round(&s);
    for (int32_t r = 0; r < 2; r++) {
        good(cudaSetDevice(r));
        caught[r] = s.streams[r];
        good(cudaStreamBeginCapture(
            caught[r], cudaStreamCaptureModeThreadLocal));
        assert_status(plan_execute(&s, r, 0), ULYX_SUCCESS);
        good(cudaStreamCreateWithFlags(&s.streams[r], cudaStreamNonBlocking));
        assert_status(plan_execute(&s, r, 0), ULYX_ERR_BUSY);
        assert_non_null(strstr(
            ulyx_last_error(), "another stream captures a call of the plan"));
        good(cudaStreamEndCapture(caught[r], &graph[r]));
    }
    /* a refusal is in no stream of the caller */
    for (int32_t r = 0; r < 2; r++) {
        good(cudaSetDevice(r));
        good(cudaDeviceSynchronize());
    }
    /* All ranks have refused the call, and each names another rank's
     * refusal. */
    for (int32_t r = 0; r < 2; r++)
        assert_status(plan_execute(&s, r, 0), ULYX_ERR_PEER_REFUSED);
    plan_sync(&s);
    plan_round(&s);
    plan_upload(&s);
    for (int32_t r = 0; r < 2; r++)
        good(cudaGraphLaunch(graph[r], s.streams[r]));
    plan_sync(&s);
    plan_expect(&s, 0);
    for (int32_t r = 0; r < 2; r++) {
        good(cudaGraphDestroy(graph[r]));
        good(cudaStreamDestroy(caught[r]));
    }
    assert_int_equal(emu_fault_count(), 0);
    plan_drop(&s);
    plan_close(&s);
}

static void
two_plans_are_in_flight_in_different_orders(void **state)
{
    struct plan_scene a, b;
    (void)state;
    plan_open(&a, 2, 1, 0);
    struct world *first = plain_world(&a, 500, 641);
    assert_status(plan_create(&a, first), ULYX_SUCCESS);
    b = a;
    b.keep = true;
    struct world *second = plain_world(&b, 400, 642);
    assert_status(plan_create(&b, second), ULYX_SUCCESS);
    plan_play_two(&a, &b, 5);
    plan_drop(&b);
    plan_drop(&a);
    plan_close(&a);
}

/* ---- failures ------------------------------------------------------------ */

/* The stream of a call whose peer does not come ends at the deadline, including
 * its copies. Of dst, only bytes of the tensors are written. */
static void
a_rank_that_does_not_come_is_named_after_the_deadline(void **state)
{
    struct plan_scene s;
    (void)state;
    plan_open(&s, 2, 2, 2);
    struct world *w = plain_world(&s, 900, 650);
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    plan_play_late(&s);
    plan_destroy_all(&s);
}

/* The deadline is a minute. The abort of a peer ends the call long before. */
static void
an_abort_ends_a_call_that_waits(void **state)
{
    struct plan_scene s;
    ulyx_status_t status = ULYX_SUCCESS;
    (void)state;
    plan_open(&s, 2, 2, 60);
    struct world *w = plain_world(&s, 900, 651);
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    plan_upload(&s);
    assert_status(plan_execute(&s, 0, 0), ULYX_SUCCESS);
    assert_status(ulyx_plan_destroy(w->plans[0]), ULYX_ERR_BUSY);
    assert_status(ulyx_comm_abort(s.ranks.comms[1]), ULYX_SUCCESS);
    plan_sync(&s);
    assert_status(
        ulyx_comm_get_async_error(s.ranks.comms[0], &status), ULYX_SUCCESS);
    assert_int_equal(status, ULYX_ERR_ABORTED);
    plan_destroy_all(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_byte_arrives_on_devices_of_their_own),
    cmocka_unit_test(every_byte_arrives_on_one_device),
    cmocka_unit_test(every_byte_arrives_at_two_ranks_and_at_one),
    cmocka_unit_test(every_byte_of_a_destination_is_written_once),
    cmocka_unit_test(many_rounds_go_through_two_slots),
    cmocka_unit_test(copies_are_as_few_as_the_layout_permits),
    cmocka_unit_test(a_copy_costs_one_call_of_the_driver),
    cmocka_unit_test(a_flag_that_ranks_do_not_share_is_a_mismatch),
    cmocka_unit_test(a_setting_is_a_hint_for_all_plans),
    cmocka_unit_test(host_memory_has_no_copy_engines),
    cmocka_unit_test(a_refused_call_is_named_by_the_next),
    cmocka_unit_test(different_operations_are_a_mismatch),
    cmocka_unit_test(a_destroyed_plan_is_named_by_the_next_call),
    cmocka_unit_test(a_captured_call_is_replayed_with_new_data),
    cmocka_unit_test(a_call_beside_a_capture_is_refused),
    cmocka_unit_test(two_plans_are_in_flight_in_different_orders),
    cmocka_unit_test(a_rank_that_does_not_come_is_named_after_the_deadline),
    cmocka_unit_test(an_abort_ends_a_call_that_waits),
};

ULI_TEST_MAIN("EmulateEngine", tests)
