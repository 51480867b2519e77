/* SPDX-License-Identifier: Apache-2.0
 *
 * SIGKILL of one rank at random moments of every kind of call on a
 * communicator. Each survivor gets an error that names the rank, long before
 * its deadline; shrink gives the survivors a communicator that exchanges; and
 * nothing is left in the survivors. ULYX_TEST_DRAWS sets the kills of each
 * kind.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "soak/aftermath.h"
#include "soak/jobs.h"
#include "soak/scene.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 4, ROWS = 300, LIMIT_S = 60 };
/* The others notice only at this deadline that a rank was killed before it came
 * to the meeting. */
#define CREATE_TIMEOUT_S 2.0

enum act { CREATE, PLAN, ATTACH, SPLIT, ALLTOALL, EXECUTE, ADJOINT, ACTS };
static const char *const act_names[ACTS] = {"creation", "plan create", "attach",
    "split", "alltoall", "execute", "adjoint"};

struct shared {
    struct job job;
    enum act act;
    enum scene_path path;
    int victim;
    double delay_s;
    pid_t pids[RANKS];
    _Atomic bool killer_runs;
    _Atomic int ready; /* ranks that have begun the act */
    _Atomic int64_t killed_ns;
    _Atomic int64_t longest_ns; /* from the kill to a survivor's error */
};

/* ---- acts, again and again until one fails ------------------------------- */

static ulyx_status_t
act_create(struct shared *shared, int n, int rank)
{
    ulyx_comm_t *comm;
    ulyx_status_t status =
        job_meet(&shared->job, n, RANKS, rank, CREATE_TIMEOUT_S, &comm);
    if (status == ULYX_SUCCESS)
        ulyx_comm_destroy(comm);
    return status;
}

static ulyx_status_t
act_plan(ulyx_comm_t *comm, const struct shared *shared, char text_p[256])
{
    struct scene s;
    ulyx_status_t status = scene_open(comm, shared->path, 40, &s);
    if (status != ULYX_SUCCESS) {
        snprintf(text_p, 256, "%s", s.text);
        return status;
    }
    /* The windows of the scene may be in quarantine already. */
    return scene_close(&s, 10) ? status : ULYX_ERR_INTERNAL;
}

static ulyx_status_t
act_attach(ulyx_comm_t *comm, char text_p[256])
{
    ulyx_mem_t *mem;
    void *address;
    ulyx_status_t status = ulyx_mem_alloc(1 << 16, NULL, &mem, &address);
    if (status == ULYX_SUCCESS)
        status = ulyx_mem_attach(comm, mem);
    if (status == ULYX_SUCCESS)
        status = ulyx_mem_detach(comm, mem);
    snprintf(text_p, 256, "%s", ulyx_last_error());
    for (int i = 0; status != ULYX_SUCCESS && i < 10000; i++) {
        ulyx_status_t left = ulyx_mem_detach(comm, mem);
        if (left != ULYX_ERR_BUSY)
            break;
        usleep(1000);
    }
    if (ulyx_mem_free(mem) != ULYX_SUCCESS)
        fprintf(stderr, "a window is left: %s\n", ulyx_last_error());
    return status == ULYX_ERR_BUSY ? ULYX_ERR_RANK_LOST : status;
}

static ulyx_status_t
act_split(ulyx_comm_t *comm, int rank, char text_p[256])
{
    ulyx_comm_t *half;
    ulyx_status_t status = ulyx_comm_split(comm, rank % 2, 0, NULL, &half);
    snprintf(text_p, 256, "%s", ulyx_last_error());
    if (status == ULYX_SUCCESS)
        ulyx_comm_destroy(half);
    return status;
}

static ulyx_status_t
act_alltoall(ulyx_comm_t *comm, char text_p[256])
{
    static char src[RANKS][20000], dst[RANKS][20000];
    ulyx_status_t status = ulyx_alltoall(comm, src, dst, 20000, NULL);
    snprintf(text_p, 256, "%s", ulyx_last_error());
    return status;
}

static ulyx_status_t
act_execute(struct scene *s, enum act act, char text_p[256])
{
    ulyx_direction_t direction =
        act == EXECUTE ? ULYX_SEQ_TO_HEAD : ULYX_SEQ_TO_HEAD_ADJOINT;
    ulyx_status_t status = scene_execute(s, direction);
    snprintf(text_p, 256, "%s", ulyx_last_error());
    return status;
}

static ulyx_status_t
act_once(struct shared *shared, ulyx_comm_t *comm, struct scene *s, int rank,
    char text_p[256])
{
    switch (shared->act) {
    case PLAN:
        return act_plan(comm, shared, text_p);
    case ATTACH:
        return act_attach(comm, text_p);
    case SPLIT:
        return act_split(comm, rank, text_p);
    case ALLTOALL:
        return act_alltoall(comm, text_p);
    default:
        return act_execute(s, shared->act, text_p);
    }
}

/* ---- a rank -------------------------------------------------------------- */

static bool
names_victim(
    const struct shared *shared, ulyx_status_t status, const char *text)
{
    char name[16];
    snprintf(name, sizeof(name), "rank %d", shared->victim);
    if (status == ULYX_ERR_RANK_LOST && strstr(text, name))
        return true;
    if (shared->act == CREATE && status == ULYX_ERR_TIMEOUT &&
        strstr(text, name))
        return true;
    fprintf(stderr, "%s: %s: \"%s\" does not name %s as lost\n",
        act_names[shared->act], ulyx_status_name(status), text, name);
    return false;
}

