/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport "staged": the contract of batches (transport/batch.h), with
 * ranks as threads, as processes, and on nodes of their own over the network.
 * Then ranks that do not come, ranks that send something else, ranks that are
 * killed, and abort.
 */
#include "emulate/messages/staged_scene.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/status.h"
#include "comm/device/gpu.h"
#include "comm/device/residency.h"
#include "device/pinned.h"
#include "emulate.h"
#include "emulate/driver/driver.h"
#include "support/ranks.h"
#include "support/test.h"

#define OPS        (uli_tr_staged_ops.batch)
#define well(call) ranks_expect((call) == ULYX_SUCCESS)

/* ---- the machine --------------------------------------------------------- */

static struct staged_case *
new_case(int nranks, int ranks_per_node, int (*play)(struct staged_case *, int))
{
    struct staged_case *c = ranks_shared(sizeof(*c));
    char text[16];
    snprintf(text, sizeof(text), "%d", ranks_per_node);
    setenv("ULYX_RANKS_PER_NODE", text, 1);
    c->nranks = nranks;
    c->devices = 2;
    c->timeout_s = 30;
    c->chunk_bytes = 4096;
    c->longest = 150000;
    c->seed = (uint64_t)test_seed(9100);
    c->play = play;
    assert_status(ulyx_unique_id_create(&c->id), ULYX_SUCCESS);
    return c;
}

static void
end_case(struct staged_case *c)
{
    ranks_shared_free(c, sizeof(*c));
    unsetenv("ULYX_RANKS_PER_NODE");
}

static void
by_threads(struct staged_case *c, double limit_s)
{
    const struct emu_config config = {.devices = c->devices,
        .sm_count = 8,
        /* one more than ranks, because a rank may wait outside the emulator */
        .host_threads = c->nranks + 1,
        .wall_time = true};
    assert_int_equal(emu_open(&config), 0);
    emu_driver_no_peers(true);
    int failed = ranks_run_threads(c->nranks, staged_rank, c, limit_s);
    int faults = (int)emu_fault_count(), live = emu_driver_live();
    emu_driver_no_peers(false);
    emu_close();
    assert_int_equal(failed, 0);
    assert_int_equal(faults, 0);
    assert_int_equal(live, 0);
    assert_int_equal(uli_pinned_count(), 0);
    end_case(c);
}

static void
by_processes(struct staged_case *c, double limit_s)
{
    c->processes = true;
    assert_int_equal(
        ranks_run_processes(c->nranks, staged_rank, c, limit_s), 0);
    end_case(c);
}

/* ---- every byte ---------------------------------------------------------- */

static int
play_runs(struct staged_case *c, int rank)
{
    bool good = true;
    char text[200];
    OPS->describe(c->batches[rank], text, sizeof(text));
    good = ranks_expect(strstr(text, "chunks of 4 KiB") != NULL);
    for (int n = 0; good && n < test_draws(4); n++)
        good = staged_draw(c, rank, n) && staged_fill(c, rank, n) &&
               well(staged_run(c, rank, 30)) && staged_sync(c, rank) &&
               staged_check(c, rank, n) && well(OPS->check(c->batches[rank]));
    return !good;
}

static void
threads_exchange_bytes(void **state)
{
    (void)state;
    by_threads(new_case(3, 0, play_runs), 60);
}

/* Other kernels that wait claim the whole device. A launch then has one block,
 * and ends without waiting for others. */
static void
without_a_claim_one_block_exchanges_bytes(void **state)
{
    const struct uli_residency room = {.per_sm = 1, .claimed = 1000000};
    (void)state;
    for (int32_t d = 0; d < 2; d++)
        assert_true(uli_residency_claim(d, INT64_MAX, 1, 1000000));
    by_threads(new_case(3, 0, play_runs), 60);
    for (int32_t d = 0; d < 2; d++)
        uli_residency_release(d, &room);
}

static void
one_queue_and_many_exchange_bytes(void **state)
{
    static const char *const queues[] = {"1", "40"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        setenv("ULYX_STAGE_QUEUES", queues[i], 1);
        by_threads(new_case(2, 0, play_runs), 60);
    }
    unsetenv("ULYX_STAGE_QUEUES");
}

static void
processes_exchange_bytes(void **state)
{
    (void)state;
    by_processes(new_case(3, 0, play_runs), 60);
}

static void
nodes_exchange_bytes(void **state)
{
    (void)state;
    by_threads(new_case(3, 1, play_runs), 60);
    by_threads(new_case(4, 2, play_runs), 60);
}

static void
processes_of_two_nodes_exchange_bytes(void **state)
{
    (void)state;
    by_processes(new_case(4, 2, play_runs), 60);
}

static void
a_rank_without_memory_refuses_for_all(void **state)
{
    (void)state;
    for (int nodes = 0; nodes < 2; nodes++) {
        struct staged_case *c = new_case(3, nodes, play_runs);
        c->refused = true;
        by_threads(c, 60);
    }
}

