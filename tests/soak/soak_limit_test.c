/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that exchange under limits of the system (descriptors, locked
 * memory, a small or read-only /dev/shm), while signals arrive all the time,
 * and with a rank that is stopped for a while. Also sizes whose products
 * overflow, which must be refused, and an exchange of 64 threads.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>
#include "soak/aftermath.h"
#include "soak/jobs.h"
#include "soak/scene.h"
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 3, ROWS = 300, LIMIT_S = 60 };

struct shared {
    struct job job;
    enum scene_path path;
    int limit;
    pid_t pids[RANKS];
    _Atomic bool stopper_runs;
    _Atomic int phase;
};

/* ---- limits -------------------------------------------------------------- */

enum { DESCRIPTORS, LOCKED, SMALL_SHM, READONLY_SHM, STORM, LIMITS };
static const char *const limit_names[LIMITS] = {"64 descriptors",
    "no locked memory", "a /dev/shm of 64 KiB", "a read-only /dev/shm",
    "a storm of signals"};

static void
signal_ignore(int number)
{
    (void)number;
}

static bool
mount_shm(unsigned long flags)
{
    return unshare(CLONE_NEWNS) == 0 &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/dev/shm", "tmpfs", flags, "size=64k") == 0;
}

/* Returns false where this process may not set the limit. */
static bool
set_limit(int limit)
{
    struct rlimit few = {64, 64}, none = {0, 0};
    struct sigaction action = {.sa_handler = signal_ignore}; /* no SA_RESTART */
    struct itimerval fast = {{0, 500}, {0, 500}};
    switch (limit) {
    case DESCRIPTORS:
        return setrlimit(RLIMIT_NOFILE, &few) == 0;
    case LOCKED:
        return setrlimit(RLIMIT_MEMLOCK, &none) == 0;
    case SMALL_SHM:
        return mount_shm(0);
    case READONLY_SHM:
        return mount_shm(MS_RDONLY);
    default:
        sigaction(SIGALRM, &action, NULL);
        return setitimer(ITIMER_REAL, &fast, NULL) == 0;
    }
}

static bool
job_exchange(ulyx_comm_t *comm, enum scene_path path)
{
    struct scene s;
    bool good = ranks_expect(scene_open(comm, path, ROWS, &s) == ULYX_SUCCESS);
    for (int op = 0; good && op < 3; op += 2)
        good = ranks_expect(scene_execute(&s, op) == ULYX_SUCCESS) &&
               ranks_expect(scene_check(&s, op));
    return good && ranks_expect(scene_close(&s, 10));
}

static int
limit_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    struct itimerval off = {{0, 0}, {0, 0}};
    ulyx_comm_t *comm;
    if (!set_limit(shared->limit))
        return 0; /* run_limit has tried the limit before */
    bool good = ranks_expect(job_meet(&shared->job, 0, nranks, rank,
                                 JOB_TIMEOUT_S, &comm) == ULYX_SUCCESS);
    if (!good) {
        fprintf(
            stderr, "%s: %s\n", limit_names[shared->limit], ulyx_last_error());
        return 1;
    }
    good = job_exchange(comm, shared->path);
    good &= ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS);
    setitimer(ITIMER_REAL, &off, NULL);
    return !(ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS) && good);
}

static int
try_limit(int rank, int nranks, void *context)
{
    (void)rank, (void)nranks;
    return !set_limit(*(int *)context);
}

static void
run_limit(int limit)
{
    int allowed = ranks_run_processes(1, try_limit, &limit, 10) == 0;
    if (!allowed) {
        test_skip("%s: not allowed to this user", limit_names[limit]);
        return;
    }
    for (int path = 0; path < SCENE_PATHS; path++) {
        struct shared *shared = ranks_shared(sizeof(*shared));
        shared->limit = limit;
        shared->path = (enum scene_path)path;
        scene_environment(shared->path);
        int failed = ranks_run_processes(RANKS, limit_body, shared, LIMIT_S);
        scene_environment(SCENE_WINDOW);
        ranks_shared_free(shared, sizeof(*shared));
        assert_int_equal(failed, 0);
    }
}

#define LIMIT_TEST(name, limit)                                                \
    static void name(void **state)                                             \
    {                                                                          \
        (void)state;                                                           \
        run_limit(limit);                                                      \
    }
LIMIT_TEST(few_descriptors, DESCRIPTORS)
LIMIT_TEST(no_locked_memory, LOCKED)
LIMIT_TEST(small_shared_memory, SMALL_SHM)
LIMIT_TEST(readonly_shared_memory, READONLY_SHM)
LIMIT_TEST(storm_of_signals, STORM)

/* ---- a rank that is stopped ---------------------------------------------- */

enum { STOPPED = 1 };

/* Is the mark, with which the caller has filled the beginning of its memory,
 * still there? The woken rank must not overwrite the mark. */
static bool
scene_unharmed(struct scene *s)
{
    unsigned char *byte = (unsigned char *)s->memory;
    for (size_t i = 0; i < 4096; i++)
        if (byte[i] != 0x5A)
            return false;
    return true;
}

static bool
sleeper_wakes(struct scene *s)
{
    ulyx_status_t status;
    do
        status = scene_execute(s, ULYX_SEQ_TO_HEAD);
    while (status == ULYX_SUCCESS);
    /* The other ranks have aborted, or this rank's own deadline was over, or
     * this rank finds that another rank has ended. */
    return ranks_expect(status == ULYX_ERR_ABORTED ||
                        status == ULYX_ERR_TIMEOUT ||
                        status == ULYX_ERR_RANK_LOST);
}

