/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes of processes over the network that the library itself chooses (UCX over
 * the devices of this machine): life, deaths at any moment, a stopped process,
 * a network that is not allowed, another version.
 */
#include "support/test.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bootstrap/bootstrap.h"
#include "comm/memory/fault_scene.h"
#include "comm/remote/nodes_scene.h"
#include "comm/remote/remote.h"
#include "support/aborts.h"
#include "support/random.h"
#include "support/ranks.h"

enum { NRANKS = 4, PER_NODE = 2 };

/* A death is noticed well within this time, even on a loaded machine. */
#define NOTICE_S 10

static bool
is_known(ulyx_comm_t *comm, const char *who)
{
    uli_deadline_t deadline = uli_deadline_in(NOTICE_S);
    while (uli_comm_check(comm) == ULYX_SUCCESS && !uli_deadline_over(deadline))
        usleep(500);
    return ranks_expect(uli_comm_check(comm) == ULYX_ERR_RANK_LOST) &&
           ranks_expect(strstr(ulyx_last_error(), who));
}

/* ---- life ---------------------------------------------------------------- */

static int
life_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    ulyx_comm_t *comm = NULL, *half = NULL;
    ulyx_mem_t *mem = new_window();
    bool right = ranks_expect(meet_comm(shared->meet, rank, 60, &comm) ==
                              ULYX_SUCCESS) &&
                 ranks_expect(comm->nnodes == nranks / PER_NODE) &&
                 ranks_expect(ulyx_mem_attach(comm, mem) == ULYX_SUCCESS);
    for (int i = 0; i < 50 && right; i++)
        right = ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS);
    right = right &&
            ranks_expect(ulyx_comm_split(comm, rank % 2, 0, NULL, &half) ==
                         ULYX_SUCCESS) &&
            ranks_expect(half->nnodes == nranks / PER_NODE) &&
            ranks_expect(ulyx_comm_barrier(half) == ULYX_SUCCESS) &&
            ranks_expect(ulyx_mem_detach(comm, mem) == ULYX_SUCCESS);
    return !(right && ranks_expect(ulyx_comm_destroy(half) == ULYX_SUCCESS) &&
             ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS) &&
             ranks_expect(ulyx_mem_free(mem) == ULYX_SUCCESS));
}

static void
processes_meet_agree_attach_and_split(void **state)
{
    struct shared *shared = shared_new(NRANKS);
    (void)state;
    scene_set_nodes(PER_NODE);
    assert_int_equal(ranks_run_processes(NRANKS, life_body, shared, 120), 0);
    scene_set_nodes(0);
    shared_free(shared);
}

/* ---- death --------------------------------------------------------------- */

/* Barriers, attaches and detaches until a rank has died; then the survivors
 * continue without it. */
static int
death_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *comm = NULL, *smaller = NULL;
    ulyx_mem_t *mem = new_window();
    uli_deadline_t deadline = uli_deadline_in(30);
    params.timeout_s = 10;
    if (!ranks_expect(meet_comm(shared->meet, rank, 30, &comm) == ULYX_SUCCESS))
        return 1;
    ulyx_status_t status = ulyx_mem_attach(comm, mem);
    if (status == ULYX_SUCCESS)
        status = ulyx_comm_barrier(comm);
    if (!ranks_expect(status == ULYX_SUCCESS))
        return 1;
    if (rank == VICTIM)
        ranks_kill_in(getpid(), shared->kill_after_us);
    while (status == ULYX_SUCCESS && !uli_deadline_over(deadline)) {
        status = ulyx_comm_barrier(comm);
        if (status == ULYX_SUCCESS)
            status = ulyx_mem_detach(comm, mem);
        if (status == ULYX_SUCCESS)
            status = ulyx_mem_attach(comm, mem);
    }
    bool right =
        ranks_expect(status == ULYX_ERR_RANK_LOST) && is_known(comm, "rank 1");
    status = ulyx_comm_shrink(comm, &params, &smaller);
    right = right && ranks_expect(status == ULYX_SUCCESS) &&
            ranks_expect(smaller->nranks == nranks - 1) &&
            ranks_expect(ulyx_comm_barrier(smaller) == ULYX_SUCCESS);
    ulyx_comm_destroy(smaller);
    return !(ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS) &&
             ranks_expect(ulyx_mem_free(mem) == ULYX_SUCCESS) && right);
}

