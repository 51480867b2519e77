/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl-tests' table: the same first columns in the same places, ours at the
 * end of the line, so that scripts that split on blanks keep working. In-place
 * is not implemented, neither timed nor averaged: N/A.
 */
#include "report.h"

#include <inttypes.h>

void
perf_text_header(FILE *out, const struct perf_options *o, int32_t nranks,
    int argc, char **argv)
{
    fprintf(out, "# ulyx_perf version %d.%d.%d ranks %d (%d threads x %d)\n",
        ULYX_VERSION_MAJOR, ULYX_VERSION_MINOR, ULYX_VERSION_PATCH, nranks,
        o->threads, o->ranks_per_thread);
    fprintf(out, "# Collective test starting:");
    for (int i = 0; i < argc; i++)
        fprintf(out, " %s", argv[i]);
    fprintf(out,
        "\n# batch %" PRId64 " dtype %s order %s split %s memory %s "
        "iters %d warmup %d agg %d average %d check %d\n",
        o->batch, o->dtype, o->order, o->split,
        o->register_memory ? "window" : "malloc", o->iterations, o->warmups,
        o->aggregate, o->average, o->check);
    fprintf(out,
        "# time = median of blocks; tensors rotate through sets larger than "
        "the caches\n"
        "# vs_memcpy: time of memcpy (or streaming copy) of the same bytes / "
        "our time; vs_mpi, vs_mpiw: pack + MPI_Alltoall(v), MPI_Alltoallw\n");
    fprintf(out, "#%39s %31s %31s\n", "", "out-of-place", "in-place");
    fprintf(out,
        "#%11s %12s %8s %6s %6s %7s %6s %6s %6s %7s %6s %6s %6s  "
        "%-13s %-7s %9s %8s %8s %6s %9s %7s %7s\n",
        "size", "count", "type", "redop", "root", "time", "algbw", "busbw",
        "#wrong", "time", "algbw", "busbw", "#wrong", "model", "op", "S", "min",
        "p99", "cv", "vs_memcpy", "vs_mpi", "vs_mpiw");
    fprintf(out,
        "#%11s %12s %8s %6s %6s %7s %6s %6s %6s %7s %6s %6s %6s  "
        "%-13s %-7s %9s %8s %8s %6s\n",
        "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
        "(GB/s)", "(GB/s)", "", "", "", "", "(us)", "(us)", "");
}

static void
ratio(FILE *out, bool has, double value, int width)
{
    if (has)
        fprintf(out, " %*.2f", width, value);
    else
        fprintf(out, " %*s", width, "N/A");
}

void
perf_text_row(FILE *out, const struct perf_row *row)
{
    const struct perf_stat *t = &row->time;

    fprintf(out, "%12" PRId64 " %12" PRId64 " %8s %6s %6d %7.1f %6.2f %6.2f",
        row->size_bytes, row->count, row->type,
        row->one->operation == ULYX_SEQ_TO_HEAD_ADJOINT ? "sum" : "none", -1,
        t->shown * 1e6, row->algbw, row->busbw);
    if (row->wrong < 0)
        fprintf(out, " %6s", "N/A");
    else
        fprintf(out, " %6" PRId64, row->wrong);
    fprintf(out, " %7s %6s %6s %6s  %-13s %-7s %9" PRId64, "N/A", "N/A", "N/A",
        "N/A", row->one->name, perf_operation_name(row->one->operation),
        row->seq);
    fprintf(out, " %8.1f %8.1f %6.3f", t->minimum * 1e6, t->p99 * 1e6, t->cv);
    ratio(out, row->has[PERF_VS_MEMCPY], row->ratio[PERF_VS_MEMCPY], 9);
    ratio(out, row->has[PERF_VS_MPI], row->ratio[PERF_VS_MPI], 7);
    ratio(out, row->has[PERF_VS_MPI], row->ratio_typed, 7);
    fprintf(out, "\n");
}

void
perf_text_footer(FILE *out, int64_t wrong, double average, bool checked)
{
    if (checked)
        fprintf(out, "# Out of bounds values : %" PRId64 " %s\n", wrong,
            wrong == 0 ? "OK" : "FAILED");
    else
        fprintf(out, "# Out of bounds values : N/A (unchecked)\n");
    fprintf(out, "# Avg bus bandwidth    : %g\n", average);
    fprintf(out, "# Collective test concluded: ulyx_perf\n");
}