static bool
in_communicator(struct shared *shared, int rank)
{
    ulyx_comm_t *comm;
    struct scene s;
    char text[256] = "";
    ulyx_status_t status;
    bool executes = shared->act == EXECUTE || shared->act == ADJOINT;
    if (!ranks_expect(job_meet(&shared->job, 0, RANKS, rank, JOB_TIMEOUT_S,
                          &comm) == ULYX_SUCCESS))
        return false;
    if (executes &&
        !ranks_expect(scene_open(comm, shared->path, ROWS, &s) == 0))
        return false;
    atomic_fetch_add(&shared->ready, 1);
    while ((status = act_once(shared, comm, &s, rank, text)) == ULYX_SUCCESS)
        ;
    aftermath_note(&shared->longest_ns, atomic_load(&shared->killed_ns));
    bool good = ranks_expect(names_victim(shared, status, text));
    good &=
        ranks_expect(aftermath_go_on(comm, SCENE_WINDOW, ROWS, 2) == RANKS - 1);
    if (executes)
        good &= ranks_expect(scene_close(&s, 10));
    return ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS) && good;
}

static bool
in_creation(struct shared *shared, int rank)
{
    ulyx_status_t status;
    int n = 0;
    atomic_fetch_add(&shared->ready, 1);
    while ((status = act_create(shared, n, rank)) == ULYX_SUCCESS)
        n++;
    aftermath_note(&shared->longest_ns, atomic_load(&shared->killed_ns));
    /* Without rank 0 there may be no id to meet at, or no root at its
     * address. */
    if (shared->victim == 0 && (strstr(ulyx_last_error(), "job: ") ||
                                   strstr(ulyx_last_error(), "root")))
        return true;
    return ranks_expect(names_victim(shared, status, ulyx_last_error()));
}

static int
kill_rank(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    struct holdings before = holdings_now();
    (void)nranks;
    bool good = shared->act == CREATE ? in_creation(shared, rank)
                                      : in_communicator(shared, rank);
    return !(good && ranks_expect(holdings_back(&before, 5)));
}

/* ---- the killer ---------------------------------------------------------- */

static void *
kill_thread(void *argument)
{
    struct shared *shared = argument;
    atomic_store(&shared->killer_runs, true);
    while (atomic_load(&shared->ready) < RANKS)
        usleep(100);
    usleep((useconds_t)(shared->delay_s * 1e6));
    atomic_store(&shared->killed_ns, uli_clock_ns());
    kill(ranks_pid(shared->pids, shared->victim), SIGKILL);
    return NULL;
}

static void
kill_once(enum act act, enum scene_path path, struct test_random *random)
{
    struct shared *shared = ranks_shared(sizeof(*shared));
    pthread_t thread;
    shared->act = act;
    shared->path = path;
    shared->victim = (int)test_random_in(random, 0, RANKS - 1);
    shared->delay_s = test_random_unit(random) * 0.03;
    scene_environment(path);
    assert_int_equal(pthread_create(&thread, NULL, kill_thread, shared), 0);
    /* A fork during the start of another thread copies the sanitizer's locks as
     * held, and no thread of the child releases them: the sanitizer's own
     * thread has hung on such a lock. */
    while (!atomic_load(&shared->killer_runs))
        usleep(100);
    int failed = ranks_run_processes_victim(
        RANKS, kill_rank, shared, LIMIT_S, shared->victim, shared->pids);
    if (failed)
        pthread_cancel(thread);
    pthread_join(thread, NULL);
    scene_environment(SCENE_WINDOW);
    double longest_s = (double)atomic_load(&shared->longest_ns) * 1e-9;
    if (failed || longest_s > (act == CREATE ? CREATE_TIMEOUT_S + 1 : 1))
        fprintf(stderr, "%s (%s), rank %d killed after %.1f ms: %.0f ms\n",
            act_names[act], scene_path_names[path], shared->victim,
            shared->delay_s * 1e3, longest_s * 1e3);
    ranks_shared_free(shared, sizeof(*shared));
    assert_int_equal(failed, 0);
    assert_true(longest_s < JOB_TIMEOUT_S / 2.0);
}

static void
kill_in(enum act act, uint64_t seed)
{
    struct test_random random = {test_seed(seed)};
    for (int64_t i = 0, draws = test_draws(4); i < draws; i++)
        kill_once(act, (enum scene_path)(i % SCENE_PATHS), &random);
}

#define KILL_TEST(name, act)                                                   \
    static void name(void **state)                                             \
    {                                                                          \
        (void)state;                                                           \
        kill_in(act, 900 + act);                                               \
    }
KILL_TEST(killed_in_creation, CREATE)
KILL_TEST(killed_in_plan_create, PLAN)
KILL_TEST(killed_in_attach, ATTACH)
KILL_TEST(killed_in_split, SPLIT)
KILL_TEST(killed_in_alltoall, ALLTOALL)
KILL_TEST(killed_in_execute, EXECUTE)
KILL_TEST(killed_in_adjoint, ADJOINT)

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(killed_in_creation),
    cmocka_unit_test(killed_in_plan_create),
    cmocka_unit_test(killed_in_attach),
    cmocka_unit_test(killed_in_split),
    cmocka_unit_test(killed_in_alltoall),
    cmocka_unit_test(killed_in_execute),
    cmocka_unit_test(killed_in_adjoint),
};
ULI_TEST_MAIN("SoakKill", tests)
