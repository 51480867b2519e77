/* SPDX-License-Identifier: Apache-2.0
 *
 * One row: warm up, then blocks of back-to-back operations, ours and the
 * comparators' in turn, so that what the machine does meanwhile falls on all
 * of them alike. A block's time is from the first rank's start to the last
 * rank's end, so that nobody's wait for a core is left out; --average 0 to 2
 * take the ranks' own durations. The row's time is the median of blocks.
 */
#include "perf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/comm.h"

enum { BLOCKS = 10 };

/* What runs in turn in each block. */
enum runner { OURS, MEMCPY, STREAMING, MPI, MPI_TYPED, RUNNERS };

struct samples {
    double times[RUNNERS][BLOCKS];
    int blocks;
};

bool
perf_barrier(struct perf_rank *ranks, int count)
{
    if (count == 1)
        return ulyx_comm_barrier(ranks[0].comm) == ULYX_SUCCESS;
    ulyx_group_start();
    for (int i = 0; i < count; i++)
        ulyx_comm_barrier(ranks[i].comm);
    return ulyx_group_end() == ULYX_SUCCESS;
}

/* The control path of the communicator carries the tool's own numbers. */
struct gathering {
    ulyx_comm_t *comm;
    double mine;
    double *all;
};

static ulyx_status_t
gather_one(ulyx_comm_t *comm, double mine, double *all)
{
    int64_t *bytes = calloc((size_t)comm->nranks, sizeof(*bytes));
    ulyx_status_t *verdicts = calloc((size_t)comm->nranks, sizeof(*verdicts));
    ulyx_status_t status = ULYX_ERR_NO_MEMORY;

    if (bytes != NULL && verdicts != NULL)
        status = uli_agree_gather(comm, ULI_CALL_BARRIER, ULYX_SUCCESS, &mine,
            sizeof(mine), sizeof(mine), all, bytes, verdicts,
            uli_deadline_in(comm->timeout_s));
    free(bytes);
    free(verdicts);
    return status;
}

static void *
gather_main(void *context)
{
    struct gathering *g = context;

    return gather_one(g->comm, g->mine, g->all) == ULYX_SUCCESS ? g : NULL;
}

bool
perf_gather(struct perf_rank *ranks, int count, const double *mine, double *all)
{
    int32_t nranks = ranks[0].nranks;
    struct gathering *each = calloc((size_t)count, sizeof(*each));
    pthread_t *threads = calloc((size_t)count, sizeof(*threads));
    double *spare = calloc((size_t)nranks * (size_t)count, sizeof(*spare));
    bool ok = each && threads && spare;

    for (int i = 0; ok && i < count; i++) {
        each[i] = (struct gathering){ranks[i].comm, mine[i],
            i == 0 ? all : spare + (size_t)i * (size_t)nranks};
        if (i > 0 && pthread_create(&threads[i], NULL, gather_main, &each[i]))
            ok = false;
    }
    if (ok)
        ok = gather_main(&each[0]) != NULL;
    for (int i = 1; ok && i < count; i++) {
        void *result;

        pthread_join(threads[i], &result);
        ok = result != NULL;
    }
    free(each);
    free(threads);
    free(spare);
    return ok;
}

