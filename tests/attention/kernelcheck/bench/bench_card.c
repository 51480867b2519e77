/* SPDX-License-Identifier: Apache-2.0
 *
 * --bench --vs PEERS: attention on the current device. Variants of ours and the
 * peers take turns, sample by sample, for 0.7 seconds per implementation and
 * row. A sample is as many successive calls as take 2 ms, between two events,
 * so that the time of the host to launch does not count. All write the
 * logsumexp. Rows run in random order, and each is printed at once, so that an
 * interrupted run keeps its rows. A ratio is the median of the pairwise ratios
 * to the first variant.
 *
 * FLOP: 2 b h s s (d + d of v), halved when causal, divided by the number of
 * documents; backward has 2.5 times that. Our backward is deterministic; peers
 * run with their defaults. The floor is 0.85 of cuDNN for every forward row and
 * 0.8 for every backward row.
 *
 * --rows 0-3 takes these rows of the list, --rows 4- the rest. --variants
 * names the variants of ours that are printed side by side. --draws below 100,
 * for trials, takes that fraction of lengths and seconds, and an eighth of the
 * heads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cuda_runtime.h>
#include "attention/kernelcheck/bench/bench_card.h"
#include "attention/kernels/kernels.h"
#include "base/system/clock.h"
#include "support/median.h"

/* The list is in order of importance. */
static const struct kc_card_row all[] = {
    {128, 128, 16, 16, 8192, 2, 0, false, false},
    {128, 128, 16, 16, 8192, 2, 0, true, false},
    {64, 64, 32, 32, 8192, 2, 0, false, false},
    {64, 64, 32, 32, 8192, 2, 0, true, false},
    {64, 64, 32, 32, 32768, 1, 0, false, false},
    {64, 64, 32, 32, 32768, 1, 0, true, false},
    {128, 128, 16, 16, 2048, 8, 0, false, false},
    {128, 128, 16, 16, 2048, 8, 0, true, false},
    {128, 128, 16, 16, 32768, 1, 0, false, false},
    {128, 128, 16, 16, 32768, 1, 0, true, false},
    {256, 256, 8, 8, 8192, 2, 0, false, false},
    {256, 256, 8, 8, 8192, 2, 0, true, false},
    {256, 256, 8, 8, 32768, 1, 0, false, false},
    {256, 256, 8, 8, 32768, 1, 0, true, false},
    {96, 96, 16, 16, 8192, 2, 0, false, false},
    {96, 96, 16, 16, 8192, 2, 0, true, false},
    {192, 128, 16, 16, 8192, 2, 0, false, false},
    {192, 128, 16, 16, 8192, 2, 0, true, false},
    {128, 128, 32, 8, 8192, 2, 0, false, false},
    {128, 128, 32, 8, 8192, 2, 0, true, false},
    {128, 128, 16, 16, 32768, 1, 16, false, false},
    {128, 128, 16, 16, 32768, 1, 16, true, false},
    {128, 128, 16, 16, 8192, 2, 0, false, true},
    {128, 128, 16, 16, 8192, 2, 0, true, true},
    {64, 64, 32, 32, 8192, 2, 0, false, true},
    {64, 64, 32, 32, 8192, 2, 0, true, true},
    {96, 96, 16, 16, 8192, 2, 0, true, true},
    {192, 128, 16, 16, 8192, 2, 0, true, true},
    {256, 256, 8, 8, 8192, 2, 0, true, true},
    {128, 128, 32, 8, 8192, 2, 0, true, true},
    {128, 128, 16, 16, 32768, 1, 16, true, true},
};
enum {
    ROWS_COUNT = sizeof(all) / sizeof(all[0]),
    RUNNERS = KC_VARIANTS + KC_PEERS,
    SAMPLES_MAX = 512,
    SAMPLES_MIN = 9,
};

/* What runs in turn: variants of ours, then the peers. */
struct runners {
    struct kc_card_variant variants[KC_VARIANTS];
    int nvariants;
    struct kc_peer peer;
    bool has_peer;
};

/* The figures of one row and runner: the median milliseconds, 0 if it did not
 * run; and the median of its ratios to the first variant. */
struct figure {
    double ms, ratio;
};

/* The figures of one row. */
struct figures {
    const char *kernel;
    const char *why_portable;
    struct figure of[RUNNERS];
    char clocks[64];
};

/* The summary of the rows. */
struct outcome {
    int below, judged, missing;
};

static const char *
runner_name(const struct runners *r, int n)
{
    return n < r->nvariants ? r->variants[n].name
                            : kc_peer_names[n - r->nvariants];
}

static int
runners_count(const struct runners *r)
{
    return r->nvariants + KC_PEERS;
}

/* Returns the milliseconds of one of `repeats` calls; negative if a call
 * failed, after printing the reason. */
