/* SPDX-License-Identifier: Apache-2.0
 *
 * One row: warm-ups, then blocks of back-to-back operations. Blocks of ulyx and
 * of the comparators alternate, so that other load of the machine affects all
 * of them alike. A block's time is from the first rank's start to the last
 * rank's end, so that it contains every rank's wait for a core; --average 0 to
 * 2 use the durations of single ranks instead. The row's time is the median
 * over blocks.
 */
#include "perf.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system/clock.h"

enum { BLOCKS = 10 };

/* A comparator runs in turn with the schedules in each block, where
 * options->vs[versus] is set. The row's column has the comparator's time
 * divided by the time of ulyx. Of several comparators with the same column, the
 * fastest counts, block by block. */
struct comparator {
    enum perf_versus versus;
    perf_comparator_fn run;
    int variant;
    size_t column; /* offset of a double in struct perf_row */
};

#define COLUMN(field) offsetof(struct perf_row, field)
static const struct comparator comparators[] = {
    {PERF_VS_MEMCPY, perf_run_memcpy, PERF_COPY_LIBC,
        COLUMN(ratio[PERF_VS_MEMCPY])},
    {PERF_VS_MEMCPY, perf_run_memcpy, PERF_COPY_STREAMED,
        COLUMN(ratio[PERF_VS_MEMCPY])},
    {PERF_VS_BEST, perf_run_memcpy, PERF_COPY_LIBC,
        COLUMN(ratio[PERF_VS_BEST])},
    {PERF_VS_BEST, perf_run_memcpy, PERF_COPY_STREAMED,
        COLUMN(ratio[PERF_VS_BEST])},
    {PERF_VS_BEST, perf_run_memcpy, PERF_COPY_LANES,
        COLUMN(ratio[PERF_VS_BEST])},
    {PERF_VS_BEST, perf_run_memcpy, PERF_COPY_LANES_ONCE,
        COLUMN(ratio[PERF_VS_BEST])},
    {PERF_VS_BEST, perf_run_memcpy, PERF_COPY_LANES_PLAIN,
        COLUMN(ratio[PERF_VS_BEST])},
    {PERF_VS_BEST, perf_run_stream, PERF_COPY_STREAMED, COLUMN(ratio_stream)},
    {PERF_VS_BEST, perf_run_stream, PERF_COPY_LANES, COLUMN(ratio_stream)},
    {PERF_VS_FLAG, perf_run_flag, PERF_COPY_LIBC, COLUMN(ratio[PERF_VS_FLAG])},
    {PERF_VS_FLAG, perf_run_flag, PERF_COPY_LANES_PLAIN,
        COLUMN(ratio[PERF_VS_FLAG])},
    /* variant: derived datatypes */
    {PERF_VS_MPI, perf_run_mpi, false, COLUMN(ratio[PERF_VS_MPI])},
    {PERF_VS_MPI, perf_run_mpi, true, COLUMN(ratio_typed)},
    {PERF_VS_COPY, perf_run_copy, false, COLUMN(ratio[PERF_VS_COPY])},
    {PERF_VS_PERMUTE, perf_run_permute, false, COLUMN(ratio[PERF_VS_PERMUTE])},
    /* variant: one tensor at a time */
    {PERF_VS_NCCL, perf_run_nccl, false, COLUMN(ratio[PERF_VS_NCCL])},
    {PERF_VS_NCCL, perf_run_nccl, true, COLUMN(ratio_each)},
};
#undef COLUMN

/* A runner is a schedule (below PERF_ALGOS) or a comparator. */
enum {
    COMPARATORS = sizeof(comparators) / sizeof(comparators[0]),
    RUNNERS = PERF_ALGOS + COMPARATORS
};

struct samples {
    double *times[RUNNERS]; /* [blocks]; NULL: not selected */
    int blocks;
};

ulyx_status_t
perf_execute(struct perf_rank *rank, ulyx_plan_t *plan, int32_t tensor)
{
    void *src[PERF_TENSORS], *dst[PERF_TENSORS];

    perf_rank_pointers(rank, &rank->src, rank->turn, src);
    perf_rank_pointers(rank, &rank->dst, rank->turn, dst);
    return ulyx_reshuffle_execute(plan, rank->direction,
        (const void *const *)src + tensor, dst + tensor, rank->stream);
}

/* Selects the schedule's next set of tensors; a comparator continues with the
 * set after that. */
