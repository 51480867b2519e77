/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans that exchange by messages, through the public calls, in rounds of small
 * messages: every byte is compared with obvious placement, also between nodes.
 * Also documents that change, ranks that disagree, and a plan that is destroyed
 * too early.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/messages/batch.h"
#include "emulate/messages/carried_nccl.h"
#include "support/random.h"
#include "support/test.h"

/* Draws a world of RANKS ranks. */
static struct job *
draw_job(struct test_random *random, bool balanced)
{
    for (;;) {
        struct job *job = carried_new(30, RANKS);
        do
            case_random(&job->w->c, random, RANKS, balanced);
        while (job->w->c.shape.nranks != RANKS);
        job->storage.nranks = RANKS;
        if (world_draw(job->w, &job->storage, random, 0))
            return job;
        carried_forget(job);
    }
}

/* ---- every byte ---------------------------------------------------------- */

/* whether some call had more rounds than there are slots */
static _Atomic bool took_rounds;

static int
play_all(struct job *job, int rank)
{
    char text[1024] = "";
    bool good = well(world_create(job->w, rank));
    good = good &&
           well(ulyx_plan_describe(job->w->plans[rank], text, sizeof(text)));
    good = good && ranks_expect(carried_has(text, "nccl 2.28.9")) &&
           ranks_expect(carried_has(text, "cannot be mapped"));
    for (const char *at = text; (at = strstr(at, " rounds of")); at++)
        if (at[-1] > '2' || at[-2] != ' ')
            atomic_store(&took_rounds, true);
    for (int round = 0; good && round < 2; round++)
        good = carried_execute_all(job, rank);
    return !(good && carried_check(job, rank, job->w->directions));
}

/* A setting makes two nodes, and another requests the schedule hier. Plans of
 * device memory do not follow the latter; their sums are by nodes anyway. */
static void
every_byte_between_nodes(void **state)
{
    (void)state;
    struct test_random random = {test_seed(502)};
    setenv("ULYX_RANKS_PER_NODE", "2", 1);
    setenv("ULYX_NET_DEVICES", "lo", 1);
    setenv("ULYX_ALGO", "hier", 1);
    for (int64_t draws = test_draws(2); draws > 0; draws--) {
        struct job *job = draw_job(&random, false);
        job->w->bytes_in_flight = 1;
        carried_nccl_run(job, play_all);
    }
    unsetenv("ULYX_RANKS_PER_NODE");
    unsetenv("ULYX_NET_DEVICES");
    unsetenv("ULYX_ALGO");
    assert_true(atomic_load(&took_rounds));
}

/* ---- documents that change ----------------------------------------------- */

/* The documents of the job that is running. */
static struct {
    struct test_random random;
    uint64_t captured; /* hash of the documents at the time of the capture */
    bool replaced;     /* whether the last round replaced the documents */
    int op;            /* the operation that is captured */
} updates;

/* Draws new documents. Rank 0 does this for the world and for what is
 * expected. */
static void
draw_docs(struct job *job)
{
    struct world *w = job->w;
    struct oracle_case old = w->c;
    ulyx_docs_t docs_q, docs_k;
    int64_t cuts[ORACLE_MAX_RANKS + 1];
    case_random_docs(&w->c, &updates.random);
    updates.replaced =
        uli_layout_update(w->layout, case_docs(&w->c, 0, &docs_q),
            case_docs(&w->c, 1, &docs_k)) == ULYX_SUCCESS;
    if (!updates.replaced) {
        memcpy(w->c.docs, old.docs, sizeof(old.docs));
        return;
    }
    oracle_free(&w->oracle);
    oracle_init(&w->oracle, &w->c, case_cuts(&w->c, w->layout, cuts));
    world_fill(w);
}

static bool
capture_one(struct job *job, int rank, cudaGraphExec_t *exec_p)
{
    cudaGraph_t graph;
    bool good =
        well_cu(cudaStreamBeginCapture(
            job->streams[rank], cudaStreamCaptureModeThreadLocal)) &&
        well(carried_execute(job, rank, updates.op)) &&
        ranks_expect(ulyx_plan_update(job->w->plans[rank], NULL, NULL,
                         job->streams[rank]) == ULYX_ERR_INVALID_ARGUMENT) &&
        carried_error_has("captured") &&
        well_cu(cudaStreamEndCapture(job->streams[rank], &graph)) &&
        well_cu(cudaGraphInstantiate(exec_p, graph, 0));
    return good && well_cu(cudaGraphDestroy(graph));
}