static double
run_one(struct runners *r, struct kc_card_setup *s, int n, int repeats)
{
    if (n >= r->nvariants)
        return kc_peer_run(&r->peer, n - r->nvariants, repeats);
    return kc_setup_choose(s, &r->variants[n]) ? kc_setup_run(s, repeats) : -1;
}

/* Reads clock and power of the card while our calls run. */
static void
read_clocks(struct kc_card_setup *s, int calls, char *text_p, size_t bytes)
{
    for (int n = 0; n < calls; n++)
        kc_setup_enqueue(s);
    FILE *pipe = popen("nvidia-smi --query-gpu=clocks.sm,power.draw "
                       "--format=csv,noheader 2>/dev/null",
        "r");
    if (!pipe || !fgets(text_p, (int)bytes, pipe))
        snprintf(text_p, bytes, "clock and power unknown");
    text_p[strcspn(text_p, "\n")] = 0;
    if (pipe)
        pclose(pipe);
    cudaDeviceSynchronize();
}

static int
repeats_of(double ms, double wanted_ms)
{
    return ms > 0 && ms < wanted_ms ? (int)(wanted_ms / ms) + 1 : 1;
}

/* Takes samples in turn until each runner has had 0.7 seconds. */
static bool
row_measure(struct runners *r, struct kc_card_setup *s,
    const bool takes[RUNNERS], double part, struct figures *f)
{
    static double times[RUNNERS][SAMPLES_MAX], ratios[RUNNERS][SAMPLES_MAX];
    int repeats[RUNNERS], count = 0, running = 0;
    int least = part < 1 ? 1 : SAMPLES_MIN;
    for (int n = 0; n < runners_count(r); n++) {
        running += takes[n];
        if (takes[n] && run_one(r, s, n, 1) < 0) /* one call to warm up */
            return false;
        repeats[n] = takes[n] ? repeats_of(run_one(r, s, n, 1), 2 * part) : 0;
    }
    uli_deadline_t enough = uli_deadline_in(0.7 * part * running);
    for (; count < SAMPLES_MAX && (count < least || !uli_deadline_over(enough));
         count++)
        for (int n = 0; n < runners_count(r); n++) {
            if (!takes[n])
                continue;
            times[n][count] = run_one(r, s, n, repeats[n]);
            ratios[n][count] = times[n][count] / times[0][count];
            if (times[n][count] < 0)
                return false;
        }
    for (int n = 0; n < runners_count(r); n++)
        if (takes[n])
            f->of[n] = (struct figure){median_of(times[n], (size_t)count),
                median_of(ratios[n], (size_t)count)};
    return true;
}

/* Finds which runners take the row. Returns false unless the first variant
 * does. */
static bool
row_takers(struct runners *r, struct kc_card_setup *s, bool takes_p[RUNNERS])
{
    memset(takes_p, 0, RUNNERS * sizeof(*takes_p));
    for (int n = 0; n < r->nvariants; n++)
        takes_p[n] = kc_setup_choose(s, &r->variants[n]);
    return takes_p[0] && (!r->has_peer || kc_peer_row(&r->peer, &s->row,
                                              takes_p + r->nvariants));
}

static bool
bench_row(struct runners *r, const struct kc_card_row *row, double part,
    struct figures *f)
{
    struct kc_card_setup s;
    bool takes[RUNNERS];
    bool ok = kc_setup_init(&s, row) && row_takers(r, &s, takes) &&
              row_measure(r, &s, takes, part, f) &&
              kc_setup_choose(&s, &r->variants[0]);
    if (ok) {
        read_clocks(&s, repeats_of(f->of[0].ms, 500 * part * part), f->clocks,
            sizeof(f->clocks));
        f->kernel = s.call.kernel->name;
        f->why_portable = s.call.why_portable;
    }
    kc_setup_free(&s);
    return ok;
}

static double
row_tflops(const struct kc_card_row *row, double ms)
{
    double flops = 2.0 * (double)(row->batch * row->heads) *
                   (double)(row->dim_qk + row->dim_v) *
                   (double)(row->len * row->len) /
                   (double)(row->docs ? row->docs : 1) *
                   (row->causal ? 0.5 : 1) * (row->backward ? 2.5 : 1);
    return ms > 0 ? flops / ms * 1e-9 : 0;
}

/* Formats "128" or "192/128". */
static const char *
text_of_two(int64_t a, int64_t b, char text_p[32])
{
    if (a == b)
        snprintf(text_p, 32, "%lld", (long long)a);
    else
        snprintf(text_p, 32, "%lld/%lld", (long long)a, (long long)b);
    return text_p;
}

/* Each word of the head is above its column of the rows. */
static void
print_head(const struct runners *r)
{
    printf("%7s %5s %6s %2s %4s %-6s %-4s %-5s", "d", "h", "s", "b", "docs",
        "mask", "pass", "row");
    for (int n = 0; n < runners_count(r); n++)
        printf("  %11s%s", runner_name(r, n), n ? " ratio" : "");
    printf("  clock, power   (TFLOP/s; ratio: their time over %s's)\n",
        r->variants[0].name);
    fflush(stdout);
}