static void
take_set(struct perf_rank *rank)
{
    int *next = &rank->next[rank->algo];

    rank->turn = *next;
    *next += rank->nplans;
    if (*next >= rank->sets)
        *next = rank->algo;
}

bool
perf_run_ulyx(struct perf_rank *ranks, int count_ranks, int count)
{
    for (int i = 0; i < count; i++) {
        /* On a device a call returns as soon as it is enqueued. */
        bool grouped = count_ranks > 1 && !ranks[0].stream;
        ulyx_status_t status = ULYX_SUCCESS;

        if (grouped)
            ulyx_group_start();
        for (int r = 0; r < count_ranks && status == ULYX_SUCCESS; r++) {
            struct perf_rank *rank = &ranks[r];

            take_set(rank);
            status = perf_execute(rank, rank->plan, 0);
            rank->turn = (rank->turn + 1) % rank->sets;
        }
        if (grouped) {
            ulyx_status_t end = ulyx_group_end();
            status = status == ULYX_SUCCESS ? end : status;
        }
        if (status != ULYX_SUCCESS) {
            fprintf(stderr, "ulyx_perf: execute: %s: %s\n",
                ulyx_status_name(status), ulyx_last_error());
            return false;
        }
    }
    return true;
}

static bool
run_some(int runner, struct perf_rank *ranks, int count_ranks, int count)
{
    if (runner >= PERF_ALGOS) {
        const struct comparator *peer = &comparators[runner - PERF_ALGOS];

        return peer->run(ranks, count_ranks, count, peer->variant);
    }
    perf_rank_use(ranks, count_ranks, runner);
    return perf_run_ulyx(ranks, count_ranks, count);
}

static bool
runner_run(int runner, struct perf_rank *ranks, int count_ranks, int count,
    int blocking)
{
    if (blocking != 1)
        return run_some(runner, ranks, count_ranks, count);
    for (int i = 0; i < count; i++)
        if (!run_some(runner, ranks, count_ranks, 1) ||
            !perf_barrier(ranks, count_ranks))
            return false;
    return true;
}

/* The time of a block from each rank's start and end, as --average selects. */
static double
over_ranks(const double *starts, const double *ends, int32_t n, int average)
{
    double first = starts[0], last = ends[0], sum = 0, least = INFINITY;

    for (int32_t p = 0; p < n; p++) {
        double own = ends[p] - starts[p];

        first = fmin(first, starts[p]);
        last = fmax(last, ends[p]);
        least = fmin(least, own);
        sum += own;
    }
    switch (average) {
    case 0:
        return ends[0] - starts[0];
    case 1:
        return sum / n;
    case 2:
        return least;
    default:
        return last - first;
    }
}

/* Runs the operations of a block. *_p: the second at which each of this
 * thread's ranks started and ended. */
static bool
time_on_host(int runner, struct perf_rank *ranks, int count_ranks, int count,
    const struct perf_options *options, double *starts_p, double *ends_p)
{
    double start, end;
    bool ok;

    if (!perf_barrier(ranks, count_ranks))
        return false;
    start = (double)uli_clock_ns() * 1e-9;
    ok = runner_run(runner, ranks, count_ranks, count, options->blocking);
    end = (double)uli_clock_ns() * 1e-9;
    for (int r = 0; r < count_ranks; r++) {
        starts_p[r] = start;
        ends_p[r] = end;
    }
    return ok;
}

/* Captures the operations of a block; ends the capture also after an error. */
static bool
runner_capture(int runner, struct perf_rank *ranks, int count_ranks, int count)
{
    bool ok = run_some(runner, ranks, count_ranks, count);

    return perf_graph_end(ranks, count_ranks) && ok;
}

/* As time_on_host, but measures between events on the ranks' streams: ends_p
 * has durations, and the starts stay 0. The times of a graph are divided by the
 * number of its replays. */
static bool
time_on_device(int runner, struct perf_rank *ranks, int count_ranks, int count,
    const struct perf_options *options, double *ends_p)
{
    int replays = options->replays;
    bool ok = true;

    if (replays > 0)
        ok = perf_graph_begin(ranks, count_ranks) &&
             runner_capture(runner, ranks, count_ranks, count);
    ok = ok && perf_barrier(ranks, count_ranks) &&
         perf_device_start(ranks, count_ranks);
    if (replays > 0)
        ok = ok && perf_graph_replay(ranks, count_ranks, replays);
    else
        ok = ok &&
             runner_run(runner, ranks, count_ranks, count, options->blocking);
    ok = ok && perf_device_stop(ranks, count_ranks, ends_p);
    for (int r = 0; r < count_ranks && replays > 0; r++)
        ends_p[r] /= replays;
    return perf_graph_drop(ranks, count_ranks) && ok;
}

