/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks in different calls: all return MISMATCH with two of the calls, long
 * before their deadline, as threads and as processes (on several hosts by
 * `netns-test.sh spread`). No rank returns MISMATCH where ranks are only slow,
 * where several threads make the calls, or where operations run beside others.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "base/system/thread.h"
#include "comm/meet.h"
#include "soak/scene.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"

enum { MOST = 8, TIMEOUT_S = 60, LIMIT_S = 100 };

/* What a rank calls. */
enum act {
    PLAN_A,
    PLAN_B,
    BARRIER,
    PLAN_CREATE,
    SPLIT,
    ALLTOALL,
    ALLREDUCE,
    OUTSIDE, /* nothing, until the others have returned their error */
    ACTS
};

struct scenario {
    const char *name;
    int nranks;
    enum act acts[MOST];
    const char *words[2]; /* words that the error has at all ranks */
};

static const struct scenario scenarios[] = {
    {"two plans", 2, {PLAN_A, PLAN_B},
        {"rank 0 in reshuffle, call 2 of plan "}},
    {"two plans of three", 3, {PLAN_A, PLAN_B, PLAN_B},
        {"reshuffle, call 2 of plan "}},
    {"two plans of four", 4, {PLAN_A, PLAN_A, PLAN_B, PLAN_B},
        {"reshuffle, call 2 of plan "}},
    {"two plans of eight", 8,
        {PLAN_A, PLAN_A, PLAN_B, PLAN_A, PLAN_A, PLAN_A, PLAN_A, PLAN_A},
        {"reshuffle, call 2 of plan "}},
    {"a plan and a barrier", 3, {PLAN_A, BARRIER, PLAN_A},
        {"reshuffle, call 2 of plan ", "barrier, collective call "}},
    {"a barrier and a plan", 4, {BARRIER, BARRIER, BARRIER, PLAN_B},
        {"reshuffle, call 2 of plan ", "barrier, collective call "}},
    {"a plan and its creation", 2, {PLAN_A, PLAN_CREATE},
        {"reshuffle, call 2 of plan ", "plan create, collective call "}},
    {"a plan and a split", 3, {SPLIT, SPLIT, PLAN_A},
        {"reshuffle, call 2 of plan ", "split, collective call "}},
    {"a plan and an alltoall", 2, {ALLTOALL, PLAN_B},
        {"reshuffle, call 2 of plan ", "alltoall, call 2"}},
    {"a plan and a sum", 4, {PLAN_A, ALLREDUCE, ALLREDUCE, ALLREDUCE},
        {"reshuffle, call 2 of plan "}},
    {"three calls", 3, {PLAN_A, PLAN_B, BARRIER}, {" in different calls: "}},
};
enum { SCENARIOS = sizeof(scenarios) / sizeof(scenarios[0]) };

struct rank {
    ulyx_comm_t *comm;
    struct scene scenes[2];
};

struct shared {
    struct meet *meet;
    _Atomic int32_t ended;
    _Atomic int32_t pids[MOST];
};
static struct shared *shared;
static const struct scenario *now;
static bool grouped, concurrent;

static void
shared_new(int nranks)
{
    shared = ranks_shared(sizeof(*shared));
    shared->meet = meet_new(nranks);
}

static void
shared_free(void)
{
    meet_free(shared->meet);
    ranks_shared_free(shared, sizeof(*shared));
    shared = NULL;
}

typedef int run_fn(int nranks, rank_fn body, void *context, double limit_s);

/* Runs the body by threads or processes.
 * returns 0 when every rank succeeds. */
static int
ranks_play(run_fn *run, int nranks, rank_fn body)
{
    shared_new(nranks);
    int failed = run(nranks, body, NULL, LIMIT_S);
    shared_free();
    return failed;
}

static ulyx_status_t
alltoall_call(ulyx_comm_t *comm)
{
    static _Thread_local int32_t src[MOST], dst[MOST];
    return ulyx_alltoall(comm, src, dst, sizeof(src[0]), NULL);
}

/* Every rank calls each plan and the alltoall once. */
static bool
plans_open(struct rank *rank)
{
    bool good = ranks_expect(alltoall_call(rank->comm) == ULYX_SUCCESS);
    for (int i = 0; i < 2 && good; i++)
        good = ranks_expect(scene_open(rank->comm, SCENE_WINDOW, 64,
                                &rank->scenes[i]) == ULYX_SUCCESS) &&
               ranks_expect(scene_execute(&rank->scenes[i], ULYX_SEQ_TO_HEAD) ==
                            ULYX_SUCCESS);
    return good;
}