bool
perf_run_ulyx(struct perf_rank *ranks, int count_ranks, int count)
{
    for (int i = 0; i < count; i++) {
        bool grouped = count_ranks > 1;
        ulyx_status_t status = ULYX_SUCCESS;

        if (grouped)
            ulyx_group_start();
        for (int r = 0; r < count_ranks && status == ULYX_SUCCESS; r++) {
            void *src[PERF_TENSORS], *dst[PERF_TENSORS];
            struct perf_rank *rank = &ranks[r];

            perf_rank_pointers(rank, &rank->src, rank->turn, src);
            perf_rank_pointers(rank, &rank->dst, rank->turn, dst);
            rank->turn = (rank->turn + 1) % rank->sets;
            status = ulyx_reshuffle_execute(rank->plan, rank->operation,
                (const void *const *)src, dst, NULL);
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
run(enum runner runner, struct perf_rank *ranks, int count_ranks, int count)
{
    switch (runner) {
    case OURS:
        return perf_run_ulyx(ranks, count_ranks, count);
    case MEMCPY:
        return perf_run_memcpy(ranks, count_ranks, count, false);
    case STREAMING:
        return perf_run_memcpy(ranks, count_ranks, count, true);
    case MPI:
        return perf_run_mpi(ranks, count, false);
    default:
        return perf_run_mpi(ranks, count, true);
    }
}

/* Over ranks, from each one's start and end. */
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

/* Seconds an operation of one block; < 0 on failure. */
static double
block(enum runner runner, struct perf_rank *ranks, int count_ranks, int count,
    int average)
{
    int32_t n = ranks[0].nranks;
    double *times = calloc((size_t)n * 2 + (size_t)count_ranks, sizeof(double));
    double *ends = times + n, *mine = ends + n, result = -1;
    double start, end;
    bool ok;

    if (times == NULL || !perf_barrier(ranks, count_ranks)) {
        free(times);
        return -1;
    }
    start = (double)uli_clock_ns() * 1e-9;
    ok = run(runner, ranks, count_ranks, count);
    end = (double)uli_clock_ns() * 1e-9;
    for (int i = 0; i < count_ranks; i++)
        mine[i] = start;
    ok = ok && perf_gather(ranks, count_ranks, mine, times);
    for (int i = 0; i < count_ranks; i++)
        mine[i] = end;
    ok = ok && perf_gather(ranks, count_ranks, mine, ends);
    if (ok)
        result = over_ranks(times, ends, n, average) / count;
    free(times);
    return result;
}

static int
ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static struct perf_stat
statistics(const double *values, int n)
{
    double sorted[BLOCKS], sum = 0, squares = 0;
    struct perf_stat s;

    memcpy(sorted, values, (size_t)n * sizeof(*sorted));
    qsort(sorted, (size_t)n, sizeof(*sorted), ascending);
    for (int i = 0; i < n; i++)
        sum += sorted[i];
    s.mean = sum / n;
    for (int i = 0; i < n; i++)
        squares += (sorted[i] - s.mean) * (sorted[i] - s.mean);
    s.minimum = sorted[0];
    s.median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    s.p99 = sorted[(n * 99 + 99) / 100 - 1];
    s.cv = n > 1 && s.mean > 0 ? sqrt(squares / (n - 1)) / s.mean : 0;
    s.shown = s.median;
    return s;
}

static bool
wanted(const struct perf_options *options, enum runner runner)
{
    if (runner == MEMCPY || runner == STREAMING)
        return options->vs[PERF_VS_MEMCPY];
    if (runner == MPI || runner == MPI_TYPED)
        return options->vs[PERF_VS_MPI];
    return true;
}

static bool
time_blocks(struct perf_rank *ranks, int count_ranks,
    const struct perf_options *options, struct samples *samples)
{
    int total = options->iterations * options->aggregate;
    int blocks = total < BLOCKS ? total : BLOCKS;
    int each = total / blocks;

    samples->blocks = blocks;
    /* Every set once in any case: a rank's first store to a page of a peer's
     * window costs a page fault. */
    for (int r = 0; r < RUNNERS; r++)
        if (wanted(options, (enum runner)r) &&
            block((enum runner)r, ranks, count_ranks,
                options->warmups + ranks[0].sets, 3) < 0)
            return false;
    for (int b = 0; b < blocks; b++)
        for (int r = 0; r < RUNNERS; r++) {
            if (!wanted(options, (enum runner)r))
                continue;
            samples->times[r][b] = block(
                (enum runner)r, ranks, count_ranks, each, options->average);
            if (samples->times[r][b] < 0)
                return false;
        }
    return true;
}

/* The pairwise ratio of a peer's blocks to ours, its median. */
static double
ratio(const struct samples *s, enum runner runner, enum runner other)
{
    double ratios[BLOCKS];

    for (int b = 0; b < s->blocks; b++)
        ratios[b] =
            fmin(s->times[runner][b], s->times[other][b]) / s->times[OURS][b];
    return statistics(ratios, s->blocks).median;
}

/* There and back again; false on failure. Adds what does not come back. */
static bool
round_trip(struct perf_rank *ranks, int count_ranks, int64_t *wrong_p)
{
    ulyx_status_t status = ULYX_SUCCESS, end;

    if (ranks[0].operation > 1)
        return true;
    ulyx_group_start();
    for (int r = 0; r < count_ranks && status == ULYX_SUCCESS; r++) {
        void *src[PERF_TENSORS], *dst[PERF_TENSORS];

        perf_rank_pointers(&ranks[r], &ranks[r].dst, 0, src);
        perf_rank_pointers(&ranks[r], &ranks[r].back, 0, dst);
        status = ulyx_reshuffle_execute(ranks[r].plan, 1 - ranks[r].operation,
            (const void *const *)src, dst, NULL);
    }
    end = ulyx_group_end();
    if (status != ULYX_SUCCESS || end != ULYX_SUCCESS) {
        fprintf(stderr, "ulyx_perf: round trip: %s\n", ulyx_last_error());
        return false;
    }
    for (int r = 0; r < count_ranks; r++) {
        const struct perf_rank *rank = &ranks[r];

        for (int32_t t = 0; t < rank->shape->params.ntensors; t++)
            for (int64_t i = 0; i < rank->src.extent[t]; i++)
                *wrong_p += rank->src.base[rank->src.offset[t] + i] !=
                            rank->back.base[rank->back.offset[t] + i];
    }
    return true;
}

/* What timing left is checked first; then everything anew, with the way back.
 */
static bool
check(struct perf_rank *ranks, int count_ranks,
    const struct perf_options *options, double *wrong_p)
{
    int64_t wrong = 0;

    for (int pass = 0; pass < options->check; pass++) {
        for (int r = 0; r < count_ranks && pass > 0; r++)
            perf_fill(&ranks[r]);
        /* Every set has been moved at least once after this. */
        if (!perf_barrier(ranks, count_ranks) ||
            !perf_run_ulyx(ranks, count_ranks, ranks[0].sets))
            return false;
        for (int r = 0; r < count_ranks; r++)
            wrong += perf_check(&ranks[r]);
        if (!round_trip(ranks, count_ranks, &wrong))
            return false;
    }
    *wrong_p = (double)wrong;
    return true;
}

static bool
fill_row(struct perf_rank *ranks, const struct samples *samples,
    const struct perf_options *options, struct perf_row *row)
{
    ulyx_traffic_t traffic = ULYX_TRAFFIC_INIT;

    if (ulyx_plan_get_traffic(ranks[0].plan, ranks[0].operation, &traffic) !=
            ULYX_SUCCESS ||
        ulyx_plan_describe(ranks[0].plan, row->describe,
            sizeof(row->describe)) != ULYX_SUCCESS)
        return false;
    row->size_bytes = traffic.size_bytes;
    row->bus_bytes = traffic.bus_bytes;
    row->time = statistics(samples->times[OURS], samples->blocks);
    row->algbw = (double)row->size_bytes / row->time.shown * 1e-9;
    row->busbw = (double)row->bus_bytes / row->time.shown * 1e-9;
    for (int v = 0; v < PERF_VERSUS; v++)
        row->has[v] = options->vs[v];
    if (row->has[PERF_VS_MEMCPY])
        row->ratio[PERF_VS_MEMCPY] = ratio(samples, MEMCPY, STREAMING);
    if (row->has[PERF_VS_MPI]) {
        row->ratio[PERF_VS_MPI] = ratio(samples, MPI, MPI);
        row->ratio_typed = ratio(samples, MPI_TYPED, MPI_TYPED);
    }
    return true;
}

int
perf_measure(struct perf_rank *ranks, int count_ranks,
    const struct perf_options *options, struct perf_row *row)
{
    struct samples samples;
    double *values =
        calloc((size_t)ranks[0].nranks + (size_t)count_ranks, sizeof(double));
    double *mine = values + ranks[0].nranks;
    int code = PERF_LIBRARY;

    if (values == NULL)
        return PERF_INTERNAL;
    for (int r = 0; r < count_ranks; r++)
        perf_fill(&ranks[r]);
    row->wrong = -1;
    if (!perf_barrier(ranks, count_ranks) ||
        !time_blocks(ranks, count_ranks, options, &samples) ||
        !fill_row(ranks, &samples, options, row))
        goto done;
    if (options->check > 0) {
        if (!check(ranks, count_ranks, options, &mine[0]) ||
            !perf_gather(ranks, count_ranks, mine, values))
            goto done;
        row->wrong = 0;
        for (int32_t p = 0; p < ranks[0].nranks; p++)
            row->wrong += (int64_t)values[p];
    }
    code = perf_barrier(ranks, count_ranks) ? PERF_OK : PERF_LIBRARY;
done:
    free(values);
    return code;
}