/* Seconds per operation of one block; < 0 on failure. */
static double
runner_block(int runner, struct perf_rank *ranks, int count_ranks, int count,
    const struct perf_options *options)
{
    size_t n = (size_t)ranks[0].nranks, own = (size_t)count_ranks;
    double *times = calloc(2 * (n + own), sizeof(*times));
    double *ends = times + n, *starts_of = ends + n, *ends_of = starts_of + own;
    double result = -1;
    bool ok = times != NULL;

    if (ok && options->cuda)
        ok =
            time_on_device(runner, ranks, count_ranks, count, options, ends_of);
    else if (ok)
        ok = time_on_host(
            runner, ranks, count_ranks, count, options, starts_of, ends_of);
    ok = ok &&
         perf_gather(ranks, count_ranks, starts_of, sizeof(*times), times) &&
         perf_gather(ranks, count_ranks, ends_of, sizeof(*times), ends);
    if (ok)
        result =
            over_ranks(times, ends, ranks[0].nranks, options->average) / count;
    free(times);
    return result;
}

static bool
runner_selected(const struct perf_options *options, int runner)
{
    if (runner < PERF_ALGOS)
        return runner < options->nalgos;
    return options->vs[comparators[runner - PERF_ALGOS].versus];
}

static void
close_samples(struct samples *samples)
{
    for (int r = 0; r < RUNNERS; r++)
        free(samples->times[r]);
}

/* Allocates the samples of all runners: for at most BLOCKS blocks of about
 * equal numbers of operations, or for one block per iteration. */
static bool
open_samples(struct samples *samples, const struct perf_options *options)
{
    int64_t total = (int64_t)options->iterations * options->aggregate;
    bool ok = true;

    *samples = (struct samples){.blocks = total < BLOCKS ? (int)total : BLOCKS};
    if (options->per_iteration)
        samples->blocks = options->iterations;
    for (int r = 0; r < RUNNERS && ok; r++)
        if (runner_selected(options, r)) {
            samples->times[r] =
                calloc((size_t)samples->blocks, sizeof(*samples->times[r]));
            ok = samples->times[r] != NULL;
        }
    return ok;
}

static bool
time_blocks(struct perf_rank *ranks, int count_ranks,
    const struct perf_options *options, struct samples *samples)
{
    int64_t total = (int64_t)options->iterations * options->aggregate;
    int blocks = samples->blocks;

    /* Every set is used at least once before it is measured, because a rank's
     * first store to a page of a peer's window costs a page fault. */
    for (int r = 0; r < RUNNERS; r++)
        if (runner_selected(options, r) &&
            runner_block(r, ranks, count_ranks,
                options->warmups + ranks[0].sets, options) < 0)
            return false;
    for (int b = 0; b < blocks; b++)
        for (int r = 0; r < RUNNERS; r++) {
            int count = (int)(total / blocks + (b < total % blocks));

            if (!runner_selected(options, r))
                continue;
            samples->times[r][b] =
                runner_block(r, ranks, count_ranks, count, options);
            if (samples->times[r][b] < 0)
                return false;
        }
    return true;
}

/* The time of a block, by the fastest comparator that has the column. */
static double
column_time(const struct samples *s, size_t column, int block)
{
    double least = INFINITY;

    for (int c = 0; c < COMPARATORS; c++)
        if (comparators[c].column == column)
            least = fmin(least, s->times[PERF_ALGOS + c][block]);
    return least;
}

/* The median over blocks of the ratio of a comparator's time to ulyx's. */
static double
samples_ratio(
    const struct samples *s, const double *ours, size_t column, double *scratch)
{
    for (int b = 0; b < s->blocks; b++)
        scratch[b] = column_time(s, column, b) / ours[b];
    return perf_median(scratch, s->blocks);
}

