/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows of processes that are killed at any moment, stopped, or leave: the
 * others learn of it at once, return an error that names the rank, and leave
 * nothing behind.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/memory/fault_scene.h"
#include "comm/service/service.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"

static void
stage_reach(struct shared *shared, int stage)
{
    atomic_store(&shared->stage, stage);
}

static bool
stage_await(struct shared *shared, int stage)
{
    uli_deadline_t deadline = uli_deadline_in(20);
    while (atomic_load(&shared->stage) < stage && !uli_deadline_over(deadline))
        usleep(200);
    return ranks_expect(atomic_load(&shared->stage) >= stage);
}

/* True once the communicator has failed; false after 10 s. */
static bool
await_failure(ulyx_comm_t *comm)
{
    uli_deadline_t deadline = uli_deadline_in(10);
    while (uli_comm_check(comm) == ULYX_SUCCESS && !uli_deadline_over(deadline))
        usleep(200);
    return uli_comm_check(comm) != ULYX_SUCCESS;
}

static bool
is_failure(ulyx_status_t status)
{
    return status == ULYX_ERR_RANK_LOST || status == ULYX_ERR_ABORTED;
}

/* ---- SIGKILL at a random moment ------------------------------------------ */

/* Attaches and detaches until a rank has failed; true where the failure named a
 * rank and the window was freed. */
static bool
windows_churn(ulyx_comm_t *comm, struct shared *shared)
{
    ulyx_status_t status = ULYX_SUCCESS;
    uli_deadline_t deadline = uli_deadline_in(15);
    ulyx_mem_t *mem = new_window();
    bool attached = false, ok = ranks_expect(mem != NULL);
    while (status == ULYX_SUCCESS && !uli_deadline_over(deadline)) {
        status =
            attached ? ulyx_mem_detach(comm, mem) : ulyx_mem_attach(comm, mem);
        if (status == ULYX_SUCCESS)
            attached = !attached;
        atomic_fetch_add(&shared->cycles, 1);
    }
    /* A detach during the death may have succeeded: the next call returns the
     * error. */
    ok &= ranks_expect(is_failure(status));
    ok &= ranks_expect(strstr(ulyx_last_error(), "rank ") != NULL);
    if (attached)
        ok &= ranks_expect(ulyx_mem_detach(comm, mem) == ULYX_SUCCESS);
    ok &= ranks_expect(ulyx_mem_free(mem) == ULYX_SUCCESS);
    return ok;
}

static int
kill_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    ulyx_comm_t *comm;
    (void)nranks;
    bool ok =
        ranks_expect(meet_comm(shared->meet, rank, 15, &comm) == ULYX_SUCCESS);
    if (!ok)
        return 1;
    if (rank == VICTIM)
        ranks_kill_in(getpid(), shared->kill_after_us);
    ok = windows_churn(comm, shared);
    return !(ok && ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS));
}

static void
a_killed_peer_is_named(void **state)
{
    (void)state;
    struct test_random random = {test_seed(41)};
    for (int64_t i = 0; i < test_draws(12); i++) {
        struct shared *shared = shared_new(RANKS);
        shared->kill_after_us = test_random_in(&random, 1, 20000);
        assert_int_equal(ranks_run_processes_victim(RANKS, kill_body, shared,
                             30, VICTIM, shared->pids),
            0);
        shared_free(shared);
    }
}

/* ---- time to notice ------------------------------------------------------ */

/* Kernels before 6.5 have no SO_PEERPIDFD: then the pidfd is opened from the
 * pid. */
static bool hide_peerpidfd;

int __real_getsockopt(
    int fd, int level, int name, void *value, socklen_t *length);
int __wrap_getsockopt(
    int fd, int level, int name, void *value, socklen_t *length);

int
__wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
    if (hide_peerpidfd && level == SOL_SOCKET && name == 77) {
        errno = ENOPROTOOPT;
        return -1;
    }
    return __real_getsockopt(fd, level, name, value, length);
}

/* The victim stays a zombie, because its parent, the test, reaps it late. */
static int
death_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    ulyx_comm_t *comm;
    (void)nranks;
    hide_peerpidfd = shared->no_peerpidfd;
    bool ok =
        ranks_expect(meet_comm(shared->meet, rank, 30, &comm) == ULYX_SUCCESS);
    ok = ok && ranks_expect(meet_barrier(shared->meet, rank));
    if (!ok)
        return 1;
    if (rank == VICTIM) {
        atomic_store(&shared->killed_ns, uli_clock_ns());
        raise(SIGKILL);
    }
    ok &= ranks_expect(await_failure(comm));
    int64_t late_ns = uli_clock_ns() - atomic_load(&shared->killed_ns);
    printf(
        "rank %d was notified after %.2f ms\n", rank, (double)late_ns * 1e-6);
    ok &= ranks_expect(uli_comm_check(comm) == ULYX_ERR_RANK_LOST);
    ok &= ranks_expect(strstr(ulyx_last_error(), "rank 1") != NULL);
    ok &= ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS);
    return !ok;
}

