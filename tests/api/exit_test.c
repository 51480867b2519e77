/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that end without destroying their communicators. A rank whose
 * process exits while no thread is in a call has left, as by destroy: peers
 * that do not need the rank continue, and a call that needs it reports that its
 * process has exited. Any other end of a process is a lost rank.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/comm.h"
#include "comm/meet.h"
#include "soak/scene.h"
#include "support/ranks.h"
#include "support/test.h"

enum { NRANKS = 4, LEAVER = 1, ROWS = 64, LIMIT_S = 100 };
#define CREATE_S 30.0
#define NOTICE_S 20.0

struct shared {
    pid_t pids[NRANKS];
    struct meet *meet;
    ulyx_unique_id_t id;
    _Atomic int forked, cleaned;
    _Atomic int looked; /* remaining ranks that have found no failure */
};

/* The objects that a rank holds when its process ends. */
struct member {
    struct shared *shared;
    ulyx_comm_t *comm;
    struct scene scene;
};
static struct member me;

typedef ulyx_status_t (*call_fn)(struct member *m);

struct end {
    void (*leave)(void);
    /* the peers see a failure; else they see a rank that has left */
    bool lost;
    call_fn call; /* the call that the other ranks make afterwards */
    const char *ranks_per_node;
    const char *algo;
    bool refused; /* some ranks may get PEER_REFUSED instead */
};
static const struct end *end;

/* ---- calls --------------------------------------------------------------- */

static ulyx_status_t
call_barrier(struct member *m)
{
    return ulyx_comm_barrier(m->comm);
}

static ulyx_status_t
call_alltoall(struct member *m)
{
    char src[NRANKS] = {1, 2, 3, 4}, dst[NRANKS];
    return ulyx_alltoall(m->comm, src, dst, 1, NULL);
}

static ulyx_status_t
call_reshuffle(struct member *m)
{
    return scene_execute(&m->scene, ULYX_SEQ_TO_HEAD);
}

static ulyx_status_t
call_split(struct member *m)
{
    ulyx_comm_t *half = NULL;
    return ulyx_comm_split(m->comm, 0, 0, NULL, &half);
}

/* ---- a process and its end ----------------------------------------------- */

static bool
member_join(struct shared *shared, int rank, int nranks)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.timeout_s = CREATE_S;
    params.flags = ULYX_COMM_CONCURRENT;
    me.shared = shared;
    if (rank == 0 &&
        !ranks_expect(ulyx_unique_id_create(&shared->id) == ULYX_SUCCESS))
        return false;
    return ranks_expect(meet_barrier(shared->meet, rank)) &&
           ranks_expect(ulyx_comm_create(&shared->id, nranks, rank, &params,
                            &me.comm) == ULYX_SUCCESS) &&
           ranks_expect(scene_open(me.comm, SCENE_WINDOW, ROWS, &me.scene) ==
                        ULYX_SUCCESS) &&
           ranks_expect(call_reshuffle(&me) == ULYX_SUCCESS) &&
           ranks_expect(call_alltoall(&me) == ULYX_SUCCESS) &&
           ranks_expect(ulyx_comm_barrier(me.comm) == ULYX_SUCCESS);
}

static void
leave_by_exit(void)
{
    exit(0);
}

static void
leave_at_once(void)
{
    _exit(0);
}

static void *
wait_in_barrier(void *unused)
{
    (void)unused;
    ulyx_comm_barrier(me.comm);
    return NULL;
}

static void *
exit_elsewhere(void *unused)
{
    (void)unused;
    exit(0);
}

static void
leave_from_a_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, exit_elsewhere, NULL) == 0)
        pthread_join(thread, NULL);
}

static void
leave_beside_a_call(void)
{
    pthread_t thread;
    struct uli_recorder *recorder = &me.comm->control->recorder;
    uint64_t before = atomic_load(&recorder->collectives);
    if (pthread_create(&thread, NULL, wait_in_barrier, NULL) != 0)
        _exit(1);
    while (atomic_load(&recorder->collectives) == before)
        usleep(500);
    exit(0);
}

static void
leave_with_a_request(void)
{
    const void *src[SCENE_TENSORS];
    void *dst[SCENE_TENSORS];
    ulyx_request_t *request;
    scene_pointers(&me.scene, ULYX_SEQ_TO_HEAD, src, dst);
    if (ulyx_reshuffle_start(me.scene.plan, ULYX_SEQ_TO_HEAD, src, dst, 0,
            &request) == ULYX_SUCCESS)
        exit(0);
}

static void
leave_with_a_queued_call(void)
{
    if (ulyx_group_start() == ULYX_SUCCESS &&
        ulyx_comm_barrier(me.comm) == ULYX_SUCCESS)
        exit(0);
}

static void
exit_from_log(
    void *context, ulyx_log_level_t level, int32_t rank, const char *text)
{
    (void)context;
    (void)level;
    (void)rank;
    (void)text;
    exit(0);
}