static void
fill_ratios(const struct samples *s, const double *ours,
    const struct perf_options *options, double *scratch, struct perf_row *row)
{
    memcpy(row->has, options->vs, sizeof(row->has));
    for (int c = 0; c < COMPARATORS; c++) {
        size_t column = comparators[c].column;
        double *ratio_p = (double *)((char *)row + column);

        if (row->has[comparators[c].versus])
            *ratio_p = samples_ratio(s, ours, column, scratch);
    }
}

/* Fills the row of the schedule in use. */
static bool
fill_row(struct perf_rank *rank, const struct samples *samples,
    const struct perf_options *options, struct perf_row *row)
{
    ulyx_traffic_t traffic = ULYX_TRAFFIC_INIT;
    double *ours = samples->times[rank->algo];
    double *scratch = calloc((size_t)samples->blocks, sizeof(*scratch));

    if (!scratch ||
        ulyx_plan_get_traffic(rank->plan, rank->direction, &traffic) !=
            ULYX_SUCCESS ||
        !perf_row_describe(rank, row)) {
        free(scratch);
        return false;
    }
    row->size_bytes = traffic.size_bytes;
    row->bus_bytes = traffic.bus_bytes;
    fill_ratios(samples, ours, options, scratch, row);
    row->time = perf_statistics(ours, samples->blocks, options);
    row->algbw = (double)row->size_bytes / row->time.shown * 1e-9;
    row->busbw = (double)row->bus_bytes / row->time.shown * 1e-9;
    free(scratch);
    return true;
}

/* Sums the wrong elements over all ranks, per schedule, into the rows. */
static bool
gather_wrong(struct perf_rank *ranks, int count_ranks, int64_t *mine,
    struct perf_row *rows)
{
    size_t n = (size_t)ranks[0].nranks, each = PERF_ALGOS;
    int64_t *all = calloc(n * each, sizeof(*all));
    bool ok =
        all && perf_gather(ranks, count_ranks, mine, each * sizeof(*mine), all);

    for (int a = 0; ok && a < ranks[0].nplans; a++) {
        rows[a].wrong = 0;
        for (size_t p = 0; p < n; p++)
            rows[a].wrong += all[p * each + (size_t)a];
    }
    free(all);
    return ok;
}

/* mine[rank of the thread][schedule]: the wrong elements of all ranks of the
 * thread are counted in the row of its first rank. */
static bool
ranks_verify(
    struct perf_rank *ranks, int count_ranks, int passes, struct perf_row *rows)
{
    int64_t *mine = calloc((size_t)count_ranks * PERF_ALGOS, sizeof(*mine));
    bool ok = mine != NULL;

    for (int a = 0; ok && a < ranks[0].nplans; a++) {
        perf_rank_use(ranks, count_ranks, a);
        ok = perf_verify_timed(ranks, count_ranks, &mine[a]);
    }
    for (int a = 0; ok && a < ranks[0].nplans; a++) {
        perf_rank_use(ranks, count_ranks, a);
        ok = perf_barrier(ranks, count_ranks) &&
             perf_verify_anew(ranks, count_ranks, passes, &mine[a]);
    }
    ok = ok && gather_wrong(ranks, count_ranks, mine, rows);
    free(mine);
    return ok;
}

static bool
measure_all(struct perf_rank *ranks, int count_ranks,
    const struct perf_options *options, struct samples *samples,
    struct perf_row *rows)
{
    bool ok = open_samples(samples, options) &&
              perf_barrier(ranks, count_ranks) &&
              time_blocks(ranks, count_ranks, options, samples);

    for (int a = 0; ok && a < ranks[0].nplans; a++) {
        perf_rank_use(ranks, count_ranks, a);
        rows[a].wrong = -1;
        ok = fill_row(&ranks[0], samples, options, &rows[a]);
    }
    if (ok && options->check > 0)
        ok = ranks_verify(ranks, count_ranks, options->check, rows);
    return ok && perf_barrier(ranks, count_ranks);
}

int
perf_measure(struct perf_rank *ranks, int count_ranks,
    const struct perf_options *options, struct perf_row *rows)
{
    struct samples samples;
    bool ok = true;

    for (int r = 0; r < count_ranks && ok; r++)
        ok = perf_fill(&ranks[r]);
    memset(&samples, 0, sizeof(samples));
    ok = ok && measure_all(ranks, count_ranks, options, &samples, rows);
    close_samples(&samples);
    return ok ? PERF_OK : PERF_LIBRARY;
}
