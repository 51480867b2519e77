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

/* Runs nranks bodies and waits. Returns the number of ranks that failed
 * (non-zero, killed by a signal, or over the limit: then the rest are killed
 * and the hung ranks are named). Threads share context; each process has a copy
 * from fork, unless context lies in memory from ranks_shared(). */
int ranks_run_threads(int nranks, rank_fn body, void *context, double limit_s);
int ranks_run_processes(
    int nranks, rank_fn body, void *context, double limit_s);

/* As ranks_run_processes, but rank `victim` may end in any way (a test kills
 * it). pids_p[nranks] lies in shared memory and is filled before bodies start,
 * by atomic stores: a thread of the test reads it with ranks_pid. */
int ranks_run_processes_victim(int nranks, rank_fn body, void *context,
    double limit_s, int victim, pid_t *pids_p);

static inline pid_t
ranks_pid(const pid_t *pids, int rank)
{
    return __atomic_load_n(&pids[rank], __ATOMIC_ACQUIRE);
}

/* Kills the process after so many microseconds, from a process of its own. */
void ranks_kill_in(pid_t victim, int64_t us);

/* Whether the rank is in the list after `words` in the text, as "3" or "3,
 * 5-7". */
bool ranks_listed(const char *text, const char *words, int rank);

/* Zeroed anonymous memory that forked ranks share. */
void *ranks_shared(size_t bytes);
void ranks_shared_free(void *memory, size_t bytes);

/* Waits until a process, which need not be a child, is stopped. False: it has
 * ended, or has not stopped within half a minute. */
bool ranks_await_stopped(pid_t pid);

#endif
