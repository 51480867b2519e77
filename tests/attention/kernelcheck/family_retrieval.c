/* SPDX-License-Identifier: Apache-2.0
 *
 * Retrieval. Keys are vectors of +-1 that hardly resemble each other, and q_i
 * is a large multiple of key pi(i), which is visible to row i. The softmax then
 * selects one key: out_i = v_pi(i) exactly, dv_j is the sum of dout over the
 * rows that chose j, and 0 if there are none, and dq and dk vanish.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/kernelcheck/kc.h"
#include "base/mask.h"

/* The chosen key has the score 181 and all others less than 80: their weights
 * are less than 1e-40. */
#define GAIN 16

static void
fill_keys(struct kc_case *kc, struct test_random *random)
{
    struct kc_values *k = &kc->values[KC_K];
    for (int64_t n = 0; n < kc_count(&k->shape); n++)
        k->at[n] = test_random_next(random) >> 63 ? 1 : -1;
}

/* Chooses the keys: chosen[batch][head][row] is a flattened key that is visible
 * to the row, or -1. */
static int64_t *
case_choose(struct kc_case *kc, struct test_random *random)
{
    const ulyx_attention_t *p = &kc->problem;
    int64_t *chosen = kc_alloc(8 * p->batch * p->heads_q * p->len_q);
    for (int64_t n = 0; n < p->batch * p->heads_q * p->len_q; n++) {
        int64_t batch = n / (p->heads_q * p->len_q), i = n % p->len_q, seen = 0;
        chosen[n] = -1;
        for (int64_t flat = 0; flat < p->batch * p->len_k; flat++)
            if (kc_sees(kc, batch, i, flat / p->len_k, flat % p->len_k) &&
                test_random_in(random, 0, seen++) == 0)
                chosen[n] = flat;
        int64_t head = n / p->len_q % p->heads_q;
        double *q = kc_row(&kc->values[KC_Q], batch, head, i);
        const double *key =
            chosen[n] < 0
                ? NULL
                : kc_row(&kc->values[KC_K], chosen[n] / p->len_k,
                      head * p->heads_kv / p->heads_q, chosen[n] % p->len_k);
        for (int64_t c = 0; c < p->dim_qk; c++)
            q[c] = key ? GAIN * key[c] : 0;
    }
    return chosen;
}

static bool
check_out(const struct kc_case *kc, const int64_t *chosen,
    const struct kc_result *result)
{
    const ulyx_attention_t *p = &kc->problem;
    for (int64_t n = 0; n < p->batch * p->heads_q * p->len_q; n++) {
        const double *out = result->values[KC_OUT].at + n * p->dim_v;
        int64_t kv = n / p->len_q % p->heads_q * p->heads_kv / p->heads_q;
        for (int64_t c = 0; c < p->dim_v; c++) {
            double truth = chosen[n] < 0
                               ? 0
                               : kc_row(&kc->values[KC_V], chosen[n] / p->len_k,
                                     kv, chosen[n] % p->len_k)[c];
            if (out[c] == truth)
                continue;
            printf("FAILED retrieval: row %lld column %lld is %.9g, its key "
                   "holds %.9g\n",
                (long long)n, (long long)c, out[c], truth);
            return false;
        }
    }
    return true;
}

/* Computes dv from the choices. The other gradients are sums of products with p
 * in {0, 1}. */
static bool
check_gradients(const struct kc_case *kc, const int64_t *chosen,
    const struct kc_result *result)
{
    const ulyx_attention_t *p = &kc->problem;
    struct kc_values dv = {.shape = kc->values[KC_DV].shape};
    dv.at = kc_alloc(8 * kc_count(&dv.shape));
    /* whether some row has chosen the key */
    bool *taken = kc_alloc(kc_count(&dv.shape));
    bool ok = true;
    for (int64_t n = 0; n < p->batch * p->heads_q * p->len_q; n++) {
        int64_t kv = n / p->len_q % p->heads_q * p->heads_kv / p->heads_q;
        if (chosen[n] >= 0)
            taken[kc_row(&dv, chosen[n] / p->len_k, kv, chosen[n] % p->len_k) -
                  dv.at] = true;
        for (int64_t c = 0; chosen[n] >= 0 && c < p->dim_v; c++)
            kc_row(&dv, chosen[n] / p->len_k, kv, chosen[n] % p->len_k)[c] +=
                kc->values[KC_DOUT].at[n * p->dim_v + c];
    }
    double eps = p->dtype == ULYX_DTYPE_BF16  ? 0x1p-7
                 : p->dtype == ULYX_DTYPE_F16 ? 0x1p-9
                                              : 0x1p-14; /* the error of lse */
    for (int64_t n = 0; ok && n < kc_count(&dv.shape); n++) {
        double got = result->values[KC_DV].at[n];
        ok = taken[n / p->dim_v * p->dim_v]
                 ? fabs(got - dv.at[n]) <= eps * (4 + fabs(dv.at[n]))
                 : fabs(got) < 1e-30;
        if (!ok)
            printf("FAILED retrieval: dv element %lld is %.9g, chosen rows "
                   "give %.9g\n",
                (long long)n, got, dv.at[n]);
    }
    for (int64_t n = 0; ok && n < kc_count(&kc->values[KC_DQ].shape); n++)
        ok = fabs(result->values[KC_DQ].at[n]) < 64 * eps;
    if (!ok)
        printf("FAILED retrieval gradients\n");
    free(dv.at);
    free(taken);
    return ok;
}

/* Each problem has its own mask and dtype. */
static ulyx_attention_t
problem_of(int n)
{
    ulyx_attention_t p = ULYX_ATTENTION_INIT;
    p.dtype = n % 2 ? ULYX_DTYPE_BF16 : ULYX_DTYPE_F32;
    p.batch = 2, p.heads_q = 4, p.heads_kv = 2;
    p.len_q = 150 + n, p.len_k = 201 - n;
    p.dim_qk = 128, p.dim_v = 64;
    p.mask = (ulyx_mask_kind_t)(n / 2);
    p.window_left = 40, p.window_right = 9;
    return p;
}

static bool
run_retrieval(const char *kernel, const ulyx_attention_t *problem,
    struct test_random *random)
{
    struct kc_layout layout = {.kernel = kernel, .threads = 2};
    struct kc_result forward, backward = {.scores = 0};
    struct kc_case kc;
    kc_simple(&kc, problem, random);
    fill_keys(&kc, random);
    int64_t *chosen = case_choose(&kc, random);
    memset(kc.values[KC_DLSE].at, 0,
        (size_t)kc_count(&kc.values[KC_DLSE].shape) * 8);
    kc_solve(&kc);
    bool ok = kc_run(&kc, &kc.problem, &layout, false, &forward) &&
              check_out(&kc, chosen, &forward);
    if (kc_passes > 1)
        ok = ok && kc_run(&kc, &kc.problem, &layout, true, &backward) &&
             check_gradients(&kc, chosen, &backward);
    free(chosen);
    kc_result_free(&forward);
    kc_result_free(&backward);
    kc_free(&kc);
    return ok;
}

void
kc_family_retrieval(
    const struct kc_options *options, const char *kernel, struct kc_tally *t)
{
    for (int n = 0; n < 2 * ULI_MASKS; n++) {
        struct test_random random = {options->seed + (uint64_t)n};
        const ulyx_attention_t problem = problem_of(n);
        if (!kc_takes_problem(kernel, &problem))
            continue;
        t->cases++;
        t->failed += !run_retrieval(kernel, &problem, &random);
    }
}
