/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives on device memory through the public calls: drawn calls are
 * compared with those of the host bit for bit. Also refusals, ranks that
 * differ, captures, deadlines, and the end of communicators.
 */
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "comm/device/residency.h"
#include "emulate/driver/driver.h"
#include "emulate/plan/collective_scene.h"
#include "support/test.h"

#define good(call) assert_int_equal((call), cudaSuccess)

/* ---- every bit ----------------------------------------------------------- */

static void
run_draws(int32_t nranks, int32_t devices, const char *sms,
    const char *recv_buffer, uint64_t seed)
{
    struct test_random random = {test_seed(seed)};
    int64_t draws = test_draws(24);
    struct coll_scene c;
    setenv("ULYX_GPU_SMS", sms, 1);
    setenv("ULYX_GPU_RECV_BUFFER", recv_buffer, 1);
    coll_open(&c, nranks, devices, 0);
    coll_run_draws(&c, &random, draws);
    coll_close(&c);
    unsetenv("ULYX_GPU_SMS");
    unsetenv("ULYX_GPU_RECV_BUFFER");
}

static void
every_bit_is_the_hosts_on_devices_of_their_own(void **state)
{
    (void)state;
    run_draws(4, 4, "2", "8K", 501);
}

static void
every_bit_is_the_hosts_on_one_device(void **state)
{
    (void)state;
    run_draws(3, 1, "1", "3000", 502);
}

static void
every_bit_is_the_hosts_with_receive_buffers_of_the_usual_size(void **state)
{
    (void)state;
    run_draws(2, 2, "8", "2M", 503);
}

static void
a_rank_alone_needs_no_peers(void **state)
{
    (void)state;
    run_draws(1, 1, "2", "8K", 504);
}

static void
give_back(int32_t device)
{
    const struct uli_residency room = {.per_sm = 1, .claimed = 1000000};
    uli_residency_release(device, &room);
}

/* A call then has three launches, and of these only one warp waits. */
static void
without_a_claim_every_bit_is_the_hosts(void **state)
{
    (void)state;
    assert_true(uli_residency_claim(0, INT64_MAX, 1, 1000000));
    assert_true(uli_residency_claim(1, INT64_MAX, 1, 1000000));
    run_draws(3, 2, "4", "1K", 505);
    give_back(0);
    give_back(1);
}

/* Only one rank has no claim. All ranks then use one queue, and signal each
 * other by the same flags. */
static void
ranks_with_and_without_a_claim_meet(void **state)
{
    (void)state;
    assert_true(uli_residency_claim(1, INT64_MAX, 1, 1000000));
    run_draws(3, 3, "4", "1K", 506);
    give_back(1);
}

/* ---- differences --------------------------------------------------------- */

/* If the last call had an error, the next call of rank r returns it, once. */
static void
expect_reported(struct coll_scene *c, int32_t r, const struct coll_call *call,
    ulyx_status_t status, const char *text)
{
    if (status == ULYX_SUCCESS) {
        assert_status(coll_run(c, call, r), ULYX_SUCCESS);
        return;
    }
    assert_status(coll_run(c, call, r), status);
    if (!strstr(ulyx_last_error(), text))
        fail_msg("\"%s\" is not in \"%s\"", text, ulyx_last_error());
}

static void
sizes_that_differ_are_named_by_both(void **state)
{
    struct test_random random = {507};
    struct coll_scene c;
    (void)state;
    coll_open(&c, 3, 3, 0);
    for (int window = 0; window < 2; window++) {
        struct coll_call call = coll_plain(COLL_ALLTOALLV, 0, window);
        coll_expect_well(&c, COLL_ALLTOALL, window);
        coll_fill(&c, &call, &random);
        call.bytes[0][1] = 100;
        call.come[1][0] = 90;
        for (int32_t r = 0; r < 3; r++)
            assert_status(coll_run(&c, &call, r), ULYX_SUCCESS);
        coll_compare(&c, &call);
        call.bytes[0][1] = call.come[1][0] = 0;
        expect_reported(&c, 0, &call, ULYX_ERR_MISMATCH,
            "rank 1 sends 0 bytes to rank 0, which expects 0; rank 1 expects "
            "90 of the 100 bytes that rank 0 sends");
        expect_reported(&c, 1, &call, ULYX_ERR_MISMATCH, "call ");
        expect_reported(&c, 2, &call, ULYX_SUCCESS, NULL);
        plan_sync(&c.s);
        coll_expect_well(&c, COLL_ALLTOALL, window);
    }
    coll_close(&c);
}

