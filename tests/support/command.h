/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands of the shell and what they say.
 */
#ifndef SUPPORT_COMMAND_H
#define SUPPORT_COMMAND_H

#include <stddef.h>

/* Runs it and keeps what it writes to its standard output, cut to bytes, and
 * the seconds of CPU that it took. returns its exit code; -1: it could not be
 * run, or a signal has ended it. */
int command_run(
    const char *command, char *said_p, size_t bytes, double *cpu_s_p);

#endif
