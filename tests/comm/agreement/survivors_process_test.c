/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes shrink and agree while one of them, at any moment, is killed, or is
 * stopped until the others have ended: the survivors have one communicator, and
 * a rank that was left out gets an error. ULYX_TEST_DRAWS makes the test long.
 */
#include "support/test.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/comm.h"
#include "comm/meet.h"
#include "comm/remote/nodes_scene.h"
#include "support/aborts.h"
#include "support/random.h"
#include "support/ranks.h"

enum { RANKS = 4, LIMIT_S = 60 };
#define TIMEOUT_S 0.5
/* Half of the timeout is spent on a rank that is stopped; the rest must be
 * enough for the new communicator, also on a busy machine. */
#define STOP_TIMEOUT_S 2.0

struct outcome {
    ulyx_status_t shrunk, agreed;
    int32_t size;
    unsigned char id[16]; /* of the new communicator */
    uint64_t value;
    char text[160], agree_text[160];
};

struct scene {
    pid_t pids[RANKS];
    struct meet *meet;
    int victim;
    bool stops; /* stopped instead of killed */
    int64_t after_us;
    _Atomic int ended;
    _Atomic int spoilt; /* ranks that UCX has ended */
    struct outcome outcomes[RANKS];
};

/* Strikes from a process of its own. A stopped victim continues when the others
 * have ended. */
static pid_t
strike_in(struct scene *s, pid_t victim)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    usleep((useconds_t)s->after_us);
    kill(victim, s->stops ? SIGSTOP : SIGKILL);
    for (int i = 0;
         s->stops && i < 10000 &&
         atomic_load(&s->ended) + atomic_load(&s->spoilt) < RANKS - 1;
         i++)
        usleep(1000);
    if (s->stops)
        kill(victim, SIGCONT);
    _exit(0);
}

static void
rank_survive(
    ulyx_comm_t *comm, int rank, double timeout_s, struct outcome *outcome)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *smaller = NULL;
    params.timeout_s = timeout_s;
    ulyx_status_t status = ulyx_comm_shrink(comm, &params, &smaller);
    snprintf(outcome->text, sizeof(outcome->text), "%s", ulyx_last_error());
    if (status == ULYX_SUCCESS) {
        outcome->size = smaller->nranks;
        memcpy(outcome->id, smaller->id, sizeof(outcome->id));
    }
    outcome->shrunk = status;
    outcome->agreed = ulyx_comm_agree(
        comm, UINT64_C(1) << rank, ULYX_AGREE_MAX, &outcome->value, NULL);
    snprintf(outcome->agree_text, sizeof(outcome->agree_text), "%s",
        ulyx_last_error());
    ulyx_comm_destroy(smaller);
}

static int
survivor_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    ulyx_comm_t *comm = NULL;
    double timeout_s = s->stops ? STOP_TIMEOUT_S : TIMEOUT_S;
    pid_t striker = 0;
    int status;
    (void)nranks;
    aborts_watch(&s->spoilt);
    s->outcomes[rank].shrunk = s->outcomes[rank].agreed = ULYX_IN_PROGRESS;
    if (!ranks_expect(meet_comm(s->meet, rank, 20, &comm) == ULYX_SUCCESS) ||
        !ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS) ||
        !ranks_expect(meet_barrier(s->meet, rank)))
        return 1;
    comm->timeout_s = timeout_s; /* for agree */
    if (rank == s->victim)
        striker = strike_in(s, getpid());
    if (rank == 0)
        ulyx_comm_abort(comm);
    rank_survive(comm, rank, timeout_s, &s->outcomes[rank]);
    atomic_fetch_add(&s->ended, 1);
    ulyx_comm_destroy(comm);
    if (striker > 0)
        waitpid(striker, &status, 0);
    return 0;
}

/* A rank whose shrink has ended by its deadline may call agree while others are
 * still in shrink. */
static bool
may_mismatch(const struct scene *s)
{
    for (int r = 0; r < RANKS; r++)
        if (s->outcomes[r].shrunk == ULYX_ERR_TIMEOUT)
            return true;
    return false;
}

