/* SPDX-License-Identifier: Apache-2.0
 *
 * Shell commands and their output.
 */
#ifndef SUPPORT_COMMAND_H
#define SUPPORT_COMMAND_H

#include <stddef.h>

/* Runs a command and returns its exit code, or -1 if the command could not be
 * run or a signal ended it. Stores its standard output, cut to `bytes`, and the
 * CPU seconds that it took. */
int command_run(
    const char *command, char *output_p, size_t bytes, double *cpu_s_p);

#endif
