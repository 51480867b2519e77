/* SPDX-License-Identifier: Apache-2.0
 *
 * CSV: one header line, then a line per row. An empty field was not measured. A
 * row contains everything that it depends on, so that rows of several runs can
 * be in one file. New columns are added at the end; only the columns of
 * --percentiles come after them.
 */
#include "report.h"

#include <inttypes.h>
#include <string.h>

void
perf_csv_header(
    FILE *out, const struct perf_options *o, const struct perf_summary *summary)
{
    static const struct perf_case nothing;
    const struct perf_row none = {.one = &nothing};
    struct perf_fact facts[PERF_FACTS];
    int count = perf_row_facts(o, summary, &none, facts);

    fprintf(out,
        "model,op,seq,size_bytes,count,dtype,bus_bytes,time_us,mean_us,min_us,"
        "p99_us,cv,algbw_gbs,busbw_gbs,wrong");
    for (int c = 0; c < PERF_LATER; c++)
        fprintf(out, ",%s", perf_ratios[c].name);
    for (int f = 0; f < count; f++)
        fprintf(out, ",%s", facts[f].name);
    for (int c = PERF_LATER; c < PERF_COLUMNS; c++)
        fprintf(out, ",%s", perf_ratios[c].name);
    for (int p = 0; p < o->npercents; p++)
        fprintf(out, ",p%g_us", o->percents[p]);
    fprintf(out, "\n");
}

/* Writes a comma and the text. A text with a comma, a quote or a line break is
 * put in quotes, and quotes in it are doubled. */
static void
put_text(FILE *out, const char *text)
{
    if (text[strcspn(text, ",\"\r\n")] == 0) {
        fprintf(out, ",%s", text);
        return;
    }
    fputs(",\"", out);
    for (; *text != 0; text++)
        fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
    fputc('"', out);
}

static void
put_facts(FILE *out, const struct perf_options *o,
    const struct perf_summary *summary, const struct perf_row *row)
{
    struct perf_fact facts[PERF_FACTS];
    int count = perf_row_facts(o, summary, row, facts);

    for (int f = 0; f < count; f++)
        if (facts[f].text)
            put_text(out, facts[f].text);
        else
            fprintf(out, ",%" PRId64, facts[f].number);
}

static void
put_ratios(FILE *out, const struct perf_row *row, int first, int end)
{
    for (int c = first; c < end; c++) {
        double ratio;
        bool has = perf_row_ratio(row, (enum perf_column)c, &ratio);

        fprintf(out, has ? ",%.4f" : ",", ratio);
    }
}

void
perf_csv_row(FILE *out, const struct perf_options *o,
    const struct perf_summary *summary, const struct perf_row *row)
{
    const struct perf_stat *t = &row->time;

    fprintf(out,
        "%s,%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%s,%" PRId64
        ",%.3f,%.3f,%.3f,%.3f,%.4f,%.4f,%.4f,",
        row->one->name, perf_direction_name(row->one->direction), row->seq,
        row->size_bytes, row->count, row->one->dtype.name, row->bus_bytes,
        t->shown * 1e6, t->mean * 1e6, t->minimum * 1e6, t->p99 * 1e6, t->cv,
        row->algbw, row->busbw);
    if (row->wrong >= 0)
        fprintf(out, "%" PRId64, row->wrong);
    put_ratios(out, row, 0, PERF_LATER);
    put_facts(out, o, summary, row);
    put_ratios(out, row, PERF_LATER, PERF_COLUMNS);
    for (int p = 0; p < o->npercents; p++)
        fprintf(out, ",%.3f", t->percentiles[p] * 1e6);
    fprintf(out, "\n");
}
