/* SPDX-License-Identifier: Apache-2.0
 *
 * What options.c and options_check.c share.
 */
#ifndef PERF_OPTIONS_H
#define PERF_OPTIONS_H

#include "perf.h"

/* Reads a number, with suffix also one with K, M or G (KB, MB, GB) after it;
 * false: the text has another form. */
bool perf_number(const char *text, bool suffix, double *value_p);

/* Was the option with this long name on the command line? */
bool perf_option_given(const struct perf_options *options, const char *name);

/* Adds a line for readers of the report to options->notes. */
void perf_note(struct perf_options *options, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Resolves the words of the options, and sets defaults; false, with the reason
 * on stderr, for words that are unknown or contradict each other. */
bool perf_options_complete(struct perf_options *options);

#endif
