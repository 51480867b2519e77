/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of ulyx_info that have a file of their own. Each gets the
 * arguments after its name and returns the program's exit code: 0, 1 for an
 * error that it has printed, 6 for bad arguments.
 */
#ifndef TOOLS_INFO_H
#define TOOLS_INFO_H

int info_topology(int argc, char **argv);
int info_predict(int argc, char **argv);
int info_tuning(int argc, char **argv);

#endif