static void
deaths_are_detected_without_waiting(void **state)
{
    (void)state;
    for (int hidden = 0; hidden < 2; hidden++) {
        struct shared *shared = shared_new(RANKS);
        shared->no_peerpidfd = hidden;
        assert_int_equal(ranks_run_processes_victim(RANKS, death_body, shared,
                             30, VICTIM, shared->pids),
            0);
        shared_free(shared);
    }
}

/* A rank that destroys its handle and ends has left, not died. */
static int
leave_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    ulyx_comm_t *comm;
    ulyx_mem_t *mem = NULL;
    (void)nranks;
    bool ok =
        ranks_expect(meet_comm(shared->meet, rank, 20, &comm) == ULYX_SUCCESS);
    ok = ok && ranks_expect(meet_barrier(shared->meet, rank));
    if (!ok)
        return 1;
    if (rank == VICTIM) {
        ok = ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS);
        stage_reach(shared, 1);
        return !ok;
    }
    ok &= stage_await(shared, 1);
    usleep(50000); /* its process ends meanwhile */
    ok &= ranks_expect((mem = new_window()) != NULL);
    ok &= ranks_expect(ulyx_mem_attach(comm, mem) == ULYX_SUCCESS);
    ok &= ranks_expect(ulyx_mem_detach(comm, mem) == ULYX_SUCCESS);
    ok &= ranks_expect(ulyx_mem_free(mem) == ULYX_SUCCESS);
    ok &= ranks_expect(uli_comm_check(comm) == ULYX_SUCCESS);
    ok &= ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS);
    return !ok;
}

static void
leaving_is_not_dying(void **state)
{
    (void)state;
    struct shared *shared = shared_new(RANKS);
    assert_int_equal(ranks_run_processes(RANKS, leave_body, shared, 40), 0);
    shared_free(shared);
}

/* ---- a stopped peer ------------------------------------------------------ */

/* The longest time given to a rank to let go of a window. */
static int64_t longest_query_ns;

bool __real_uli_service_recall(const struct uli_identity *peer, int32_t rank,
    uint32_t window, bool retire, uli_deadline_t deadline);
bool __wrap_uli_service_recall(const struct uli_identity *peer, int32_t rank,
    uint32_t window, bool retire, uli_deadline_t deadline);

bool
__wrap_uli_service_recall(const struct uli_identity *peer, int32_t rank,
    uint32_t window, bool retire, uli_deadline_t deadline)
{
    int64_t query_ns = deadline - uli_clock_ns();
    if (query_ns > longest_query_ns)
        longest_query_ns = query_ns;
    return __real_uli_service_recall(peer, rank, window, retire, deadline);
}

/* Continues the stopped rank, and frees the window once that rank has let
 * go. */
static bool
quarantine_end(struct shared *shared, ulyx_mem_t *mem, int signal)
{
    uli_deadline_t deadline = uli_deadline_in(10);
    ulyx_status_t status;
    kill(ranks_pid(shared->pids, VICTIM), signal);
    while ((status = ulyx_mem_free(mem)) == ULYX_ERR_BUSY &&
           !uli_deadline_over(deadline))
        usleep(1000);
    stage_reach(shared, 2);
    return ranks_expect(status == ULYX_SUCCESS);
}

/* When the deadline of a detach is over, ranks that it has not queried yet get
 * no time of their own: their answers must be there at once. */
static bool
watch_late_detach(struct shared *shared, ulyx_comm_t *comm, ulyx_mem_t *mem)
{
    bool ok = ranks_expect(ulyx_mem_detach(comm, mem) == ULYX_ERR_BUSY);
    ok &= ranks_expect(strstr(ulyx_last_error(), "rank 1 of comm") != NULL);
    ok &= ranks_expect(uli_comm_check(comm) == ULYX_ERR_TIMEOUT);
    ok &= ranks_expect(longest_query_ns > 0 && longest_query_ns < 100000000);
    ok &= ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS);
    return quarantine_end(shared, mem, SIGCONT) && ok;
}

static bool
watch_quarantine(
    struct shared *shared, ulyx_comm_t *comm, ulyx_mem_t *mem, bool killed)
{
    bool ok = true;
    ulyx_mem_t *other = new_window();
    /* An attach waits until its deadline and names the rank; the window that
     * was not given can be freed. A detach does the same. */
    if (!killed) {
        ok &= ranks_expect(ulyx_mem_attach(comm, other) == ULYX_ERR_TIMEOUT);
        ok &= ranks_expect(strstr(ulyx_last_error(), "rank 1") != NULL);
    }
    ok &= ranks_expect(ulyx_mem_free(other) == ULYX_SUCCESS);
    ok &= ranks_expect(ulyx_mem_detach(comm, mem) == ULYX_ERR_BUSY);
    ok &= ranks_expect(strstr(ulyx_last_error(), "rank 1 of comm") != NULL);
    ok &= ranks_expect(uli_comm_check(comm) == ULYX_ERR_TIMEOUT);
    ok &= ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS);
    ok &= ranks_expect(ulyx_mem_free(mem) == ULYX_ERR_BUSY);
    ok &= ranks_expect(strstr(ulyx_last_error(), "rank 1 of comm") != NULL);
    return quarantine_end(shared, mem, killed ? SIGKILL : SIGCONT) && ok;
}

