/* SPDX-License-Identifier: Apache-2.0
 *
 * Shell commands and their output.
 */
#ifndef SUPPORT_COMMAND_H
#define SUPPORT_COMMAND_H

#include <stddef.h>

/* Runs a command and keeps its standard output, cut to `bytes`, and the CPU
 * seconds that it took. Returns its exit code; -1: it could not be run, or a
 * signal has ended it. */
int command_run(
    const char *command, char *output_p, size_t bytes, double *cpu_s_p);

#endif