static void
print_row(const struct runners *r, const struct kc_card_row *row,
    const struct figures *f)
{
    char dims[32], heads[32];
    printf("%7s %5s %6lld %2lld %4lld %-6s %-4s %-5s",
        text_of_two(row->dim_qk, row->dim_v, dims),
        text_of_two(row->heads, row->heads_kv, heads), (long long)row->len,
        (long long)row->batch, (long long)row->docs,
        row->causal ? "causal" : "full", row->backward ? "bwd" : "fwd",
        f->kernel);
    for (int n = 0; n < runners_count(r); n++) {
        if (f->of[n].ms > 0)
            printf("  %11.1f", row_tflops(row, f->of[n].ms));
        else
            printf("  %11s", "N/A");
        if (n && f->of[n].ms > 0)
            printf(" %5.3f", f->of[n].ratio);
        else if (n)
            printf(" %5s", "N/A");
    }
    printf("  %s%s%s\n", f->clocks, f->why_portable ? ", portable: " : "",
        f->why_portable ? f->why_portable : "");
}

static void
print_outcome(const struct outcome *o)
{
    if (o->missing)
        printf("%d rows failed\n", o->missing);
    else if (o->below)
        printf("below floor: %d of %d rows under 0.85 of cuDNN, 0.8 backward\n",
            o->below, o->judged);
    else if (o->judged)
        printf("all floors hold\n");
    else
        printf("no floor judged: no cuDNN beside ours\n");
}

/* Runs one row of the list, at the requested part of its size. */
static void
run_row(int n, struct runners *r, double part, struct outcome *o)
{
    struct figures f = {0};
    struct kc_card_row row = all[n];
    int64_t docs = row.docs ? row.docs : 1;
    int64_t fewer = part < 1 ? 8 : 1;
    row.len = (int64_t)((double)row.len * part) / docs * docs;
    row.heads /= fewer;
    row.heads_kv /= fewer;
    if (!bench_row(r, &row, part, &f)) {
        o->missing++;
        printf("row %d: failed\n", n);
    } else {
        double ratio = f.of[r->nvariants].ratio; /* the first peer is cuDNN */
        o->judged += ratio > 0;
        o->below += ratio > 0 && ratio < (row.backward ? 0.8 : 0.85);
        print_row(r, &row, &f);
    }
    fflush(stdout);
}

/* Parses FIRST-LAST, or FIRST- for all to the end of the list. Returns false if
 * the text is neither. */
static bool
parse_rows(const char *text, int *first_p, int *last_p)
{
    char *end;
    *first_p = 0;
    *last_p = ROWS_COUNT - 1;
    if (!text)
        return true;
    *first_p = (int)strtol(text, &end, 10);
    if (end == text || *end++ != '-')
        return false;
    if (*end)
        *last_p = (int)strtol(end, &end, 10);
    return !*end && *first_p >= 0 && *first_p <= *last_p &&
           *last_p < ROWS_COUNT;
}

static void
run_rows(const struct kc_options *options, struct runners *r, int first,
    int last, struct outcome *o)
{
    struct test_random random = {options->seed};
    double part = options->draws < 100 ? (double)options->draws / 100 : 1;
    int order[ROWS_COUNT];
    for (int n = 0; n <= last - first; n++) {
        int other = (int)test_random_in(&random, 0, n);
        order[n] = order[other];
        order[other] = first + n;
    }
    for (int n = 0; n <= last - first; n++)
        run_row(order[n], r, part, o);
}

int
kc_bench_card(const struct kc_options *options)
{
    struct outcome outcome = {0, 0, 0};
    struct runners r = {.has_peer = false};
    int devices = 0, first, last;
    const char *variants = options->variants ? options->variants
                           : options->kernel ? options->kernel
                                             : "auto";
    if (!parse_rows(options->rows, &first, &last)) {
        fprintf(stderr, "kernelcheck: --rows %s, see --help: rows 0 to %d\n",
            options->rows, ROWS_COUNT - 1);
        return 2;
    }
    r.nvariants = kc_variants_parse(variants, r.variants);
    if (r.nvariants == 0)
        return 2;
    r.has_peer = kc_peer_start(&r.peer, options->vs);
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("kernelcheck --bench --vs %s: skipped: no CUDA device\n",
            options->vs);
        kc_peer_stop(&r.peer);
        return 77;
    }
    printf("peer: %s\n", r.peer.version);
    print_head(&r);
    run_rows(options, &r, first, last, &outcome);
    kc_peer_stop(&r.peer);
    print_outcome(&outcome);
    return outcome.missing != 0;
}
