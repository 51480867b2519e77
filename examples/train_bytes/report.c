/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines about steps go to standard output. The progress line goes to standard
 * error, and is drawn again below each line.
 */
#include "report.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double
report_clock_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double
report_peak_bytes(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    double kib = 0;

    if (!file)
        return 0;
    while (fgets(line, sizeof(line), file))
        if (sscanf(line, "VmHWM: %lf", &kib) == 1)
            break;
    fclose(file);
    return kib * 1024;
}

void
report_begin(struct report *report_p, const struct options *options,
    int64_t values, double entropy, int64_t corpus_bytes)
{
    report_p->options = options;
    report_p->terminal = isatty(STDERR_FILENO) && !options->no_progress;
    report_p->begin_s = report_clock_s();
    printf("%lld parameters of %s, %lld layer%s, %lld/%lld heads of %lld; "
           "%lld tokens per step in %lld documents, on %lld rank%s\n",
        (long long)values, options->f64 ? "f64" : "f32",
        (long long)options->layers, options->layers == 1 ? "" : "s",
        (long long)options->heads, (long long)options->kv_heads,
        (long long)(options->dim / options->heads), (long long)options->seq,
        (long long)options->docs, (long long)options->ranks,
        options->ranks == 1 ? "" : "s");
    printf("text of %lld bytes; guessing by frequency gives loss %.4f\n",
        (long long)corpus_bytes, entropy);
    fflush(stdout);
}

static void
draw_progress(const struct report *report, int64_t done, double loss)
{
    enum { WIDTH = 30 };
    int64_t steps = report->options->steps;
    double past_s = report_clock_s() - report->begin_s;
    char bar[WIDTH + 1];
    int full = (int)(WIDTH * done / steps);

    memset(bar, '.', WIDTH);
    memset(bar, '#', (size_t)full);
    bar[WIDTH] = 0;
    fprintf(stderr, "\r\033[K[%s] %lld/%lld  loss %.4f  %.0f s left", bar,
        (long long)done, (long long)steps, loss,
        past_s / (double)done * (double)(steps - done));
    fflush(stderr);
}

void
report_step(const struct report *report, int64_t step, double loss, double norm,
    double step_s)
{
    if (report->terminal) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    printf("step %lld loss %.10g norm %.6g %.0f tokens/s\n",
        (long long)step + 1, loss, norm, (double)report->options->seq / step_s);
    fflush(stdout);
    if (report->terminal)
        draw_progress(report, step + 1, loss);
}

void
report_end(const struct report *report, const struct report_totals *totals)
{
    const struct options *o = report->options;
    double past_s = report_clock_s() - report->begin_s;
    double steps = (double)o->steps, mb = 1e6 * steps;

    if (report->terminal)
        fputs("\r\033[K", stderr);
    printf("loss %.4f, guessing by frequency %.4f; %.0f tokens/s over %.1f s\n",
        totals->loss, totals->entropy, (double)o->seq * steps / past_s, past_s);
    if (o->ranks > 1)
        printf("sent between ranks per step: %.3f MB by distributed attention, "
               "%.3f MB to sum gradients\n",
            totals->dist_bytes / mb, totals->sum_bytes / mb);
    printf(o->as_threads && o->ranks > 1
               ? "peak memory of the process, which all ranks share, MiB:"
               : "peak memory per rank, MiB:");
    for (int64_t r = 0; r < (o->as_threads ? 1 : o->ranks); r++)
        printf(" %.1f", totals->peak_bytes[r] / 1048576);
    printf("\n");
}