static void
expect_all_reported(
    struct coll_scene *c, const struct coll_call *calls, const char *text)
{
    for (int32_t r = 0; r < c->s.nranks; r++)
        assert_status(coll_run(c, &calls[r], r), ULYX_SUCCESS);
    coll_compare(c, &calls[0]);
    for (int32_t r = 0; r < c->s.nranks; r++)
        expect_reported(c, r, &calls[0], ULYX_ERR_MISMATCH, text);
    plan_sync(&c->s);
}

/* Nothing is moved on any rank, and every rank returns the error. */
static void
reductions_that_differ_move_nothing(void **state)
{
    struct test_random random = {508};
    struct coll_scene c;
    (void)state;
    coll_open(&c, 3, 3, 0);
    coll_expect_well(&c, COLL_ALLREDUCE, true);
    for (int window = 0; window < 2; window++)
        for (int what = 0; what < 3; what++) {
            static const char *const names[] = {
                "count is", "dtype is", "root is"};
            struct coll_call calls[3];
            for (int r = 0; r < 3; r++)
                calls[r] = coll_plain(
                    what == 2 ? COLL_BROADCAST : COLL_ALLREDUCE, 700, window);
            calls[1].count += what == 0 ? 1 : 0;
            calls[1].dtype = what == 1 ? ULYX_DTYPE_BF16 : ULYX_DTYPE_F32;
            calls[1].root = what == 2 ? 2 : 0;
            coll_fill(&c, &calls[0], &random);
            expect_all_reported(&c, calls, names[what]);
        }
    coll_expect_well(&c, COLL_ALLREDUCE, false);
    coll_close(&c);
}

static void
different_calls_are_a_mismatch(void **state)
{
    struct test_random random = {509};
    struct coll_scene c;
    (void)state;
    coll_open(&c, 2, 2, 0);
    coll_expect_well(&c, COLL_ALLGATHER, false);
    struct coll_call calls[2] = {coll_plain(COLL_ALLREDUCE, 300, true),
        coll_plain(COLL_ALLTOALL, 300, true)};
    coll_fill(&c, &calls[0], &random);
    for (int32_t r = 0; r < 2; r++)
        assert_status(coll_run(&c, &calls[r], r), ULYX_SUCCESS);
    plan_sync(&c.s);
    expect_reported(&c, 0, &calls[0], ULYX_ERR_MISMATCH,
        "rank 1 calls alltoall, rank 0 allreduce");
    expect_reported(&c, 1, &calls[0], ULYX_ERR_MISMATCH,
        "rank 0 calls allreduce, rank 1 alltoall");
    plan_sync(&c.s);
    coll_expect_well(&c, COLL_BROADCAST, true);
    coll_close(&c);
}

/* ---- refusals ------------------------------------------------------------ */

static void
memory_of_the_host_is_refused_everywhere(void **state)
{
    struct test_random random = {510};
    struct coll_scene c;
    (void)state;
    coll_open(&c, 3, 3, 0);
    coll_expect_well(&c, COLL_ALLTOALL, true);
    struct coll_call call = coll_plain(COLL_ALLREDUCE, 300, true);
    coll_fill(&c, &call, &random);
    assert_status(ulyx_allreduce(c.s.ranks.comms[0], c.at[0].src_host,
                      c.at[0].dst, 300, ULYX_DTYPE_F32, c.s.streams[0]),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(ulyx_last_error(), "is not memory of CUDA device"));
    for (int32_t r = 1; r < 3; r++)
        assert_status(coll_run(&c, &call, r), ULYX_SUCCESS);
    coll_compare(&c, &call);
    for (int32_t r = 1; r < 3; r++)
        expect_reported(
            &c, r, &call, ULYX_ERR_PEER_REFUSED, "rank 0 refused: ");
    expect_reported(&c, 0, &call, ULYX_SUCCESS, NULL);
    plan_sync(&c.s);
    coll_expect_well(&c, COLL_ALLREDUCE, true);
    coll_close(&c);
}

/* For each call: nothing is moved on any rank, and the peers return the
 * error. */
