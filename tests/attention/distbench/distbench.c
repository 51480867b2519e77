/* SPDX-License-Identifier: Apache-2.0
 *
 * distbench: scores that ranks really compute, padding against balancing,
 * and distributed attention against its attention alone.
 *
 * A timing is a ratio of variants that alternate in one run, the median over
 * rounds of per-round ratios.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "attention/distbench/bench.h"
#include "base/system/clock.h"
#include "support/median.h"
#include "support/ranks.h"

enum { LIMIT_S = 3600 };

/* ---- running a scene ----------------------------------------------------- */

static void
result_take(
    struct result *result, int rank, const ulyx_dist_attention_times_t *times)
{
    result->attention_s[rank] += times->attention_s;
    result->exchange_s[rank] += times->exchange_s;
    result->exposed_s[rank] += times->exposed_s;
    result->scores[rank] = times->scores;
}

static double
cpu_seconds(void)
{
    struct timespec at;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

/* One call of all ranks, between barriers. A rank may begin before rank 0 has
 * read the clock, which is short compared with a call. */
static bool
timed_call(struct bench *bench, struct bench_rank *r, int rank, int variant,
    int round, int pass)
{
    struct result *result = &bench->results[variant][pass];
    ulyx_dist_attention_times_t times;
    pthread_barrier_wait(&bench->barrier);
    int64_t begin = uli_clock_ns();
    double cpu = cpu_seconds();
    bool good = bench_rank_call(r, pass, &times);
    pthread_barrier_wait(&bench->barrier);
    if (round < 0) /* the first round warms up */
        return good;
    if (rank == 0) {
        result->wall_s[round] = (double)(uli_clock_ns() - begin) * 1e-9;
        result->cpu_s[round] = cpu_seconds() - cpu;
    }
    result_take(result, rank, &times);
    return good;
}

static int
bench_rank_body(int rank, int nranks, void *context)
{
    struct bench *bench = context;
    const struct scene *s = &bench->scene;
    struct bench_rank *ranks = calloc(BENCH_VARIANTS, sizeof(*ranks));
    bool good = true;
    (void)nranks;
    for (int v = 0; v < s->nvariants && good; v++)
        good =
            bench_rank_open(&ranks[v], s, &s->variants[v], bench->comms[rank]);
    if (!good) /* the others wait at the barrier, so end the process */
        exit(1);
    for (int round = s->rounds > 1 ? -1 : 0; round < s->rounds; round++)
        for (int pass = 0; pass < 2; pass++)
            for (int v = 0; v < s->nvariants; v++)
                good &= timed_call(bench, &ranks[v], rank, v, round, pass);
    for (int v = 0; v < s->nvariants; v++)
        good &= bench_rank_close(&ranks[v]);
    free(ranks);
    return !good;
}

bool
bench_run(struct bench *bench)
{
    unsigned count = (unsigned)bench->scene.nranks;
    if (!bench_ok(ulyx_comm_create_local((int)count, NULL, bench->comms),
            "comm_create_local"))
        return false;
    memset(bench->results, 0, sizeof(bench->results));
    pthread_barrier_init(&bench->barrier, NULL, count);
    bool good =
        ranks_run_threads((int)count, bench_rank_body, bench, LIMIT_S) == 0;
    pthread_barrier_destroy(&bench->barrier);
    for (unsigned r = 0; r < count; r++)
        good &= bench_ok(ulyx_comm_destroy(bench->comms[r]), "comm_destroy");
    return good;
}

/* ---- figures ------------------------------------------------------------- */

/* Returns the median over rounds of one variant's time, or CPU time, divided by
 * another's. */
static double
bench_ratio(
    const struct bench *bench, int pass, int variant, int over, bool cpu)
{
    const struct result *a = &bench->results[variant][pass];
    const struct result *b = &bench->results[over][pass];
    double ratios[BENCH_ROUNDS];
    int rounds = bench->scene.rounds;
    for (int i = 0; i < rounds; i++)
        ratios[i] =
            cpu ? a->cpu_s[i] / b->cpu_s[i] : a->wall_s[i] / b->wall_s[i];
    return median_of(ratios, (size_t)rounds);
}

static double
bench_imbalance(const struct bench *bench, int pass)
{
    int64_t total = 0, top = 0;
    for (int32_t r = 0; r < bench->scene.nranks; r++) {
        int64_t scores = bench->results[0][pass].scores[r];
        total += scores;
        top = scores > top ? scores : top;
    }
    return (double)top * bench->scene.nranks / (double)total;
}

static double
sum_of(const double *values, int32_t nranks)
{
    double sum = 0;
    for (int32_t r = 0; r < nranks; r++)
        sum += values[r];
    return sum;
}

/* ---- families ------------------------------------------------------------ */

static const struct {
    int32_t nranks;
    int64_t heads, kv_heads;
} balanced[] = {{4, 14, 2}, {12, 8, 8}, {16, 40, 8}};

/* limit: the largest allowed max/mean; 0 = none. */
static bool
count_scores(int64_t rows, double limit)
{
    static const char *const masks[] = {
        "causal", "window of rows / 8", "packed"};
    const int64_t pack[] = {0, rows * 300 / 32768, rows * 4001 / 32768,
        rows * 4100 / 32768, rows * 11111 / 32768, rows * 20000 / 32768,
        rows * 20064 / 32768, rows};
    bool good = true;
    for (int i = 0; i < 9; i++) {
        struct bench *bench = calloc(1, sizeof(*bench));
        bench->scene = (struct scene){.nranks = balanced[i / 3].nranks,
            .nvariants = 1,
            .rounds = 1,
            .rows = rows,
            .dim = 8,
            .dtype = ULYX_DTYPE_F32,
            .left = i % 3 == 1 ? rows / 8 - 1 : ULYX_UNBOUNDED,
            .begin = i % 3 == 2 ? pack : NULL,
            .ndocs = 7,
            .variants = {{.heads = balanced[i / 3].heads,
                .kv_heads = balanced[i / 3].kv_heads,
                .work_split = ULYX_WORK_BALANCED}}};
        good &= bench_run(bench);
        double f = bench_imbalance(bench, 0), b = bench_imbalance(bench, 1);
        printf("%lld/%lld heads on %d ranks, %lld rows, %s: max/mean of "
               "scores %.4f forward, %.4f backward\n",
            (long long)balanced[i / 3].heads,
            (long long)balanced[i / 3].kv_heads, bench->scene.nranks,
            (long long)rows, masks[i % 3], f, b);
        fflush(stdout);
        good &= !limit || (f <= limit && b <= limit);
        free(bench);
    }
    return good;
}

static bool
against_padding(int64_t rows, int32_t rounds)
{
    static const struct {
        int32_t nranks;
        int64_t heads, kv_heads, padded;
    } shapes[] = {{2, 7, 1, 8}, {4, 14, 2, 16}};
    bool good = true;
    for (int i = 0; i < 2; i++) {
        struct bench *bench = calloc(1, sizeof(*bench));
        int64_t h = shapes[i].heads, kv = shapes[i].kv_heads;
        bench->scene = (struct scene){.nranks = shapes[i].nranks,
            .nvariants = 3,
            .rounds = rounds,
            .rows = rows,
            .dim = 64,
            .dtype = ULYX_DTYPE_F32,
            .left = ULYX_UNBOUNDED,
            .variants = {{"BALANCED", h, kv, ULYX_WORK_BALANCED, 0, 0, false},
                {"padded", shapes[i].padded, kv, ULYX_WORK_HEADS, 0, 0, false},
                {"HEADS", h, kv, ULYX_WORK_HEADS, 0, 0, false}}};
        good &= bench_run(bench);
        for (int pass = 0; pass < 2; pass++)
            printf("%lld/%lld heads on %d ranks, %lld rows, %s: padded to %lld "
                   "%.3f (CPU %.3f), whole heads %.3f (%.3f) of the time of "
                   "BALANCED\n",
                (long long)h, (long long)kv, shapes[i].nranks, (long long)rows,
                pass ? "backward" : "forward", (long long)shapes[i].padded,
                bench_ratio(bench, pass, 1, 0, false),
                bench_ratio(bench, pass, 1, 0, true),
                bench_ratio(bench, pass, 2, 0, false),
                bench_ratio(bench, pass, 2, 0, true));
        fflush(stdout);
        free(bench);
    }
    return good;
}

static void
print_alone(const struct bench *bench, int pass, int variant)
{
    const struct scene *s = &bench->scene;
    const struct variant *v = &s->variants[variant];
    const struct result *result = &bench->results[variant][pass];
    double exchange = sum_of(result->exchange_s, s->nranks);
    printf("%s %lld/%lld x %lld, %lld rows, %d ranks, %s, %s: %.3f of the "
           "attention alone, %.3f of its CPU time, %.0f %% of the exchange "
           "hidden\n",
        s->dtype == ULYX_DTYPE_BF16 ? "bf16" : "fp32", (long long)v->heads,
        (long long)v->kv_heads, (long long)s->dim, (long long)s->rows,
        s->nranks, v->name, pass ? "backward" : "forward",
        bench_ratio(bench, pass, variant, 0, false),
        bench_ratio(bench, pass, variant, 0, true),
        100 * (1 - sum_of(result->exposed_s, s->nranks) / exchange));
}

static bool
against_attention(int64_t rows, int32_t rounds)
{
    bool good = true;
    for (int i = 0; i < 8; i++) {
        struct bench *bench = calloc(1, sizeof(*bench));
        int64_t heads = 16, kv = i & 4 ? 16 : 4;
        bench->scene = (struct scene){.nranks = i & 1 ? 4 : 2,
            .nvariants = 4,
            .rounds = rounds,
            .rows = rows,
            .dim = 64,
            .dtype = i & 2 ? ULYX_DTYPE_BF16 : ULYX_DTYPE_F32,
            .left = ULYX_UNBOUNDED,
            .variants = {{"alone", heads, kv, 0, 1, 0, true},
                {"1 group", heads, kv, 0, 1, ULYX_SAVE_HEADS, false},
                {"2 groups", heads, kv, 0, 2, ULYX_SAVE_HEADS, false},
                {"2 groups, SAVE_NONE", heads, kv, 0, 2, ULYX_SAVE_NONE,
                    false}}};
        good &= bench_run(bench);
        for (int v = 1; v < 4; v++)
            for (int pass = 0; pass < 2; pass++)
                print_alone(bench, pass, v);
        fflush(stdout);
        free(bench);
    }
    return good;
}

/* ---- command line -------------------------------------------------------- */

static const char usage[] =
    "distbench count|padding|alone|quick [ROWS [ROUNDS]]\n"
    "  count    scores that each rank computes with BALANCED: at 32768 rows\n"
    "           max/mean above 1.03 is a failure\n"
    "  padding  BALANCED, padded heads and uneven heads in turn\n"
    "  alone    distributed attention and its attention alone in turn\n"
    "  quick    some seconds of each\n"
    "Exit status: 0, or 1 after a failure.\n";

/* Parses a number in [1, most]; returns 0 if it is none. */
static int64_t
argument_number(const char *text, int64_t most)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    return *text && !*end && value > 0 && value <= most ? value : 0;
}

int
main(int argc, char **argv)
{
    int64_t rows = 0, rounds = 0;
    if (argc > 2)
        rows = argument_number(argv[2], 1 << 20);
    if (argc > 3)
        rounds = argument_number(argv[3], BENCH_ROUNDS);
    if (argc < 2 || argc > 4 || (argc > 2 && !rows) || (argc > 3 && !rounds)) {
        fputs(usage, stderr);
        return 1;
    }
    rounds = rounds ? rounds : 7;
    if (!strcmp(argv[1], "count")) {
        rows = rows ? rows : 32768;
        return !count_scores(rows, rows >= 32768 ? 1.03 : 0);
    }
    if (!strcmp(argv[1], "padding"))
        return !against_padding(rows ? rows : 2048, (int32_t)rounds);
    if (!strcmp(argv[1], "alone"))
        return !against_attention(rows ? rows : 2048, (int32_t)rounds);
    if (!strcmp(argv[1], "quick"))
        return !(count_scores(512, 0) && against_padding(256, 2) &&
                 against_attention(256, 2));
    fputs(usage, stderr);
    return 1;
}
