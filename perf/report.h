/* SPDX-License-Identifier: Apache-2.0
 *
 * The ways a report is written; one file each.
 */
#ifndef PERF_REPORT_H
#define PERF_REPORT_H

#include <stdio.h>

#include "perf.h"

void perf_text_header(FILE *out, const struct perf_options *options,
    int32_t nranks, int argc, char **argv);
void perf_text_row(FILE *out, const struct perf_row *row);
void perf_text_footer(FILE *out, int64_t wrong, double average, bool checked);

void perf_csv_header(FILE *out);
void perf_csv_row(FILE *out, const struct perf_row *row);

struct perf_json;
struct perf_json *perf_json_open(
    const struct perf_options *options, int32_t nranks, int argc, char **argv);
void perf_json_row(struct perf_json *json, const struct perf_row *row);
bool perf_json_close(
    struct perf_json *json, const char *path, int64_t wrong, double average);

const char *perf_operation_name(ulyx_operation_t operation);

#endif
