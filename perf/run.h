/* SPDX-License-Identifier: Apache-2.0
 *
 * What one process does in a run: cases, sizes, communicators.
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
    int32_t nranks, first_rank; /* of all processes; of this process */
    ulyx_comm_t **comms;        /* [threads * ranks_per_thread] */
    struct perf_report *report; /* in rank 0's process */
};

/* Fills run->cases from the options; false when a name is unknown. */
bool perf_run_choose(struct perf_run *run);

/* The sizes of one case; a sweep begins as all zero. perf_sweep_next goes to
 * the next size, and sets seq to S and `one` to the case; false after the last
 * size. Sizes that are rounded to the same S make one row. With --nccl-format,
 * a shape that the user has not chosen gets fewer heads and elements where this
 * gives a small size exactly. A size that needs more than memory_bytes on a
 * machine ends the sweep, and left_out_bytes is then this size. */
struct perf_sweep {
    bool begun;
    double bytes;
    int64_t seq, left_out_bytes;
    int requested, exact; /* sizes so far; those that needed no rounding */
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