static void
killed_process_is_named_on_all_nodes_and_left_out(void **state)
{
    struct test_random random = {test_seed(61)};
    (void)state;
    for (int64_t i = test_draws(4); i > 0; i--) {
        struct shared *shared = shared_new(NRANKS);
        scene_set_nodes(i % 2 ? 1 : PER_NODE);
        shared->kill_after_us = test_random_in(&random, 0, 20000);
        assert_int_equal(ranks_run_processes_victim(NRANKS, death_body, shared,
                             90, VICTIM, shared->pids),
            0);
        shared_free(shared);
    }
    scene_set_nodes(0);
}

/* ---- a death with a child that lives on ---------------------------------- */

enum { CHILD_S = 30 };

static pid_t
start_sleeper(bool program)
{
    char *const words[] = {"sleep", "30", NULL};
    pid_t child = -1;
    if (program)
        return posix_spawnp(&child, "sleep", NULL, NULL, words, environ) == 0
                   ? child
                   : -1;
    child = fork();
    if (child == 0) {
        sleep(CHILD_S);
        _exit(0);
    }
    return child;
}

/* The child has copies of descriptors that are not closed at fork or exec:
 * sockets of UCX. The death of its parent is noticed while the child lives. */
static int
orphan_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    bool program = shared->kill_after_us != 0;
    ulyx_comm_t *comm = NULL;
    (void)nranks;
    if (!ranks_expect(
            meet_comm(shared->meet, rank, 60, &comm) == ULYX_SUCCESS) ||
        !ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS))
        return 1;
    if (rank == VICTIM) {
        atomic_store(&shared->stage, start_sleeper(program));
        usleep(200000);
        raise(SIGKILL);
    }
    uli_deadline_t lives = uli_deadline_in(CHILD_S - 5);
    ulyx_status_t status = ulyx_comm_barrier(comm);
    bool right = ranks_expect(status == ULYX_ERR_RANK_LOST) &&
                 ranks_expect(strstr(ulyx_last_error(), "rank 1")) &&
                 ranks_expect(!uli_deadline_over(lives));
    pid_t child = atomic_load(&shared->stage);
    if (ranks_expect(child > 0))
        kill(child, SIGKILL);
    if (!right)
        fprintf(stderr, "rank %d: %s\n", rank, ulyx_last_error());
    return !(ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS) && right);
}

static void
check_orphan(bool program)
{
    struct shared *shared = shared_new(2);
    setenv("ULYX_KEEPALIVE", "240", 1); /* silence is noticed after a minute */
    scene_set_nodes(1);
    shared->kill_after_us = program;
    int64_t start = uli_clock_ns();
    assert_int_equal(ranks_run_processes_victim(2, orphan_body, shared,
                         CHILD_S + 30, VICTIM, shared->pids),
        0);
    print_message("known %.2f s after the start\n",
        (double)(uli_clock_ns() - start) / 1e9);
    unsetenv("ULYX_KEEPALIVE");
    scene_set_nodes(0);
    shared_free(shared);
}

static void
death_is_detected_while_a_forked_child_lives(void **state)
{
    (void)state;
    check_orphan(false);
}

static void
death_is_detected_while_a_started_program_lives(void **state)
{
    (void)state;
    check_orphan(true);
}

/* An abort of this program does not count as UCX's. */
static int
abort_body(int rank, int nranks, void *context)
{
    (void)rank, (void)nranks;
    aborts_watch(context);
    abort();
}

static void
abort_in_a_body_fails_the_run(void **state)
{
    _Atomic int *count = ranks_shared(sizeof(*count));
    (void)state;
    assert_int_equal(ranks_run_processes(1, abort_body, (void *)count, 30), 1);
    assert_int_equal(atomic_load(count), 0);
    ranks_shared_free((void *)count, sizeof(*count));
}

/* Death at any moment of creation: each survivor gets an error before its
 * deadline, or a communicator that learns of the death. */
static int
creation_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    ulyx_comm_t *comm = NULL;
    (void)nranks;
    if (!ranks_expect(meet_barrier(shared->meet, rank)))
        return 1;
    if (rank == VICTIM)
        ranks_kill_in(getpid(), shared->kill_after_us);
    aborts_watch(&shared->stage);
    ulyx_unique_id_t id;
    memcpy(&id, shared + 1, sizeof(id));
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.timeout_s = 5; /* the limit for a rank that never joined */
    uli_deadline_t deadline = uli_deadline_in(20);
    ulyx_status_t status = ulyx_comm_create(&id, NRANKS, rank, &params, &comm);
    bool right = ranks_expect(!uli_deadline_over(deadline));
    if (status == ULYX_SUCCESS && rank == VICTIM)
        pause();
    if (status == ULYX_SUCCESS)
        return !(is_known(comm, "rank 1") && right &&
                 ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS));
    return !(ranks_expect(strstr(ulyx_last_error(), "rank")) && right &&
             ranks_expect(!comm));
}

