/* SPDX-License-Identifier: Apache-2.0
 *
 * The forms of a report (text, CSV, JSON), each in a file of its own.
 */
#ifndef PERF_REPORT_REPORT_H
#define PERF_REPORT_REPORT_H

#include <stddef.h>
#include <stdio.h>

#include "perf.h"

/* The ratio columns. */
enum perf_column {
    PERF_MEMCPY,
    PERF_MPI,
    PERF_MPI_TYPED,
    PERF_COPY,
    PERF_PERMUTE,
    PERF_NCCL,
    PERF_NCCL_EACH,
    PERF_LATER, /* in CSV, this column and the next ones come after the facts */
    PERF_BEST = PERF_LATER,
    PERF_STREAM,
    PERF_FLAG,
    PERF_COLUMNS
};
/* A ratio column: its comparison, and its place in a row. */
struct perf_ratio {
    const char *name;
    enum perf_versus versus;
    size_t offset; /* of a double in struct perf_row */
};
extern const struct perf_ratio perf_ratios[PERF_COLUMNS];
/* Results over all rows of a run. median: of each ratio over the rows that have
 * it; has is false where no row has it. */
struct perf_summary {
    int rows, checked;
    int32_t nranks;
    struct perf_place place; /* rank 0's */
    int64_t wrong;
    double average; /* of busbw, GB/s */
    bool has[PERF_COLUMNS];
    double median[PERF_COLUMNS];
};

/* A fact that is needed to understand a row of CSV or JSON without the run:
 * what the row depends on and what its other columns do not have.
 * perf_row_facts returns their number, in the order of the columns. */
struct perf_fact {
    const char *name, *text; /* text NULL: a number */
    int64_t number;
};
enum { PERF_FACTS = 24 };
int perf_row_facts(const struct perf_options *options,
    const struct perf_summary *summary, const struct perf_row *row,
    struct perf_fact facts_p[PERF_FACTS]);

void perf_text_header(FILE *out, const struct perf_options *options,
    int32_t nranks, const struct perf_place *places, int argc, char **argv);
void perf_text_row(
    FILE *out, const struct perf_options *options, const struct perf_row *row);
void perf_text_footer(FILE *out, const struct perf_summary *summary);

void perf_csv_header(FILE *out, const struct perf_options *options,
    const struct perf_summary *summary);
void perf_csv_row(FILE *out, const struct perf_options *options,
    const struct perf_summary *summary, const struct perf_row *row);

/* NULL when the file cannot be opened, with the reason on stderr. */
struct perf_json;
struct perf_json *perf_json_open(
    const struct perf_options *options, int32_t nranks, int argc, char **argv);
void perf_json_places(
    struct perf_json *json, const struct perf_place *places, int32_t nranks);
void perf_json_row(struct perf_json *json, const struct perf_options *options,
    const struct perf_summary *summary, const struct perf_row *row);
bool perf_json_close(
    struct perf_json *json, const struct perf_summary *summary);

const char *perf_direction_name(ulyx_direction_t direction);
const char *perf_version(void); /* "1.2.3" */
bool perf_row_ratio(
    const struct perf_row *row, enum perf_column column, double *ratio_p);

#endif
