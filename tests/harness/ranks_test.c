/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions that start ranks: what counts as a failed rank, limits,
 * victims, shared memory.
 */
#include "support/ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "support/test.h"

#define LIMIT_S 20

typedef int (*runner)(int, rank_fn, void *, double);
static const runner runners[] = {ranks_run_threads, ranks_run_processes};

/* ---- bodies -------------------------------------------------------------- */

static int
count_up(int rank, int nranks, void *context)
{
    atomic_fetch_add((atomic_int *)context, 1 + 100 * (rank == nranks - 1));
    return 0;
}

static int
fail_on_odd(int rank, int nranks, void *context)
{
    (void)nranks, (void)context;
    return ranks_expect(rank % 2 == 0) ? 0 : 1;
}

static int
end_badly(int rank, int nranks, void *context)
{
    (void)nranks, (void)context;
    if (rank == 1)
        raise(SIGSEGV);
    if (rank == 2)
        exit(3);
    return 0;
}

static int
sleep_on_rank_one(int rank, int nranks, void *context)
{
    (void)nranks, (void)context;
    while (rank == 1)
        pause();
    return 0;
}

static int
stop_on_rank_one(int rank, int nranks, void *context)
{
    (void)nranks, (void)context;
    if (rank == 1)
        raise(SIGSTOP);
    return 0;
}

struct hunt {
    pid_t *pids;
    atomic_int ended;
};

static int
kill_rank_two(int rank, int nranks, void *context)
{
    struct hunt *hunt = context;
    if (rank == 0 && kill(hunt->pids[2], SIGKILL))
        return 1;
    while (rank == 2)
        pause();
    if (hunt->pids[nranks - 1] == 0 || hunt->pids[rank] != getpid())
        return 1;
    atomic_fetch_add(&hunt->ended, 1);
    return 0;
}

/* ---- tests --------------------------------------------------------------- */

static void
every_rank_runs_once(void **fixture)
{
    (void)fixture;
    for (size_t i = 0; i < 2; i++) {
        atomic_int *count = ranks_shared(sizeof(*count));
        assert_int_equal(atomic_load(count), 0);
        assert_int_equal(runners[i](7, count_up, count, LIMIT_S), 0);
        assert_int_equal(atomic_load(count), 107);
        ranks_shared_free(count, sizeof(*count));
    }
}

static void
failed_ranks_are_counted(void **fixture)
{
    (void)fixture;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(runners[i](5, fail_on_odd, NULL, LIMIT_S), 2);
        assert_int_equal(runners[i](1, fail_on_odd, NULL, LIMIT_S), 0);
        assert_int_equal(runners[i](0, fail_on_odd, NULL, LIMIT_S), 0);
    }
}

static void
crashed_and_exited_processes_have_failed(void **fixture)
{
    (void)fixture;
    assert_int_equal(ranks_run_processes(4, end_badly, NULL, LIMIT_S), 2);
}

static void
hung_process_is_killed_and_counted(void **fixture)
{
    (void)fixture;
    int64_t begin = uli_clock_ns();
    assert_int_equal(ranks_run_processes(3, sleep_on_rank_one, NULL, 0.3), 1);
    assert_true(uli_clock_ns() - begin >= 300 * INT64_C(1000000));
}

static void
stopped_process_is_killed_and_counted(void **fixture)
{
    (void)fixture;
    assert_int_equal(ranks_run_processes(3, stop_on_rank_one, NULL, 0.3), 1);
}

static void
killed_victim_is_not_counted(void **fixture)
{
    (void)fixture;
    struct hunt *hunt = ranks_shared(sizeof(*hunt));
    hunt->pids = ranks_shared(4 * sizeof(pid_t));
    int failed = ranks_run_processes_victim(
        4, kill_rank_two, hunt, LIMIT_S, 2, hunt->pids);
    assert_int_equal(failed, 0);
    assert_int_equal(atomic_load(&hunt->ended), 3);
    ranks_shared_free(hunt->pids, 4 * sizeof(pid_t));
    ranks_shared_free(hunt, sizeof(*hunt));
}

/* A victim that no test kills must not delay the end until the limit. */
static void
stopped_victim_is_ended_after_the_others(void **fixture)
{
    (void)fixture;
    pid_t *pids = ranks_shared(3 * sizeof(*pids));
    int failed =
        ranks_run_processes_victim(3, stop_on_rank_one, NULL, 3600, 1, pids);
    assert_int_equal(failed, 0);
    assert_int_equal(kill(pids[1], 0), -1);
    ranks_shared_free(pids, 3 * sizeof(*pids));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_rank_runs_once),
    cmocka_unit_test(failed_ranks_are_counted),
    cmocka_unit_test(crashed_and_exited_processes_have_failed),
    cmocka_unit_test(hung_process_is_killed_and_counted),
    cmocka_unit_test(stopped_process_is_killed_and_counted),
    cmocka_unit_test(killed_victim_is_not_counted),
    cmocka_unit_test(stopped_victim_is_ended_after_the_others),
};

ULI_TEST_MAIN("Ranks", tests)
