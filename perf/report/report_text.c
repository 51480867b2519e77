/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of nccl-tests: its thirteen fields come first and in its order,
 * those of ulyx_perf after them, so that scripts that split lines at blanks
 * keep working. Exchanges in place do not exist: their fields are N/A and not
 * part of the average. --wide adds fields at the end.
 *
 * With --nccl-format there are only the thirteen fields. The in-place fields
 * then repeat the out-of-place numbers, because most programs that read this
 * table expect numbers there; a comment in the table says so. The average is
 * the same.
 */
#include "report.h"

#include <inttypes.h>
#include <string.h>

static void
describe_columns(FILE *out, const struct perf_options *o, int32_t nranks)
{
    if (nranks == 1)
        fprintf(out,
            "# one rank has no peers, so busbw is 0: add --procs 2 for two "
            "processes, or -t 2 for two threads\n");
    fprintf(out,
        "# time: one operation, the median of blocks; the tensors rotate "
        "through sets larger than the caches\n"
        "# busbw: most bytes that one rank must receive from other ranks / "
        "time\n");
    if (o->nccl_format)
        fprintf(out,
            "# in-place is not offered: its columns repeat the out-of-place "
            "ones (--nccl-format)\n");
    if (o->cuda)
        fprintf(out,
            "# times are between events of each rank's stream, the longest "
            "counts (--average 3)\n");
    if (o->replays > 0)
        fprintf(out,
            "# the operations of a block are a graph, launched %d times\n",
            o->replays);
    if (o->vs[PERF_VS_MEMCPY])
        fprintf(out,
            "# vs_memcpy: time of a plain copy of the same bytes by the same "
            "ranks / time of ulyx; 1 is the limit of memory\n");
    if (o->vs[PERF_VS_BEST])
        fprintf(out,
            "# vs_best: the same for the fastest of plain copies and of ulyx's "
            "copies, which may copy several pages side by side\n"
            "# of_bw: memory bandwidth of ulyx / memory bandwidth of copies "
            "that all ranks make at once, each between two arrays of 32 MiB\n");
    if (o->vs[PERF_VS_FLAG])
        fprintf(out,
            "# vs_flag: time of plain copies, each followed by one flag from "
            "every rank to every other, / time of ulyx; the limit of small "
            "calls\n");
    if (o->vs[PERF_VS_MPI])
        fprintf(out,
            "# vs_mpi, vs_mpiw: time of pack + MPI_Alltoall(v) + unpack, and "
            "of MPI_Alltoallw, / time of ulyx\n");
    if (o->vs[PERF_VS_COPY])
        fprintf(out,
            "# vs_copy: time of one device copy of the same bytes by the same "
            "ranks / time of ulyx; 1 is the limit of memory\n");
    if (o->vs[PERF_VS_PERMUTE])
        fprintf(out,
            "# vs_permute: time of pack, device copy and unpack of one tensor "
            "after another, without waits, / time of ulyx\n");
    if (o->vs[PERF_VS_NCCL])
        fprintf(out,
            "# vs_nccl, vs_nccl_each: time of ulyx's schedule over NCCL, and "
            "of permute + all-to-all of NCCL + permute for each tensor, / time "
            "of ulyx\n");
    fprintf(out, "#\n");
}

static bool
is_wide(const struct perf_options *o)
{
    return !o->nccl_format && (o->wide || o->per_iteration);
}

static void
column_names(FILE *out, const struct perf_options *o)
{
    fprintf(out, "#%*s %*s\n", 76, "out-of-place", 28, "in-place");
    fprintf(out, "#%11s %12s %8s %6s %6s %7s %6s %6s %6s %7s %6s %6s %6s",
        "size", "count", "type", "redop", "root", "time", "algbw", "busbw",
        "#wrong", "time", "algbw", "busbw", "#wrong");
    if (!o->nccl_format)
        fprintf(out, " %-12s %-7s %7s %-8s", "model", "op", "S", "schedule");
    for (int c = 0; c < PERF_COLUMNS; c++)
        if (o->vs[perf_ratios[c].versus])
            fprintf(out, " %s", perf_ratios[c].name);
    if (is_wide(o))
        fprintf(out, " %8s %8s %8s %6s", "min(us)", "max(us)", "p99(us)", "cv");
    for (int p = 0; p < o->npercents; p++)
        fprintf(out, " p%g(us)", o->percents[p]);
    fprintf(out, "\n#%11s %12s %8s %6s %6s %7s %6s %6s %6s %7s %6s %6s\n",
        "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
        "(GB/s)", "(GB/s)");
}

