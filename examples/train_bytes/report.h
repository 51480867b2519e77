/* SPDX-License-Identifier: Apache-2.0
 *
 * The output of a run: a line per step, a progress line on a terminal, and at
 * the end loss, speed, bytes sent and memory.
 */
#ifndef TRAIN_REPORT_H
#define TRAIN_REPORT_H

#include "options.h"

struct report {
    const struct options *options;
    bool terminal;
    double begin_s; /* time at the begin of the first step */
};

/* Results of the whole run: sums over ranks, and values per rank. */
struct report_totals {
    double loss, entropy;
    double dist_bytes, sum_bytes; /* sent by all ranks */
    const double *peak_bytes;     /* [ranks] */
};

double report_clock_s(void);
/* Largest resident memory of this process so far, in bytes. */
double report_peak_bytes(void);

void report_begin(struct report *report_p, const struct options *options,
    int64_t values, double entropy, int64_t corpus_bytes);
void report_step(const struct report *report, int64_t step, double loss,
    double norm, double step_s);
void report_end(
    const struct report *report, const struct report_totals *totals);

#endif
