/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs with planted faults. Each runs in a process of its own, because what
 * follows a fault is undefined, and what it leaves behind must not reach the
 * next run.
 */
#ifndef TESTS_EMULATE_PLANT_FAULT_RUNS_H
#define TESTS_EMULATE_PLANT_FAULT_RUNS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* How a run ends. RUN_BROKEN, and any other end, means that the run says
 * nothing about the fault. */
enum { RUN_WELL = 0, RUN_CAUGHT = 7, RUN_BROKEN = 8 };

struct fault_runs {
    const char *const *names; /* names of the faults; 0 = no fault */
    int faults;               /* how many, with fault 0 */
    /* seeds 1, 2, ...; ULYX_TEST_DRAWS scales their number */
    int64_t seeds;
    /* faults to run; 0: all of them. If not 0, ULYX_TEST_DRAWS scales this
     * number instead of the seeds */
    int64_t drawn;
    unsigned limit_s;
    bool astray; /* whether a signal that ends a run counts as caught */
    /* Runs one case with the fault planted. */
    int (*run)(int fault, uint64_t seed);
};

/* For conditions that do not depend on the fault. */
#define run_must(condition)                                                    \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
            _exit(RUN_BROKEN);                                                 \
        }                                                                      \
    } while (0)

/* Assert that with no fault planted all seeds succeed, and that each fault that
 * is run is caught in all seeds. */
void fault_runs_none_is_well(const struct fault_runs *runs);
void fault_runs_each_is_caught(const struct fault_runs *runs);

#endif
