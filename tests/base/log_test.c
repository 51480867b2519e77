/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines, each configuration in a process of its own because the log reads
 * its settings once per process.
 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/status.h"
#include "support/ranks.h"
#include "support/test.h"

#define LOG_BYTES 65536

struct fixture {
    char directory[64];
    char text[LOG_BYTES]; /* the log, read back */
    char host[256];
    pid_t pid; /* id of the process that logged */
    const char *level, *subsystems, *file;
    rank_fn body;
};

/* ---- fixture ------------------------------------------------------------- */

static int
set_up(void **state)
{
    struct fixture *f = ranks_shared(sizeof(*f));
    strcpy(f->directory, "/tmp/ulyx-log-XXXXXX");
    gethostname(f->host, sizeof(f->host) - 1);
    f->host[strcspn(f->host, ".")] = 0;
    f->file = "log";
    *state = f;
    return mkdtemp(f->directory) ? 0 : -1;
}

static int
tear_down(void **state)
{
    struct fixture *f = *state;
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", f->directory);
    int rc = system(command);
    ranks_shared_free(f, sizeof(*f));
    return rc;
}

static int
configure_and_run(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", f->directory, f->file);
    setenv("ULYX_DEBUG_FILE", path, 1);
    unsetenv("ULYX_DEBUG");
    unsetenv("ULYX_DEBUG_SUBSYS");
    if (f->level)
        setenv("ULYX_DEBUG", f->level, 1);
    if (f->subsystems)
        setenv("ULYX_DEBUG_SUBSYS", f->subsystems, 1);
    f->pid = getpid();
    return f->body(rank, nranks, f);
}

static void
read_log(struct fixture *f, const char *name)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", f->directory, name);
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(f->text, 1, LOG_BYTES - 1, file) : 0;
    f->text[length] = 0;
    if (file)
        fclose(file);
}

/* Runs body in nranks processes with these settings of the log, and reads the
 * text of the log into f. */
static void
run_ranks(struct fixture *f, int nranks, rank_fn body, const char *level,
    const char *subsystems)
{
    f->body = body;
    f->level = level;
    f->subsystems = subsystems;
    assert_int_equal(ranks_run_processes(nranks, configure_and_run, f, 20), 0);
    read_log(f, f->file);
}

static int
fixture_has(const struct fixture *f, const char *word)
{
    return strstr(f->text, word) != NULL;
}

/* ---- bodies -------------------------------------------------------------- */

static int
log_each_level(int rank, int nranks, void *context)
{
    (void)rank, (void)nranks, (void)context;
    uli_log(ULI_LOG_VERSION, ULI_LOG_INIT, -1, "version line");
    ULI_WARN(ULI_LOG_INIT, -1, "warn line");
    ULI_INFO(ULI_LOG_INIT, 5, "info line %d", 42);
    ULI_TRACE(ULI_LOG_INIT, 0, "trace line");
    return 0;
}

static int
log_each_subsystem(int rank, int nranks, void *context)
{
    (void)rank, (void)nranks, (void)context;
    ULI_INFO(ULI_LOG_INIT, -1, "of init");
    ULI_INFO(ULI_LOG_MEM, -1, "of mem");
    ULI_INFO(ULI_LOG_PLAN, -1, "of plan");
    ULI_WARN(ULI_LOG_PLAN, -1, "warning of plan");
    return 0;
}

static int
log_many_lines(int rank, int nranks, void *context)
{
    (void)nranks, (void)context;
    for (int i = 0; i < 100; i++)
        ULI_WARN(ULI_LOG_INIT, rank, "line %03d of rank %d end", i, rank);
    return 0;
}

/* ---- tests --------------------------------------------------------------- */

static void
line_has_host_process_thread_rank_level_text(void **state)
{
    struct fixture *f = *state;
    char expected[1024];
    run_ranks(f, 1, log_each_level, "INFO", NULL);
    snprintf(expected, sizeof(expected),
        "%s:%d:%d ULYX VERSION version line\n%s:%d:%d ULYX WARN warn line\n"
        "%s:%d:%d [5] ULYX INFO info line 42\n",
        f->host, f->pid, f->pid, f->host, f->pid, f->pid, f->host, f->pid,
        f->pid);
    assert_string_equal(f->text, expected);
}