static void
what_is_wrong_with_a_call_is_named(void **state)
{
    struct test_random random = {517};
    struct coll_scene c;
    (void)state;
    coll_open(&c, 3, 3, 0);
    coll_expect_well(&c, COLL_ALLTOALL, true);
    for (int which = 0; which < COLL_WRONG; which++) {
        struct coll_call call = coll_plain(COLL_ALLREDUCE, 300, which % 2);
        ulyx_status_t status;
        coll_fill(&c, &call, &random);
        const char *text = coll_wrong(&c, which, &status);
        assert_status(status, ULYX_ERR_INVALID_ARGUMENT);
        if (!strstr(ulyx_last_error(), text))
            fail_msg("%d: no \"%s\" in \"%s\"", which, text, ulyx_last_error());
        for (int32_t r = 1; r < 3; r++)
            assert_status(coll_run(&c, &call, r), ULYX_SUCCESS);
        coll_compare(&c, &call);
        for (int32_t r = 1; r < 3; r++)
            expect_reported(
                &c, r, &call, ULYX_ERR_PEER_REFUSED, "rank 0 refused");
        expect_reported(&c, 0, &call, ULYX_SUCCESS, NULL);
        plan_sync(&c.s);
    }
    coll_expect_well(&c, COLL_ALLREDUCE, true);
    coll_close(&c);
}

static void
wrong_arguments_are_refused_everywhere(void **state)
{
    struct coll_scene c;
    (void)state;
    coll_open(&c, 2, 1, 0);
    struct coll_call call = coll_plain(COLL_ALLTOALL, 100, false);
    struct test_random random = {511};
    coll_fill(&c, &call, &random);
    /* before the channel exists, the agreement of the first use carries the
     * error */
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    assert_status(ulyx_alltoall(c.s.ranks.comms[0], c.at[0].src, c.at[0].dst,
                      -1, c.s.streams[0]),
        ULYX_SUCCESS);
    assert_status(coll_run(&c, &call, 1), ULYX_SUCCESS);
    assert_status(ulyx_group_end(), ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(ulyx_last_error(), "message_bytes is -1"));
    coll_expect_well(&c, COLL_ALLTOALL, false);
    /* afterwards the stream carries it; here two streams in turn */
    for (int i = 0; i < 2; i++) {
        assert_status(i ? ulyx_alltoall(c.s.ranks.comms[0], c.at[0].src,
                              c.at[0].dst, 100, NULL)
                        : ulyx_broadcast(c.s.ranks.comms[0], c.at[0].dst, 100,
                              7, c.s.streams[0]),
            ULYX_ERR_INVALID_ARGUMENT);
        assert_non_null(
            strstr(ulyx_last_error(), i ? "NULL stream" : "root is 7"));
        assert_status(coll_run(&c, &call, 1), ULYX_SUCCESS);
        plan_sync(&c.s);
        expect_reported(&c, 1, &call, ULYX_ERR_PEER_REFUSED, "rank 0 refused");
        assert_status(coll_run(&c, &call, 0), ULYX_SUCCESS);
        plan_sync(&c.s);
        coll_expect_well(&c, COLL_ALLREDUCE, i);
    }
    coll_close(&c);
}

/* ---- captures ------------------------------------------------------------ */

