/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts the ranks of a test, as threads or as processes, with a time limit.
 */
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A rank's body. Returns 0 on success; it may also call ranks_expect(...) and
 * return the result. cmocka's assertions do not work here, because a rank does
 * not run in the test's thread. */
typedef int (*rank_fn)(int rank, int nranks, void *context);

/* If the condition is false, prints it with rank, file and line. Returns the
 * condition. */
#define ranks_expect(condition)                                                \
    ranks_expect_at((condition), #condition, __FILE__, __LINE__)
bool ranks_expect_at(
    bool condition, const char *text, const char *file, int line);

/* Runs nranks bodies and waits for them. Returns the number of ranks that
 * failed: those that returned non-zero, were killed by a signal, or did not end
 * within the limit. At the limit the hung ranks are named and killed. Threads
 * share context; each process has a copy of it from fork, unless context lies
 * in memory from ranks_shared(). */
int ranks_run_threads(int nranks, rank_fn body, void *context, double limit_s);
int ranks_run_processes(
    int nranks, rank_fn body, void *context, double limit_s);

/* As ranks_run_processes, but rank `victim`, which a test kills, may end in any
 * way. pids_p[nranks] lies in shared memory. It is filled by atomic stores
 * before bodies start; a thread of the test reads it with ranks_pid. */
int ranks_run_processes_victim(int nranks, rank_fn body, void *context,
    double limit_s, int victim, pid_t *pids_p);

static inline pid_t
ranks_pid(const pid_t *pids, int rank)
{
    return __atomic_load_n(&pids[rank], __ATOMIC_ACQUIRE);
}

/* Kills the process after so many microseconds. A forked process does this. */
void ranks_kill_in(pid_t victim, int64_t us);

/* Returns whether the text has the rank in the list that follows `words`, for
 * example "3" or "3, 5-7". */
bool ranks_listed(const char *text, const char *words, int rank);

/* Zeroed anonymous memory that forked ranks share. */
void *ranks_shared(size_t bytes);
void ranks_shared_free(void *memory, size_t bytes);

/* Waits until a process is stopped; the process need not be a child. Returns
 * false if the process has ended, or has not stopped within half a minute. */
bool ranks_await_stopped(pid_t pid);

#endif