/* Makes calls with the new documents, then replays a call that was captured
 * with the old ones. */
static bool
play_new_docs(struct job *job, int rank, cudaGraphExec_t exec)
{
    struct world *w = job->w;
    ulyx_docs_t docs_q, docs_k;
    bool good =
        well(ulyx_plan_update(w->plans[rank], case_docs(&w->c, 0, &docs_q),
            case_docs(&w->c, 1, &docs_k), job->streams[rank])) &&
        carried_upload(job, rank) && carried_execute_all(job, rank) &&
        well_cu(cudaGraphLaunch(exec, job->streams[rank])) &&
        carried_check(job, rank, w->directions);
    bool older = updates.captured != uli_layout_table_hash(w->layout);
    return good &&
           ranks_expect(carried_execute(job, rank, updates.op) ==
                        (older ? ULYX_ERR_MISMATCH : ULYX_SUCCESS)) &&
           (!older || carried_error_has("captured before the last update")) &&
           carried_sync(job, rank);
}

static int
play_updates(struct job *job, int rank)
{
    cudaGraphExec_t exec = NULL;
    bool good = well(world_create(job->w, rank));
    good = good && capture_one(job, rank, &exec);
    good = good && well_cu(cudaGraphLaunch(exec, job->streams[rank])) &&
           carried_sync(job, rank);
    for (int i = 0; i < 4; i++) {
        carried_meet(job);
        if (rank == 0)
            draw_docs(job);
        carried_meet(job);
        if (good && updates.replaced)
            good = play_new_docs(job, rank, exec);
    }
    return !(good && well_cu(cudaGraphExecDestroy(exec)));
}

static void
calls_follow_updates_and_older_captures_are_refused(void **state)
{
    (void)state;
    struct test_random random = {test_seed(503)};
    for (int64_t left = test_draws(2); left > 0;) {
        struct job *job = draw_job(&random, true);
        struct world *w = job->w;
        w->bytes_in_flight = left % 2 ? 1 : 0;
        updates.random.state = test_random_next(&random);
        if (!w->directions || !uli_layout_has_tables(w->layout)) {
            carried_end(job);
            continue;
        }
        updates.captured = uli_layout_table_hash(w->layout);
        updates.op = __builtin_ctzll(w->directions);
        carried_nccl_run(job, play_updates);
        left--;
    }
}

/* ---- ranks that disagree ------------------------------------------------- */

/* Rank 0's first call is of another operation than that of the others. */
static int
play_other(struct job *job, int rank)
{
    int n = job->w->c.shape.nranks;
    bool late = n == RANKS; /* then messages differ in size */
    bool good = well(world_create(job->w, rank));
    carried_meet(job);
    good = good && well(carried_execute(
                       job, rank, rank ? ULYX_HEAD_TO_SEQ : ULYX_SEQ_TO_HEAD));
    if (late)
        good = ranks_expect(carried_failure(job, rank) == ULYX_ERR_TIMEOUT) &&
               good;
    good = good && carried_sync(job, rank);
    carried_meet(job);
    ulyx_status_t now =
        good ? carried_execute(job, rank, ULYX_HEAD_TO_SEQ) : ULYX_SUCCESS;
    good = good &&
           ranks_expect(now == (late ? ULYX_ERR_TIMEOUT : ULYX_ERR_MISMATCH)) &&
           (rank || carried_error_has(
                        late ? "call 1: not ended after 6 s: rank 1 executes "
                               "head_to_seq, rank 0 seq_to_head"
                             : "call 1: rank 1 executes head_to_seq"));
    return !(carried_sync(job, rank) && good);
}

static void
another_operation_is_named_at_the_deadline(void **state)
{
    (void)state;
    struct job *job = carried_new(LATE_S, RANKS);
    carried_plain(job, RANKS, 6);
    carried_nccl_run(job, play_other);
}

static void
another_operation_of_equal_sizes_is_a_mismatch(void **state)
{
    (void)state;
    struct job *job = carried_new(30, RANKS);
    carried_plain(job, 2, 7);
    carried_nccl_run(job, play_other);
}

/* ---- another thread's turn ----------------------------------------------- */

/* While another thread's call holds the batch transport, a call is refused
 * before any part of it is in the stream. The next call is unaffected. */
