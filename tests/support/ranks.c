/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks as forked processes or as threads. A signal makes a rank over the limit
 * print its stack; then the rank is killed. Threads cannot be killed one by
 * one, so a hung thread ends the program, after all hung threads have been
 * named.
 */
#include "support/ranks.h"

#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "support/hosts.h"

#define STACK_SIGNAL (SIGRTMIN + 5)
#define STACK_DEPTH  40
/* The time that a hung rank has to print its stack, and that a victim has to
 * end by itself after all other ranks have ended. */
#define STACK_WAIT_S  0.3
#define VICTIM_WAIT_S 1.0

static const int fatal_signals[] = {SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS};
#define FATAL_COUNT (sizeof(fatal_signals) / sizeof(fatal_signals[0]))

static _Thread_local int my_rank = -1;

bool
ranks_expect_at(bool condition, const char *text, const char *file, int line)
{
    if (!condition)
        fprintf(stderr, "rank %d: %s:%d: not true: %s\n", my_rank, file, line,
            text);
    return condition;
}

static void
pause_ms(int ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* ---- stacks of hung ranks ------------------------------------------------ */

static void
print_stack(int signal_number)
{
    (void)signal_number;
    int saved = errno;
    void *frames[STACK_DEPTH];
    char title[64];
    int length = snprintf(title, sizeof(title), "stack of rank %d:\n", my_rank);
    ssize_t wrote = write(STDERR_FILENO, title, (size_t)length);
    (void)wrote;
    int depth = backtrace(frames, STACK_DEPTH);
    backtrace_symbols_fd(frames, depth, STDERR_FILENO);
    errno = saved;
}

static void
install_stack_printer(void)
{
    void *frame[1];
    backtrace(frame, 1); /* loads a library now, not in the signal handler */
    struct sigaction action = {.sa_handler = print_stack};
    action.sa_flags = SA_RESTART;
    sigaction(STACK_SIGNAL, &action, NULL);
}

/* cmocka turns fatal signals into jumps within the test's thread. No rank runs
 * in that thread, so a fatal signal must end the process. */
static void
take_fatal_signals(struct sigaction *saved)
{
    for (size_t i = 0; i < FATAL_COUNT; i++) {
        struct sigaction plain = {.sa_handler = SIG_DFL};
        sigaction(fatal_signals[i], &plain, saved ? &saved[i] : NULL);
    }
}

static void
restore_fatal_signals(const struct sigaction *saved)
{
    for (size_t i = 0; i < FATAL_COUNT; i++)
        sigaction(fatal_signals[i], &saved[i], NULL);
}

/* ---- threads ------------------------------------------------------------- */

struct thread_rank {
    pthread_t thread;
    rank_fn body;
    void *context;
    int rank, nranks, result;
    atomic_bool done;
};

static void *
thread_main(void *argument)
{
    struct thread_rank *self = argument;
    my_rank = self->rank;
    self->result = self->body(self->rank, self->nranks, self->context);
    atomic_store(&self->done, true);
    return NULL;
}

static void
end_hung_threads(struct thread_rank *ranks, int nranks, double limit_s)
{
    for (int r = 0; r < nranks; r++) {
        if (atomic_load(&ranks[r].done))
            continue;
        fprintf(stderr, "rank %d of %d (a thread) hung: over %g s\n", r, nranks,
            limit_s);
        pthread_kill(ranks[r].thread, STACK_SIGNAL);
        pause_ms((int)(STACK_WAIT_S * 1000));
    }
    fprintf(stderr, "the test program ends here\n");
    fflush(NULL);
    _exit(1);
}

static void
wait_for_threads(struct thread_rank *ranks, int nranks, double limit_s)
{
    uli_deadline_t deadline = uli_deadline_in(limit_s);
    for (int r = 0; r < nranks; r++) {
        while (!atomic_load(&ranks[r].done)) {
            if (uli_deadline_over(deadline))
                end_hung_threads(ranks, nranks, limit_s);
            pause_ms(1);
        }
    }
}

int
ranks_run_threads(int nranks, rank_fn body, void *context, double limit_s)
{
    struct thread_rank *ranks = calloc((size_t)nranks + 1, sizeof(*ranks));
    struct sigaction saved[FATAL_COUNT];
    install_stack_printer();
    take_fatal_signals(saved);
    for (int r = 0; r < nranks; r++) {
        ranks[r].body = body;
        ranks[r].context = context;
        ranks[r].rank = r;
        ranks[r].nranks = nranks;
        if (pthread_create(&ranks[r].thread, NULL, thread_main, &ranks[r])) {
            fprintf(stderr, "rank %d: no thread\n", r);
            abort();
        }
    }
    wait_for_threads(ranks, nranks, limit_s);
    int failed = 0;
    for (int r = 0; r < nranks; r++) {
        pthread_join(ranks[r].thread, NULL);
        if (ranks[r].result)
            fprintf(stderr, "rank %d of %d failed\n", r, nranks);
        failed += ranks[r].result != 0;
    }
    restore_fatal_signals(saved);
    free(ranks);
    return failed;
}

/* ---- processes ----------------------------------------------------------- */

struct processes {
    int nranks, victim;
    double limit_s;
    pid_t *pids;   /* in shared memory */
    int *statuses; /* as waitpid returns them */
    bool *ended;
    int running;
};

/* Calls exit rather than _exit, because exit writes leak checks and coverage
 * counters. */
static void
child_main(int gate, int rank, const struct processes *group, rank_fn body,
    void *context, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    take_fatal_signals(NULL);
    install_stack_printer();
    my_rank = rank;
    hosts_enter(rank, group->nranks);
    char nothing;
    while (read(gate, &nothing, 1) < 0 && errno == EINTR)
        ;
    close(gate);
    exit(body(rank, group->nranks, context) ? 1 : 0);
}

/* All bodies start together, once the last process exists. Each waits at a
 * pipe, the gate: reading it ends when all write ends are closed. */
static void
start_processes(struct processes *group, rank_fn body, void *context)
{
    int gate[2];
    pid_t parent = getpid();
    fflush(NULL);
    if (pipe(gate)) {
        perror("pipe");
        abort();
    }
    for (int r = 0; r < group->nranks; r++) {
        pid_t pid = fork();
        if (pid < 0) {
            perror("fork");
            abort();
        }
        if (pid == 0) {
            close(gate[1]);
            child_main(gate[0], r, group, body, context, parent);
        }
        __atomic_store_n(&group->pids[r], pid, __ATOMIC_RELEASE);
        group->running++;
    }
    close(gate[1]);
    close(gate[0]);
}

static void
processes_reap(struct processes *group)
{
    for (int r = 0; r < group->nranks; r++) {
        if (group->ended[r])
            continue;
        pid_t got = waitpid(group->pids[r], &group->statuses[r], WNOHANG);
        if (got == group->pids[r] || (got < 0 && errno == ECHILD)) {
            group->ended[r] = true;
            group->running--;
        }
    }
}

static bool
only_victim_left(const struct processes *group)
{
    return group->running == 1 && group->victim >= 0 &&
           !group->ended[group->victim];
}

static void
wait_until(struct processes *group, uli_deadline_t deadline)
{
    uli_deadline_t victim_deadline = INT64_MAX;
    for (processes_reap(group); group->running > 0; processes_reap(group)) {
        if (uli_deadline_over(deadline) || uli_deadline_over(victim_deadline))
            return;
        if (only_victim_left(group) && victim_deadline == INT64_MAX)
            victim_deadline = uli_deadline_in(VICTIM_WAIT_S);
        pause_ms(1);
    }
}

/* Names the hung ranks, makes them print their stacks, and kills them. Returns
 * their number; the victim does not count. */
static int
kill_hung(struct processes *group)
{
    int hung = 0;
    for (int r = 0; r < group->nranks; r++) {
        if (group->ended[r] || r == group->victim)
            continue;
        hung++;
        fprintf(stderr, "rank %d of %d (process %d) hung: over %g s\n", r,
            group->nranks, (int)group->pids[r], group->limit_s);
        kill(group->pids[r], STACK_SIGNAL);
        pause_ms((int)(STACK_WAIT_S * 1000));
    }
    for (int r = 0; r < group->nranks; r++) {
        if (group->ended[r])
            continue;
        kill(group->pids[r], SIGKILL);
        waitpid(group->pids[r], NULL, 0);
    }
    return hung;
}

static int
count_failed(const struct processes *group)
{
    int failed = 0;
    for (int r = 0; r < group->nranks; r++) {
        int status = group->statuses[r];
        if (r == group->victim || !group->ended[r] || status == 0)
            continue;
        failed++;
        if (WIFSIGNALED(status))
            fprintf(stderr, "rank %d of %d was killed by signal %d (%s)\n", r,
                group->nranks, WTERMSIG(status), strsignal(WTERMSIG(status)));
        else
            fprintf(stderr, "rank %d of %d ended with %d\n", r, group->nranks,
                WEXITSTATUS(status));
    }
    return failed;
}

int
ranks_run_processes_victim(int nranks, rank_fn body, void *context,
    double limit_s, int victim, pid_t *pids_p)
{
    struct processes group = {.nranks = nranks, .victim = victim};
    size_t count = (size_t)nranks + 1;
    group.limit_s = limit_s;
    group.statuses = calloc(count, sizeof(*group.statuses));
    group.ended = calloc(count, sizeof(*group.ended));
    group.pids = pids_p;
    start_processes(&group, body, context);
    wait_until(&group, uli_deadline_in(limit_s));
    int failed = kill_hung(&group) + count_failed(&group);
    free(group.statuses);
    free(group.ended);
    return failed;
}

int
ranks_run_processes(int nranks, rank_fn body, void *context, double limit_s)
{
    size_t bytes = sizeof(pid_t) * ((size_t)nranks + 1);
    pid_t *pids = ranks_shared(bytes);
    int failed =
        ranks_run_processes_victim(nranks, body, context, limit_s, -1, pids);
    ranks_shared_free(pids, bytes);
    return failed;
}

bool
ranks_listed(const char *text, const char *words, int rank)
{
    const char *at = strstr(text, words);
    if (!at)
        return false;
    at += strlen(words);
    at += *at == 's';
    for (char *end; *at; at = end + 2) {
        long first = strtol(at, &end, 10), last = first;
        if (end == at)
            return false;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        if (rank >= first && rank <= last)
            return true;
        if (strncmp(end, ", ", 2) != 0)
            return false;
    }
    return false;
}

void
ranks_kill_in(pid_t victim, int64_t us)
{
    pid_t pid = fork();
    if (pid == 0) {
        usleep((useconds_t)us);
        kill(victim, SIGKILL);
        _exit(0);
    }
}

void *
ranks_shared(size_t bytes)
{
    void *memory = mmap(
        NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        abort();
    }
    return memory;
}

void
ranks_shared_free(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}

bool
ranks_await_stopped(pid_t pid)
{
    char path[64], state = 0;
    uli_deadline_t deadline = uli_deadline_in(30);
    bool there = true;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    while (there && state != 'T' && !uli_deadline_over(deadline)) {
        FILE *file = fopen(path, "r");
        there = file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
        if (file)
            fclose(file);
        usleep(500);
    }
    return there && state == 'T';
}
