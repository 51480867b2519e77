/* SPDX-License-Identifier: Apache-2.0
 *
 * Dumps of flight recorders: when they are written and when not, and the output
 * of `ulyx_info report` on the dumps of all processes. The files are in a
 * folder of their own; by `netns-test.sh spread` the ranks are on several
 * hosts.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "comm/meet.h"
#include "soak/scene.h"
#include "support/command.h"
#include "support/ranks.h"
#include "support/test.h"

enum { MANY = 64, CULPRIT = 37, LIMIT_S = 100, TEXT = 1 << 16 };

struct shared {
    struct meet *meet;
    char folder[64], output[TEXT];
    double cpu_s; /* CPU time of the last report */
    _Atomic int32_t pids[MANY];
    _Atomic int32_t ended; /* ranks that have returned their error */
};

static struct shared *shared;
static int nranks_now;

static void
shared_new(int nranks)
{
    shared = ranks_shared(sizeof(*shared));
    shared->meet = meet_new(nranks);
    nranks_now = nranks;
    strcpy(shared->folder, "/tmp/ulyx-dump-XXXXXX");
    assert_non_null(mkdtemp(shared->folder));
}

static int
shared_free(void **state)
{
    char command[128];
    (void)state;
    unsetenv("ULYX_DUMP_FILE");
    unsetenv("ULYX_DUMP_SIGNAL");
    unsetenv("ULYX_DEBUG_FILE");
    if (!shared)
        return 0;
    snprintf(command, sizeof(command), "rm -rf '%s'", shared->folder);
    int left = system(command);
    meet_free(shared->meet);
    ranks_shared_free(shared, sizeof(*shared));
    shared = NULL;
    return left;
}

static void
dump_file_set(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", shared->folder, name);
    setenv("ULYX_DUMP_FILE", path, 1);
}

/* Runs the report on all files of the folder.
 * returns its exit code. */
static int
report_run(const char *options)
{
    char command[512];
    snprintf(command, sizeof(command), "exec '%s' report %s %s/*.json 2>&1",
        ULYX_INFO, options, shared->folder);
    return command_run(command, shared->output, TEXT, &shared->cpu_s);
}

/* The position of the words in the report; prints the report when they are
 * missing. */
static const char *
report_find(const char *words)
{
    const char *at = strstr(shared->output, words);
    if (!at)
        print_message("no \"%s\" in:\n%s\n", words, shared->output);
    return at;
}

static bool
file_is_there(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", shared->folder, name);
    return access(path, R_OK) == 0;
}

/* Number of entries in the folder whose names contain the words. */
static int
files_count(const char *words)
{
    char command[256], text[32];
    double cpu_s;
    snprintf(command, sizeof(command), "ls -A '%s' | grep -c -e '%s'",
        shared->folder, words);
    /* the exit code is 1 where there is no file */
    (void)command_run(command, text, sizeof(text), &cpu_s);
    return text[0] ? atoi(text) : -1;
}

static bool
comm_make(int rank, double timeout_s, ulyx_comm_t **comm_p)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.timeout_s = timeout_s;
    params.flags = ULYX_COMM_CONCURRENT; /* a circle of waits is no error */
    params.name = "dumped";
    atomic_store(&shared->pids[rank], (int32_t)getpid());
    return meet_comm_by(shared->meet, rank, &params, comm_p) == ULYX_SUCCESS;
}

/* ---- one of many is stopped ---------------------------------------------- */

static bool
all_ended(int nranks)
{
    uli_deadline_t deadline = uli_deadline_in(LIMIT_S);
    while (atomic_load(&shared->ended) < nranks && !uli_deadline_over(deadline))
        usleep(20000);
    return atomic_load(&shared->ended) >= nranks;
}

static int
stopped_body(int rank, int nranks, void *context)
{
    ulyx_comm_t *comm;
    (void)context;
    if (!ranks_expect(comm_make(rank, 20, &comm)) ||
        !ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS))
        return 1;
    /* the timeout of the next call, which all ranks have begun */
    comm->timeout_s = 2;
    if (rank == CULPRIT) {
        raise(SIGSTOP);
        ulyx_comm_abort(comm);
        return !ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
    }
    bool good = ranks_expect(ulyx_comm_barrier(comm) == ULYX_ERR_TIMEOUT);
    atomic_fetch_add(&shared->ended, 1);
    if (rank == 0) {
        good &= ranks_expect(all_ended(nranks - 1));
        kill(atomic_load(&shared->pids[CULPRIT]), SIGCONT);
    }
    /* Another rank may still send to this one, so wait until all others have
     * ended. */
    good &= ranks_expect(all_ended(nranks - 1));
    good &= ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
    return !good;
}

/* Returns the second line of the report; the first names the communicator. */
static const char *
second_line(void)
{
    const char *line = strchr(shared->output, '\n');
    return line ? line + 1 : "";
}

