/* SPDX-License-Identifier: Apache-2.0
 *
 * Long sequences: sampled query rows (out, lse, dq) and sampled keys (dk, dv),
 * compared with sums in fp64 over all keys or rows that they attend to. The
 * truth of backward uses the lse and delta that backward was given, as its
 * definition does.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/kernelcheck/kc.h"

#define SAMPLES 12

struct sums {
    double error, size; /* sums of squares */
};

static void
sums_compare(
    struct sums *s, const double *got, const double *truth, int64_t count)
{
    for (int64_t c = 0; c < count; c++) {
        double e = got[c] - truth[c];
        s->error += isfinite(e) ? e * e : INFINITY;
        s->size += truth[c] * truth[c];
    }
}

static double
rows_dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t c = 0; c < count; c++)
        sum += a[c] * b[c];
    return sum;
}

static double
case_score(const struct kc_case *kc, int64_t head, int64_t i, int64_t j)
{
    const ulyx_attention_t *p = &kc->problem;
    return rows_dot(kc_row(&kc->values[KC_Q], 0, head, i),
               kc_row(&kc->values[KC_K], 0, 0, j), p->dim_qk) /
           sqrt((double)p->dim_qk);
}

static void
sample_forward(const struct kc_case *kc, const struct kc_result *result,
    int64_t head, int64_t i, struct sums *out_sums, struct sums *lse_sums)
{
    const ulyx_attention_t *p = &kc->problem;
    double out[512] = {0}, sum = 0, max = -INFINITY;
    for (int64_t j = 0; j <= i; j++)
        max = fmax(max, case_score(kc, head, i, j));
    for (int64_t j = 0; j <= i; j++) {
        double weight = exp(case_score(kc, head, i, j) - max);
        sum += weight;
        for (int64_t c = 0; c < p->dim_v; c++)
            out[c] += weight * kc_row(&kc->values[KC_V], 0, 0, j)[c];
    }
    for (int64_t c = 0; c < p->dim_v; c++)
        out[c] /= sum;
    double lse = max + log(sum);
    sums_compare(
        out_sums, kc_row(&result->values[KC_OUT], 0, head, i), out, p->dim_v);
    sums_compare(
        lse_sums, kc_row(&result->values[KC_LSE], 0, head, i), &lse, 1);
}

/* Computes p and scale * ds of a pair, from the given lse and delta. */
static void
case_pair(const struct kc_case *kc, int64_t head, int64_t i, int64_t j,
    double *p_p, double *ds_p)
{
    const ulyx_attention_t *p = &kc->problem;
    const struct kc_values *v = kc->values;
    *p_p = exp(case_score(kc, head, i, j) - *kc_row(&v[KC_LSE], 0, head, i));
    double dp = rows_dot(
        kc_row(&v[KC_DOUT], 0, head, i), kc_row(&v[KC_V], 0, 0, j), p->dim_v);
    *ds_p = *p_p *
            (dp - *kc_row(&v[KC_DELTA], 0, head, i) +
                *kc_row(&v[KC_DLSE], 0, head, i)) /
            sqrt((double)p->dim_qk);
}

static void
sample_backward(const struct kc_case *kc, const struct kc_result *result,
    int64_t at, struct sums s[3])
{
    const ulyx_attention_t *p = &kc->problem;
    double dq[512] = {0}, dk[512] = {0}, dv[512] = {0}, weight, ds;
    for (int64_t j = 0; j <= at; j++) {
        case_pair(kc, 0, at, j, &weight, &ds);
        for (int64_t c = 0; c < p->dim_qk; c++)
            dq[c] += ds * kc_row(&kc->values[KC_K], 0, 0, j)[c];
    }
    for (int64_t n = 0; n < p->heads_q; n++)
        for (int64_t i = at; i < p->len_q; i++) {
            case_pair(kc, n, i, at, &weight, &ds);
            for (int64_t c = 0; c < p->dim_qk; c++)
                dk[c] += ds * kc_row(&kc->values[KC_Q], 0, n, i)[c];
            for (int64_t c = 0; c < p->dim_v; c++)
                dv[c] += weight * kc_row(&kc->values[KC_DOUT], 0, n, i)[c];
        }
    sums_compare(
        &s[0], kc_row(&result->values[KC_DQ], 0, 0, at), dq, p->dim_qk);
    sums_compare(
        &s[1], kc_row(&result->values[KC_DK], 0, 0, at), dk, p->dim_qk);
    sums_compare(&s[2], kc_row(&result->values[KC_DV], 0, 0, at), dv, p->dim_v);
}