void
perf_text_header(FILE *out, const struct perf_options *o, int32_t nranks,
    const struct perf_place *places, int argc, char **argv)
{
    fprintf(out, "# ulyx_perf version %d.%d.%d\n", ULYX_VERSION_MAJOR,
        ULYX_VERSION_MINOR, ULYX_VERSION_PATCH);
    fprintf(out, "# Collective test starting:");
    for (int i = 0; i < argc; i++)
        fprintf(out, " %s", i == 0 ? "ulyx_perf" : argv[i]);
    fprintf(out,
        "\n# nRanks %d nThreads %d nRanksPerThread %d minBytes %" PRId64
        " maxBytes %" PRId64,
        nranks, o->threads, o->ranks_per_thread, o->min_bytes, o->max_bytes);
    if (o->step_factor > 0)
        fprintf(out, " step: %g(factor)", o->step_factor);
    else
        fprintf(out, " step: %" PRId64 "(bytes)", o->step_bytes);
    fprintf(out,
        "\n# warmup iters: %d iters: %d agg iters: %d validation: %d "
        "average: %d blocking: %d\n",
        o->warmups, o->iterations, o->aggregate, o->check, o->average,
        o->blocking);
    fprintf(out,
        "# batch %" PRId64 " dtype %s order %s work %s replicated %" PRId64
        " memory %s\n#\n# Using devices\n",
        o->batch, o->dtype, o->order, o->work, o->replicated,
        o->cuda              ? o->register_memory ? "device windows" : "device"
        : o->register_memory ? "windows"
                             : "malloc");
    for (int32_t r = 0; r < nranks; r++)
        fprintf(out,
            "#  Rank %2d Group  0 Pid %6" PRId64 " on %10s device %s "
            "thread %2" PRId64 "\n",
            r, places[r].pid, places[r].host, o->cuda ? "cuda" : "host",
            places[r].thread);
    fprintf(out, "#\n");
    describe_columns(out, o, nranks);
    column_names(out, o);
}

/* Prints the ratios, each as wide as the name of its column. */
static void
row_ratios(FILE *out, const struct perf_row *row)
{
    for (int c = 0; c < PERF_COLUMNS; c++) {
        double value;

        if (perf_row_ratio(row, (enum perf_column)c, &value))
            fprintf(out, " %*.2f", (int)strlen(perf_ratios[c].name), value);
    }
}

/* The width of the column's name in the header. */
static int
percentile_width(double percent)
{
    return snprintf(NULL, 0, "p%g(us)", percent);
}

void
perf_text_row(
    FILE *out, const struct perf_options *o, const struct perf_row *row)
{
    const struct perf_stat *t = &row->time;

    fprintf(out, "%12" PRId64 " %12" PRId64 " %8s %6s %6d %7.1f %6.2f %6.2f",
        row->size_bytes, row->count, row->one->dtype.name,
        row->one->direction == ULYX_SEQ_TO_HEAD_ADJOINT ? "sum" : "none", -1,
        t->shown * 1e6, row->algbw, row->busbw);
    if (row->wrong < 0)
        fprintf(out, " %6s", "N/A");
    else
        fprintf(out, " %6" PRId64, row->wrong);
    if (o->nccl_format) {
        fprintf(out, " %7.1f %6.2f %6.2f %6s\n", t->shown * 1e6, row->algbw,
            row->busbw, "N/A");
        return;
    }
    fprintf(out, " %7s %6s %6s %6s %-12s %-7s %7" PRId64 " %-8s", "N/A", "N/A",
        "N/A", "N/A", row->one->name, perf_direction_name(row->one->direction),
        row->seq, row->schedule);
    row_ratios(out, row);
    if (is_wide(o))
        fprintf(out, " %8.1f %8.1f %8.1f %6.3f", t->minimum * 1e6,
            t->maximum * 1e6, t->p99 * 1e6, t->cv);
    for (int p = 0; p < o->npercents; p++)
        fprintf(out, " %*.1f", percentile_width(o->percents[p]),
            t->percentiles[p] * 1e6);
    fprintf(out, "\n");
}

void
perf_text_footer(FILE *out, const struct perf_summary *s)
{
    if (s->checked > 0)
        fprintf(out, "# Out of bounds values : %" PRId64 " %s\n", s->wrong,
            s->wrong == 0 ? "OK" : "FAILED");
    else
        fprintf(out, "# Out of bounds values : N/A (unchecked)\n");
    fprintf(out, "# Avg bus bandwidth    : %g\n", s->average);
    fprintf(out, "#\n# Collective test concluded: ulyx_perf\n");
    fprintf(out, "# Summary: %d rows on %d ranks, ", s->rows, s->nranks);
    if (s->checked > 0)
        fprintf(out, "%" PRId64 " wrong elements", s->wrong);
    else
        fprintf(out, "unchecked");
    for (int c = 0; c < PERF_COLUMNS; c++)
        if (s->has[c])
            fprintf(out, ", median %s %.2f", perf_ratios[c].name, s->median[c]);
    fprintf(out, "\n");
}
