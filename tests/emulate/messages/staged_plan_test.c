/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans that exchange through memory of the host, where there is no NCCL,
 * through the public calls: on one node and on several over the network, with
 * threads and processes as ranks. Every byte of all operations is checked, and
 * sums have the bits of the direct exchange. Also graphs, a rank that stops, a
 * rank that is killed, and abort.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "emulate/messages/carried_scene.h"
#include "support/test.h"

static int
set_up(void **state)
{
    (void)state;
    setenv("ULYX_NCCL_LIB", "/nowhere/libnccl.so", 1);
    setenv("ULYX_STAGE_CHUNK", "4K", 1);
    setenv("ULYX_GPU_SMS", "2", 1); /* emulated threads are slow */
    return 0;
}

/* A job with made-up nodes of so many ranks each; 0: all ranks are on one
 * node. */
static struct job *
new_job(double timeout_s, int ranks_per_node)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", ranks_per_node);
    setenv("ULYX_RANKS_PER_NODE", text, 1);
    return carried_new(timeout_s, RANKS);
}

static void
job_run(struct job *job, int (*play)(struct job *, int), int victim)
{
    if (!job->processes)
        assert_true(carried_open(RANKS, RANKS + 1));
    int failed = carried_run(job, play, 90, victim);
    int left = job->processes ? 0 : carried_close();
    carried_end(job);
    assert_int_equal(failed, 0);
    assert_int_equal(left, 0);
}

/* ---- every byte ---------------------------------------------------------- */

static int
play_all(struct job *job, int rank)
{
    char text[1024] = "";
    bool good = well(world_create(job->w, rank));
    good = good &&
           well(ulyx_plan_describe(job->w->plans[rank], text, sizeof(text)));
    good = good && ranks_expect(carried_has(text, "staged: ")) &&
           ranks_expect(carried_has(text, "chunks of 4 KiB")) &&
           ranks_expect(
               job->w->algo || carried_has(text, "nccl: /nowhere/libnccl.so"));
    for (int round = 0; good && round < 2; round++)
        good = carried_execute_all(job, rank);
    return !(good && carried_check(job, rank, job->w->directions));
}

static bool
draw_case(struct job *job, struct test_random *random, int64_t draw)
{
    case_random(&job->w->c, random, RANKS, draw % 3 == 2);
    job->storage.nranks = job->w->c.shape.nranks;
    job->w->salt = draw;
    return job->storage.nranks > 1 &&
           world_draw(job->w, &job->storage, random, 0);
}

static void
draw_all(int ranks_per_node, uint64_t seed, bool processes)
{
    struct test_random random = {test_seed(seed)};
    for (int64_t draw = 0; draw < test_draws(1); draw++) {
        struct job *job = new_job(30, ranks_per_node);
        job->processes = processes;
        if (!draw_case(job, &random, draw)) {
            carried_forget(job);
            continue;
        }
        job->w->algo = draw % 2 ? "staged" : NULL;
        job_run(job, play_all, -1);
    }
}

static void
every_byte_on_one_node(void **state)
{
    (void)state;
    draw_all(0, 701, false);
}

static void
every_byte_on_several_nodes(void **state)
{
    (void)state;
    draw_all(1, 702, false);
    draw_all(2, 703, false);
}

static void
every_byte_between_processes(void **state)
{
    (void)state;
    draw_all(0, 704, true);
    draw_all(2, 705, true);
}

/* Several ranks share each head, so sums have shares from both nodes. Messages
 * are long enough for many chunks. */
static void
sums_are_those_of_the_direct_exchange(void **state)
{
    (void)state;
    for (int node = 0; node < 3; node += 2) {
        struct test_random random = {(uint64_t)node + 11};
        struct job *job = new_job(30, node);
        job->storage.nranks = RANKS;
        world_plain_case(job->w, RANKS, 201, 6, 2, 32, ULYX_DTYPE_BF16);
        assert_true(world_draw(job->w, &job->storage, &random, 0));
        job_run(job, play_all, -1);
    }
}

/* ---- graphs -------------------------------------------------------------- */

static int
play_graph(struct job *job, int rank)
{
    cudaStream_t stream = job->streams[rank];
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    bool good = well(world_create(job->w, rank)) &&
                well_cu(cudaStreamBeginCapture(
                    stream, cudaStreamCaptureModeThreadLocal));
    good = good && carried_execute_all(job, rank) &&
           well_cu(cudaStreamEndCapture(stream, &graph)) &&
           well_cu(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; good && round < 2; round++) {
        carried_meet(job);
        if (rank == 0) {
            job->w->salt += 7;
            world_fill(job->w);
        }
        carried_meet(job);
        good = carried_upload(job, rank) &&
               well_cu(cudaGraphLaunch(exec, stream)) &&
               carried_check(job, rank, job->w->directions);
    }
    if (exec)
        cudaGraphExecDestroy(exec);
    if (graph)
        cudaGraphDestroy(graph);
    return !good;
}

static void
a_captured_call_is_replayed_with_new_data(void **state)
{
    (void)state;
    for (int node = 0; node < 3; node += 2) {
        struct job *job = new_job(30, node);
        carried_plain(job, RANKS, 21);
        job_run(job, play_graph, -1);
    }
}