static void
level_decides_what_is_written(void **state)
{
    static const char *const levels[] = {
        "NONE", "VERSION", "WARN", "info", "Trace"};
    static const char *const lines[] = {
        "", "version line", "warn line", "info line", "trace line"};
    struct fixture *f = *state;
    for (int level = 0; level < 5; level++) {
        char name[8];
        snprintf(name, sizeof(name), "log%d", level);
        f->file = name;
        run_ranks(f, 1, log_each_level, levels[level], NULL);
        for (int line = 1; line < 5; line++)
            assert_int_equal(fixture_has(f, lines[line]), line <= level);
    }
}

static void
default_level_is_warn(void **state)
{
    run_ranks(*state, 1, log_each_level, NULL, NULL);
    assert_true(fixture_has(*state, "warn line"));
    assert_false(fixture_has(*state, "info line"));
}

static void
subsystems_select_but_never_hide_warnings(void **state)
{
    run_ranks(*state, 1, log_each_subsystem, "INFO", "INIT,mem");
    assert_true(fixture_has(*state, "of init"));
    assert_true(fixture_has(*state, "of mem"));
    assert_false(fixture_has(*state, "INFO of plan"));
    assert_true(fixture_has(*state, "warning of plan"));
}

static void
subsystems_with_caret_are_left_out(void **state)
{
    run_ranks(*state, 1, log_each_subsystem, "INFO", "^MEM,INIT");
    assert_false(fixture_has(*state, "of init"));
    assert_false(fixture_has(*state, "of mem"));
    assert_true(fixture_has(*state, "INFO of plan"));
}

static void
bad_level_and_subsystem_are_named(void **state)
{
    run_ranks(*state, 1, log_each_subsystem, "LOUD", "INIT,BAD");
    assert_true(fixture_has(*state, "ULYX_DEBUG=\"LOUD\" (environment)"));
    assert_true(
        fixture_has(*state, "ULYX_DEBUG_SUBSYS=\"INIT,BAD\" (environment)"));
    assert_true(fixture_has(*state, "warning of plan"));
    assert_false(fixture_has(*state, "of init"));
}

static void
file_name_takes_host_and_process(void **state)
{
    struct fixture *f = *state;
    f->file = "x-%h-%p-%q.log";
    run_ranks(f, 1, log_each_level, NULL, NULL);
    char name[512];
    snprintf(name, sizeof(name), "x-%s-%d-%%q.log", f->host, f->pid);
    read_log(f, name);
    assert_true(fixture_has(f, "warn line"));
}

static int
log_then_fork(int rank, int nranks, void *context)
{
    ULI_WARN(ULI_LOG_INIT, -1, "parent first");
    int failed = ranks_run_processes(1, log_many_lines, context, 10);
    ULI_WARN(ULI_LOG_INIT, -1, "parent again");
    (void)rank, (void)nranks;
    return failed;
}

static void
forked_child_opens_its_own_file(void **state)
{
    struct fixture *f = *state;
    f->file = "%p";
    run_ranks(f, 1, log_then_fork, NULL, NULL);
    char name[32];
    snprintf(name, sizeof(name), "%d", f->pid);
    read_log(f, name);
    assert_true(fixture_has(f, "parent first"));
    assert_true(fixture_has(f, "parent again"));
    assert_false(fixture_has(f, "of rank 0"));
}

static void
unwritable_file_falls_back_with_a_warning(void **state)
{
    struct fixture *f = *state;
    f->file = "no/such/directory";
    run_ranks(f, 1, log_each_level, NULL, NULL);
    assert_string_equal(f->text, "");
}

static void
lines_of_processes_do_not_mix(void **state)
{
    struct fixture *f = *state;
    run_ranks(f, 4, log_many_lines, NULL, NULL);
    int count = 0;
    for (char *line = strtok(f->text, "\n"); line; line = strtok(NULL, "\n")) {
        char expected[64];
        int rank, number;
        const char *tag = strstr(line, " [");
        assert_non_null(tag);
        assert_int_equal(
            sscanf(tag, " [%d] ULYX WARN line %d", &rank, &number), 2);
        snprintf(expected, sizeof(expected),
            " [%d] ULYX WARN line %03d of rank %d end", rank, number, rank);
        assert_string_equal(tag, expected);
        count++;
    }
    assert_int_equal(count, 400);
}

static int
log_long_line_and_keep_errno(int rank, int nranks, void *context)
{
    (void)rank, (void)nranks, (void)context;
    static char text[5000];
    memset(text, 'y', sizeof(text) - 1);
    errno = ENOENT;
    ULI_WARN(ULI_LOG_INIT, -1, "%s", text);
    if (!ranks_expect(errno == ENOENT))
        return 1;
    uli_error(ULYX_ERR_BUSY, "plan %d is in use", 7);
    return 0;
}