static void
calls_replay(struct coll_scene *c, const struct coll_call *calls, int ncalls)
{
    cudaGraphExec_t exec[PLAN_RANKS];
    struct test_random random = {512};
    for (int32_t r = 0; r < c->s.nranks; r++) {
        cudaGraph_t graph;
        good(cudaSetDevice(r % c->s.devices));
        good(cudaStreamBeginCapture(
            c->s.streams[r], cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < ncalls; i++)
            assert_status(coll_run(c, &calls[i], r), ULYX_SUCCESS);
        good(cudaStreamEndCapture(c->s.streams[r], &graph));
        good(cudaGraphInstantiate(&exec[r], graph, 0));
        good(cudaGraphDestroy(graph));
    }
    for (int i = 0; i < 6; i++) {
        coll_fill(c, &calls[0], &random);
        for (int32_t r = 0; r < c->s.nranks; r++)
            good(cudaGraphLaunch(exec[r], c->s.streams[r]));
        for (int k = 0; k + 1 < ncalls; k++)
            coll_host(c, &calls[k]);
        coll_check(c, &calls[ncalls - 1]);
    }
    for (int32_t r = 0; r < c->s.nranks; r++)
        good(cudaGraphExecDestroy(exec[r]));
}

/* A sum and pieces of it, and pieces of another kind of call between the
 * replays. */
static void
captured_calls_are_replayed_with_new_data(void **state)
{
    struct coll_scene c;
    (void)state;
    setenv("ULYX_GPU_RECV_BUFFER", "4K", 1);
    coll_open(&c, 3, 3, 0);
    for (int window = 0; window < 2; window++) {
        struct coll_call calls[2] = {coll_plain(COLL_ALLREDUCE, 3000, window),
            coll_plain(COLL_ALLTOALL, 3001, window)};
        calls[1].dst_at[0] = 20000;
        coll_expect_well(&c, COLL_ALLTOALL, !window);
        struct test_random random = {513};
        coll_fill(&c, &calls[0], &random);
        calls_replay(&c, calls, 2);
        coll_expect_well(&c, COLL_ALLREDUCE, window);
    }
    coll_close(&c);
    unsetenv("ULYX_GPU_RECV_BUFFER");
}

static void
the_first_call_is_refused_in_a_capture(void **state)
{
    struct coll_scene c;
    cudaGraph_t graph;
    (void)state;
    coll_open(&c, 2, 2, 0);
    struct coll_call call = coll_plain(COLL_ALLTOALL, 100, true);
    struct test_random random = {514};
    coll_fill(&c, &call, &random);
    good(cudaSetDevice(0));
    good(cudaStreamBeginCapture(
        c.s.streams[0], cudaStreamCaptureModeThreadLocal));
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int32_t r = 0; r < 2; r++)
        assert_status(coll_run(&c, &call, r), ULYX_SUCCESS);
    assert_status(ulyx_group_end(), ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(ulyx_last_error(), "before the capture"));
    good(cudaStreamEndCapture(c.s.streams[0], &graph));
    good(cudaGraphDestroy(graph));
    coll_expect_well(&c, COLL_ALLTOALL, true);
    coll_close(&c);
}

/* ---- ranks that do not come ---------------------------------------------- */

/* Rank 0 has made a call alone; the communicator has failed or is aborted. */
static void
close_failed(struct coll_scene *c)
{
    for (int32_t r = 0; r < c->s.nranks; r++)
        (void)ulyx_comm_abort(c->s.ranks.comms[r]);
    plan_sync(&c->s);
    for (int32_t r = 0; r < c->s.nranks; r++) {
        struct coll_rank *at = &c->at[r];
        good(cudaSetDevice(r % c->s.devices));
        good(cudaStreamDestroy(c->s.streams[r]));
        good(cudaFree(at->outside));
        free(at->src_host);
        free(at->dst_host);
        free(at->seen);
        assert_status(ulyx_comm_destroy(c->hosts[r]), ULYX_SUCCESS);
    }
    for (int32_t r = 0; r < c->s.nranks; r++)
        assert_status(ulyx_comm_destroy(c->s.ranks.comms[r]), ULYX_SUCCESS);
    for (int32_t r = 0; r < c->s.nranks; r++)
        plan_free_window(c->s.mems[r]);
    assert_int_equal(emu_driver_live(), 0);
    assert_int_equal(emu_fault_count(), 0);
    emu_close();
}

static void
a_rank_that_does_not_come_is_named_after_the_deadline(void **state)
{
    struct coll_scene c;
    ulyx_status_t status = ULYX_SUCCESS;
    (void)state;
    coll_open(&c, 2, 2, 3);
    coll_expect_well(&c, COLL_ALLTOALL, false);
    struct coll_call call = coll_plain(COLL_ALLREDUCE, 400, false);
    assert_status(coll_run(&c, &call, 0), ULYX_SUCCESS);
    plan_sync(&c.s);
    assert_status(
        ulyx_comm_get_async_error(c.s.ranks.comms[0], &status), ULYX_SUCCESS);
    assert_int_equal(status, ULYX_ERR_TIMEOUT);
    assert_non_null(strstr(ulyx_last_error(), "allreduce, call 2, after "));
    assert_non_null(strstr(ulyx_last_error(), "waiting for rank 1 ("));
    assert_status(coll_run(&c, &call, 0), ULYX_ERR_TIMEOUT);
    close_failed(&c);
}

static void
an_abort_ends_calls_that_wait(void **state)
{
    struct coll_scene c;
    (void)state;
    coll_open(&c, 2, 2, 0);
    coll_expect_well(&c, COLL_ALLTOALL, false);
    struct coll_call call = coll_plain(COLL_ALLREDUCE, 400, false);
    assert_status(coll_run(&c, &call, 0), ULYX_SUCCESS);
    assert_status(ulyx_comm_destroy(c.s.ranks.comms[0]), ULYX_ERR_BUSY);
    assert_status(ulyx_comm_abort(c.s.ranks.comms[1]), ULYX_SUCCESS);
    plan_sync(&c.s); /* rank 0's kernel ends long before the ten minutes */
    assert_status(coll_run(&c, &call, 0), ULYX_ERR_ABORTED);
    close_failed(&c);
}