static void
stopped_rank_of_many_comes_first_in_the_report(void **state)
{
    char words[96];
    (void)state;
    shared_new(MANY);
    dump_file_set("%r-%p.json");
    assert_int_equal(ranks_run_processes(MANY, stopped_body, NULL, LIMIT_S), 0);
    /* The stopped rank's own file, written when it continued, is removed. */
    assert_int_equal(files_count("json$"), MANY);
    snprintf(words, sizeof(words), "%s/%d-%d.json", shared->folder, CULPRIT,
        atomic_load(&shared->pids[CULPRIT]));
    assert_int_equal(unlink(words), 0);
    assert_int_equal(report_run(""), 0);
    print_message("report of 63 dumps: %.3f s of a processor\n", shared->cpu_s);
    /* Processor time, which does not depend on the machine's load. */
    assert_true(shared->cpu_s < 1);
    assert_non_null(report_find("dumps of 63 of 64 ranks\n"));
    snprintf(words, sizeof(words),
        "pid %d): has left no dump; awaited by "
        "ranks 0-36, 38-63\n",
        atomic_load(&shared->pids[CULPRIT]));
    assert_non_null(report_find(words));
    assert_int_equal(strncmp(second_line(), "  held up by rank 37 (", 22), 0);
    assert_non_null(report_find("63 of these ranks wait for others"));
    assert_non_null(report_find("failed at rank 0: ULYX_ERR_TIMEOUT: barrier"));
    assert_int_equal(files_count("json\\."), 0);
}

/* ---- calls that differ, and a signal ------------------------------------- */

static _Atomic int32_t handled;

static void
count_signal(int number)
{
    (void)number;
    atomic_fetch_add(&handled, 1);
}

static bool
await_files(int count)
{
    uli_deadline_t deadline = uli_deadline_in(LIMIT_S);
    while (files_count("json$") < count)
        if (uli_deadline_over(deadline))
            return false;
        else
            usleep(50000);
    return true;
}

/* Rank 2 is in a barrier, the others in an exchange. A thread of rank 0 signals
 * all ranks to write their dumps, then aborts the communicator. */
static void
differing_watch(int nranks, ulyx_comm_t *comm)
{
    sleep(2); /* a rank notes after half a second which ranks it waits for */
    for (int p = 0; p < nranks; p++)
        kill(atomic_load(&shared->pids[p]), SIGUSR2);
    if (await_files(nranks))
        atomic_store(&shared->ended, 1);
    ulyx_comm_abort(comm);
}

static void *
differing_thread(void *context)
{
    differing_watch(nranks_now, context);
    return NULL;
}

static int
differing_body(int rank, int nranks, void *context)
{
    ulyx_comm_t *comm;
    struct scene scene;
    pthread_t thread;
    (void)nranks, (void)context;
    signal(SIGUSR2, count_signal);
    if (!ranks_expect(comm_make(rank, 80, &comm)) ||
        !ranks_expect(scene_open(comm, SCENE_WINDOW, 64, &scene) == 0))
        return 1;
    if (rank == 0 && !ranks_expect(pthread_create(&thread, NULL,
                                       differing_thread, comm) == 0))
        return 1;
    ulyx_status_t status = rank == 2 ? ulyx_comm_barrier(comm)
                                     : scene_execute(&scene, ULYX_SEQ_TO_HEAD);
    bool good = ranks_expect(status == ULYX_ERR_ABORTED);
    if (rank == 0)
        pthread_join(thread, NULL);
    good &= ranks_expect(atomic_load(&handled) == 1);
    good &= ranks_expect(scene_close(&scene, 20));
    good &= ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
    /* The library has restored the handler: the program alone counts the next
     * signal. */
    struct sigaction now;
    good &= ranks_expect(
        sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == count_signal);
    return !good;
}

static void
signal_dumps_calls_that_differ(void **state)
{
    (void)state;
    shared_new(3);
    dump_file_set("%h-%p.json");
    setenv("ULYX_DUMP_SIGNAL", "USR2", 1);
    assert_int_equal(ranks_run_processes(3, differing_body, NULL, LIMIT_S), 0);
    assert_int_equal(atomic_load(&shared->ended), 1);
    assert_int_equal(report_run(""), 0);
    assert_non_null(report_find("dumps of 3 of 3 ranks\n"));
    assert_non_null(
        report_find("the ranks are in different calls:\n    rank 2: in "
                    "barrier, collective call "));
    assert_non_null(
        report_find("    ranks 0-1: in reshuffle, call 1 of plan "));
    assert_non_null(report_find("seq_to_head (fingerprint "));
    assert_non_null(
        report_find("a circle of ranks that wait for each other:\n"));
    assert_int_equal(report_run("--json"), 0);
    assert_non_null(report_find("\"call\":\"barrier\""));
    assert_non_null(report_find("\"circles\":[["));
}