static void
death_in_creation_ends_it_everywhere(void **state)
{
    struct test_random random = {test_seed(62)};
    size_t bytes = sizeof(struct shared) + sizeof(ulyx_unique_id_t);
    int64_t draws = test_draws(4), spoilt = 0;
    (void)state;
    scene_set_nodes(1);
    for (int64_t i = 0; i < draws; i++) {
        struct shared *shared = ranks_shared(bytes);
        shared->meet = meet_new(NRANKS);
        /* The root of the meeting is a process that lives on. */
        assert_status(ulyx_unique_id_create((ulyx_unique_id_t *)(shared + 1)),
            ULYX_SUCCESS);
        shared->kill_after_us = test_random_in(&random, 0, 40000);
        assert_int_equal(ranks_run_processes_victim(NRANKS, creation_body,
                             shared, 90, VICTIM, shared->pids),
            0);
        spoilt += atomic_load(&shared->stage) > 0;
        meet_free(shared->meet);
        ranks_shared_free(shared, bytes);
    }
    scene_set_nodes(0);
    if (spoilt)
        printf("%d of %d draws ended in an assertion of UCX\n", (int)spoilt,
            (int)draws);
    assert_true(spoilt < draws);
}

/* ---- a stopped process --------------------------------------------------- */

static int
stopped_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    ulyx_comm_t *comm = NULL;
    (void)nranks;
    if (!ranks_expect(
            meet_comm(shared->meet, rank, 2.5, &comm) == ULYX_SUCCESS) ||
        !ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS) ||
        !ranks_expect(meet_barrier(shared->meet, rank)))
        return 1;
    if (rank == VICTIM) {
        raise(SIGSTOP);
        return !ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
    }
    ulyx_status_t status = ulyx_comm_barrier(comm);
    bool right = ranks_expect(status == ULYX_ERR_TIMEOUT) &&
                 ranks_expect(strstr(
                     ulyx_last_error(), "timed out waiting for rank 1 ("));
    if (!right)
        fprintf(stderr, "rank %d: %s\n", rank, ulyx_last_error());
    if (atomic_fetch_add(&shared->stage, 1) == NRANKS - 2)
        kill(ranks_pid(shared->pids, VICTIM), SIGCONT);
    return !(ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS) && right);
}

static void
stopped_process_times_out_and_is_never_lost(void **state)
{
    struct shared *shared = shared_new(NRANKS);
    (void)state;
    setenv("ULYX_KEEPALIVE", "1", 1); /* shorter than the standstill */
    scene_set_nodes(1);
    assert_int_equal(ranks_run_processes_victim(NRANKS, stopped_body, shared,
                         60, VICTIM, shared->pids),
        0);
    unsetenv("ULYX_KEEPALIVE");
    scene_set_nodes(0);
    shared_free(shared);
}

/* Attach asks all peers, then takes the window back from the peers that had it:
 * a stopped peer lengthens neither step beyond the call's deadline. */
static int
stopped_attach_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    ulyx_comm_t *comm = NULL;
    ulyx_mem_t *mem;
    void *address;
    double deadline_s = 1;
    (void)nranks;
    if (!ranks_expect(
            meet_comm(shared->meet, rank, deadline_s, &comm) == ULYX_SUCCESS) ||
        !ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS) ||
        !ranks_expect(meet_barrier(shared->meet, rank)))
        return 1;
    if (rank == VICTIM) {
        raise(SIGSTOP);
        return !ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
    }
    bool right =
        ranks_expect(ranks_await_stopped(ranks_pid(shared->pids, VICTIM)));
    right &= ranks_expect(
        ulyx_mem_alloc(4096, NULL, &mem, &address) == ULYX_SUCCESS);
    int64_t begin = uli_clock_ns();
    right &= ranks_expect(ulyx_mem_attach(comm, mem) != ULYX_SUCCESS);
    double took_s = (double)(uli_clock_ns() - begin) * 1e-9;
    right &= ranks_expect(took_s < deadline_s + 3); /* an undo must not add 5
                                                     * s */
    if (!right)
        fprintf(
            stderr, "rank %d: %.1f s, %s\n", rank, took_s, ulyx_last_error());
    if (atomic_fetch_add(&shared->stage, 1) == NRANKS - 2)
        kill(ranks_pid(shared->pids, VICTIM), SIGCONT);
    right &= ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
    (void)ulyx_mem_free(mem); /* BUSY while the victim may still look */
    return !right;
}

