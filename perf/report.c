/* SPDX-License-Identifier: Apache-2.0
 *
 * Where rows go: the table or CSV on standard output, JSON to a file, and a
 * progress line on a terminal's standard error.
 */
#include "report.h"

#include <stdlib.h>
#include <unistd.h>

struct perf_report {
    const struct perf_options *options;
    struct perf_json *json;
    double busbw_sum;
    int rows, checked;
    bool terminal;
};

const char *
perf_operation_name(ulyx_operation_t operation)
{
    static const char *const names[] = {"s2h", "h2s", "s2h_adj", "h2s_adj"};

    return names[operation];
}

struct perf_report *
perf_report_open(
    const struct perf_options *options, int32_t nranks, int argc, char **argv)
{
    struct perf_report *report = calloc(1, sizeof(*report));

    if (report == NULL)
        return NULL;
    report->options = options;
    report->terminal = options->progress && isatty(STDERR_FILENO);
    if (options->json_file != NULL)
        report->json = perf_json_open(options, nranks, argc, argv);
    if (options->csv)
        perf_csv_header(stdout);
    else
        perf_text_header(stdout, options, nranks, argc, argv);
    fflush(stdout);
    return report;
}

void
perf_report_row(struct perf_report *report, const struct perf_row *row)
{
    if (report->terminal)
        fprintf(stderr, "\r\033[K");
    if (report->options->csv)
        perf_csv_row(stdout, row);
    else
        perf_text_row(stdout, row);
    fflush(stdout);
    if (report->json != NULL)
        perf_json_row(report->json, row);
    report->busbw_sum += row->busbw;
    report->checked += row->wrong >= 0;
    report->rows++;
}

void
perf_report_progress(struct perf_report *report, int done, int of)
{
    if (report->terminal && done < of)
        fprintf(stderr, "\r\033[K# row %d of %d ...", done + 1, of);
}

double
perf_report_average(const struct perf_report *report)
{
    return report->rows > 0 ? report->busbw_sum / report->rows : 0;
}

bool
perf_report_close(struct perf_report *report, int64_t wrong)
{
    bool ok = true;

    if (report->terminal)
        fprintf(stderr, "\r\033[K");
    if (!report->options->csv)
        perf_text_footer(
            stdout, wrong, perf_report_average(report), report->checked > 0);
    if (report->options->json_file != NULL)
        ok = perf_json_close(report->json, report->options->json_file, wrong,
            perf_report_average(report));
    free(report);
    return ok;
}