static bool
may_end_so(const struct scene *s, int rank)
{
    switch (s->outcomes[rank].shrunk) {
    case ULYX_SUCCESS:
    case ULYX_ERR_RANK_LOST:
    case ULYX_ERR_TIMEOUT:
        return true;
    case ULYX_ERR_MISMATCH:
        return may_mismatch(s);
    default:
        return s->outcomes[rank].shrunk == ULYX_IN_PROGRESS &&
               (rank == s->victim || s->spoilt);
    }
}

/* At most one communicator was formed. All its ranks have it, except the
 * victim, which may have died with it. Returns whether there was one. */
static bool
expect_one_set(const struct scene *s)
{
    const struct outcome *first = NULL;
    int count = 0;
    for (int r = 0; r < RANKS; r++) {
        const struct outcome *o = &s->outcomes[r];
        assert_true(may_end_so(s, r));
        if (o->shrunk != ULYX_SUCCESS)
            continue;
        count++;
        first = first ? first : o;
        assert_int_equal(o->size, first->size);
        assert_memory_equal(o->id, first->id, sizeof(o->id));
    }
    assert_true(!first ||
                (first->size >= count && first->size <= count + 1 + s->spoilt));
    return first;
}

/* All ranks that got a value got the same one; a rank that was left out got
 * none. */
static void
expect_one_value(const struct scene *s)
{
    uint64_t value = 0;
    for (int r = 0; r < RANKS; r++) {
        const struct outcome *o = &s->outcomes[r];
        if (o->shrunk == ULYX_ERR_RANK_LOST)
            assert_status(o->agreed, ULYX_ERR_RANK_LOST);
        if (o->agreed != ULYX_SUCCESS)
            continue;
        assert_true(value == 0 || o->value == value);
        value = o->value;
    }
}

static void
processes_play(struct test_random *random, int on_node, bool stops, int *formed,
    int *spoilt)
{
    struct scene *s = ranks_shared(sizeof(*s));
    s->meet = meet_new(RANKS);
    s->victim = (int)test_random_in(random, 0, RANKS - 1);
    s->stops = stops;
    s->after_us = test_random_in(random, 0, 60) *
                  test_random_in(random, 0, 60) *
                  test_random_in(random, 1, 100);
    scene_set_nodes(on_node);
    assert_int_equal(ranks_run_processes_victim(
                         RANKS, survivor_body, s, LIMIT_S, s->victim, s->pids),
        0);
    scene_set_nodes(0);
    for (int r = 0; r < RANKS; r++)
        fprintf(stderr,
            "%s rank %d after %lld us: rank %d: %s, %d: %s; %s: %s\n",
            stops ? "stop" : "kill", s->victim, (long long)s->after_us, r,
            ulyx_status_name(s->outcomes[r].shrunk), s->outcomes[r].size,
            s->outcomes[r].text, ulyx_status_name(s->outcomes[r].agreed),
            s->outcomes[r].agree_text);
    *formed += expect_one_set(s);
    *spoilt += s->spoilt > 0;
    expect_one_value(s);
    meet_free(s->meet);
    ranks_shared_free(s, sizeof(*s));
}

static void
strike_often(uint64_t seed, int on_node)
{
    struct test_random random = {test_seed(seed)};
    int formed = 0, spoilt = 0;
    int64_t draws = test_draws(6);
    for (int64_t i = 0; i < draws; i++)
        processes_play(&random, on_node, i % 2, &formed, &spoilt);
    /* Where UCX ends a survivor by an assertion, no set may be left to form. */
    assert_true(2 * formed > draws - spoilt);
}

static void
survivors_of_one_node_have_one_set(void **state)
{
    (void)state;
    strike_often(81, RANKS);
}

static void
survivors_of_two_nodes_have_one_set(void **state)
{
    (void)state;
#ifdef WITH_UCX
    strike_often(82, 2);
#else
    test_skip("no UCX");
#endif
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(survivors_of_one_node_have_one_set),
    cmocka_unit_test(survivors_of_two_nodes_have_one_set),
};

ULI_TEST_MAIN("SurvivorsProcess", tests)