static void
long_line_is_cut_and_error_is_logged(void **state)
{
    struct fixture *f = *state;
    run_ranks(f, 1, log_long_line_and_keep_errno, NULL, NULL);
    assert_false(fixture_has(f, "plan 7"));
    run_ranks(f, 1, log_long_line_and_keep_errno, "INFO", NULL);
    char *end = strchr(f->text, '\n');
    assert_non_null(end);
    assert_in_range(end - f->text, 1000, 2047);
    assert_true(fixture_has(f, "ULYX INFO ULYX_ERR_BUSY: plan 7 is in use\n"));
}

/* ---- a function of the program's ----------------------------------------- */

struct received {
    int32_t level, rank;
    int lines;
    char text[64];
};

static void
log_receive(
    void *context, ulyx_log_level_t level, int32_t rank, const char *text)
{
    struct received *received = context;
    received->level = level;
    received->rank = rank;
    received->lines++;
    snprintf(received->text, sizeof(received->text), "%s", text);
}

static int
log_to_a_function(int rank, int nranks, void *context)
{
    struct received received = {.lines = 0}, other = {.lines = 0};
    (void)rank, (void)nranks, (void)context;
    bool good = ranks_expect(
        ulyx_log_set(log_receive, &received, 9) == ULYX_ERR_INVALID_ARGUMENT);
    good &=
        ranks_expect(!ulyx_log_set(log_receive, &received, ULYX_LOG_DEFAULT));
    ULI_WARN(ULI_LOG_MEM, 3, "first of %d", 2);
    good &= ranks_expect(
        received.lines == 1 && received.level == ULYX_LOG_WARN &&
        received.rank == 3 && !strcmp(received.text, "first of 2"));
    ULI_INFO(ULI_LOG_MEM, -1, "not asked for");
    good &= ranks_expect(received.lines == 1);
    good &= ranks_expect(!ulyx_log_set(log_receive, &other, ULYX_LOG_INFO));
    (void)uli_error(ULYX_ERR_BUSY, "plan 7 is in use");
    good &=
        ranks_expect(received.lines == 1 && other.lines == 1 &&
                     other.rank == -1 && other.level == ULYX_LOG_INFO &&
                     !strcmp(other.text, "ULYX_ERR_BUSY: plan 7 is in use"));
    good &= ranks_expect(!ulyx_log_set(NULL, NULL, ULYX_LOG_TRACE));
    ULI_WARN(ULI_LOG_MEM, -1, "back in the file");
    ULI_INFO(ULI_LOG_MEM, -1, "of no interest again");
    return !(good & ranks_expect(other.lines == 1));
}

static void
lines_go_to_a_function(void **state)
{
    struct fixture *f = *state;
    run_ranks(f, 1, log_to_a_function, NULL, NULL);
    assert_true(fixture_has(f, "ULYX WARN back in the file\n"));
    assert_false(fixture_has(f, "first"));
    assert_false(fixture_has(f, "interest"));
}

/* ---- readers that do not read -------------------------------------------- */

enum { STUCK_LINES = 3000 };

/* Reads the present content of the pipe as text; returns its length. */
static size_t
fixture_drain(int fd, struct fixture *f)
{
    size_t have = 0;
    ssize_t got;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while ((got = read(fd, f->text + have, LOG_BYTES - 1 - have)) > 0)
        have += (size_t)got;
    f->text[have] = 0;
    return have;
}

/* Counts lines, and checks that all are whole. */
static int
count_lines(const char *text)
{
    int count = 0;
    for (; *text; text = strchr(text, '\n') + 1, count++)
        if (!strchr(text, '\n') || !strstr(text, " ULYX WARN "))
            return -1;
    return count;
}

/* Standard error is a full pipe that other processes share and that no process
 * reads. */
static int
log_into_a_full_pipe(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    int ends[2], dropped = -1;
    (void)rank, (void)nranks;
    unsetenv("ULYX_DEBUG_FILE");
    if (!ranks_expect(pipe(ends) == 0 && dup2(ends[1], 2) == 2))
        return 1;
    fcntl(ends[1], F_SETPIPE_SZ, 16384);
    for (int i = 0; i < STUCK_LINES; i++)
        ULI_WARN(ULI_LOG_INIT, -1, "line %d", i);
    bool flags = !(fcntl(2, F_GETFL) & O_NONBLOCK);
    fixture_drain(ends[0], f);
    int written = count_lines(f->text);
    ULI_WARN(ULI_LOG_INIT, -1, "again");
    fixture_drain(ends[0], f);
    const char *note = strstr(f->text, "ULYX WARN ");
    if (note)
        sscanf(note, "ULYX WARN %d log lines dropped", &dropped);
    dup2(1, 2);
    return !ranks_expect(flags) + !ranks_expect(written > 10) +
           !ranks_expect(dropped == STUCK_LINES - written) +
           !ranks_expect(strstr(f->text, "ULYX WARN again\n"));
}