/* The line is logged by a call that belongs to no communicator. */
static void
leave_in_a_log_line(void)
{
    ulyx_comm_t *own;
    ulyx_log_set(exit_from_log, NULL, ULYX_LOG_INFO);
    ulyx_comm_create_local(0, NULL, &own); /* refused, which logs a line */
}

static int
exit_from_allgather(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    (void)mine;
    (void)all;
    (void)bytes;
    exit(0);
}

static void
leave_in_an_allgather(void)
{
    ulyx_comm_t *other;
    ulyx_comm_create_from_allgather(
        exit_from_allgather, NULL, 2, 0, NULL, &other);
}

/* Calls by a program's own destructors after the library's exit handler. */
static void
clean_up(void)
{
    char src[NRANKS] = {0}, dst[NRANKS];
    bool good =
        ranks_expect(ulyx_comm_barrier(me.comm) == ULYX_ERR_ABORTED) &&
        ranks_expect(strstr(ulyx_last_error(), "the process is exiting")) &&
        ranks_expect(
            ulyx_alltoall(me.comm, src, dst, 1, NULL) == ULYX_ERR_ABORTED) &&
        ranks_expect(call_reshuffle(&me) == ULYX_ERR_ABORTED) &&
        ranks_expect(ulyx_comm_destroy(me.comm) == ULYX_ERR_BUSY) &&
        ranks_expect(ulyx_plan_destroy(me.scene.plan) == ULYX_SUCCESS) &&
        ranks_expect(
            ulyx_plan_destroy(me.scene.plan) == ULYX_ERR_INVALID_ARGUMENT);
    atomic_store(&me.shared->cleaned, good);
}

/* ---- the others ---------------------------------------------------------- */

/* Waits until the process has ended, whether or not its parent has reaped
 * it. */
static bool
await_end(pid_t pid)
{
    char path[64], state = 0;
    uli_deadline_t deadline = uli_deadline_in(NOTICE_S);
    bool there = true;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    while (there && state != 'Z' && !uli_deadline_over(deadline)) {
        FILE *file = fopen(path, "r");
        there = file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
        if (file)
            fclose(file);
        usleep(500);
    }
    return !there || state == 'Z';
}

/* Waits until this rank has recorded the end of the other rank, as a failure or
 * as a departure. */
static bool
await_failure(ulyx_comm_t *comm)
{
    uli_deadline_t deadline = uli_deadline_in(NOTICE_S);
    while (uli_comm_check(comm) == ULYX_SUCCESS &&
           atomic_load(&comm->control->left[LEAVER]) == ULI_STAYS &&
           !uli_deadline_over(deadline))
        usleep(500);
    return !uli_deadline_over(deadline);
}

/* Waits for the other ranks, because the first rank that makes the call fails
 * the communicator for all. */
static bool
await_others(void)
{
    uli_deadline_t deadline = uli_deadline_in(NOTICE_S);
    atomic_fetch_add(&me.shared->looked, 1);
    while (atomic_load(&me.shared->looked) < NRANKS - 1 &&
           !uli_deadline_over(deadline))
        usleep(500);
    return !uli_deadline_over(deadline);
}

static bool
peers_stay(ulyx_comm_t *comm)
{
    bool good = ranks_expect(await_end(ranks_pid(me.shared->pids, LEAVER))) &&
                ranks_expect(await_failure(comm));
    if (good && end->lost)
        return ranks_expect(uli_comm_check(comm) == ULYX_ERR_RANK_LOST) &&
               ranks_expect(error_has("rank 1 (")) &&
               ranks_expect(end->call(&me) == ULYX_ERR_RANK_LOST);
    usleep(100000); /* time for a failure that must not arrive */
    good = good && ranks_expect(uli_comm_check(comm) == ULYX_SUCCESS) &&
           ranks_expect(await_others());
    ulyx_status_t got = good ? end->call(&me) : ULYX_SUCCESS;
    return good &&
           ranks_expect(got == ULYX_ERR_RANK_LOST ||
                        (end->refused && got == ULYX_ERR_PEER_REFUSED)) &&
           ranks_expect(error_has("rank 1 has left: its process has exited"));
}

static int
rank_body(int rank, int nranks, void *context)
{
    if (!member_join(context, rank, nranks))
        return 1;
    if (rank == LEAVER) {
        end->leave();
        return 1;
    }
    bool good = peers_stay(me.comm);
    good = ranks_expect(scene_close(&me.scene, NOTICE_S)) && good;
    return !(ranks_expect(ulyx_comm_destroy(me.comm) == ULYX_SUCCESS) && good);
}

