/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that hang, and the output of `ulyx_info ranks` about them: the rank
 * that holds up the others, or the circle of ranks that wait for each other.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "comm/meet.h"
#include "soak/scene.h"
#include "support/command.h"
#include "support/ranks.h"
#include "support/test.h"

enum {
    MANY = 64,
    CULPRIT = 37,
    LIMIT_S = 100,
    PATIENCE_S = 60,
    TEXT = 1 << 16
};

struct shared {
    struct meet *meet;
    char name[32], log[64];
    char output[TEXT];
    double cpu_s; /* CPU time of the last command */
    pid_t stopped;
};

static struct shared *
shared_new(int nranks)
{
    struct shared *shared = ranks_shared(sizeof(*shared));
    shared->meet = meet_new(nranks);
    snprintf(shared->name, sizeof(shared->name), "hang-%d", (int)getpid());
    return shared;
}

static void
shared_free(struct shared *shared)
{
    meet_free(shared->meet);
    ranks_shared_free(shared, sizeof(*shared));
}

/* Runs the command until its output has these words. */
static bool
info_prints(struct shared *shared, const char *words)
{
    char command[512];
    uli_deadline_t deadline = uli_deadline_in(PATIENCE_S);
    snprintf(command, sizeof(command), "exec '%s' ranks --name %s 2>&1",
        ULYX_INFO, shared->name);
    for (;;) {
        int code = command_run(command, shared->output, TEXT, &shared->cpu_s);
        if (strstr(shared->output, words))
            return code == 0;
        if (uli_deadline_over(deadline))
            return false;
        usleep(100000);
    }
}

static bool
comm_make(struct shared *shared, int rank, ulyx_comm_t **comm_p)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.timeout_s = PATIENCE_S + 20;
    params.flags = ULYX_COMM_CONCURRENT; /* a circle of waits is no error */
    params.name = shared->name;
    return meet_comm_by(shared->meet, rank, &params, comm_p) == ULYX_SUCCESS;
}

/* ---- one rank of many makes no call -------------------------------------- */

static int
stray_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    ulyx_comm_t *comm;
    (void)nranks;
    if (!ranks_expect(comm_make(shared, rank, &comm)) ||
        !ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS))
        return 1;
    bool good = rank != CULPRIT || ranks_expect(info_prints(shared,
                                       "63 of these ranks wait for others"));
    good &= ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS);
    good &= ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
    return !good;
}

/* Returns how often the words occur in the text. */
static int
lines_count(const char *text, const char *words)
{
    int found = 0;
    for (const char *at = text; (at = strstr(at, words)); at++)
        found++;
    return found;
}

static void
rank_that_does_not_come_is_named_among_many(void **state)
{
    struct shared *shared = shared_new(MANY);
    (void)state;
    int failed = ranks_run_processes(MANY, stray_body, shared, LIMIT_S);
    if (failed)
        print_message("%s\n", shared->output);
    assert_int_equal(failed, 0);
    assert_non_null(strstr(shared->output, "64 of 64 ranks are here"));
    assert_int_equal(
        lines_count(shared->output, "in barrier, collective call 1, for"),
        MANY - 1);
    assert_int_equal(
        lines_count(shared->output, "; waits for rank 37\n"), MANY - 1);
    assert_int_equal(lines_count(shared->output, "held up by rank"), 1);
    const char *cause = strstr(shared->output, "held up by rank 37 (");
    assert_non_null(cause);
    assert_non_null(strstr(cause, "in no call; its last"));
    assert_non_null(strstr(cause, "barrier, collective call 0 (ULYX_SUCCESS"));
    assert_null(strstr(shared->output, "circle"));
    /* Processor time, which does not depend on the machine's load. */
    assert_true(shared->cpu_s < 1);
    shared_free(shared);
}

/* Reads the log of rank 0. */
static void
log_read(struct shared *shared)
{
    FILE *file = fopen(shared->log, "r");
    size_t bytes = file ? fread(shared->output, 1, TEXT - 1, file) : 0;
    shared->output[bytes] = 0;
    if (file)
        fclose(file);
}

static bool
log_has(struct shared *shared, int times)
{
    uli_deadline_t deadline = uli_deadline_in(PATIENCE_S);
    while (log_read(shared),
        lines_count(shared->output, "has waited for") < times) {
        if (uli_deadline_over(deadline))
            return false;
        usleep(50000);
    }
    return true;
}

/* ---- two ranks execute two plans ----------------------------------------- */

struct watch {
    struct shared *shared;
    ulyx_comm_t *comm;
    bool good;
};

static void *
circle_watch(void *context)
{
    struct watch *watch = context;
    watch->good = info_prints(watch->shared, "a circle");
    ulyx_comm_abort(watch->comm);
    return NULL;
}

static int
circle_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    struct watch watch = {.shared = shared};
    struct scene scenes[2];
    pthread_t thread;
    (void)nranks;
    if (!ranks_expect(comm_make(shared, rank, &watch.comm)))
        return 1;
    for (int i = 0; i < 2; i++)
        if (!ranks_expect(scene_open(watch.comm, SCENE_WINDOW, 64,
                              &scenes[i]) == ULYX_SUCCESS))
            return 1;
    if (rank == 0 &&
        !ranks_expect(pthread_create(&thread, NULL, circle_watch, &watch) == 0))
        return 1;
    bool good = ranks_expect(
        scene_execute(&scenes[rank], ULYX_SEQ_TO_HEAD) == ULYX_ERR_ABORTED);
    if (rank == 0) {
        pthread_join(thread, NULL);
        good &= ranks_expect(watch.good);
    }
    for (int i = 0; i < 2; i++)
        good &= ranks_expect(scene_close(&scenes[i], 20));
    good &= ranks_expect(ulyx_comm_destroy(watch.comm) == ULYX_SUCCESS);
    return !good;
}