static void
attach_beside_a_stopped_process_keeps_its_deadline(void **state)
{
    struct shared *shared = shared_new(NRANKS);
    (void)state;
    setenv("ULYX_KEEPALIVE", "10", 1);
    scene_set_nodes(1);
    assert_int_equal(ranks_run_processes_victim(NRANKS, stopped_attach_body,
                         shared, 60, VICTIM, shared->pids),
        0);
    unsetenv("ULYX_KEEPALIVE");
    scene_set_nodes(0);
    shared_free(shared);
}

/* A rank stands still while the others leave in good order: when it continues,
 * it does not take their leaving for death, however it learns of it. */
static int
leaver_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    ulyx_comm_t *comm = NULL;
    (void)nranks;
    if (!ranks_expect(
            meet_comm(shared->meet, rank, 20, &comm) == ULYX_SUCCESS) ||
        !ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS) ||
        !ranks_expect(meet_barrier(shared->meet, rank)))
        return 1;
    if (rank != VICTIM) {
        bool left = ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
        return !(ranks_expect(meet_barrier(shared->meet, rank)) && left);
    }
    pid_t waker = fork();
    if (waker == 0) {
        usleep(3000000);
        kill(getppid(), SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
    for (int i = 0; i < 200; i++) /* sends at once to ranks that have gone */
        uli_remote_leave(comm);
    usleep(500000);
    bool right = ranks_expect(uli_comm_check(comm) == ULYX_SUCCESS);
    waitpid(waker, NULL, 0);
    /* A victim's result does not count. */
    if (!right)
        fprintf(stderr, "rank %d: %s\n", rank, ulyx_last_error());
    right &= ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
    atomic_fetch_add(&shared->stage, right);
    meet_barrier(shared->meet, rank); /* the others wait, or it is killed */
    return 0;
}

static void
ranks_that_left_are_not_dead_for_a_stopped_rank(void **state)
{
    struct shared *shared = shared_new(NRANKS);
    (void)state;
    setenv("ULYX_KEEPALIVE", "10", 1);
    scene_set_nodes(1);
    assert_int_equal(ranks_run_processes_victim(
                         NRANKS, leaver_body, shared, 60, VICTIM, shared->pids),
        0);
    assert_int_equal(atomic_load(&shared->stage), 1);
    unsetenv("ULYX_KEEPALIVE");
    scene_set_nodes(0);
    shared_free(shared);
}

/* ---- what is not allowed, or another version ----------------------------- */

static int
forbidden_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    ulyx_comm_t *comm = NULL;
    (void)nranks;
    setenv("ULYX_TRANSPORTS", "^ucx", 1);
    ulyx_status_t status = meet_comm(shared->meet, rank, 20, &comm);
    return !(ranks_expect(status == ULYX_ERR_UNSUPPORTED) &&
             ranks_expect(!comm) &&
             ranks_expect(
                 strstr(ulyx_last_error(), "no transport reaches rank 2")) &&
             ranks_expect(strstr(ulyx_last_error(), "ULYX_TRANSPORTS=^ucx")));
}

static void
forbidden_network_is_the_same_error_everywhere(void **state)
{
    struct shared *shared = shared_new(NRANKS);
    (void)state;
    scene_set_nodes(PER_NODE);
    assert_int_equal(
        ranks_run_processes(NRANKS, forbidden_body, shared, 60), 0);
    scene_set_nodes(0);
    shared_free(shared);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(processes_meet_agree_attach_and_split),
    cmocka_unit_test(killed_process_is_named_on_all_nodes_and_left_out),
    cmocka_unit_test(death_is_detected_while_a_forked_child_lives),
    cmocka_unit_test(death_is_detected_while_a_started_program_lives),
    cmocka_unit_test(abort_in_a_body_fails_the_run),
    cmocka_unit_test(death_in_creation_ends_it_everywhere),
    cmocka_unit_test(stopped_process_times_out_and_is_never_lost),
    cmocka_unit_test(attach_beside_a_stopped_process_keeps_its_deadline),
    cmocka_unit_test(ranks_that_left_are_not_dead_for_a_stopped_rank),
    cmocka_unit_test(forbidden_network_is_the_same_error_everywhere),
};

ULI_TEST_MAIN("NodesProcess", tests)