static bool
rank_open(struct rank *rank, int number, double timeout_s)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.timeout_s = timeout_s;
    params.flags = concurrent ? ULYX_COMM_CONCURRENT : 0;
    params.name = "differ";
    return ranks_expect(meet_comm_by(shared->meet, number, &params,
                            &rank->comm) == ULYX_SUCCESS) &&
           plans_open(rank);
}

static bool
rank_close(struct rank *rank)
{
    bool good = true;
    for (int i = 0; i < 2; i++)
        good &= ranks_expect(scene_close(&rank->scenes[i], 20));
    return good & ranks_expect(ulyx_comm_destroy(rank->comm) == ULYX_SUCCESS);
}

static ulyx_status_t
rank_act(struct rank *rank, enum act act)
{
    static _Thread_local float numbers[2][16];
    ulyx_comm_t *half = NULL;
    struct scene scene;
    switch (act) {
    case PLAN_A:
    case PLAN_B:
        return scene_execute(&rank->scenes[act - PLAN_A], ULYX_SEQ_TO_HEAD);
    case BARRIER:
        return ulyx_comm_barrier(rank->comm);
    case PLAN_CREATE:
        return scene_open(rank->comm, SCENE_CMA, 64, &scene);
    case SPLIT:
        return ulyx_comm_split(rank->comm, 0, 0, NULL, &half);
    case ALLTOALL:
        return alltoall_call(rank->comm);
    case ALLREDUCE:
        return ulyx_allreduce(
            rank->comm, numbers[0], numbers[1], 16, ULYX_DTYPE_F32, NULL);
    default:
        return ULYX_ERR_INTERNAL;
    }
}

/* ---- found out ----------------------------------------------------------- */

static bool
text_has(const char *text, const char *words)
{
    bool has = !words || strstr(text, words) != NULL;
    if (!has)
        fprintf(stderr, "no \"%s\" in: %s\n", words, text);
    return has;
}

static int
differing_body(int number, int nranks, void *context)
{
    struct rank rank = {0};
    char text[512];
    ulyx_status_t status;
    (void)nranks, (void)context;
    if (!rank_open(&rank, number, TIMEOUT_S))
        return 1;
    if (grouped)
        ulyx_group_start();
    status = rank_act(&rank, now->acts[number]);
    if (grouped)
        status = ulyx_group_end();
    snprintf(text, sizeof(text), "%s", ulyx_last_error());
    bool good = ranks_expect(status == ULYX_ERR_MISMATCH);
    for (int i = 0; i < 2; i++)
        good &= ranks_expect(text_has(text, now->words[i]));
    if (strstr(text, "reshuffle, "))
        good &= ranks_expect(text_has(text, " (fingerprint "));
    /* The mismatch fails the communicator. */
    good &= ranks_expect(
        ulyx_comm_get_async_error(rank.comm, &status) == ULYX_SUCCESS &&
        status == ULYX_ERR_MISMATCH);
    good &= ranks_expect(ulyx_comm_barrier(rank.comm) == ULYX_ERR_MISMATCH);
    if (!good)
        fprintf(stderr, "%s, rank %d: %s\n", now->name, number, text);
    good &= ranks_expect(meet_barrier(shared->meet, number));
    return !(good & rank_close(&rank));
}

static void
scenarios_run(run_fn *run)
{
    for (int i = 0; i < SCENARIOS; i++) {
        now = &scenarios[i];
        int failed = ranks_play(run, now->nranks, differing_body);
        if (failed)
            print_message("scenario \"%s\"\n", now->name);
        assert_int_equal(failed, 0);
    }
}

static void
threads_in_different_calls_are_detected(void **state)
{
    (void)state;
    scenarios_run(ranks_run_threads);
}

static void
processes_in_different_calls_are_detected(void **state)
{
    (void)state;
    scenarios_run(ranks_run_processes);
}

