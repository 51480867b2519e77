/* SPDX-License-Identifier: Apache-2.0
 *
 * --bench --vs torch: forward on the current device, ours and the peers in
 * turn, sample by sample, for 0.7 seconds per implementation and row. A sample
 * is as many successive calls as take 2 ms, between two events, so that the
 * host's time to launch does not count; all write the logsumexp. Rows come in
 * random order, and each is printed at once, so that an interrupted run keeps
 * its rows. A row's ratio is the median of the pairwise
 * ratios. FLOP: 4 b h s s d, halved when causal. Floor: 0.85 of cuDNN on every
 * row. --rows 0-3 takes rows 0 to 3 of the list, --rows 4- row 4 and all after
 * it. --draws below 100 takes that percentage of lengths and seconds, and an
 * eighth of the heads, for trials.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cuda_runtime.h>
#include "attention/cuda/attention_gpu.h"
#include "attention/element.h"
#include "attention/kernelcheck/bench/bench_card.h"
#include "attention/kernels/kernels.h"
#include "base/system/clock.h"
#include "support/median.h"

/* The most important rows come first. */
static const struct kc_card_row all[] = {
    {128, 16, 8192, 2, false},
    {128, 16, 8192, 2, true},
    {64, 32, 8192, 2, false},
    {64, 32, 8192, 2, true},
    {64, 32, 32768, 1, false},
    {64, 32, 32768, 1, true},
    {128, 16, 2048, 8, false},
    {128, 16, 2048, 8, true},
    {128, 16, 32768, 1, false},
    {128, 16, 32768, 1, true},
    {256, 8, 8192, 2, false},
    {256, 8, 8192, 2, true},
    {256, 8, 32768, 1, false},
    {256, 8, 32768, 1, true},
};
enum {
    ROWS_COUNT = sizeof(all) / sizeof(all[0]),
    SAMPLES_MAX = 512,
    SAMPLES_MIN = 9,
    NORMALS = (1 << 20) + 8 /* values that a tensor repeats */
};

/* Results of one row: median milliseconds of ours, and per peer milliseconds
 * and ratio (0: not taken). */
struct figures {
    const char *kernel;
    const char *why_portable;
    double ours, peers[KC_PEERS], ratios[KC_PEERS];
    char clocks[64];
};

/* The summary of the rows. */
struct outcome {
    int below, judged, missing;
};

struct setup {
    struct uli_attn_call call;
    void *memory[8];
    int count;
    cudaEvent_t begin, end;
};

static bool
cuda_succeeded(cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        fprintf(stderr, "kernelcheck: %s: %s\n", what, cudaGetErrorName(error));
    return error == cudaSuccess;
}

static unsigned char *
setup_take(struct setup *s, int64_t bytes)
{
    void *p = NULL;
    if (!cuda_succeeded(cudaMalloc(&p, (size_t)bytes), "cudaMalloc"))
        return NULL;
    s->memory[s->count++] = p;
    return p;
}

/* [b][s][h][columns]; random where values are given. Q, K and V have their
 * own: a query that is also a key would hold most of its row's weight and set
 * its maximum, which no model's does. */
static bool
setup_lay(struct setup *s, enum uli_attn_tensor name,
    const struct kc_card_row *row, const uint16_t *values)
{
    bool lse = name == ULI_ATTN_LSE;
    int64_t size = lse ? 4 : 2, columns = lse ? 1 : row->dim;
    int64_t count = row->batch * row->len * row->heads * columns;
    unsigned char *base = setup_take(s, count * size);
    s->call.views[name] = (struct uli_attn_view){.name = "tensor",
        .base = base,
        .head_stride = columns * size,
        .row_stride = row->heads * columns * size,
        .batch_stride = row->len * row->heads * columns * size,
        .dtype = lse ? ULYX_DTYPE_F32 : ULYX_DTYPE_BF16,
        .element_bytes = size,
        .row_bytes = columns * size,
        .rows = row->len,
        .heads = row->heads,
        .columns = columns,
        .batch = row->batch,
        .packed_rows = -1,
        .given = true,
        .output = name >= ULI_ATTN_OUT};
    const uint16_t *from = values ? values + name * NORMALS : NULL;
    for (int64_t at = 0; base && from && at < count; at += NORMALS) {
        int64_t n = count - at < NORMALS ? count - at : NORMALS;
        if (!cuda_succeeded(cudaMemcpy(base + at * size, from,
                                (size_t)(n * size), cudaMemcpyHostToDevice),
                "cudaMemcpy"))
            return false;
    }
    return base != NULL;
}

static void
set_problem(struct uli_attn_problem *problem_p, const struct kc_card_row *row)
{
    *problem_p = (struct uli_attn_problem){.dtype = ULYX_DTYPE_BF16,
        .stat_dtype = ULYX_DTYPE_F32,
        .param_dtype = ULYX_DTYPE_F32,
        .batch = row->batch,
        .len_q = row->len,
        .len_k = row->len,
        .heads_q = row->heads,
        .heads_kv = row->heads,
        .dim_qk = row->dim,
        .dim_v = row->dim,
        .scale = 1 / sqrt((double)row->dim),
        .left = ULYX_UNBOUNDED,
        .right = row->causal ? 0 : ULYX_UNBOUNDED,
        .bottom_right = true,
        .heads_global = row->heads,
        .memory = ULYX_MEMORY_CUDA,
        .doc_count = row->batch,
        .q_rows = row->batch * row->len};
}

