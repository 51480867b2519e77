/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows of processes at their limits (descriptors, address space), under a
 * storm of signals, and while they fork.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/memory/fault_scene.h"
#include "support/ranks.h"
#include "support/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* ---- limits -------------------------------------------------------------- */

/* Takes every descriptor but `spare`, after lowering the limit. */
struct hoard {
    struct rlimit before;
    int fds[256], count;
};

static void
hoard_descriptors(struct hoard *hoard, int spare)
{
    usleep(20000); /* connections of the creation are closed by now */
    getrlimit(RLIMIT_NOFILE, &hoard->before);
    struct rlimit limit = hoard->before;
    limit.rlim_cur = 200;
    setrlimit(RLIMIT_NOFILE, &limit);
    hoard->count = 0;
    while ((hoard->fds[hoard->count] = dup(0)) >= 0)
        hoard->count++;
    while (spare-- > 0)
        close(hoard->fds[--hoard->count]);
}

static void
give_descriptors(struct hoard *hoard)
{
    while (hoard->count > 0)
        close(hoard->fds[--hoard->count]);
    setrlimit(RLIMIT_NOFILE, &hoard->before);
}

/* Rank 1 has no descriptor left to receive the window: rank 0 gets an error
 * that names rank 1, no rank has the window, and the communicator stays
 * healthy. With one descriptor left the attach succeeds. */
static bool
limit_scene(struct shared *shared, int rank, ulyx_comm_t *comm, int spare)
{
    struct hoard hoard = {.count = 0};
    ulyx_mem_t *mem = NULL;
    ulyx_status_t status;
    bool ok = true;
    if (rank == VICTIM)
        hoard_descriptors(&hoard, spare);
    ok &= ranks_expect(meet_barrier(shared->meet, rank));
    if (rank == 0) {
        ok &= ranks_expect((mem = new_window()) != NULL);
        status = ulyx_mem_attach(comm, mem);
        if (spare)
            ok &= ranks_expect(status == ULYX_SUCCESS);
        else
            ok &= ranks_expect(status == ULYX_ERR_SYSTEM) &&
                  ranks_expect(
                      strstr(ulyx_last_error(), "rank 1: no descriptor"));
    }
    ok &= ranks_expect(meet_barrier(shared->meet, rank));
    ok &= ranks_expect(!uli_window_address(comm, 0, 1, 0, 1) == !spare);
    if (rank == VICTIM)
        give_descriptors(&hoard);
    ok &= ranks_expect(meet_barrier(shared->meet, rank));
    if (rank == 0) {
        if (!spare)
            ok &= ranks_expect(ulyx_mem_attach(comm, mem) == ULYX_SUCCESS);
        ok &= ranks_expect(ulyx_mem_detach(comm, mem) == ULYX_SUCCESS);
        ok &= ranks_expect(ulyx_mem_free(mem) == ULYX_SUCCESS);
    }
    return ok;
}

static int
limit_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    ulyx_comm_t *comm;
    (void)nranks;
    bool ok =
        ranks_expect(meet_comm(shared->meet, rank, 10, &comm) == ULYX_SUCCESS);
    if (!ok)
        return 1;
    for (int spare = 0; spare < 2; spare++)
        ok &= limit_scene(shared, rank, comm, spare);
    ok &= ranks_expect(meet_barrier(shared->meet, rank));
    ok &= ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS);
    return !ok;
}

static void
a_peer_without_descriptors_is_named(void **state)
{
    (void)state;
    struct shared *shared = shared_new(RANKS);
    assert_int_equal(ranks_run_processes(RANKS, limit_body, shared, 40), 0);
    shared_free(shared);
}

/* A peer has no address space to map the window: the attach returns NO_MEMORY,
 * with the peer's rank in the text. */
