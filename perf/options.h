/* SPDX-License-Identifier: Apache-2.0
 *
 * What options.c and options_check.c share.
 */
#ifndef PERF_OPTIONS_H
#define PERF_OPTIONS_H

#include "perf.h"

/* A number with an optional K, M or G; false when anything follows it. */
bool perf_number(const char *text, bool suffix, double *value_p);

/* Was the option with this long name on the command line? */
bool perf_option_given(const struct perf_options *options, const char *name);

/* Adds a line for readers of the report to options->notes. */
void perf_note(struct perf_options *options, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Resolves words and defaults; false, with the reason on stderr, for unknown or
 * contradictory ones. */
bool perf_options_complete(struct perf_options *options);

#endif
