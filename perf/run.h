/* SPDX-License-Identifier: Apache-2.0
 *
 * One process's part in a run, and the steps that lead to its rows.
 */
#ifndef PERF_RUN_H
#define PERF_RUN_H

#include "perf.h"

enum { PERF_MAX_CASES = 256 };

struct perf_run {
    struct perf_options options;
    ulyx_launch_t launch; /* how this process was started */
    struct perf_case cases[PERF_MAX_CASES];
    int ncases, argc;
    char **argv;
    int32_t nranks, first_rank; /* of all, and this process's first */
    ulyx_comm_t **comms;        /* [threads * ranks_per_thread] */
    struct perf_report *report; /* in rank 0's process */
};

/* Fills run->cases from the options; false when a name is unknown. */
bool perf_run_choose(struct perf_run *run);

/* The rows of one case: begun with all zero. next sets seq to S and `one` to
 * the case itself, and returns true, or false after the last. Sizes that round
 * to the same S make one row. In nccl-tests' form a shape that the user has not
 * chosen gets fewer heads and elements, where that gives a small size exactly.
 * A row that needs more than memory_bytes, of the machine, ends the sweep with
 * left_out_bytes = its size. */
struct perf_sweep {
    bool begun;
    double bytes;
    int64_t seq, left_out_bytes;
    int requested, exact; /* sizes; rows of exactly the requested size */
    struct perf_case one;
};
bool perf_sweep_next(const struct perf_run *run, const struct perf_case *one,
    int64_t memory_bytes, struct perf_sweep *sweep);

/* Makes the communicators of this process's ranks.
 * returns a perf_exit, with the reason on stderr. */
int perf_run_connect(struct perf_run *run);

/* Makes and prints the plans of all ranks in this process.
 * returns a perf_exit. */
int perf_run_dry(struct perf_run *run);

#endif
