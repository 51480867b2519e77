/* SPDX-License-Identifier: Apache-2.0
 *
 * CSV: one header line, then a line a row. Empty = not measured.
 */
#include "report.h"

#include <inttypes.h>

void
perf_csv_header(FILE *out)
{
    fprintf(out,
        "model,op,seq,size_bytes,count,dtype,bus_bytes,time_us,mean_us,min_us,"
        "p99_us,cv,algbw_gbs,busbw_gbs,wrong");
    for (int c = 0; c < PERF_COLUMNS; c++)
        fprintf(out, ",%s", perf_ratios[c].name);
    fprintf(out, "\n");
}

void
perf_csv_row(FILE *out, const struct perf_row *row)
{
    const struct perf_stat *t = &row->time;

    fprintf(out,
        "%s,%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%s,%" PRId64
        ",%.3f,%.3f,%.3f,%.3f,%.4f,%.4f,%.4f,",
        row->one->name, perf_operation_name(row->one->operation), row->seq,
        row->size_bytes, row->count, row->type, row->bus_bytes, t->shown * 1e6,
        t->mean * 1e6, t->minimum * 1e6, t->p99 * 1e6, t->cv, row->algbw,
        row->busbw);
    if (row->wrong >= 0)
        fprintf(out, "%" PRId64, row->wrong);
    for (int c = 0; c < PERF_COLUMNS; c++) {
        double ratio;
        bool has = perf_row_ratio(row, (enum perf_column)c, &ratio);

        fprintf(out, has ? ",%.4f" : ",", ratio);
    }
    fprintf(out, "\n");
}
