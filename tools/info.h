/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands of ulyx_info that have files of their own. Each receives the
 * arguments after its name and returns the program's exit code: 0; 1 for an
 * error that it has printed; 6 for bad arguments.
 */
#ifndef TOOLS_INFO_H
#define TOOLS_INFO_H

#include <jansson.h>
#include <stdint.h>

#include "ulyx/ulyx.h"

struct uli_topology;

int info_topology(int argc, char **argv);
int info_predict(int argc, char **argv);
int info_tuning(int argc, char **argv);
int info_ranks(int argc, char **argv);
int info_report(int argc, char **argv);

/* Print what the text of `plan` and of `topology` shows, as one line of JSON on
 * standard output. plan: the plan of any rank. order, work: the words of
 * --order and --work. ranks: the ranks to place on the node. return the exit
 * code. */
int info_plan_json(
    const ulyx_plan_t *plan, const char *order, const char *work);
int info_topology_json(const struct uli_topology *topology, int32_t ranks);

/* The version of this build, "1.2.3". */
const char *info_version(void);
/* Prints the value on standard output and releases it. NULL stands for a lack
 * of memory, which is reported as an error. returns the exit code. */
int info_write_json(json_t *root);

#endif
