/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs with a fault planted, each in a process of its own, as what follows a
 * fault is undefined and what it leaves behind is to be gone.
 */
#ifndef TESTS_EMULATE_PLANT_FAULT_RUNS_H
#define TESTS_EMULATE_PLANT_FAULT_RUNS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* How a run ends. BROKEN, like any other end, is no result about the fault. */
enum { RUN_WELL = 0, RUN_CAUGHT = 7, RUN_BROKEN = 8 };

struct fault_runs {
    const char *const *names; /* of faults; 0 = none planted */
    int faults;               /* with 0 */
    int64_t seeds;            /* 1, 2, ...; ULYX_TEST_DRAWS scales it */
    int64_t drawn;            /* 0: all faults; else so many of them, of which
                               * ULYX_TEST_DRAWS scales the number instead */
    unsigned limit_s;
    bool astray; /* a signal that ends a run is a catch: a kernel went astray */
    /* Plants the fault and runs. */
    int (*run)(int fault, uint64_t seed);
};

/* That the fault has nothing to do with. */
#define run_must(condition)                                                    \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
            _exit(RUN_BROKEN);                                                 \
        }                                                                      \
    } while (0)

/* Assert: well with none planted, in all seeds; each fault that is run is
 * caught, in all seeds. */
void fault_runs_none_is_well(const struct fault_runs *runs);
void fault_runs_each_is_caught(const struct fault_runs *runs);

#endif
