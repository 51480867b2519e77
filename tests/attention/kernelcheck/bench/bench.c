/* SPDX-License-Identifier: Apache-2.0
 *
 * --bench: the speed of every variant as a fraction of the best that this
 * machine's cores reach, measured in the same run by the same threads, and
 * relative to PyTorch's CPU attention where a python3 with torch is found.
 *
 * FLOP: forward 4 b h s s d (halved when causal), backward 2.5 times that.
 * Fractions of the peak of the arithmetic that a kernel uses: the floor of
 * every pass is 45 %, the goal 65 %, or 75 % in bf16 pairs. They are judged for
 * the kernels of AVX-512, and for that of AVX2 where no wider kernel runs;
 * products do not limit the kernel of AMX. Relative to PyTorch the fastest
 * kernel of a row has the floor 1 and the goal 1.2.
 * A row is repeated until its times agree; if they never do it is called noisy.
 * How much the peak changed during the run is printed as the drift of the
 * cores' clock.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/element.h"
#include "attention/kernelcheck/bench/bench.h"
#include "attention/kernelcheck/kc.h"
#include "attention/kernels/kernels.h"
#include "attention/pool.h"
#include "base/dtype.h"
#include "base/system/clock.h"
#include "base/system/cpu.h"
#include "support/median.h"

struct row {
    ulyx_dtype_t dtype;
    int64_t batch, heads, len, dim_qk, dim_v;
    bool causal;
};

static const struct row rows[] = {
    {ULYX_DTYPE_F32, 1, 4, 1024, 64, 64, false},
    {ULYX_DTYPE_F32, 1, 4, 2048, 128, 128, false},
    {ULYX_DTYPE_F32, 1, 4, 2048, 128, 128, true},
    {ULYX_DTYPE_F32, 1, 4, 2048, 80, 80, true},
    {ULYX_DTYPE_F32, 1, 2, 2048, 256, 256, true},
    {ULYX_DTYPE_BF16, 1, 4, 2048, 64, 64, false},
    {ULYX_DTYPE_BF16, 1, 4, 2048, 64, 64, true},
    {ULYX_DTYPE_BF16, 1, 4, 2048, 96, 96, true},
    {ULYX_DTYPE_BF16, 1, 4, 2048, 128, 128, false},
    {ULYX_DTYPE_BF16, 1, 4, 4096, 128, 128, true},
    {ULYX_DTYPE_BF16, 1, 4, 2048, 192, 128, true},
    {ULYX_DTYPE_BF16, 1, 2, 2048, 256, 256, true},
};
#define ROWS_COUNT (int)(sizeof(rows) / sizeof(rows[0]))

/* The tensors of a row. No two gradients share memory. */
struct bench_setup {
    ulyx_attention_t problem;
    ulyx_attention_tensor_t t[KC_TENSORS];
    void *workspace[2];
    int64_t bytes[2];
};

static void
values_fill(
    void *data, ulyx_dtype_t dtype, int64_t count, struct test_random *random)
{
    for (int64_t n = 0; n < count; n++)
        uli_element_store(data, dtype, n, test_random_normal(random));
}

static void
init_tensor(struct bench_setup *s, enum kc_name name, const struct row *row,
    struct test_random *random)
{
    ulyx_attention_tensor_t init = ULYX_ATTENTION_TENSOR_INIT;
    struct kc_case kc = {.problem = s->problem};
    struct kc_shape shape = kc_shape_of(&kc, name);
    bool stat = name == KC_LSE;
    int64_t size = stat ? 4 : uli_dtype_size(row->dtype);
    s->t[name] = init;
    s->t[name].base =
        aligned_alloc(64, (size_t)((kc_count(&shape) * size + 63) / 64 * 64));
    s->t[name].head_stride = shape.columns * size;
    s->t[name].row_stride = s->t[name].head_stride * shape.heads;
    s->t[name].batch_stride = s->t[name].row_stride * shape.rows;
    values_fill(s->t[name].base, stat ? ULYX_DTYPE_F32 : row->dtype,
        kc_count(&shape), random);
}

static void
setup_init(struct bench_setup *s, const struct row *row,
    const ulyx_attention_exec_t *exec)
{
    ulyx_attention_t init = ULYX_ATTENTION_INIT;
    struct test_random random = {7};
    s->problem = init;
    s->problem.dtype = row->dtype;
    s->problem.batch = row->batch;
    s->problem.heads_q = s->problem.heads_kv = row->heads;
    s->problem.len_q = s->problem.len_k = row->len;
    s->problem.dim_qk = row->dim_qk;
    s->problem.dim_v = row->dim_v;
    s->problem.mask = row->causal ? ULYX_MASK_CAUSAL : ULYX_MASK_NONE;
    for (int n = 0; n < KC_TENSORS; n++)
        init_tensor(s, (enum kc_name)n, row, &random);
    for (int pass = 0; pass < 2; pass++) {
        ulyx_attention_workspace(&s->problem, pass, exec, &s->bytes[pass]);
        s->workspace[pass] = aligned_alloc(64, (size_t)s->bytes[pass] + 64);
    }
}

