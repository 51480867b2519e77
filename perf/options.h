/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two halves of the command line's reading share.
 */
#ifndef PERF_OPTIONS_H
#define PERF_OPTIONS_H

#include "perf.h"

/* A number with an optional K, M or G; false when anything is left over. */
bool perf_number(const char *text, bool suffix, double *value_p);

/* Whether the option of that long name was on the command line. */
bool perf_option_given(const struct perf_options *options, const char *name);

/* A line for readers of the report, in options->notes. */
void perf_note(struct perf_options *options, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Settles what words and defaults mean; false, with the reason on stderr, for
 * those that are unknown or contradict each other. */
bool perf_options_complete(struct perf_options *options);

#endif
