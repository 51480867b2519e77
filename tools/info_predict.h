/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commands about the cost model share: printing its parameters, and
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
/* A uli_tuning_report that prints the finding; context is the file's path. */
void info_print_finding(void *context, int32_t line, const char *text);
const char *info_operation_name(int direction);
/* Prints the last error on stderr, unless the status is SUCCESS.
 * returns the exit code. */
int info_finish(ulyx_status_t status);

/* The most bytes that any rank must receive from others; a byte counts once per
 * rank that receives it. */
double info_received_bytes(
    const struct uli_demand *x, ulyx_direction_t direction);
/* Bytes per second through a NIC under a schedule that takes time_s. */
double info_nic_rate(const struct uli_model *model, const struct uli_demand *x,
    const struct uli_schedule *schedule, double time_s);

/* ---- predictions as rows (info_sweep.c) ---------------------------------- */

enum { INFO_SWEEP = 64 }; /* at most so many numbers of nodes, and of tokens */
enum info_form { INFO_TABLE, INFO_CSV, INFO_JSON };
struct info_sweep;

/* Begins the rows on standard output. Errors: NO_MEMORY. */
ulyx_status_t info_sweep_open(enum info_form form, struct info_sweep **sweep_p);
/* Adds rows. INFO_TABLE: one row, of the chosen schedule. INFO_CSV, INFO_JSON:
 * a row per operation and per schedule that the exchange can use; algo: this
 * schedule alone, "": all. Errors: as uli_choose. */
ulyx_status_t info_sweep_add(struct info_sweep *sweep,
    const struct uli_planner *planner, const struct uli_demand_shape *shape,
    const struct uli_demand *x, const char *algo);
/* Ends the output. */
void info_sweep_close(struct info_sweep *sweep);

#endif