static void
setup_free(struct bench_setup *s)
{
    for (int n = 0; n < KC_TENSORS; n++)
        free(s->t[n].base);
    free(s->workspace[0]);
    free(s->workspace[1]);
}

static ulyx_status_t
run_pass(struct bench_setup *s, int pass, const ulyx_attention_exec_t *exec)
{
    ulyx_attention_forward_t f = ULYX_ATTENTION_FORWARD_INIT;
    ulyx_attention_backward_t g = ULYX_ATTENTION_BACKWARD_INIT;
    f.q = g.q = &s->t[KC_Q], f.k = g.k = &s->t[KC_K];
    f.v = g.v = &s->t[KC_V], f.out = g.out = &s->t[KC_OUT];
    f.lse = g.lse = &s->t[KC_LSE], g.dout = &s->t[KC_DOUT];
    g.dq = &s->t[KC_DQ], g.dk = &s->t[KC_DK], g.dv = &s->t[KC_DV];
    if (pass == ULYX_ATTENTION_PASS_FORWARD)
        return ulyx_attention_forward(
            &s->problem, &f, exec, s->workspace[0], s->bytes[0], NULL);
    return ulyx_attention_backward(
        &s->problem, &g, exec, s->workspace[1], s->bytes[1], NULL);
}

static double
row_flops(const struct row *row, int pass)
{
    double flops = 2.0 * (double)(row->batch * row->heads) *
                   (double)(row->len * row->len) *
                   (double)(row->dim_qk + row->dim_v);
    return flops * (row->causal ? 0.5 : 1) * (pass ? 2.5 : 1);
}

/* Returns the median seconds of a pass, over at least half a second. */
static double
time_some(struct bench_setup *s, int pass, const ulyx_attention_exec_t *exec,
    bool cpu_time)
{
    double seconds[64];
    int count = 0;
    int64_t begin = uli_clock_ns();
    while (count < 64 &&
           (count < 5 || uli_clock_ns() - begin < 500 * 1000 * 1000)) {
        int64_t at = kc_clock_ns(cpu_time, exec->threads);
        run_pass(s, pass, exec);
        seconds[count++] =
            (double)(kc_clock_ns(cpu_time, exec->threads) - at) * 1e-9;
    }
    return median_of(seconds, (size_t)count);
}

/* A time, and the spread of the last repeats divided by the time. */
struct timing {
    double seconds, spread;
};
enum { REPEATS = 3, MOST_REPEATS = 8 };
#define STEADY 0.05

/* Repeats until the last few times agree; a row whose times never agree is
 * noisy. Returns seconds < 0 if the call is refused. */
static struct timing
time_pass(struct bench_setup *s, int pass, const ulyx_attention_exec_t *exec,
    bool cpu_time)
{
    struct timing timing = {-1, 1};
    double last[REPEATS];
    if (run_pass(s, pass, exec) != ULYX_SUCCESS)
        return timing;
    for (int n = 0; n < MOST_REPEATS; n++) {
        last[n % REPEATS] = time_some(s, pass, exec, cpu_time);
        if (n + 1 < REPEATS)
            continue;
        double low = last[0], high = last[0], sorted[REPEATS];
        for (int i = 0; i < REPEATS; i++) {
            low = fmin(low, last[i]);
            high = fmax(high, last[i]);
            sorted[i] = last[i];
        }
        timing.seconds = median_of(sorted, REPEATS);
        timing.spread = (high - low) / timing.seconds;
        if (timing.spread < STEADY)
            break;
    }
    return timing;
}

/* Measures PyTorch's seconds of (forward, backward) for a row. Returns false if
 * PyTorch is not available. */