static bool
others_go_on(struct shared *shared, struct scene *s, int rank)
{
    ulyx_status_t status;
    bool good;
    do
        status = scene_execute(s, ULYX_SEQ_TO_HEAD);
    while (status == ULYX_SUCCESS);
    good =
        ranks_expect(status == ULYX_ERR_TIMEOUT || status == ULYX_ERR_ABORTED);
    /* The text may list a third rank as well. That rank is one call behind,
     * because it waits for the stopped rank. */
    if (status == ULYX_ERR_TIMEOUT)
        good &= ranks_expect(
            ranks_listed(ulyx_last_error(), "waiting for rank", STOPPED));
    ulyx_comm_abort(s->comm);
    if (!s->mem)
        return good;
    /* The window is in quarantine while the stopped rank may still store into
     * it. */
    good &= ranks_expect(ulyx_mem_detach(s->comm, s->mem) == ULYX_ERR_BUSY);
    good &= ranks_expect(strstr(ulyx_last_error(), "1") != NULL);
    good &= ranks_expect(ulyx_mem_free(s->mem) == ULYX_ERR_BUSY);
    atomic_fetch_add(&shared->phase, 1);
    while (atomic_load(&shared->phase) < RANKS - 1)
        usleep(1000);
    if (rank == 0)
        kill(ranks_pid(shared->pids, STOPPED), SIGCONT);
    for (int i = 0; i < 5000 && ulyx_mem_detach(s->comm, s->mem); i++)
        usleep(1000);
    s->attached = false;
    memset(s->memory, 0x5A, 4096);
    usleep(50000);
    return good & ranks_expect(scene_unharmed(s));
}

static int
stop_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    ulyx_comm_t *comm;
    struct scene s;
    if (!ranks_expect(job_meet(&shared->job, 0, nranks, rank, 1.0, &comm) ==
                      ULYX_SUCCESS) ||
        !ranks_expect(scene_open(comm, shared->path, ROWS, &s) == 0))
        return 1;
    if (rank == STOPPED)
        /* from here on this rank may be stopped */
        atomic_store(&shared->job.taken[RANKS], 1);
    bool good =
        rank == STOPPED ? sleeper_wakes(&s) : others_go_on(shared, &s, rank);
    good &= ranks_expect(scene_close(&s, 10));
    return !(ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS) && good);
}

static void *
stop_thread(void *context)
{
    struct shared *shared = context;
    atomic_store(&shared->stopper_runs, true);
    while (!atomic_load(&shared->job.taken[RANKS]))
        usleep(1000);
    usleep(7000);
    kill(ranks_pid(shared->pids, STOPPED), SIGSTOP);
    return NULL;
}

static void
a_stopped_rank_is_named_and_waited_for(void **state)
{
    (void)state;
    struct shared *shared = ranks_shared(sizeof(*shared));
    pthread_t thread;
    pthread_create(&thread, NULL, stop_thread, shared);
    while (!atomic_load(&shared->stopper_runs)) /* see soak_kill_test.c */
        usleep(100);
    int failed = ranks_run_processes_victim(
        RANKS, stop_body, shared, LIMIT_S, -1, shared->pids);
    pthread_join(thread, NULL);
    ranks_shared_free(shared, sizeof(*shared));
    assert_int_equal(failed, 0);
}

/* ---- sizes --------------------------------------------------------------- */

static void
products_that_overflow(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {/* {batch, rows, heads, dim} */
        {INT64_MAX, 2, 2, 2}, {1, INT64_MAX, 2, 2}, {1, 2, INT64_MAX, 2},
        {1, 2, 2, INT64_MAX}, {1 << 30, 1 << 30, 8, 64},
        {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}};
    ulyx_comm_t *comm;
    assert_status(ulyx_comm_create_local(1, NULL, &comm), ULYX_SUCCESS);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        ulyx_part_t part = ULYX_PART_INIT;
        ulyx_tensor_t tensor = ULYX_TENSOR_INIT;
        ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
        ulyx_plan_t *plan = NULL;
        params.batch = sizes[i][0];
        part.rows = sizes[i][1];
        params.heads = tensor.heads = sizes[i][2];
        tensor.dim = sizes[i][3];
        params.parts = &part;
        params.tensors = &tensor;
        params.nparts = params.ntensors = 1;
        ulyx_status_t status = ulyx_plan_create(comm, &params, &plan);
        assert_true(status == ULYX_ERR_OVERFLOW ||
                    status == ULYX_ERR_INVALID_ARGUMENT ||
                    status == ULYX_ERR_NO_MEMORY);
        assert_null(plan);
    }
    assert_status(ulyx_comm_destroy(comm), ULYX_SUCCESS);
}

static int
crowd_body(int rank, int nranks, void *context)
{
    ulyx_comm_t **comms = context;
    (void)nranks;
    return !job_exchange(comms[rank], SCENE_SLOT);
}

/* There are more ranks than heads, and on most machines more than cores. */
static void
many_threads_get_the_same_result(void **state)
{
    (void)state;
    enum { CROWD = 64 };
    ulyx_comm_t *comms[CROWD];
    assert_status(ulyx_comm_create_local(CROWD, NULL, comms), ULYX_SUCCESS);
    assert_int_equal(ranks_run_threads(CROWD, crowd_body, comms, LIMIT_S), 0);
    for (int r = 0; r < CROWD; r++)
        assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(few_descriptors),
    cmocka_unit_test(no_locked_memory),
    cmocka_unit_test(small_shared_memory),
    cmocka_unit_test(readonly_shared_memory),
    cmocka_unit_test(storm_of_signals),
    cmocka_unit_test(a_stopped_rank_is_named_and_waited_for),
    cmocka_unit_test(products_that_overflow),
    cmocka_unit_test(many_threads_get_the_same_result),
};
ULI_TEST_MAIN("SoakLimit", tests)
