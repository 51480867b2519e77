/* SPDX-License-Identifier: Apache-2.0
 *
 * The report: a table or CSV on standard output, JSON in a file, and a progress
 * line on standard error if that is a terminal.
 */
#include "report.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct perf_report {
    const struct perf_options *options;
    int argc;
    char **argv;
    struct perf_json *json;
    struct perf_summary summary;  /* average: the sum until close divides it */
    double *ratios[PERF_COLUMNS]; /* of the rows that have them */
    int nratios[PERF_COLUMNS];
    bool terminal;
};

#define RATIO(member) offsetof(struct perf_row, member)
const struct perf_ratio perf_ratios[PERF_COLUMNS] = {
    [PERF_MEMCPY] = {"vs_memcpy", PERF_VS_MEMCPY, RATIO(ratio[PERF_VS_MEMCPY])},
    [PERF_BEST] = {"vs_best", PERF_VS_BEST, RATIO(ratio[PERF_VS_BEST])},
    [PERF_STREAM] = {"of_bw", PERF_VS_BEST, RATIO(ratio_stream)},
    [PERF_FLAG] = {"vs_flag", PERF_VS_FLAG, RATIO(ratio[PERF_VS_FLAG])},
    [PERF_MPI] = {"vs_mpi", PERF_VS_MPI, RATIO(ratio[PERF_VS_MPI])},
    [PERF_MPI_TYPED] = {"vs_mpiw", PERF_VS_MPI, RATIO(ratio_typed)},
    [PERF_COPY] = {"vs_copy", PERF_VS_COPY, RATIO(ratio[PERF_VS_COPY])},
    [PERF_PERMUTE] = {"vs_permute", PERF_VS_PERMUTE,
        RATIO(ratio[PERF_VS_PERMUTE])},
    [PERF_NCCL] = {"vs_nccl", PERF_VS_NCCL, RATIO(ratio[PERF_VS_NCCL])},
    [PERF_NCCL_EACH] = {"vs_nccl_each", PERF_VS_NCCL, RATIO(ratio_each)}};

const char *
perf_direction_name(ulyx_direction_t direction)
{
    static const char *const names[ULYX_DIRECTIONS] = {
        "s2h", "h2s", "s2h_adj", "h2s_adj"};

    return names[direction];
}

const char *
perf_version(void)
{
    static char text[32];

    snprintf(text, sizeof(text), "%d.%d.%d", ULYX_VERSION_MAJOR,
        ULYX_VERSION_MINOR, ULYX_VERSION_PATCH);
    return text;
}

int
perf_row_facts(const struct perf_options *o, const struct perf_summary *s,
    const struct perf_row *row, struct perf_fact facts[PERF_FACTS])
{
    const struct perf_fact all[] = {{"schedule", row->schedule, 0},
        {"transport", row->transport, 0}, {"verb", row->verb, 0},
        {"ranks", NULL, s->nranks}, {"nodes", NULL, s->place.nodes},
        {"heads", NULL, row->one->heads},
        {"kv_heads", NULL, row->one->kv_heads}, {"dim", NULL, row->one->dim_qk},
        {"dim_v", NULL, row->one->dim_v}, {"batch", NULL, o->batch},
        {"replicated", NULL, o->replicated}, {"order", o->order, 0},
        {"work", o->work, 0}, {"memory", o->memory, 0},
        {"windows", NULL, o->register_memory}, {"unalign", NULL, o->unalign},
        {"threads", NULL, o->threads},
        {"ranks_per_thread", NULL, o->ranks_per_thread},
        {"average", NULL, o->average}, {"version", perf_version(), 0},
        {"host", s->place.host, 0}, {"cpu", s->place.cpu, 0},
        {"cores", NULL, s->place.cores}};

    _Static_assert(sizeof(all) / sizeof(all[0]) <= PERF_FACTS, "room for all");
    memcpy(facts, all, sizeof(all));
    return (int)(sizeof(all) / sizeof(all[0]));
}