static bool
time_torch(
    const struct row *row, int threads, bool cpu_time, double seconds_p[2])
{
    char command[2048];
    const char *python = getenv("ULYX_BENCH_PYTHON");
    snprintf(command, sizeof(command),
        "%s -c 'import torch,time,statistics as st\n"
        "assert int(torch.__version__.split(\".\")[0])>=2\n"
        "torch.set_num_threads(%d)\n"
        "now=lambda: %s\n"
        "def t(*n): return torch.randn(*n,dtype=torch.%s,requires_grad=True)\n"
        "q=t(%d,%d,%d,%d);k=t(%d,%d,%d,%d);v=t(%d,%d,%d,%d)\n"
        "f=torch.nn.functional.scaled_dot_product_attention\n"
        "A=[];B=[];e=time.time()+1.2\n"
        "while len(A)<6 or time.time()<e:\n"
        "  a=now();o=f(q,k,v,is_causal=%s);"
        "b=now()\n"
        "  g=torch.ones_like(o);c=now()\n"
        "  torch.autograd.grad(o,(q,k,v),g);d=now()\n"
        "  A.append(b-a);B.append(d-c)\n"
        "print(st.median(A[1:]),st.median(B[1:]))' 2>/dev/null",
        python ? python : "python3", threads,
        cpu_time ? (threads > 1 ? "time.process_time()/torch.get_num_threads()"
                                : "time.process_time()")
                 : "time.perf_counter()",
        row->dtype == ULYX_DTYPE_F32 ? "float32" : "bfloat16", (int)row->batch,
        (int)row->heads, (int)row->len, (int)row->dim_qk, (int)row->batch,
        (int)row->heads, (int)row->len, (int)row->dim_qk, (int)row->batch,
        (int)row->heads, (int)row->len, (int)row->dim_v,
        row->causal ? "True" : "False");
    FILE *pipe = popen(command, "r");
    int got = pipe ? fscanf(pipe, "%lf %lf", &seconds_p[0], &seconds_p[1]) : 0;
    if (pipe)
        pclose(pipe);
    return got == 2;
}

/* The results that one limit judges, and those below it. */
struct judged {
    int count, below;
    char names[4096];
};

struct outcome {
    struct judged floors, goals;
    int torch_rows, noisy;
    /* For each kind of arithmetic, the least and the most that the peak loop
     * reached in the run: how much the clock of the cores changed. */
    double least[KC_ARITHMETICS], most[KC_ARITHMETICS];
};

static double
peak_now(struct outcome *v, enum kc_arithmetic kind, int threads, bool cpu_time)
{
    double peak = kc_peak(kind, threads, cpu_time);
    v->most[kind] = fmax(v->most[kind], peak);
    v->least[kind] = v->least[kind] > 0 ? fmin(v->least[kind], peak) : peak;
    return peak;
}

static void
judged_add(struct judged *judged, const char *what, bool holds)
{
    size_t used = strlen(judged->names);
    judged->count++;
    judged->below += !holds;
    if (!holds)
        snprintf(judged->names + used, sizeof(judged->names) - used, "%s%s",
            used ? ", " : "", what);
}

/* share: of the peak. ratio: PyTorch's time divided by ours; <= 0 where there
 * is none. */
static void
outcome_judge(struct outcome *v, const struct row *row, const char *kernel,
    bool fastest, int pass, double share, double ratio)
{
    char what[128];
    bool wide = strncmp(kernel, "avx512", 6) == 0;
    int used = snprintf(what, sizeof(what), "%s %s %s d %lld %s", kernel,
        row->dtype == ULYX_DTYPE_F32 ? "f32" : "bf16",
        pass ? "backward" : "forward", (long long)row->dim_qk,
        row->causal ? "causal" : "full");
    if (wide || (fastest && strcmp(kernel, "avx2") == 0)) {
        bool pairs = strcmp(kernel, "avx512-bf16") == 0;
        judged_add(&v->floors, what, share >= 0.45);
        judged_add(&v->goals, what, share >= (pairs ? 0.75 : 0.65));
    }
    snprintf(what + used, sizeof(what) - (size_t)used, " against torch");
    if (fastest && ratio > 0) {
        judged_add(&v->floors, what, ratio >= 1);
        judged_add(&v->goals, what, ratio >= 1.2);
    }
}

static void
print_pass(const struct row *row, const char *kernel, bool fastest, int pass,
    struct timing timing, double peak, double torch_seconds, struct outcome *v)
{
    static const char *const names[2] = {"forward", "backward"};
    char ratio[32] = "N/A";
    double seconds = timing.seconds;
    double flops = row_flops(row, pass) / seconds;
    bool noisy = timing.spread >= STEADY;
    if (torch_seconds > 0)
        snprintf(ratio, sizeof(ratio), "%.2fx", torch_seconds / seconds);
    printf("%-4s s %5lld d %3lld/%-3lld %-6s %-11s %-8s %7.1f GFLOP/s %5.1f %% "
           "of peak  spread %4.1f %%  torch %s%s\n",
        row->dtype == ULYX_DTYPE_F32 ? "f32" : "bf16", (long long)row->len,
        (long long)row->dim_qk, (long long)row->dim_v,
        row->causal ? "causal" : "full", kernel, names[pass], flops * 1e-9,
        100 * flops / peak, 100 * timing.spread, ratio, noisy ? "  noisy" : "");
    fflush(stdout);
    v->noisy += noisy;
    outcome_judge(
        v, row, kernel, fastest, pass, flops / peak, torch_seconds / seconds);
}

