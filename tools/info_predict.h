/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands about the cost model share: prints of its parameters, and
 * predictions as rows.
 */
#ifndef TOOLS_INFO_PREDICT_H
#define TOOLS_INFO_PREDICT_H

#include <stdbool.h>
#include <stdio.h>

#include "topology/choose/choose.h"
#include "ulyx/types.h"

void info_print_link(const struct uli_model *model, enum uli_model_class class);
void info_print_fabric(const struct uli_model *model);
void info_print_host(const struct uli_model *model);
void info_print_source(enum uli_model_source source); /* ends the line */
/* An uli_tuning_report; context is the file's path. */
void info_print_finding(void *context, int32_t line, const char *text);
const char *info_operation_name(int direction);
/* Prints the last error on stderr.
 * returns the exit code. */
int info_finish(ulyx_status_t status);

/* The most bytes that a rank must receive from others, each once. */
double info_received_bytes(
    const struct uli_demand *x, ulyx_direction_t direction);
/* Bytes per second through a NIC under a schedule that takes time_s. */
double info_nic_rate(const struct uli_model *model, const struct uli_demand *x,
    const struct uli_schedule *schedule, double time_s);

/* ---- predictions as rows (info_sweep.c) ---------------------------------- */

enum { INFO_SWEEP = 64 }; /* most numbers of nodes, or of tokens */
enum info_form { INFO_TABLE, INFO_CSV, INFO_JSON };
struct info_sweep;

/* Begins the rows on standard output. Errors: NO_MEMORY. */
ulyx_status_t info_sweep_open(enum info_form form, struct info_sweep **sweep_p);
/* Adds a row per operation and schedule that the exchange can use; algo: that
 * schedule alone, unless "". Errors: as uli_choose. */
ulyx_status_t info_sweep_add(struct info_sweep *sweep,
    const struct uli_planner *planner, const struct uli_demand_shape *shape,
    const struct uli_demand *x, const char *algo);
/* Ends the output. */
void info_sweep_close(struct info_sweep *sweep);

#endif
