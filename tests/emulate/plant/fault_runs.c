/* SPDX-License-Identifier: Apache-2.0
 *
 * See fault_runs.h.
 */
#include "emulate/plant/fault_runs.h"

#include <signal.h>
#include <sys/wait.h>
#include "support/random.h"
#include "support/test.h"

/* Restores the signals, so that a signal ends the child and does not become a
 * failed test of cmocka. */
static void
take_signals_back(void)
{
    static const int signals[] = {SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS};
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        (void)signal(signals[i], SIG_DFL);
}

static int
run_once(const struct fault_runs *runs, int fault, uint64_t seed)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        take_signals_back();
        alarm(runs->limit_s);
        _exit(runs->run(fault, seed));
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return RUN_BROKEN;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    return runs->astray && WTERMSIG(status) != SIGALRM ? RUN_CAUGHT
                                                       : RUN_BROKEN;
}

static int64_t
runs_seeds(const struct fault_runs *runs)
{
    return runs->drawn ? runs->seeds : test_draws(runs->seeds);
}

static int
runs_faults(const struct fault_runs *runs)
{
    int64_t all = runs->faults - 1;
    int64_t drawn = runs->drawn ? test_draws(runs->drawn) : all;
    return (int)(drawn < all ? drawn : all);
}

/* Returns the n-th of `count` faults, which are evenly apart. The seed selects
 * the first. */
static int
drawn_fault(const struct fault_runs *runs, int count, int n)
{
    int all = runs->faults - 1;
    int start = (int)(test_seed(1) % (uint64_t)all);
    return 1 + (start + (int)((int64_t)n * all / count)) % all;
}

void
fault_runs_none_is_well(const struct fault_runs *runs)
{
    for (int64_t seed = 1; seed <= runs_seeds(runs); seed++)
        assert_int_equal(run_once(runs, 0, (uint64_t)seed), RUN_WELL);
}

void
fault_runs_each_is_caught(const struct fault_runs *runs)
{
    int missed = 0, count = runs_faults(runs);
    for (int n = 0; n < count; n++)
        for (int64_t seed = 1; seed <= runs_seeds(runs); seed++) {
            int fault = drawn_fault(runs, count, n);
            int result = run_once(runs, fault, (uint64_t)seed);
            if (result == RUN_CAUGHT)
                continue;
            print_error("%s is %s in seed %d\n", runs->names[fault],
                result == RUN_WELL ? "not caught" : "not tried", (int)seed);
            missed++;
        }
    assert_int_equal(missed, 0);
}