/* ---- faults -------------------------------------------------------------- */

static int
play_late(struct job *job, int rank)
{
    return carried_play_late(job, rank, "rank 2");
}

static void
a_rank_that_stops_is_named_and_streams_end(void **state)
{
    (void)state;
    for (int node = 0; node < 3; node += 2) {
        struct job *job = new_job(LATE_S, node);
        carried_plain(job, RANKS, 3);
        job_run(job, play_late, -1);
    }
}

/* Rank 2 leaves, mostly while the others are in their call; they report this
 * long before their deadline. */
static int
play_left(struct job *job, int rank)
{
    bool good = well(world_create(job->w, rank)) &&
                well(carried_execute(job, rank, ULYX_SEQ_TO_HEAD)) &&
                carried_sync(job, rank);
    if (rank != 2)
        return !(good && well(carried_execute(job, rank, ULYX_HEAD_TO_SEQ)) &&
                 carried_fails(job, rank, ULYX_ERR_RANK_LOST,
                     "rank 2 has destroyed its communicator"));
    carried_sleep(100);
    good = well(ulyx_plan_destroy(job->w->plans[rank])) &&
           well(ulyx_comm_destroy(job->storage.comms[rank])) && good;
    job->w->plans[rank] = NULL;
    job->storage.comms[rank] = NULL;
    return !good;
}

static void
a_rank_that_leaves_is_named_before_the_deadline(void **state)
{
    (void)state;
    struct job *job = new_job(600, 0);
    job->processes = true;
    carried_plain(job, RANKS, 7);
    job_run(job, play_left, -1);
}

static int
play_abort(struct job *job, int rank)
{
    bool good = well(world_create(job->w, rank));
    carried_meet(job);
    if (good && rank != RANKS - 1)
        good = well(carried_execute(job, rank, ULYX_HEAD_TO_SEQ));
    carried_meet(job);
    if (rank == 0)
        well(ulyx_comm_abort(job->storage.comms[rank]));
    return !(good && carried_fails(job, rank, ULYX_ERR_ABORTED, ""));
}

static void
an_abort_ends_all_streams(void **state)
{
    (void)state;
    for (int node = 0; node < 3; node += 2) {
        struct job *job = new_job(60, node);
        carried_plain(job, RANKS, 5);
        job_run(job, play_abort, -1);
    }
}

static int
play_killed(struct job *job, int rank)
{
    bool good = well(world_create(job->w, rank)) &&
                well(carried_execute(job, rank, ULYX_SEQ_TO_HEAD)) &&
                carried_sync(job, rank);
    if (rank == 1) {
        carried_sleep(100); /* by now the others are mostly in their call */
        raise(SIGKILL);
    }
    ulyx_status_t called =
        good ? carried_execute(job, rank, ULYX_HEAD_TO_SEQ) : ULYX_ERR_INTERNAL;
    return !(
        ranks_expect(called == ULYX_SUCCESS || called == ULYX_ERR_RANK_LOST) &&
        carried_fails(job, rank, ULYX_ERR_RANK_LOST, "rank 1"));
}

static void
a_killed_rank_is_named_and_streams_end(void **state)
{
    (void)state;
    for (int node = 0; node < 2; node++) {
        struct job *job = new_job(60, node);
        job->processes = true;
        carried_plain(job, RANKS, 6);
        job_run(job, play_killed, 1);
    }
}

/* ---- refusals ------------------------------------------------------------ */

static void
a_refusal_is_reported_and_the_next_call_succeeds(void **state)
{
    (void)state;
    struct job *job = new_job(30, 2);
    carried_plain(job, RANKS, 4);
    job_run(job, carried_play_refusal, -1);
}

static int
play_without(struct job *job, int rank)
{
    return !(
        ranks_expect(world_create(job->w, rank) == ULYX_ERR_UNSUPPORTED) &&
        carried_error_has("nccl: /nowhere/libnccl.so") &&
        carried_error_has("staged: ULYX_TRANSPORTS=^staged leaves it out"));
}

static void
without_any_batch_transport_no_plan_is_made(void **state)
{
    (void)state;
    setenv("ULYX_TRANSPORTS", "^staged", 1);
    struct job *job = new_job(30, 0);
    carried_plain(job, RANKS, 5);
    job_run(job, play_without, -1);
    unsetenv("ULYX_TRANSPORTS");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, NULL)
static const struct CMUnitTest tests[] = {
    CASE(every_byte_on_one_node),
    CASE(every_byte_on_several_nodes),
    CASE(every_byte_between_processes),
    CASE(sums_are_those_of_the_direct_exchange),
    CASE(a_captured_call_is_replayed_with_new_data),
    CASE(a_rank_that_stops_is_named_and_streams_end),
    CASE(a_rank_that_leaves_is_named_before_the_deadline),
    CASE(an_abort_ends_all_streams),
    CASE(a_killed_rank_is_named_and_streams_end),
    CASE(a_refusal_is_reported_and_the_next_call_succeeds),
    CASE(without_any_batch_transport_no_plan_is_made),
};

ULI_TEST_MAIN("EmulateStagedPlan", tests)