static bool
watch_stopped(struct shared *shared, ulyx_comm_t *comm, ulyx_mem_t *mem)
{
    return watch_quarantine(shared, comm, mem, false);
}

static bool
watch_killed(struct shared *shared, ulyx_comm_t *comm, ulyx_mem_t *mem)
{
    return watch_quarantine(shared, comm, mem, true);
}

static int
stop_scene(int rank, struct shared *shared,
    bool (*watch)(struct shared *shared, ulyx_comm_t *comm, ulyx_mem_t *mem))
{
    ulyx_comm_t *comm;
    ulyx_mem_t *mem = NULL;
    bool ok =
        ranks_expect(meet_comm(shared->meet, rank, 1, &comm) == ULYX_SUCCESS);
    if (ok && rank != VICTIM)
        ok &= ranks_expect((mem = new_window()) != NULL) &&
              ranks_expect(ulyx_mem_attach(comm, mem) == ULYX_SUCCESS);
    ok = ok && ranks_expect(meet_barrier(shared->meet, rank));
    if (!ok)
        return 1;
    if (rank == VICTIM) {
        raise(SIGSTOP);
        ok &= stage_await(shared, 2);
        ok &= ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS);
        return !ok;
    }
    ok &= ranks_expect(ranks_await_stopped(shared->pids[VICTIM]));
    return !(watch(shared, comm, mem) && ok);
}

static int
stop_body(int rank, int nranks, void *context)
{
    (void)nranks;
    return stop_scene(rank, context, watch_stopped);
}

static int
late_detach_body(int rank, int nranks, void *context)
{
    (void)nranks;
    return stop_scene(rank, context, watch_late_detach);
}

static int
stop_and_kill_body(int rank, int nranks, void *context)
{
    (void)nranks;
    return stop_scene(rank, context, watch_killed);
}

static void
a_stopped_peer_keeps_its_windows(void **state)
{
    (void)state;
    struct shared *shared = shared_new(2);
    assert_int_equal(
        ranks_run_processes_victim(2, stop_body, shared, 40, -1, shared->pids),
        0);
    shared_free(shared);
}

static void
a_detach_has_one_deadline(void **state)
{
    (void)state;
    struct shared *shared = shared_new(2);
    assert_int_equal(ranks_run_processes_victim(
                         2, late_detach_body, shared, 40, -1, shared->pids),
        0);
    shared_free(shared);
}

static void
a_dead_peer_releases_its_windows(void **state)
{
    (void)state;
    struct shared *shared = shared_new(2);
    assert_int_equal(ranks_run_processes_victim(2, stop_and_kill_body, shared,
                         40, VICTIM, shared->pids),
        0);
    shared_free(shared);
}

/* An arena that a call needs has the call's deadline, not its own. */
static int
arena_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    struct uli_arena_block block;
    ulyx_comm_t *comm;
    (void)nranks;
    if (!ranks_expect(meet_comm(shared->meet, rank, 60, &comm) == 0))
        return 1;
    bool ok = ranks_expect(meet_barrier(shared->meet, rank));
    if (rank == VICTIM)
        raise(SIGSTOP); /* stays stopped */
    ok &= ranks_expect(ranks_await_stopped(shared->pids[VICTIM]));
    int64_t begun_ns = uli_clock_ns();
    uli_deadline_t outer, inner;
    ok &= ranks_expect(uli_comm_call_begin(comm, 1, &outer) < INT64_MAX);
    ok &= ranks_expect(uli_comm_call_begin(comm, 50, &inner) == inner);
    ok &= ranks_expect(
        uli_arena_alloc(comm, 64 << 20, &block) == ULYX_ERR_TIMEOUT);
    uli_comm_call_end(comm, inner);
    uli_comm_call_end(comm, outer);
    ok &= ranks_expect(comm->call_deadline == INT64_MAX);
    ok &= ranks_expect(uli_clock_ns() - begun_ns < INT64_C(30000000000));
    kill(ranks_pid(shared->pids, VICTIM), SIGKILL);
    return !(ok & ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS));
}

static void
an_arena_has_the_deadline_of_its_call(void **state)
{
    (void)state;
    struct shared *shared = shared_new(2);
    assert_int_equal(ranks_run_processes_victim(
                         2, arena_body, shared, 80, VICTIM, shared->pids),
        0);
    shared_free(shared);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_killed_peer_is_named),
    cmocka_unit_test(deaths_are_detected_without_waiting),
    cmocka_unit_test(leaving_is_not_dying),
    cmocka_unit_test(a_stopped_peer_keeps_its_windows),
    cmocka_unit_test(a_detach_has_one_deadline),
    cmocka_unit_test(a_dead_peer_releases_its_windows),
    cmocka_unit_test(an_arena_has_the_deadline_of_its_call),
};

ULI_TEST_MAIN("WindowsFault", tests)
