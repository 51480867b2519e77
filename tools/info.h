/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of ulyx_info that have files of their own. Each gets the arguments
 * after its name and returns the program's exit code: 0; 1 for an error that it
 * has printed; 6 for bad arguments.
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

/* The facts of the text, as one line of JSON on standard output. plan: of any
 * rank; order and work: the words of the options. */
int info_plan_json(
    const ulyx_plan_t *plan, const char *order, const char *work);
int info_topology_json(const struct uli_topology *topology, int32_t ranks);

/* "1.2.3", of this build. */
const char *info_version(void);
/* Writes the value and releases it; NULL: memory ran out, which is an error. */
int info_write_json(json_t *root);

#endif