static enum kc_arithmetic
arithmetic_of(const char *kernel)
{
    if (strcmp(kernel, "amx") == 0)
        return KC_TILES;
    return strcmp(kernel, "avx512-bf16") == 0 ? KC_PAIRS : KC_FP32;
}

static void
bench_row(const struct row *row, const struct kc_options *options, int threads,
    struct outcome *v)
{
    const struct uli_attn_kernel *kernel;
    double torch_seconds[2] = {-1, -1};
    int taken = 0;
    if (!options->kernel &&
        time_torch(row, threads, options->cpu_time, torch_seconds))
        v->torch_rows++;
    for (int n = 0; (kernel = uli_attn_kernel_at(n)) && kernel->tile; n++) {
        const char *name = kernel->name;
        enum kc_arithmetic kind = arithmetic_of(name);
        if (!kc_takes(name, row->dtype) ||
            (options->kernel && strcmp(options->kernel, name) != 0))
            continue;
        bool fastest = taken++ == 0;
        if (!options->full && !options->kernel && !fastest &&
            strncmp(name, "avx512", 6) != 0)
            continue;
        struct bench_setup s;
        ulyx_attention_exec_t exec = ULYX_ATTENTION_EXEC_INIT;
        exec.kernel = name;
        exec.threads = threads;
        setup_init(&s, row, &exec);
        for (int pass = 0; pass < 2; pass++) {
            double peak = peak_now(v, kind, threads, options->cpu_time);
            struct timing timing =
                time_pass(&s, pass, &exec, options->cpu_time);
            double again = peak_now(v, kind, threads, options->cpu_time);
            if (timing.seconds > 0)
                print_pass(row, name, fastest, pass, timing,
                    again > peak ? again : peak, torch_seconds[pass], v);
        }
        setup_free(&s);
    }
}

/* Prints the name of the processor. */
static void
print_cpu(void)
{
    char line[256], model[256] = "";
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && !model[0] && fgets(line, sizeof(line), file))
        if (!strncmp(line, "model name", 10) && strchr(line, ':'))
            snprintf(model, sizeof(model), "%.*s",
                (int)strcspn(strchr(line, ':') + 2, "\n"),
                strchr(line, ':') + 2);
    if (file)
        fclose(file);
    printf("%s, %s\n", model[0] ? model : "processor", uli_cpu_name());
}

static void
print_drift(const struct outcome *v)
{
    static const char *const kinds[KC_ARITHMETICS] = {
        "fp32", "bf16 pairs", "bf16 tiles"};
    for (int kind = 0; kind < KC_ARITHMETICS; kind++)
        if (v->most[kind] > 0)
            printf("peak of %s within the run: %.1f to %.1f GFLOP/s, "
                   "drift %.0f %%\n",
                kinds[kind], v->least[kind] * 1e-9, v->most[kind] * 1e-9,
                100 * (v->most[kind] / v->least[kind] - 1));
    if (v->noisy)
        printf("%d noisy: three repeats in a row never agreed within %.0f %%\n",
            v->noisy, 100 * STEADY);
}

static void
print_judged(const struct outcome *v)
{
    if (v->goals.below)
        printf("%d of %d below goal: %s\n", v->goals.below, v->goals.count,
            v->goals.names);
    else if (v->goals.count)
        printf("all %d goals hold\n", v->goals.count);
    if (v->floors.below)
        printf("below floor: %s\n", v->floors.names);
    else if (v->floors.count)
        printf("all floors hold\n");
    else
        printf("no floor judged: they are of the AVX-512 kernels, and of avx2 "
               "where it is the fastest\n");
}

int
kc_bench(const struct kc_options *options)
{
    struct outcome v = {.noisy = 0};
    int threads = uli_pool_cores();
    print_cpu();
    printf("peak of %d threads: fp32 %.1f GFLOP/s, bf16 pairs %.1f GFLOP/s, "
           "bf16 tiles %.1f GFLOP/s\n",
        threads, kc_peak(KC_FP32, threads, options->cpu_time) * 1e-9,
        kc_peak(KC_PAIRS, threads, options->cpu_time) * 1e-9,
        kc_peak(KC_TILES, threads, options->cpu_time) * 1e-9);
    for (int n = 0; n < ROWS_COUNT; n++)
        bench_row(&rows[n], options, threads, &v);
    print_drift(&v);
    if (v.torch_rows == 0)
        printf("torch: N/A (no python3 with torch 2.0 or later; "
               "ULYX_BENCH_PYTHON names another)\n");
    print_judged(&v);
    return 0;
}
