/* SPDX-License-Identifier: Apache-2.0
 *
 * --tune: measures the links of the machines on which it runs, fits them, and
 * writes a tuning file (docs/TOPOLOGY.md).
 */
#ifndef PERF_TUNE_H
#define PERF_TUNE_H

#include "run.h"
#include "topology/choose/choose.h"

enum { PERF_TUNE_SIZES = 13 };

/* Exchanges of two ranks: q, k and v of rows[i] tokens per rank, bytes[i] from
 * each to the other. */
struct perf_curve {
    int64_t rows[PERF_TUNE_SIZES];
    double bytes[PERF_TUNE_SIZES], seconds[PERF_TUNE_SIZES];
};

/* What was measured, at rank 0. */
struct perf_tuning {
    bool has_nic, has_near;
    struct perf_curve nic, near; /* between nodes, and within one */
    int32_t abreast;   /* ranks of a node that sent at once; 1: not measured */
    double slowdown;   /* their time / time of one rank that sends alone */
    char between[160]; /* which ranks were measured, for a comment */
};

/* The case (heads, dimension, type) that is measured for nranks ranks. */
struct perf_case perf_tune_case(int32_t nranks);

/* Writes the file.
 * returns PERF_OK, or PERF_INTERNAL with the reason on stderr. */
int perf_tune_write(const char *path, const struct perf_tuning *tuning);

/* Seconds that the planner predicts for an exchange of `rows` rows per rank.
 * Errors: those of uli_choose. */
ulyx_status_t perf_tune_predict(const struct perf_options *options,
    const struct ulyx_comm *comm, const struct uli_planner *planner,
    int64_t rows, const char *algo, double *seconds_p);

/* Measures, writes the file and shows its errors; every rank calls it.
 * returns a perf_exit. */
int perf_tune(const struct perf_options *options, struct perf_rank *rank);

#endif
