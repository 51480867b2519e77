/* SPDX-License-Identifier: Apache-2.0
 *
 * See fault_runs.h.
 */
#include "emulate/plant/fault_runs.h"

#include <signal.h>
#include <sys/wait.h>
#include "support/random.h"
#include "support/test.h"

static int
run_once(const struct fault_runs *runs, int fault, uint64_t seed)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
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

void
fault_runs_none_is_well(const struct fault_runs *runs)
{
    for (int64_t seed = 1; seed <= test_draws(runs->seeds); seed++)
        assert_int_equal(run_once(runs, 0, (uint64_t)seed), RUN_WELL);
}

void
fault_runs_each_is_caught(const struct fault_runs *runs)
{
    int missed = 0;
    for (int fault = 1; fault < runs->faults; fault++)
        for (int64_t seed = 1; seed <= test_draws(runs->seeds); seed++) {
            int result = run_once(runs, fault, (uint64_t)seed);
            if (result == RUN_CAUGHT)
                continue;
            print_error("%s is %s in seed %d\n", runs->names[fault],
                result == RUN_WELL ? "not caught" : "not tried", (int)seed);
            missed++;
        }
    assert_int_equal(missed, 0);
}