static void
full_pipe_never_blocks_and_its_losses_are_counted(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ranks_run_processes(1, log_into_a_full_pipe, f, 20), 0);
}

static int
log_to_nobody(int rank, int nranks, void *context)
{
    int ends[2];
    (void)rank, (void)nranks, (void)context;
    unsetenv("ULYX_DEBUG_FILE");
    if (!ranks_expect(pipe(ends) == 0 && dup2(ends[1], 2) == 2))
        return 1;
    close(ends[0]);
    for (int i = 0; i < 10; i++)
        ULI_WARN(ULI_LOG_INIT, -1, "line %d", i);
    return 0; /* not killed by SIGPIPE */
}

static void
pipe_whose_reader_is_gone_kills_nobody(void **state)
{
    assert_int_equal(ranks_run_processes(1, log_to_nobody, *state, 20), 0);
}

/* The log goes to a FIFO whose reader goes away, and to one without a
 * reader. */
static int
log_into_a_fifo(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    char path[256];
    (void)nranks;
    snprintf(path, sizeof(path), "%s/fifo", f->directory);
    int reader = rank == 0 ? open(path, O_RDONLY | O_NONBLOCK) : -1;
    setenv("ULYX_DEBUG_FILE", path, 1);
    for (int i = 0; i < (rank == 0 ? STUCK_LINES : 3); i++)
        ULI_WARN(ULI_LOG_INIT, -1, "line %d", i);
    if (rank != 0)
        return 0;
    fixture_drain(reader, f);
    close(reader);
    ULI_WARN(ULI_LOG_INIT, -1, "nobody reads");
    return !ranks_expect(count_lines(f->text) > 10);
}

static int
log_into_a_fifo_without_reader(int rank, int nranks, void *context)
{
    return log_into_a_fifo(rank + 1, nranks, context);
}

static void
fifo_as_file_never_blocks(void **state)
{
    struct fixture *f = *state;
    char path[256];
    snprintf(path, sizeof(path), "%s/fifo", f->directory);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(ranks_run_processes(1, log_into_a_fifo, f, 20), 0);
    assert_int_equal(
        ranks_run_processes(1, log_into_a_fifo_without_reader, f, 20), 0);
}

enum { FLOOD = 1000 };

static void
log_one_of_a_flood(int i)
{
    ULI_WARN_LIMITED(ULI_LOG_FAULT, -1, "stranger %d", i);
}

static int
log_a_flood(int rank, int nranks, void *context)
{
    (void)rank, (void)nranks, (void)context;
    for (int i = 0; i < FLOOD; i++)
        log_one_of_a_flood(i);
    usleep(1100000);
    log_one_of_a_flood(FLOOD);
    return 0;
}

static void
flood_is_counted(void **state)
{
    struct fixture *f = *state;
    int written = 0, left_out = 0;
    run_ranks(f, 1, log_a_flood, NULL, NULL);
    for (char *line = strtok(f->text, "\n"); line; line = strtok(NULL, "\n")) {
        int number = 0;
        const char *text = strstr(line, "ULYX WARN ");
        assert_non_null(text);
        written += strstr(text, "stranger") != NULL;
        if (sscanf(text, "ULYX WARN %d lines like the next", &number) == 1)
            left_out += number;
    }
    assert_in_range(written, 2, 20);
    assert_int_equal(written + left_out, FLOOD + 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    CASE(line_has_host_process_thread_rank_level_text),
    CASE(level_decides_what_is_written),
    CASE(default_level_is_warn),
    CASE(subsystems_select_but_never_hide_warnings),
    CASE(subsystems_with_caret_are_left_out),
    CASE(bad_level_and_subsystem_are_named),
    CASE(file_name_takes_host_and_process),
    CASE(forked_child_opens_its_own_file),
    CASE(unwritable_file_falls_back_with_a_warning),
    CASE(lines_of_processes_do_not_mix),
    CASE(long_line_is_cut_and_error_is_logged),
    CASE(lines_go_to_a_function),
    CASE(full_pipe_never_blocks_and_its_losses_are_counted),
    CASE(pipe_whose_reader_is_gone_kills_nobody),
    CASE(fifo_as_file_never_blocks),
    CASE(flood_is_counted),
};

ULI_TEST_MAIN("Log", tests)