bool
perf_row_ratio(
    const struct perf_row *row, enum perf_column column, double *ratio_p)
{
    const struct perf_ratio *c = &perf_ratios[column];

    memcpy(ratio_p, (const char *)row + c->offset, sizeof(*ratio_p));
    return row->has[c->versus];
}

struct perf_report *
perf_report_open(
    const struct perf_options *options, int32_t nranks, int argc, char **argv)
{
    struct perf_report *report = calloc(1, sizeof(*report));

    if (!report)
        return NULL;
    report->options = options;
    report->argc = argc;
    report->argv = argv;
    report->summary.nranks = nranks;
    report->terminal = options->progress && isatty(STDERR_FILENO);
    if (options->json_file &&
        !(report->json = perf_json_open(options, nranks, argc, argv))) {
        free(report);
        return NULL;
    }
    return report;
}

void
perf_report_begin(struct perf_report *report, const struct perf_place *places)
{
    report->summary.place = places[0];
    if (report->options->csv)
        perf_csv_header(stdout, report->options, &report->summary);
    else
        perf_text_header(stdout, report->options, report->summary.nranks,
            places, report->argc, report->argv);
    if (report->options->notes[0] != 0)
        fprintf(report->options->csv ? stderr : stdout, "%s",
            report->options->notes);
    fflush(stdout);
    if (report->json)
        perf_json_places(report->json, places, report->summary.nranks);
}

static void
keep_ratios(struct perf_report *report, const struct perf_row *row)
{
    for (int c = 0; c < PERF_COLUMNS; c++) {
        double ratio, *grown;
        size_t n = (size_t)report->nratios[c];

        if (!perf_row_ratio(row, (enum perf_column)c, &ratio))
            continue;
        grown = realloc(report->ratios[c], (n + 1) * sizeof(*grown));
        if (!grown)
            continue;
        grown[n] = ratio;
        report->ratios[c] = grown;
        report->nratios[c]++;
    }
}

void
perf_report_row(struct perf_report *report, const struct perf_row *row)
{
    if (report->terminal)
        fprintf(stderr, "\r\033[K");
    if (report->options->csv)
        perf_csv_row(stdout, report->options, &report->summary, row);
    else
        perf_text_row(stdout, report->options, row);
    fflush(stdout);
    if (report->json)
        perf_json_row(report->json, report->options, &report->summary, row);
    keep_ratios(report, row);
    report->summary.average += row->busbw;
    report->summary.checked += row->wrong >= 0;
    report->summary.wrong += row->wrong > 0 ? row->wrong : 0;
    report->summary.rows++;
}

void
perf_report_progress(struct perf_report *report, int done, int of)
{
    if (report->terminal && done < of)
        fprintf(stderr, "\r\033[K# row %d of %d ...", done + 1, of);
}

void
perf_report_note(struct perf_report *report, const char *format, ...)
{
    FILE *out = report->options->csv ? stderr : stdout;
    va_list arguments;

    va_start(arguments, format);
    fprintf(out, "# ");
    vfprintf(out, format, arguments);
    fprintf(out, "\n");
    va_end(arguments);
}

double
perf_report_average(const struct perf_report *report)
{
    int rows = report->summary.rows;

    return rows > 0 ? report->summary.average / rows : 0;
}

int64_t
perf_report_wrong(const struct perf_report *report)
{
    return report->summary.wrong;
}

bool
perf_report_close(struct perf_report *report)
{
    struct perf_summary *s = &report->summary;
    bool ok = true;

    if (report->terminal)
        fprintf(stderr, "\r\033[K");
    s->average = perf_report_average(report);
    for (int c = 0; c < PERF_COLUMNS; c++) {
        int n = report->nratios[c];
        double *ratios = report->ratios[c];

        s->has[c] = n > 0;
        if (n == 0)
            continue;
        s->median[c] = perf_median(ratios, n);
        free(ratios);
    }
    if (report->json)
        ok = perf_json_close(report->json, s);
    if (!report->options->csv)
        perf_text_footer(stdout, s);
    free(report);
    return ok;
}