static void
circle_of_two_plans_is_reported(void **state)
{
    struct shared *shared = shared_new(2);
    (void)state;
    int failed = ranks_run_processes(2, circle_body, shared, LIMIT_S);
    if (failed)
        print_message("%s\n", shared->output);
    assert_int_equal(failed, 0);
    const char *circle = strstr(shared->output, "a circle of ranks");
    assert_non_null(circle);
    assert_int_equal(
        lines_count(circle, "waits for rank 1: in reshuffle, call 1 of "
                            "plan 0, seq_to_head"),
        1);
    assert_int_equal(
        lines_count(circle, "waits for rank 0: in reshuffle, call 1 of "
                            "plan 1, seq_to_head"),
        1);
    assert_null(strstr(shared->output, "held up by"));
    shared_free(shared);
}

/* ---- a wait that stands still -------------------------------------------- */

enum stall { STALL_BARRIER, STALL_EXECUTE, STALLS };

/* Rank 0 waits for rank 1, which calls once rank 0 has logged the wait. */
static int
stall_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    ulyx_comm_t *comm;
    struct scene scene;
    (void)nranks;
    if (rank == 0)
        setenv("ULYX_DEBUG_FILE", shared->log, 1);
    if (!ranks_expect(comm_make(shared, rank, &comm)) ||
        !ranks_expect(scene_open(comm, SCENE_WINDOW, 64, &scene) == 0))
        return 1;
    bool good = true;
    for (int i = 0; good && i < STALLS; i++) {
        if (rank == 1)
            good = ranks_expect(log_has(shared, i + 1));
        good &= ranks_expect(
            (i == STALL_BARRIER
                    ? ulyx_comm_barrier(comm)
                    : scene_execute(&scene, ULYX_SEQ_TO_HEAD)) == ULYX_SUCCESS);
    }
    good &= ranks_expect(scene_close(&scene, 20));
    good &= ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
    return !good;
}

static void
stalled_wait_is_logged_once(void **state)
{
    struct shared *shared = shared_new(2);
    int fd;
    (void)state;
    strcpy(shared->log, "/tmp/ulyx-stall-XXXXXX");
    fd = mkstemp(shared->log);
    assert_true(fd >= 0);
    close(fd);
    setenv("ULYX_STALL_WARN", "1", 1);
    int failed = ranks_run_processes(2, stall_body, shared, LIMIT_S);
    unsetenv("ULYX_STALL_WARN");
    log_read(shared);
    unlink(shared->log);
    if (failed)
        print_message("%s\n", shared->output);
    assert_int_equal(failed, 0);
    assert_int_equal(
        lines_count(shared->output, "has waited for 1 s, for rank 1 ("),
        STALLS);
    assert_non_null(strstr(shared->output, ": barrier has waited"));
    assert_non_null(strstr(shared->output, ": reshuffle, call 1, has waited"));
    assert_int_equal(
        lines_count(shared->output, "in no call; its last: "), STALLS);
    assert_non_null(
        strstr(shared->output, "its last: barrier, collective call"));
    shared_free(shared);
}

/* ---- an attach beside a stopped process ---------------------------------- */

static void *
attach_watch(void *context)
{
    struct watch *watch = context;
    watch->good = info_prints(watch->shared, "held up by rank 0");
    kill(watch->shared->stopped, SIGCONT);
    return NULL;
}

static int
attach_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    struct watch watch = {.shared = shared};
    ulyx_mem_t *mem;
    void *address;
    pthread_t thread;
    (void)nranks;
    if (rank == 0)
        shared->stopped = getpid();
    if (!ranks_expect(comm_make(shared, rank, &watch.comm)) ||
        !ranks_expect(
            ulyx_mem_alloc(4096, NULL, &mem, &address) == ULYX_SUCCESS))
        return 1;
    bool good = ranks_expect(meet_barrier(shared->meet, rank));
    if (rank == 1)
        good &= ranks_expect(ranks_await_stopped(shared->stopped));
    if (rank == 0)
        raise(SIGSTOP);
    else if (ranks_expect(
                 pthread_create(&thread, NULL, attach_watch, &watch) == 0)) {
        good &=
            ranks_expect(ulyx_mem_attach(watch.comm, mem) == ULYX_SUCCESS) &&
            ranks_expect(ulyx_mem_detach(watch.comm, mem) == ULYX_SUCCESS);
        pthread_join(thread, NULL);
        good &= ranks_expect(watch.good);
    }
    good &= ranks_expect(ulyx_comm_barrier(watch.comm) == ULYX_SUCCESS) &&
            ranks_expect(ulyx_mem_free(mem) == ULYX_SUCCESS);
    return !(
        ranks_expect(ulyx_comm_destroy(watch.comm) == ULYX_SUCCESS) && good);
}

static void
attach_names_the_process_that_is_stopped(void **state)
{
    struct shared *shared = shared_new(2);
    (void)state;
    int failed = ranks_run_processes(2, attach_body, shared, LIMIT_S);
    if (failed)
        print_message("%s\n", shared->output);
    assert_int_equal(failed, 0);
    assert_int_equal(lines_count(shared->output, "; waits for rank 0\n"), 1);
    assert_non_null(strstr(shared->output, ", stopped by a signal)"));
    shared_free(shared);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rank_that_does_not_come_is_named_among_many),
    cmocka_unit_test(circle_of_two_plans_is_reported),
    cmocka_unit_test(stalled_wait_is_logged_once),
    cmocka_unit_test(attach_names_the_process_that_is_stopped),
};

ULI_TEST_MAIN("Hang", tests)