static int
play_busy(struct job *job, int rank)
{
    ulyx_comm_t *comm = job->storage.comms[rank];
    bool good =
        well(world_create(job->w, rank)) && well(uli_comm_batch_take(comm, 0));
    for (int i = 0; good && i < 2; i++)
        good = ranks_expect(carried_execute(job, rank, ULYX_SEQ_TO_HEAD) ==
                            ULYX_ERR_BUSY) &&
               carried_error_has("another thread executes a plan of") &&
               well_cu(cudaStreamQuery(job->streams[rank]));
    if (good)
        uli_comm_batch_give(comm);
    good = good && carried_execute_all(job, rank);
    return !(carried_sync(job, rank) && good &&
             carried_check(job, rank, job->w->directions));
}

static void
a_call_in_another_threads_turn_is_refused_whole(void **state)
{
    (void)state;
    struct job *job = carried_new(30, RANKS);
    carried_plain(job, RANKS, 9);
    carried_nccl_run(job, play_busy);
}

/* A call of several rounds uses a stream of the plan's own. During a capture
 * that stream belongs to the capture. */
static int
play_captured(struct job *job, int rank)
{
    cudaGraph_t graph = NULL;
    cudaStream_t caught = job->streams[rank], *stream = &job->streams[rank];
    bool good =
        well(world_create(job->w, rank)) &&
        well_cu(
            cudaStreamBeginCapture(caught, cudaStreamCaptureModeThreadLocal)) &&
        well(carried_execute(job, rank, ULYX_SEQ_TO_HEAD)) &&
        well_cu(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking)) &&
        ranks_expect(
            carried_execute(job, rank, ULYX_SEQ_TO_HEAD) == ULYX_ERR_BUSY) &&
        carried_error_has("another stream captures a call of the plan") &&
        well_cu(cudaStreamQuery(*stream)) &&
        well_cu(cudaStreamEndCapture(caught, &graph));
    good = good && carried_execute_all(job, rank);
    good = carried_sync(job, rank) && good &&
           carried_check(job, rank, job->w->directions);
    return !(well_cu(cudaGraphDestroy(graph)) &&
             well_cu(cudaStreamDestroy(caught)) && good);
}

static void
a_call_beside_a_capture_is_refused_whole(void **state)
{
    (void)state;
    struct job *job = carried_new(30, RANKS);
    job->w->bytes_in_flight = 1; /* so that a call has many rounds */
    carried_plain(job, RANKS, 10);
    carried_nccl_run(job, play_captured);
}

/* ---- the end ------------------------------------------------------------- */

/* A call of a second plan waits in the stream behind a call of the first plan,
 * which waits for the other ranks. No kernel of the second call has begun. */
static int
play_destroy(struct job *job, int rank)
{
    ulyx_plan_t *first;
    bool good = well(world_create(job->w, rank));
    first = job->w->plans[rank];
    good = good && well(world_create(job->w, rank));
    ulyx_plan_t *second = job->w->plans[rank];
    for (int turn = 0; turn < 2; turn++) {
        carried_meet(job);
        if (!good || (rank == 0) != (turn == 0))
            continue;
        job->w->plans[rank] = first;
        good = well(carried_execute(job, rank, ULYX_SEQ_TO_HEAD));
        job->w->plans[rank] = second;
        good = good && well(carried_execute(job, rank, ULYX_HEAD_TO_SEQ));
        if (rank == 0)
            good = good &&
                   ranks_expect(ulyx_plan_destroy(second) == ULYX_ERR_BUSY) &&
                   carried_error_has("a call of the plan is in flight");
    }
    good = carried_sync(job, rank) && good;
    return !(well(ulyx_plan_destroy(first)) && good);
}

static void
a_plan_whose_call_has_not_begun_is_not_destroyed(void **state)
{
    (void)state;
    struct job *job = carried_new(30, RANKS);
    carried_plain(job, RANKS, 8);
    carried_nccl_run(job, play_destroy);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(                                           \
        name, carried_nccl_set_up, carried_nccl_tear_down)
static const struct CMUnitTest tests[] = {
    CASE(every_byte_between_nodes),
    CASE(calls_follow_updates_and_older_captures_are_refused),
    CASE(another_operation_is_named_at_the_deadline),
    CASE(another_operation_of_equal_sizes_is_a_mismatch),
    CASE(a_call_in_another_threads_turn_is_refused_whole),
    CASE(a_call_beside_a_capture_is_refused_whole),
    CASE(a_plan_whose_call_has_not_begun_is_not_destroyed),
};

ULI_TEST_MAIN("EmulatePackedPlan", tests)