static void
different_calls_of_groups_are_detected(void **state)
{
    (void)state;
    grouped = true;
    for (int i = 0; i < SCENARIOS; i++) {
        now = &scenarios[i];
        if (now->nranks > 2 || now->acts[0] == SPLIT)
            continue;
        /* In a group, creations start when the group ends, with pointers beyond
         * this test's stack. */
        bool creates = false;
        for (int r = 0; r < now->nranks; r++)
            creates |= now->acts[r] == PLAN_CREATE || now->acts[r] == SPLIT;
        if (creates)
            continue;
        int failed = ranks_play(ranks_run_threads, now->nranks, differing_body);
        if (failed)
            print_message("scenario \"%s\"\n", now->name);
        assert_int_equal(failed, 0);
    }
    grouped = false;
}

struct opening {
    struct rank rank;
    const void *caller;
    bool good;
};

static void *
opening_main(void *context)
{
    struct opening *opening = context;
    uli_thread_act_for(opening->caller);
    opening->good = plans_open(&opening->rank);
    return NULL;
}

/* One thread drives both ranks and makes their calls in one group. First two
 * threads act for it, because scenes cannot be opened within a group. */
static void
different_calls_of_one_thread_are_detected(void **state)
{
    static const enum act pairs[][2] = {
        {PLAN_A, PLAN_B}, {BARRIER, PLAN_A}, {PLAN_B, ALLTOALL}};
    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        struct opening openings[2];
        ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
        ulyx_comm_t *comms[2];
        pthread_t threads[2];
        params.timeout_s = TIMEOUT_S;
        assert_status(ulyx_comm_create_local(2, &params, comms), ULYX_SUCCESS);
        for (int r = 0; r < 2; r++) {
            openings[r] =
                (struct opening){{.comm = comms[r]}, uli_thread_caller(), 0};
            assert_int_equal(
                pthread_create(&threads[r], NULL, opening_main, &openings[r]),
                0);
        }
        for (int r = 0; r < 2; r++)
            pthread_join(threads[r], NULL);
        assert_true(openings[0].good && openings[1].good);
        ulyx_group_start();
        for (int r = 0; r < 2; r++)
            assert_status(
                rank_act(&openings[r].rank, pairs[i][r]), ULYX_SUCCESS);
        assert_status(ulyx_group_end(), ULYX_ERR_MISMATCH);
        assert_true(error_has("ranks are in different calls: rank 0 in "));
        for (int r = 0; r < 2; r++)
            assert_true(rank_close(&openings[r].rank));
    }
}

/* After such a failure, the survivors continue with a communicator of all
 * ranks. */
static int
shrink_body(int number, int nranks, void *context)
{
    struct rank rank = {0};
    ulyx_comm_t *next = NULL;
    (void)context;
    if (!rank_open(&rank, number, TIMEOUT_S))
        return 1;
    bool good = ranks_expect(
        rank_act(&rank, number == 0 ? PLAN_A : BARRIER) == ULYX_ERR_MISMATCH);
    good &=
        ranks_expect(ulyx_comm_shrink(rank.comm, NULL, &next) == ULYX_SUCCESS);
    int32_t count = 0;
    good &= ranks_expect(
        next && ulyx_comm_get_nranks(next, &count) == 0 && count == nranks);
    good &= ranks_expect(next && ulyx_comm_barrier(next) == ULYX_SUCCESS);
    good &= rank_close(&rank);
    return !(good & ranks_expect(ulyx_comm_destroy(next) == ULYX_SUCCESS));
}

static void
shrink_recovers_from_different_calls(void **state)
{
    (void)state;
    assert_int_equal(ranks_play(ranks_run_processes, 3, shrink_body), 0);
}

/* ---- no alarm ------------------------------------------------------------ */

/* Ranks make the same calls at different times, up to some seconds apart. */
static int
slow_body(int number, int nranks, void *context)
{
    struct test_random all = {7}, own = {test_seed(number + 1)};
    struct rank rank = {0};
    (void)nranks, (void)context;
    if (!rank_open(&rank, number, TIMEOUT_S))
        return 1;
    bool good = true;
    for (int i = 0; i < 5 && good; i++) {
        enum act act = (enum act)test_random_in(&all, PLAN_A, BARRIER);
        if (test_random_in(&own, 0, 2) == 0)
            usleep((useconds_t)test_random_in(&own, 1000000, 2500000));
        good = ranks_expect(rank_act(&rank, act) == ULYX_SUCCESS);
        good = good && ranks_expect(rank_act(&rank, ALLREDUCE) == 0);
    }
    return !(good & rank_close(&rank));
}

static void
slow_ranks_are_no_mismatch(void **state)
{
    (void)state;
    assert_int_equal(ranks_play(ranks_run_processes, 4, slow_body), 0);
}