/* The kernel of the table that takes the problem, or the named one. */
static const struct uli_attn_kernel *
kernel_of(const struct uli_attn_problem *problem, const char *name)
{
    const struct uli_attn_kernel *kernel;
    for (int n = 0; (kernel = uli_attn_device_kernel_at(n)) != NULL; n++)
        if ((!name || strcmp(name, kernel->name) == 0) && kernel->usable() &&
            !kernel->refuses(problem))
            return kernel;
    return NULL;
}

static bool
setup_init(struct setup *s, const struct kc_card_row *row, const char *name)
{
    const int64_t count = 3 * NORMALS;
    uint16_t *values = malloc((size_t)count * 2);
    struct test_random random = {7};
    memset(s, 0, sizeof(*s));
    set_problem(&s->call.problem, row);
    s->call.kernel = kernel_of(&s->call.problem, name);
    bool ok = values && s->call.kernel;
    for (int64_t n = 0; ok && n < count; n++)
        values[n] = uli_bf16_of_float((float)test_random_normal(&random));
    for (int t = ULI_ATTN_Q; ok && t <= ULI_ATTN_LSE; t++)
        ok = setup_lay(
            s, (enum uli_attn_tensor)t, row, t < ULI_ATTN_OUT ? values : NULL);
    free(values);
    if (!ok)
        return false;
    s->call.timeout_s = 60;
    s->call.workspace_bytes = s->call.kernel->workspace(
        &s->call.problem, ULYX_ATTENTION_PASS_FORWARD, 1);
    s->call.workspace = setup_take(s, s->call.workspace_bytes);
    return s->call.workspace &&
           cuda_succeeded(cudaEventCreate(&s->begin), "cudaEventCreate") &&
           cuda_succeeded(cudaEventCreate(&s->end), "cudaEventCreate") &&
           cuda_succeeded(cudaStreamCreate((cudaStream_t *)&s->call.stream),
               "cudaStreamCreate");
}

static void
setup_free(struct setup *s)
{
    for (int n = 0; n < s->count; n++)
        cudaFree(s->memory[n]);
    if (s->begin)
        cudaEventDestroy(s->begin);
    if (s->end)
        cudaEventDestroy(s->end);
    if (s->call.stream)
        cudaStreamDestroy(s->call.stream);
}

/* Milliseconds of one of `repeats` calls; negative: failed, and printed. */
static double
run_ours(struct setup *s, int repeats)
{
    struct uli_gpu_attn_state state;
    float ms = -1;
    bool ok =
        cuda_succeeded(cudaEventRecord(s->begin, s->call.stream), "event");
    for (int n = 0; ok && n < repeats; n++) {
        s->call.kernel->forward(&s->call);
        ok = atomic_load(&s->call.failed) == 0;
    }
    ok = ok &&
         cuda_succeeded(cudaEventRecord(s->end, s->call.stream), "event") &&
         cuda_succeeded(cudaEventSynchronize(s->end), s->call.kernel->name) &&
         cuda_succeeded(cudaEventElapsedTime(&ms, s->begin, s->end), "event") &&
         cuda_succeeded(cudaMemcpy(&state, s->call.workspace, sizeof(state),
                            cudaMemcpyDeviceToHost),
             "cudaMemcpy");
    if (ok && state.failed)
        uli_gpu_attn_error(state.failed);
    return ok && !state.failed ? ms / repeats : -1;
}

