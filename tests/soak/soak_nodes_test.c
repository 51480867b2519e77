/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank is killed or stopped at random moments of exchanges between nodes,
 * with each schedule. After a death each survivor gets an error that names the
 * dead rank, long before its deadline; the survivors shrink and continue. A
 * rank that is stopped and resumed in time causes no error. If a rank stays
 * stopped, all other ranks name it at their deadline as awaited, never as lost.
 * ULYX_TEST_DRAWS sets the scenes of each schedule.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "collectives/plan/plan.h"
#include "soak/aftermath.h"
#include "soak/jobs.h"
#include "soak/scene.h"
#include "support/aborts.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 4, ROWS = 300, LIMIT_S = 90 };
#define SHORT_S 3.0 /* a timeout that the test waits out */

enum fate { KILLED, RESUMED, STOPPED };
static const char *const algos[] = {"direct", "pairwise", "hier"};
enum { ALGOS = sizeof(algos) / sizeof(algos[0]) };

struct shared {
    struct job job;
    enum fate fate;
    enum scene_path path;
    int victim;
    int64_t delay_us, stop_us;
    pid_t pids[RANKS];
    _Atomic int ready, done;
    _Atomic bool resumed;
    _Atomic int spoilt; /* ranks that UCX has ended by an assertion */
    /* number of the call before which all ranks stop; 0: not known */
    _Atomic int last;
    _Atomic bool victim_right;
    _Atomic int64_t struck_ns, longest_ns;
};

/* ---- a rank -------------------------------------------------------------- */

static ulyx_direction_t
direction_of(int call)
{
    return call % 2 ? ULYX_SEQ_TO_HEAD_ADJOINT : ULYX_SEQ_TO_HEAD;
}

/* Makes calls until one fails or, where the victim continues, until a few more
 * are done. Rank 0 chooses the last call, because no rank has begun a later
 * call than rank 0. */
static ulyx_status_t
call_on(struct shared *shared, struct scene *s, bool *right_p)
{
    ulyx_status_t status = ULYX_SUCCESS;
    *right_p = true;
    for (int i = 0; status == ULYX_SUCCESS; i++) {
        int last = atomic_load(&shared->last);
        if (last && i == last)
            break;
        if (s->rank == 0 && !last && atomic_load(&shared->resumed))
            atomic_store(&shared->last, i + 4);
        status = scene_execute(s, direction_of(i));
        if (status == ULYX_SUCCESS)
            *right_p &= ranks_expect(scene_check(s, direction_of(i)));
    }
    return status;
}

static bool
is_as_it_should(struct shared *shared, ulyx_status_t status, const char *text)
{
    bool right = status == ULYX_SUCCESS;
    if (shared->fate == KILLED) {
        right = status == ULYX_ERR_RANK_LOST &&
                ranks_listed(text, "rank", shared->victim);
    } else if (shared->fate == STOPPED) {
        right = status == ULYX_ERR_TIMEOUT &&
                ranks_listed(text, "waiting for rank", shared->victim);
    }
    if (!right)
        fprintf(stderr, "%s: %s\n", ulyx_status_name(status), text);
    return right;
}

static bool
in_communicator(struct shared *shared, int rank)
{
    ulyx_comm_t *comm;
    struct scene s;
    bool good;
    if (!ranks_expect(job_meet(&shared->job, 0, RANKS, rank, JOB_TIMEOUT_S,
                          &comm) == ULYX_SUCCESS) ||
        !ranks_expect(scene_open(comm, shared->path, ROWS, &s) == 0))
        return false;
    /* the timeout of calls; creation may take longer */
    if (shared->fate == STOPPED)
        s.plan->timeout_s = SHORT_S;
    atomic_fetch_add(&shared->ready, 1);
    ulyx_status_t status = call_on(shared, &s, &good);
    if (rank == shared->victim && shared->fate != RESUMED)
        _exit(0); /* the state of the victim's objects is not tested */
    aftermath_note(&shared->longest_ns, atomic_load(&shared->struck_ns));
    good &= ranks_expect(is_as_it_should(shared, status, ulyx_last_error()));
    atomic_fetch_add(&shared->done, 1);
    if (shared->fate == KILLED)
        good &= ranks_expect(aftermath_go_on(comm, SCENE_SLOT, ROWS, 4) > 0);
    /* No rank leaves while another rank still sends to it. */
    if (shared->fate == RESUMED)
        good &= ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS);
    good &= ranks_expect(scene_close(&s, 10));
    return ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS) && good;
}

static void *
do_nothing(void *argument)
{
    return argument;
}