/* One rank is stopped for good while two others wait for each other and for the
 * stopped one: no mismatch is reported, only the deadline ends the wait. */
static int
stopped_body(int number, int nranks, void *context)
{
    struct rank rank = {0};
    (void)nranks, (void)context;
    if (!rank_open(&rank, number, 4))
        return 1;
    atomic_store(&shared->pids[number], (int32_t)getpid());
    bool good = ranks_expect(meet_barrier(shared->meet, number));
    if (number == 2) {
        raise(SIGSTOP);
        ulyx_comm_abort(rank.comm);
    } else {
        good &= ranks_expect(rank_act(&rank, PLAN_A) == ULYX_ERR_TIMEOUT);
        if (atomic_fetch_add(&shared->ended, 1) == 1)
            kill(atomic_load(&shared->pids[2]), SIGCONT);
    }
    good &= ranks_expect(meet_barrier(shared->meet, number));
    return !(good & rank_close(&rank));
}

static void
stopped_rank_is_left_to_the_deadline(void **state)
{
    (void)state;
    assert_int_equal(ranks_play(ranks_run_processes, 3, stopped_body), 0);
}

/* Two threads per rank, each with its own plan; on even ranks the calls of plan
 * B are late, on odd ranks those of plan A. */
struct second {
    struct rank *rank;
    enum act act;
    bool late;
    ulyx_status_t status;
};

static void *
second_main(void *context)
{
    struct second *second = context;
    second->status = ULYX_SUCCESS;
    for (int i = 0; i < 2 && second->status == ULYX_SUCCESS; i++) {
        if (second->late)
            usleep(1800000);
        second->status = rank_act(second->rank, second->act);
    }
    return NULL;
}

static int
two_threads_body(int number, int nranks, void *context)
{
    struct rank rank = {0};
    pthread_t thread;
    (void)nranks, (void)context;
    if (!rank_open(&rank, number, TIMEOUT_S))
        return 1;
    struct second a = {&rank, PLAN_A, number % 2 == 1, 0};
    struct second b = {&rank, PLAN_B, number % 2 == 0, 0};
    if (!ranks_expect(pthread_create(&thread, NULL, second_main, &b) == 0))
        return 1;
    second_main(&a);
    pthread_join(thread, NULL);
    bool good = ranks_expect(a.status == ULYX_SUCCESS) &
                ranks_expect(b.status == ULYX_SUCCESS);
    return !(good & rank_close(&rank));
}

static void
two_threads_with_two_plans_are_no_mismatch(void **state)
{
    (void)state;
    concurrent = true;
    int failed = ranks_play(ranks_run_processes, 2, two_threads_body);
    concurrent = false;
    assert_int_equal(failed, 0);
}

/* Without ULYX_COMM_CONCURRENT it is enough that the second thread has made a
 * call before. */
static int
known_threads_body(int number, int nranks, void *context)
{
    struct rank rank = {0};
    pthread_t thread;
    (void)nranks, (void)context;
    if (!rank_open(&rank, number, TIMEOUT_S))
        return 1;
    struct second early = {&rank, PLAN_B, false, 0};
    if (!ranks_expect(pthread_create(&thread, NULL, second_main, &early) == 0))
        return 1;
    pthread_join(thread, NULL);
    struct second a = {&rank, PLAN_A, number % 2 == 1, 0};
    struct second b = {&rank, PLAN_B, number % 2 == 0, 0};
    if (!ranks_expect(pthread_create(&thread, NULL, second_main, &b) == 0))
        return 1;
    second_main(&a);
    pthread_join(thread, NULL);
    bool good = ranks_expect(early.status == ULYX_SUCCESS) &
                ranks_expect(a.status == ULYX_SUCCESS) &
                ranks_expect(b.status == ULYX_SUCCESS);
    return !(good & rank_close(&rank));
}

static void
calls_of_a_known_second_thread_are_no_mismatch(void **state)
{
    (void)state;
    assert_int_equal(ranks_play(ranks_run_threads, 2, known_threads_body), 0);
}

/* ULYX_COMM_CONCURRENT turns detection off: the wait ends by the deadline. */
static int
flag_body(int number, int nranks, void *context)
{
    struct rank rank = {0};
    (void)nranks, (void)context;
    if (!rank_open(&rank, number, 3))
        return 1;
    ulyx_status_t status = rank_act(&rank, number == 0 ? PLAN_A : PLAN_B);
    bool good = ranks_expect(status == ULYX_ERR_TIMEOUT);
    good &= ranks_expect(meet_barrier(shared->meet, number));
    return !(good & rank_close(&rank));
}