static bool
sums_are_small(const char *what, const struct sums *s, double limit)
{
    double relative = sqrt(s->error / (s->size + 1e-30));
    if (relative <= limit)
        return true;
    printf("FAILED long %s: relative RMS error %.3g, limit %.3g\n", what,
        relative, limit);
    return false;
}

/* Forward's results become backward's inputs. */
static void
take_forward(struct kc_case *kc, const struct kc_result *result)
{
    const ulyx_attention_t *p = &kc->problem;
    for (int t = KC_OUT; t <= KC_LSE; t++)
        memcpy(kc->values[t].at, result->values[t].at,
            (size_t)kc_count(&kc->values[t].shape) * 8);
    for (int64_t n = 0; n < p->heads_q * p->len_q; n++)
        kc->values[KC_DELTA].at[n] =
            rows_dot(kc->values[KC_OUT].at + n * p->dim_v,
                kc->values[KC_DOUT].at + n * p->dim_v, p->dim_v);
}

static bool
run_case(const char *kernel, ulyx_dtype_t dtype, int64_t len, uint64_t seed)
{
    ulyx_attention_t p = ULYX_ATTENTION_INIT;
    struct test_random random = {seed};
    struct kc_layout layout = {.kernel = kernel, .threads = 2};
    struct kc_result forward, backward = {0};
    struct sums f[2] = {{0, 0}}, g[3] = {{0, 0}};
    struct kc_case kc;
    p.dtype = dtype;
    p.batch = 1, p.heads_q = 2, p.heads_kv = 1;
    p.len_q = p.len_k = len;
    p.dim_qk = p.dim_v = 64;
    p.mask = ULYX_MASK_CAUSAL;
    kc_simple(&kc, &p, &random);
    bool ok = kc_run(&kc, &kc.problem, &layout, false, &forward);
    for (int n = 0; ok && n < SAMPLES; n++)
        sample_forward(&kc, &forward, n % 2,
            test_random_in(&random, len - len / 2, len - 1), &f[0], &f[1]);
    if (ok) {
        take_forward(&kc, &forward);
        ok = kc_run(&kc, &kc.problem, &layout, true, &backward);
    }
    for (int n = 0; ok && n < SAMPLES; n++)
        sample_backward(&kc, &backward, test_random_in(&random, 0, len - 1), g);
    double limit = dtype == ULYX_DTYPE_BF16  ? 0.015
                   : dtype == ULYX_DTYPE_F16 ? 2e-3
                                             : 1e-5;
    ok = ok && sums_are_small("out", &f[0], limit) &&
         sums_are_small("lse", &f[1], 1e-6) &&
         sums_are_small("dq", &g[0], limit) &&
         sums_are_small("dk", &g[1], limit) &&
         sums_are_small("dv", &g[2], limit);
    kc_result_free(&forward);
    kc_result_free(&backward);
    kc_free(&kc);
    return ok;
}

void
kc_family_long(
    const struct kc_options *options, const char *kernel, struct kc_tally *t)
{
    static const ulyx_dtype_t dtypes[] = {
        ULYX_DTYPE_F32, ULYX_DTYPE_BF16, ULYX_DTYPE_F16};
    int64_t len = options->full ? 32768 + 77 : 1500;
    if (strcmp(kernel, "reference") == 0)
        return;
    for (int d = 0; d < 3; d++) {
        if (!kc_takes(kernel, dtypes[d]))
            continue;
        t->cases++;
        if (!run_case(kernel, dtypes[d], len, options->seed)) {
            printf("  kernel %s, dtype %d, %lld rows\n", kernel, dtypes[d],
                (long long)len);
            t->failed++;
        }
    }
}