static void
setting_put(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static void
processes_run(rank_fn body, const struct end *how, int victim)
{
    struct shared *shared = ranks_shared(sizeof(*shared));
    end = how;
    shared->meet = meet_new(NRANKS);
    setting_put("ULYX_RANKS_PER_NODE", how->ranks_per_node);
    setting_put("ULYX_ALGO", how->algo);
    int failed = ranks_run_processes_victim(
        NRANKS, body, shared, LIMIT_S, victim, shared->pids);
    setting_put("ULYX_RANKS_PER_NODE", NULL);
    setting_put("ULYX_ALGO", NULL);
    meet_free(shared->meet);
    ranks_shared_free(shared, sizeof(*shared));
    assert_int_equal(failed, 0);
}

/* ---- the tests ----------------------------------------------------------- */

static void
exit_outside_calls_is_a_departure(void **state)
{
    static const struct end ends[] = {
        {leave_by_exit, .call = call_barrier},
        {leave_by_exit, .call = call_alltoall},
        {leave_by_exit, .call = call_reshuffle},
        {leave_by_exit, .call = call_split},
        {leave_from_a_thread, .call = call_barrier},
        {leave_in_an_allgather, .call = call_barrier},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        processes_run(rank_body, &ends[i], LEAVER);
}

#if defined(WITH_UCX)
static void
exit_outside_calls_is_a_departure_for_other_nodes(void **state)
{
    static const struct end ends[] = {
        {leave_by_exit, .call = call_barrier, .ranks_per_node = "1"},
        {leave_by_exit, .call = call_alltoall, .ranks_per_node = "1"},
        {leave_by_exit, .call = call_reshuffle, .ranks_per_node = "2",
            .algo = "direct"},
        {leave_by_exit, .call = call_reshuffle, .ranks_per_node = "2",
            .algo = "hier", .refused = true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        processes_run(rank_body, &ends[i], LEAVER);
}
#endif

static void
end_within_a_call_is_a_lost_rank(void **state)
{
    static const struct end ends[] = {
        {leave_at_once, true, call_barrier},
        {leave_beside_a_call, true, call_barrier},
        {leave_with_a_request, true, call_barrier},
        {leave_with_a_queued_call, true, call_barrier},
        {leave_in_a_log_line, true, call_barrier},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        processes_run(rank_body, &ends[i], LEAVER);
}

/* ---- forked children ----------------------------------------------------- */

static void
child_end(pid_t child)
{
    int status = 1;
    if (child == 0)
        exit(0);
    bool good = ranks_expect(child > 0) &&
                ranks_expect(waitpid(child, &status, 0) == child) &&
                ranks_expect(status == 0);
    atomic_fetch_add(&me.shared->forked, good);
}

static int
fork_body(int rank, int nranks, void *context)
{
    if (!member_join(context, rank, nranks))
        return 1;
    if (rank == LEAVER) {
        fflush(NULL);
        child_end(fork());
        /* The C library does not see this call, so no fork handlers run. */
        child_end((pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    }
    bool good =
        ranks_expect(ulyx_comm_barrier(me.comm) == ULYX_SUCCESS) &&
        ranks_expect(atomic_load(&me.shared->forked) == 2) &&
        ranks_expect(atomic_load(&me.comm->control->left[LEAVER]) == 0) &&
        ranks_expect(call_reshuffle(&me) == ULYX_SUCCESS);
    /* No rank closes its scene before all ranks are done. */
    good = good && ranks_expect(ulyx_comm_barrier(me.comm) == ULYX_SUCCESS);
    good = ranks_expect(scene_close(&me.scene, NOTICE_S)) && good;
    return !(ranks_expect(ulyx_comm_destroy(me.comm) == ULYX_SUCCESS) && good);
}

static void
children_that_exit_log_nothing(void **state)
{
    static const struct end none = {0};
    (void)state;
    processes_run(fork_body, &none, -1);
}

/* ---- destructors of the program ------------------------------------------ */

static int
clean_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    if (rank == LEAVER)
        atexit(clean_up); /* runs after handlers that are registered later */
    if (!member_join(shared, rank, nranks))
        return 1;
    if (rank == LEAVER)
        exit(0);
    bool good =
        peers_stay(me.comm) && ranks_expect(atomic_load(&shared->cleaned));
    good = ranks_expect(scene_close(&me.scene, NOTICE_S)) && good;
    return !(ranks_expect(ulyx_comm_destroy(me.comm) == ULYX_SUCCESS) && good);
}

static void
calls_after_leaving_are_refused_except_destroy(void **state)
{
    static const struct end how = {.call = call_barrier};
    (void)state;
    processes_run(clean_body, &how, LEAVER);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(exit_outside_calls_is_a_departure),
#if defined(WITH_UCX)
    cmocka_unit_test(exit_outside_calls_is_a_departure_for_other_nodes),
#endif
    cmocka_unit_test(end_within_a_call_is_a_lost_rank),
    cmocka_unit_test(children_that_exit_log_nothing),
    cmocka_unit_test(calls_after_leaving_are_refused_except_destroy),
};
ULI_TEST_MAIN("Exit", tests)