/* A rank that comes late delays the others and has no other effect. */
static void
a_late_rank_is_waited_for(void **state)
{
    struct test_random random = {515};
    struct coll_scene c;
    (void)state;
    coll_open(&c, 3, 3, 0);
    coll_expect_well(&c, COLL_ALLTOALL, false);
    for (int i = 0; i < 6; i++) {
        struct coll_call call =
            coll_plain(i % 2 ? COLL_ALLREDUCE : COLL_ALLTOALL, 900, i / 2 % 2);
        coll_fill(&c, &call, &random);
        for (int32_t r = 0; r < 3; r++)
            if (r != i % 3)
                assert_status(coll_run(&c, &call, r), ULYX_SUCCESS);
        good(cudaStreamQuery(c.s.streams[i % 3]));
        assert_int_equal(
            cudaStreamQuery(c.s.streams[(i + 1) % 3]), cudaErrorNotReady);
        assert_status(coll_run(&c, &call, i % 3), ULYX_SUCCESS);
        coll_check(&c, &call);
    }
    coll_close(&c);
}

static void
a_rank_that_has_left_is_named_by_the_next_call(void **state)
{
    struct coll_scene c;
    (void)state;
    coll_open(&c, 2, 2, 0);
    coll_expect_well(&c, COLL_ALLGATHER, true);
    struct coll_call call = coll_plain(COLL_ALLREDUCE, 400, true);
    struct test_random random = {516};
    coll_fill(&c, &call, &random);
    assert_status(
        ulyx_mem_detach(c.s.ranks.comms[1], c.s.mems[1]), ULYX_SUCCESS);
    assert_status(ulyx_comm_destroy(c.s.ranks.comms[1]), ULYX_SUCCESS);
    assert_status(coll_run(&c, &call, 0), ULYX_SUCCESS);
    coll_compare(&c, &call);
    expect_reported(&c, 0, &call, ULYX_ERR_PEER_REFUSED,
        "rank 1 has destroyed its communicator");
    plan_sync(&c.s);
    assert_status(
        ulyx_mem_detach(c.s.ranks.comms[0], c.s.mems[0]), ULYX_SUCCESS);
    assert_status(ulyx_comm_destroy(c.s.ranks.comms[0]), ULYX_SUCCESS);
    for (int32_t r = 0; r < 2; r++) {
        assert_status(ulyx_mem_free(c.s.mems[r]), ULYX_SUCCESS);
        assert_status(ulyx_comm_destroy(c.hosts[r]), ULYX_SUCCESS);
        free(c.at[r].src_host);
        free(c.at[r].dst_host);
        free(c.at[r].seen);
        good(cudaStreamDestroy(c.s.streams[r]));
    }
    assert_int_equal(emu_driver_live(), 0);
    assert_int_equal(emu_fault_count(), 0);
    emu_close();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_bit_is_the_hosts_on_devices_of_their_own),
    cmocka_unit_test(every_bit_is_the_hosts_on_one_device),
    cmocka_unit_test(
        every_bit_is_the_hosts_with_receive_buffers_of_the_usual_size),
    cmocka_unit_test(a_rank_alone_needs_no_peers),
    cmocka_unit_test(without_a_claim_every_bit_is_the_hosts),
    cmocka_unit_test(ranks_with_and_without_a_claim_meet),
    cmocka_unit_test(sizes_that_differ_are_named_by_both),
    cmocka_unit_test(reductions_that_differ_move_nothing),
    cmocka_unit_test(different_calls_are_a_mismatch),
    cmocka_unit_test(memory_of_the_host_is_refused_everywhere),
    cmocka_unit_test(what_is_wrong_with_a_call_is_named),
    cmocka_unit_test(wrong_arguments_are_refused_everywhere),
    cmocka_unit_test(captured_calls_are_replayed_with_new_data),
    cmocka_unit_test(the_first_call_is_refused_in_a_capture),
    cmocka_unit_test(a_rank_that_does_not_come_is_named_after_the_deadline),
    cmocka_unit_test(an_abort_ends_calls_that_wait),
    cmocka_unit_test(a_late_rank_is_waited_for),
    cmocka_unit_test(a_rank_that_has_left_is_named_by_the_next_call),
};

ULI_TEST_MAIN("EmulateCollective", tests)