/* ---- graphs, streams ----------------------------------------------------- */

static bool
case_replay(struct staged_case *c, int rank, cudaGraphExec_t graph)
{
    bool good = true;
    for (int n = 1; good && n < 5; n++)
        good = staged_fill(c, rank, n) &&
               ranks_expect(cudaGraphLaunch(graph, c->streams[rank]) == 0) &&
               staged_sync(c, rank) && staged_check(c, rank, n);
    /* an ordinary run after the replays */
    return good && staged_fill(c, rank, 9) && well(staged_run(c, rank, 30)) &&
           staged_sync(c, rank) && staged_check(c, rank, 9);
}

static int
play_graph(struct staged_case *c, int rank)
{
    cudaStream_t stream = c->streams[rank];
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    bool good = staged_draw(c, rank, 0) &&
                ranks_expect(cudaStreamBeginCapture(stream,
                                 cudaStreamCaptureModeThreadLocal) == 0) &&
                well(staged_run(c, rank, 30)) &&
                ranks_expect(cudaStreamEndCapture(stream, &graph) == 0) &&
                ranks_expect(cudaGraphInstantiate(&exec, graph, 0) == 0);
    good = good && case_replay(c, rank, exec);
    if (exec)
        cudaGraphExecDestroy(exec);
    if (graph)
        cudaGraphDestroy(graph);
    return !good;
}

static void
a_captured_run_is_replayed_with_new_bytes(void **state)
{
    (void)state;
    by_threads(new_case(3, 0, play_graph), 60);
    by_threads(new_case(3, 2, play_graph), 60);
}

/* Makes runs on two streams in turn without waiting for any. */
static int
play_streams(struct staged_case *c, int rank)
{
    cudaStream_t streams[2] = {c->streams[rank], NULL};
    bool good = ranks_expect(cudaStreamCreateWithFlags(
                                 &streams[1], cudaStreamNonBlocking) == 0) &&
                staged_draw(c, rank, 0) && staged_fill(c, rank, 0);
    for (int n = 0; good && n < 6; n++) {
        c->streams[rank] = streams[n % 2];
        good = well(staged_run(c, rank, 30));
    }
    for (int i = 0; i < 2; i++) {
        c->streams[rank] = streams[i];
        good = staged_sync(c, rank) && good;
    }
    c->streams[rank] = streams[0];
    good = good && staged_check(c, rank, 0);
    if (streams[1])
        cudaStreamDestroy(streams[1]);
    return !good;
}

static void
runs_of_two_streams_follow_each_other(void **state)
{
    (void)state;
    by_threads(new_case(3, 0, play_streams), 60);
    by_threads(new_case(3, 1, play_streams), 60);
}

/* ---- faults -------------------------------------------------------------- */

/* One piece from rank 0 to rank 1, for which this rank gives so many bytes. */
static bool
one_piece(struct staged_case *c, int rank, int64_t bytes)
{
    const struct staged_piece piece = {0, 1, bytes, 0};
    c->npieces[rank] = 0;
    c->used[rank] = 0;
    return staged_add(c, rank, &piece);
}

static bool
ends_with(
    struct staged_case *c, int rank, ulyx_status_t status, const char *part)
{
    bool good = staged_sync(c, rank) &&
                ranks_expect(OPS->check(c->batches[rank]) == status);
    if (good && !strstr(uli_error_text(), part))
        fprintf(stderr, "\"%s\" is not in \"%s\"\n", part, uli_error_text());
    return good && ranks_expect(strstr(uli_error_text(), part) != NULL);
}

static int
play_late(struct staged_case *c, int rank)
{
    /* more than the slots of all queues hold, so that the sender waits as
     * well */
    bool good = rank == 2 || one_piece(c, rank, 400000);
    if (good && rank == *(int *)c->context) {
        good = well(staged_run(c, rank, 0.05)) &&
               (rank ? ends_with(c, rank, ULYX_ERR_TIMEOUT,
                           "run 1: timed out waiting for rank 0 to send")
                     : ends_with(c, rank, ULYX_ERR_TIMEOUT,
                           "run 1: timed out waiting for rank 1 to receive"));
        /* now nothing moves, and no call waits */
        good = good && well(staged_run(c, rank, 30)) && staged_sync(c, rank);
    }
    return !good;
}

static void
a_peer_that_does_not_come_is_named(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++)
        for (int node = 0; node < 2; node++) {
            struct staged_case *c = new_case(3, node, play_late);
            c->context = &rank;
            by_threads(c, 60);
        }
}

