/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts the ranks of a test, as threads or as processes, with a time limit.
 */
#ifndef TESTS_SUPPORT_RANKS_H
#define TESTS_SUPPORT_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A rank's body. Returns 0 when all is well; it may also call
 * ranks_expect(...) and return what that gave. cmocka's assertions do not
 * work here: a rank is not the test's thread. */
typedef int (*rank_fn)(int rank, int nranks, void *context);

/* Prints what failed, with rank, file and line, and returns condition. */
#define ranks_expect(condition)                                                \
    ranks_expect_at((condition), #condition, __FILE__, __LINE__)
bool ranks_expect_at(
    bool condition, const char *text, const char *file, int line);

/* Runs nranks bodies and waits. Returns the number of ranks that failed
 * (non-zero, killed by a signal, or over the limit: then the rest are killed
 * and the test is told who hung). context is shared by threads; each process
 * has a copy from fork unless it lies in memory from ranks_shared(). */
int ranks_run_threads(int nranks, rank_fn body, void *context, double limit_s);
int ranks_run_processes(
    int nranks, rank_fn body, void *context, double limit_s);

/* The same, but rank `victim` may end in any way (a test kills it).
 * pids_p[nranks] lies in shared memory and is filled before bodies start, by
 * atomic stores: a thread of the test reads it with ranks_pid. */
int ranks_run_processes_victim(int nranks, rank_fn body, void *context,
    double limit_s, int victim, pid_t *pids_p);

static inline pid_t
ranks_pid(const pid_t *pids, int rank)
{
    return __atomic_load_n(&pids[rank], __ATOMIC_ACQUIRE);
}

/* Kills the process so many microseconds from now, which a process of its own
 * waits for. */
void ranks_kill_in(pid_t victim, int64_t us);

/* Is the rank in the list that follows the words, as "3" or "3, 5-7"? */
bool ranks_listed(const char *text, const char *words, int rank);

/* Zeroed anonymous memory that forked ranks share. */
void *ranks_shared(size_t bytes);
void ranks_shared_free(void *memory, size_t bytes);

/* Waits until a process, which is not a child and stops, stands still. False:
 * it has ended, or has not stopped within half a minute. */
bool ranks_await_stopped(pid_t pid);

#endif