static void
concurrent_flag_turns_the_search_off(void **state)
{
    (void)state;
    concurrent = true;
    int failed = ranks_play(ranks_run_threads, 2, flag_body);
    concurrent = false;
    assert_int_equal(failed, 0);
}

/* Rank 0 has started plan A and polls it; meanwhile rank 1 is in plan B, which
 * rank 0 calls later. */
static int
polled_body(int number, int nranks, void *context)
{
    struct rank rank = {0};
    const void *src[SCENE_TENSORS];
    void *dst[SCENE_TENSORS];
    ulyx_request_t *request;
    (void)nranks, (void)context;
    if (!rank_open(&rank, number, TIMEOUT_S))
        return 1;
    bool good = true;
    if (number == 0) {
        uli_deadline_t until = uli_deadline_in(2.5);
        scene_pointers(&rank.scenes[0], ULYX_SEQ_TO_HEAD, src, dst);
        good = ranks_expect(ulyx_reshuffle_start(rank.scenes[0].plan,
                                ULYX_SEQ_TO_HEAD, src, dst, 0, &request) == 0);
        while (good && !uli_deadline_over(until)) {
            good = ranks_expect(ulyx_request_test(request) == ULYX_IN_PROGRESS);
            usleep(1000);
        }
        good = good && ranks_expect(rank_act(&rank, PLAN_B) == ULYX_SUCCESS);
        good = good && ranks_expect(ulyx_request_wait(request) == 0);
    } else {
        good = ranks_expect(rank_act(&rank, PLAN_B) == ULYX_SUCCESS);
        good = good && ranks_expect(rank_act(&rank, PLAN_A) == ULYX_SUCCESS);
    }
    return !(good & rank_close(&rank));
}

static void
polled_operation_is_no_mismatch(void **state)
{
    (void)state;
    assert_int_equal(ranks_play(ranks_run_processes, 2, polled_body), 0);
}

/* Rank 0 has queued plan A and a barrier in a group. Rank 1 first makes only
 * the barrier call, and calls plan A late. Then the same with the calls
 * exchanged. */
static int
queued_body(int number, int nranks, void *context)
{
    struct rank rank = {0};
    (void)nranks, (void)context;
    if (!rank_open(&rank, number, TIMEOUT_S))
        return 1;
    bool good = true;
    for (int i = 0; i < 2 && good; i++) {
        if (number == 0) {
            ulyx_group_start();
            good = ranks_expect(rank_act(&rank, PLAN_A) == ULYX_SUCCESS);
            good &= ranks_expect(rank_act(&rank, BARRIER) == ULYX_SUCCESS);
            good &= ranks_expect(ulyx_group_end() == ULYX_SUCCESS);
            continue;
        }
        enum act first = i == 0 ? BARRIER : PLAN_A;
        good = ranks_expect(rank_act(&rank, first) == ULYX_SUCCESS);
        usleep(1800000);
        good &=
            ranks_expect(rank_act(&rank, first == BARRIER ? PLAN_A : BARRIER) ==
                         ULYX_SUCCESS);
    }
    return !(good & rank_close(&rank));
}

static void
queued_calls_are_no_mismatch(void **state)
{
    (void)state;
    assert_int_equal(ranks_play(ranks_run_threads, 2, queued_body), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(threads_in_different_calls_are_detected),
    cmocka_unit_test(processes_in_different_calls_are_detected),
    cmocka_unit_test(different_calls_of_groups_are_detected),
    cmocka_unit_test(different_calls_of_one_thread_are_detected),
    cmocka_unit_test(shrink_recovers_from_different_calls),
    cmocka_unit_test(slow_ranks_are_no_mismatch),
    cmocka_unit_test(stopped_rank_is_left_to_the_deadline),
    cmocka_unit_test(two_threads_with_two_plans_are_no_mismatch),
    cmocka_unit_test(calls_of_a_known_second_thread_are_no_mismatch),
    cmocka_unit_test(concurrent_flag_turns_the_search_off),
    cmocka_unit_test(polled_operation_is_no_mismatch),
    cmocka_unit_test(queued_calls_are_no_mismatch),
};

ULI_TEST_MAIN("Differ", tests)