/* Clock and power while ours runs. */
static void
read_clocks(struct setup *s, int calls, char *text_p, size_t bytes)
{
    for (int n = 0; n < calls; n++)
        s->call.kernel->forward(&s->call);
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

/* Samples in turn until each had its 0.7 seconds. */
static bool
setup_measure(struct setup *s, struct kc_peer *peer, const bool takes[KC_PEERS],
    double part, struct figures *f)
{
    static double ours[SAMPLES_MAX], theirs[KC_PEERS][SAMPLES_MAX],
        ratios[KC_PEERS][SAMPLES_MAX];
    int repeats[1 + KC_PEERS], count = 0, runners = 1;
    int least = part < 1 ? 1 : SAMPLES_MIN;
    double first = run_ours(s, 1);
    if (first < 0)
        return false;
    repeats[KC_PEERS] = repeats_of(run_ours(s, 1), 2 * part);
    for (int p = 0; p < KC_PEERS; p++) {
        runners += takes[p];
        repeats[p] =
            takes[p] ? repeats_of(kc_peer_run(peer, p, 1), 2 * part) : 0;
    }
    uli_deadline_t enough = uli_deadline_in(0.7 * part * runners);
    while (
        count < SAMPLES_MAX && (count < least || !uli_deadline_over(enough))) {
        ours[count] = run_ours(s, repeats[KC_PEERS]);
        for (int p = 0; p < KC_PEERS; p++) {
            if (!takes[p])
                continue;
            theirs[p][count] = kc_peer_run(peer, p, repeats[p]);
            ratios[p][count] = theirs[p][count] / ours[count];
            if (theirs[p][count] < 0)
                return false;
        }
        if (ours[count++] < 0)
            return false;
    }
    f->ours = median_of(ours, (size_t)count);
    for (int p = 0; p < KC_PEERS; p++) {
        f->peers[p] = takes[p] ? median_of(theirs[p], (size_t)count) : 0;
        f->ratios[p] = takes[p] ? median_of(ratios[p], (size_t)count) : 0;
    }
    return true;
}

static bool
bench_row(const struct kc_card_row *row, const char *name, struct kc_peer *peer,
    bool has_peer, double part, struct figures *f)
{
    struct setup s;
    bool takes[KC_PEERS] = {false};
    bool ok = setup_init(&s, row, name);
    if (has_peer)
        ok = ok && kc_peer_row(peer, row, takes);
    ok = ok && setup_measure(&s, peer, takes, part, f);
    if (ok) {
        read_clocks(&s, repeats_of(f->ours, 500 * part * part), f->clocks,
            sizeof(f->clocks));
        f->kernel = s.call.kernel->name;
        f->why_portable = s.call.why_portable;
    }
    setup_free(&s);
    return ok;
}

static double
row_tflops(const struct kc_card_row *row, double ms)
{
    double flops = 4.0 * (double)(row->batch * row->heads * row->dim) *
                   (double)(row->len * row->len) * (row->causal ? 0.5 : 1);
    return ms > 0 ? flops / ms * 1e-9 : 0;
}

static void
print_row(const struct kc_card_row *row, const struct figures *f)
{
    printf("%4lld %3lld %6lld %2lld %-6s %-5s %7.1f", (long long)row->dim,
        (long long)row->heads, (long long)row->len, (long long)row->batch,
        row->causal ? "causal" : "full", f->kernel, row_tflops(row, f->ours));
    for (int p = 0; p < KC_PEERS; p++)
        if (f->ratios[p] > 0)
            printf("  %7.1f %5.3f", row_tflops(row, f->peers[p]), f->ratios[p]);
        else
            printf("  %7s %5s", "N/A", "N/A");
    printf("  %s%s%s\n", f->clocks, f->why_portable ? ", portable: " : "",
        f->why_portable ? f->why_portable : "");
}

static void
print_head(void)
{
    printf("   d   h      s  b mask   row      ours    cudnn ratio      fa2 "
           "ratio  clock, power   (TFLOP/s; ratio: their time over ours)\n");
    fflush(stdout);
}

static void
print_outcome(const struct outcome *o)
{
    if (o->missing)
        printf("%d rows failed\n", o->missing);
    else if (o->below)
        printf("below floor: %d of %d rows under 0.85 of cuDNN\n", o->below,
            o->judged);
    else if (o->judged)
        printf("all floors hold\n");
    else
        printf("no floor judged: no cuDNN beside ours\n");
}

/* One row of the list, at the requested part of its size. */
static void
run_row(int n, const struct kc_options *options, struct kc_peer *peer,
    bool has_peer, struct outcome *o)
{
    double part = options->draws < 100 ? (double)options->draws / 100 : 1;
    struct figures f = {0};
    struct kc_card_row row = all[n];
    row.len = (int64_t)((double)row.len * part);
    row.heads = part < 1 ? row.heads / 8 : row.heads;
    if (!bench_row(&row, options->kernel, peer, has_peer, part, &f)) {
        o->missing++;
        printf("row %d: failed\n", n);
    } else {
        o->judged += f.ratios[0] > 0;
        o->below += f.ratios[0] > 0 && f.ratios[0] < 0.85;
        print_row(&row, &f);
    }
    fflush(stdout);
}

/* FIRST-LAST, or FIRST- to the end of the list; false: neither. */
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

int
kc_bench_card(const struct kc_options *options)
{
    struct test_random random = {options->seed};
    struct outcome outcome = {0, 0, 0};
    struct kc_peer peer;
    int order[ROWS_COUNT], devices = 0, first, last;
    if (!parse_rows(options->rows, &first, &last)) {
        fprintf(stderr, "kernelcheck: --rows %s, see --help: rows 0 to %d\n",
            options->rows, ROWS_COUNT - 1);
        return 2;
    }
    bool has_peer = kc_peer_start(&peer);
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("kernelcheck --bench --vs torch: skipped: no CUDA device\n");
        kc_peer_stop(&peer);
        return 77;
    }
    printf("peer: %s\n", peer.version);
    print_head();
    for (int n = 0; n <= last - first; n++) {
        int other = (int)test_random_in(&random, 0, n);
        order[n] = order[other];
        order[other] = first + n;
    }
    for (int n = 0; n <= last - first; n++)
        run_row(order[n], options, &peer, has_peer, &outcome);
    kc_peer_stop(&peer);
    print_outcome(&outcome);
    return outcome.missing != 0;
}