/* ---- files that cannot be written ---------------------------------------- */

static int
log_count(const char *words)
{
    char path[96], line[1024];
    int found = 0;
    snprintf(path, sizeof(path), "%s/log", shared->folder);
    FILE *log = fopen(path, "r");
    while (log && fgets(line, sizeof(line), log))
        found += strstr(line, words) != NULL;
    if (log)
        fclose(log);
    return found;
}

/* Rank 0 waits until its deadline, on a new communicator each time. context:
 * the largest file that it may write. */
static int
failing_body(int rank, int nranks, void *context)
{
    struct rlimit limit = {*(const rlim_t *)context, RLIM_INFINITY};
    struct rlimit no_limit = {RLIM_INFINITY, RLIM_INFINITY};
    char path[96];
    bool good = true;
    (void)nranks;
    snprintf(path, sizeof(path), "%s/log", shared->folder);
    if (rank == 0)
        setenv("ULYX_DEBUG_FILE", path, 1);
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 2 && good; i++) {
        ulyx_comm_t *comm;
        if (!ranks_expect(comm_make(rank, 20, &comm)))
            return 1;
        for (int k = 0; k < 40; k++)
            good &= ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS);
        if (rank == 0) {
            comm->timeout_s = 0.3;
            good &= ranks_expect(setrlimit(RLIMIT_FSIZE, &limit) == 0);
            good &= ranks_expect(ulyx_comm_barrier(comm) == ULYX_ERR_TIMEOUT);
        }
        good &= ranks_expect(meet_barrier(shared->meet, rank));
        good &= ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
        setrlimit(RLIMIT_FSIZE, &no_limit); /* memory files follow */
        good &= ranks_expect(meet_barrier(shared->meet, rank));
    }
    return !good;
}

static void
file_that_cannot_be_written_is_logged_once(void **state)
{
    rlim_t most = RLIM_INFINITY;
    (void)state;
    shared_new(2);
    dump_file_set("no/such/folder/%p.json");
    assert_int_equal(ranks_run_processes(2, failing_body, &most, LIMIT_S), 0);
    assert_int_equal(log_count("cannot be written: No such file"), 1);
    assert_int_equal(log_count("cannot be written"), 1);
}

static void
full_disk_is_logged_once_and_leaves_nothing(void **state)
{
    rlim_t most = 4096;
    (void)state;
    shared_new(2);
    dump_file_set("%p.json");
    assert_int_equal(ranks_run_processes(2, failing_body, &most, LIMIT_S), 0);
    assert_int_equal(log_count("cannot be written: File too large"), 1);
    assert_int_equal(log_count("cannot be written"), 1);
    assert_int_equal(files_count("json"), 0);
}

/* ---- the call ------------------------------------------------------------ */

static void
call_writes_and_refuses_by_name(void **state)
{
    ulyx_comm_t *comms[2];
    char path[128];
    struct stat info;
    (void)state;
    shared_new(2);
    assert_status(ulyx_comm_create_local(2, NULL, comms), ULYX_SUCCESS);
    assert_status(ulyx_comm_dump(NULL, "x"), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(ulyx_comm_dump(comms[0], NULL), ULYX_ERR_INVALID_ARGUMENT);
    assert_true(error_has("ULYX_DUMP_FILE is not set"));
    assert_status(ulyx_comm_dump(comms[0], ""), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(ulyx_comm_dump(comms[0], "/dev/null"), ULYX_ERR_SYSTEM);
    assert_true(error_has("dump to /dev/null: not a regular file"));
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    assert_status(ulyx_comm_dump(comms[0], shared->folder), ULYX_ERR_SYSTEM);
    snprintf(path, sizeof(path), "%s/%%r-%%x.json", shared->folder);
    for (int i = 0; i < 2; i++) /* the second file replaces the first */
        assert_status(ulyx_comm_dump(comms[1], path), ULYX_SUCCESS);
    assert_true(file_is_there("0-%x.json"));
    assert_int_equal(files_count("json"), 1);
    assert_int_equal(report_run(""), 0);
    assert_non_null(report_find("dumps of 2 of 2 ranks"));
    for (int r = 0; r < 2; r++)
        assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_teardown(
        stopped_rank_of_many_comes_first_in_the_report, shared_free),
    cmocka_unit_test_teardown(signal_dumps_calls_that_differ, shared_free),
    cmocka_unit_test_teardown(
        file_that_cannot_be_written_is_logged_once, shared_free),
    cmocka_unit_test_teardown(
        full_disk_is_logged_once_and_leaves_nothing, shared_free),
    cmocka_unit_test_teardown(call_writes_and_refuses_by_name, shared_free),
};

ULI_TEST_MAIN("Dump", tests)