static int
play_other_size(struct staged_case *c, int rank)
{
    int64_t bytes = *(int64_t *)c->context;
    bool good = rank == 2 || one_piece(c, rank, rank ? bytes : 20000);
    if (good && rank == 1)
        good = well(staged_run(c, rank, 20)) &&
               ends_with(c, rank, ULYX_ERR_MISMATCH,
                   "run 1: rank 0 sends a message of another size");
    if (good && rank == 0)
        good = well(staged_run(c, rank, 20));
    staged_meet(c);
    OPS->abort(c->batches[rank]);
    return !(good && staged_sync(c, rank));
}

static void
a_message_of_another_size_is_found(void **state)
{
    static int64_t sizes[] = {19999, 20001, 16384, 300000};
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct staged_case *c = new_case(3, i % 2 ? 1 : 0, play_other_size);
        c->context = &sizes[i];
        by_threads(c, 60);
    }
}

static int
play_abort(struct staged_case *c, int rank)
{
    bool good = rank != 1 || one_piece(c, rank, 400000);
    if (good && rank == 1)
        good = well(staged_run(c, rank, 3000));
    staged_sleep(20);
    OPS->abort(c->batches[rank]);
    good = good && staged_sync(c, rank) &&
           ranks_expect(OPS->check(c->batches[rank]) == ULYX_ERR_ABORTED);
    return !(
        good && ranks_expect(staged_run(c, rank, 1) ==
                             (rank == 1 ? ULYX_ERR_ABORTED : ULYX_SUCCESS)));
}

static void
an_abort_ends_what_is_on_the_stream(void **state)
{
    (void)state;
    by_threads(new_case(2, 0, play_abort), 60);
    by_threads(new_case(2, 1, play_abort), 60);
}

static int
play_bad_pieces(struct staged_case *c, int rank)
{
    static unsigned char byte;
    const struct uli_batch_message bad[] = {
        {&byte, 0, !rank, true},
        {&byte, 1, rank, true},
        {&byte, 1, c->nranks, false},
        {&byte, 1, -1, false},
    };
    bool good = true;
    for (int i = 0; i < 4; i++)
        good = ranks_expect(
                   OPS->run(c->batches[rank], &bad[i], 1, c->streams[rank],
                       uli_deadline_in(9)) == ULYX_ERR_INVALID_ARGUMENT) &&
               good;
    /* as if the refused calls had not been made */
    return !(good && play_runs(c, rank) == 0);
}

static void
bad_pieces_are_refused_and_change_nothing(void **state)
{
    (void)state;
    by_threads(new_case(2, 0, play_bad_pieces), 60);
}

/* ---- a rank that is killed ----------------------------------------------- */

/* Makes runs until rank 1 has died. Then this rank's communicator fails, and
 * the poison ends its stream. */
static int
play_killed(struct staged_case *c, int rank)
{
    ulyx_status_t status = ULYX_SUCCESS;
    bool good = staged_draw(c, rank, 1) && staged_fill(c, rank, 1) &&
                well(staged_run(c, rank, 30)) && staged_sync(c, rank) &&
                one_piece(c, rank, 400000);
    if (rank == 1)
        raise(SIGKILL);
    if (rank == 0)
        good = good && well(staged_run(c, rank, 600)) && staged_sync(c, rank);
    for (int i = 0; i < 20000 && status == ULYX_SUCCESS; i++) {
        staged_sleep(1);
        ulyx_comm_get_async_error(c->comms[rank], &status);
    }
    return !(good && ranks_expect(status == ULYX_ERR_RANK_LOST));
}

static void
a_killed_peer_ends_the_run(void **state)
{
    pid_t *pids = ranks_shared(STAGED_RANKS * sizeof(*pids));
    (void)state;
    for (int node = 0; node < 2; node++) {
        struct staged_case *c = new_case(3, node, play_killed);
        c->processes = true;
        assert_int_equal(
            ranks_run_processes_victim(3, staged_rank, c, 60, 1, pids), 0);
        end_case(c);
    }
    ranks_shared_free(pids, STAGED_RANKS * sizeof(*pids));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(threads_exchange_bytes),
    cmocka_unit_test(without_a_claim_one_block_exchanges_bytes),
    cmocka_unit_test(one_queue_and_many_exchange_bytes),
    cmocka_unit_test(processes_exchange_bytes),
    cmocka_unit_test(nodes_exchange_bytes),
    cmocka_unit_test(processes_of_two_nodes_exchange_bytes),
    cmocka_unit_test(a_rank_without_memory_refuses_for_all),
    cmocka_unit_test(a_captured_run_is_replayed_with_new_bytes),
    cmocka_unit_test(runs_of_two_streams_follow_each_other),
    cmocka_unit_test(a_peer_that_does_not_come_is_named),
    cmocka_unit_test(a_message_of_another_size_is_found),
    cmocka_unit_test(an_abort_ends_what_is_on_the_stream),
    cmocka_unit_test(bad_pieces_are_refused_and_change_nothing),
    cmocka_unit_test(a_killed_peer_ends_the_run),
};

ULI_TEST_MAIN("EmulateStaged", tests)