static int
space_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    struct rlimit none = {1 << 20, RLIM_INFINITY}, before;
    ulyx_comm_t *comm;
    ulyx_mem_t *mem = NULL;
    (void)nranks;
    bool ok =
        ranks_expect(meet_comm(shared->meet, rank, 10, &comm) == ULYX_SUCCESS);
    if (!ok)
        return 1;
    getrlimit(RLIMIT_AS, &before);
    if (rank == VICTIM)
        setrlimit(RLIMIT_AS, &none);
    ok &= ranks_expect(meet_barrier(shared->meet, rank));
    if (rank == 2) {
        ok &= ranks_expect((mem = new_window()) != NULL);
        ok &= ranks_expect(ulyx_mem_attach(comm, mem) == ULYX_ERR_NO_MEMORY);
        ok &= ranks_expect(strstr(ulyx_last_error(), "rank 1: ") != NULL);
    }
    ok &= ranks_expect(meet_barrier(shared->meet, rank));
    /* Rank 0 had the window already, and has let go of it. */
    ok &= ranks_expect(!uli_window_address(comm, 2, 1, 0, 1));
    setrlimit(RLIMIT_AS, &before);
    ok &= ranks_expect(meet_barrier(shared->meet, rank));
    if (rank == 2) {
        ok &= ranks_expect(ulyx_mem_attach(comm, mem) == ULYX_SUCCESS);
        ok &= ranks_expect(ulyx_mem_detach(comm, mem) == ULYX_SUCCESS);
        ok &= ranks_expect(ulyx_mem_free(mem) == ULYX_SUCCESS);
    }
    ok &= ranks_expect(meet_barrier(shared->meet, rank));
    ok &= ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS);
    return !ok;
}

static void
a_peer_without_room_is_named(void **state)
{
    (void)state;
    if (SANITIZED)
        test_skip("a sanitizer's own memory does not fit the limit");
    struct shared *shared = shared_new(RANKS);
    assert_int_equal(ranks_run_processes(RANKS, space_body, shared, 40), 0);
    shared_free(shared);
}

/* Signals that interrupt every call, a thousand per second. */
static void
signal_ignore(int number)
{
    (void)number;
}

static int
storm_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    struct sigaction action = {.sa_handler = signal_ignore}; /* no SA_RESTART */
    struct itimerval fast = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};
    ulyx_comm_t *comm;
    (void)nranks;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &fast, NULL);
    bool ok =
        ranks_expect(meet_comm(shared->meet, rank, 20, &comm) == ULYX_SUCCESS);
    for (int i = 0; i < 300 && ok; i++) {
        ulyx_mem_t *mem = new_window();
        ok &= ranks_expect(mem != NULL);
        ok &= ranks_expect(ulyx_mem_attach(comm, mem) == ULYX_SUCCESS);
        ok &= ranks_expect(ulyx_mem_detach(comm, mem) == ULYX_SUCCESS);
        ok &= ranks_expect(ulyx_mem_free(mem) == ULYX_SUCCESS);
    }
    setitimer(ITIMER_REAL, &off, NULL);
    if (!ok)
        return 1;
    ok &= ranks_expect(meet_barrier(shared->meet, rank));
    ok &= ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS);
    return !ok;
}

static void
signals_do_no_harm(void **state)
{
    (void)state;
    struct shared *shared = shared_new(RANKS);
    assert_int_equal(ranks_run_processes(RANKS, storm_body, shared, 60), 0);
    shared_free(shared);
}

/* A child that a rank forks during attach and detach changes nothing. */
static int
fork_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    ulyx_comm_t *comm;
    ulyx_mem_t *mem = NULL;
    (void)nranks;
    bool ok =
        ranks_expect(meet_comm(shared->meet, rank, 20, &comm) == ULYX_SUCCESS);
    if (!ok)
        return 1;
    ok &= ranks_expect((mem = new_window()) != NULL);
    for (int i = 0; i < 40 && ok; i++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0)
            _exit(ulyx_mem_attach(comm, mem) == ULYX_ERR_FORKED ? 0 : 1);
        ok &= ranks_expect(ulyx_mem_attach(comm, mem) == ULYX_SUCCESS);
        ok &= ranks_expect(ulyx_mem_detach(comm, mem) == ULYX_SUCCESS);
        ok &= ranks_expect(waitpid(pid, &status, 0) == pid && status == 0);
    }
    ok &= ranks_expect(ulyx_mem_free(mem) == ULYX_SUCCESS);
    ok &= ranks_expect(meet_barrier(shared->meet, rank));
    ok &= ranks_expect(uli_comm_check(comm) == ULYX_SUCCESS);
    ok &= ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS);
    return !ok;
}

static void
forks_change_nothing(void **state)
{
    (void)state;
    struct shared *shared = shared_new(RANKS);
    assert_int_equal(ranks_run_processes(RANKS, fork_body, shared, 60), 0);
    shared_free(shared);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_peer_without_descriptors_is_named),
    cmocka_unit_test(a_peer_without_room_is_named),
    cmocka_unit_test(signals_do_no_harm),
    cmocka_unit_test(forks_change_nothing),
};

ULI_TEST_MAIN("WindowsLimit", tests)