static int
nodes_rank(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    pthread_t first; /* a sanitizer adds its own thread beside the first */
    if (!ranks_expect(!pthread_create(&first, NULL, do_nothing, NULL)))
        return 1;
    pthread_join(first, NULL);
    struct holdings before = holdings_now();
    (void)nranks;
    aborts_watch(&shared->spoilt);
    bool good = in_communicator(shared, rank) &&
                ranks_expect(holdings_back(&before, 5));
    if (rank == shared->victim)
        atomic_store(&shared->victim_right, good);
    return !good;
}

/* ---- fate ---------------------------------------------------------------- */

/* Starts a process that kills, or stops and resumes, the victim. */
static pid_t
send_fate(struct shared *shared)
{
    pid_t hand = fork();
    if (hand != 0)
        return hand;
    for (int i = 0; i < LIMIT_S * 1000 && atomic_load(&shared->ready) < RANKS;
         i++)
        usleep(1000);
    usleep((useconds_t)shared->delay_us);
    pid_t victim = ranks_pid(shared->pids, shared->victim);
    atomic_store(&shared->struck_ns, uli_clock_ns());
    kill(victim, shared->fate == KILLED ? SIGKILL : SIGSTOP);
    if (shared->fate == RESUMED)
        usleep((useconds_t)shared->stop_us);
    for (int i = 0; shared->fate == STOPPED && i < LIMIT_S * 1000 &&
                    atomic_load(&shared->done) < RANKS - 1;
         i++)
        usleep(1000);
    atomic_store(&shared->resumed, true);
    kill(victim, SIGCONT);
    _exit(0);
}

/* Returns false if UCX ended a survivor: then the scene does not count, because
 * the others lost a second rank. */
static bool
scene_once(enum fate fate, const char *algo, int per_node, enum scene_path path,
    struct test_random *random)
{
    struct shared *shared = ranks_shared(sizeof(*shared));
    char text[16];
    shared->fate = fate;
    shared->path = path;
    shared->victim = (int)test_random_in(random, 0, RANKS - 1);
    shared->delay_us = test_random_in(random, 0, 30000);
    shared->stop_us = test_random_in(random, 200000, 1500000);
    scene_environment(path);
    snprintf(text, sizeof(text), "%d", per_node);
    setenv("ULYX_RANKS_PER_NODE", text, 1);
    setenv("ULYX_ALGO", algo, 1);
    /* in seconds; the victim is often stopped for longer */
    setenv("ULYX_KEEPALIVE", "1", 1);
    pid_t hand = send_fate(shared);
    int failed = ranks_run_processes_victim(
        RANKS, nodes_rank, shared, LIMIT_S, shared->victim, shared->pids);
    kill(hand, SIGKILL);
    waitpid(hand, NULL, 0);
    unsetenv("ULYX_RANKS_PER_NODE");
    unsetenv("ULYX_ALGO");
    unsetenv("ULYX_KEEPALIVE");
    scene_environment(SCENE_WINDOW);
    double longest_s = (double)atomic_load(&shared->longest_ns) * 1e-9;
    print_message("%s, %d a node, %s, rank %d after %.1f ms: %.0f ms\n", algo,
        per_node, scene_path_names[path], shared->victim,
        (double)shared->delay_us * 1e-3, longest_s * 1e3);
    bool victim_right = atomic_load(&shared->victim_right);
    bool spoilt = atomic_load(&shared->spoilt) > 0;
    ranks_shared_free(shared, sizeof(*shared));
    if (spoilt) {
        assert_int_equal(fate, KILLED);
        return false;
    }
    assert_int_equal(failed, 0);
    if (fate == RESUMED)
        assert_true(victim_right);
    if (fate == KILLED)
        assert_true(longest_s < JOB_TIMEOUT_S / 2.0);
    return true;
}

static void
scenes_of(enum fate fate, uint64_t seed, int64_t draws)
{
    struct test_random random = {test_seed(seed)};
    int64_t scenes = 0, whole = 0;
    for (int64_t i = 0; i < test_draws(draws); i++)
        for (int a = 0; a < ALGOS; a++, scenes++)
            whole += scene_once(fate, algos[a], 1 + (int)((i + a) % 2),
                (enum scene_path)test_random_in(&random, 0, SCENE_PATHS - 1),
                &random);
    if (whole < scenes)
        print_message("%d of %d scenes ended in an assertion of UCX\n",
            (int)(scenes - whole), (int)scenes);
    assert_true(2 * whole > scenes);
}

static void
killed_between_nodes(void **state)
{
    (void)state;
    scenes_of(KILLED, 951, 2);
}

static void
stopped_and_resumed_between_nodes(void **state)
{
    (void)state;
    scenes_of(RESUMED, 952, 2);
}

static void
stopped_past_the_deadline_between_nodes(void **state)
{
    (void)state;
    scenes_of(STOPPED, 953, 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(killed_between_nodes),
    cmocka_unit_test(stopped_and_resumed_between_nodes),
    cmocka_unit_test(stopped_past_the_deadline_between_nodes),
};
ULI_TEST_MAIN("SoakNodes", tests)
