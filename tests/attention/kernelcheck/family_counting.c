/* SPDX-License-Identifier: Apache-2.0
 *
 * Counting. With q = 0 every visible key has the same weight, so lse =
 * ln(visible keys), and V with indicator columns (key j in column j mod dim_v)
 * gives exact counts. The truth comes from the mask's definition, not from a
 * kernel. In backward, a row gives each visible key an equal share of its dout.
 * The long cases do the same with few indicators at the very edges of windows,
 * where one key too many or too few shows at any length.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/kernelcheck/kc.h"

static double
half_step(ulyx_dtype_t dtype)
{
    return dtype == ULYX_DTYPE_BF16  ? 0x1p-8
           : dtype == ULYX_DTYPE_F16 ? 0x1p-10
           : dtype == ULYX_DTYPE_F32 ? 0x1p-21
                                     : 0x1p-45;
}

static void
fill_indicators(struct kc_case *kc)
{
    struct kc_values *v = &kc->values[KC_V];
    memset(
        kc->values[KC_Q].at, 0, (size_t)kc_count(&kc->values[KC_Q].shape) * 8);
    memset(v->at, 0, (size_t)kc_count(&v->shape) * 8);
    for (int64_t i = 0; i < v->shape.batch; i++)
        for (int64_t n = 0; n < v->shape.heads; n++)
            for (int64_t j = 0; j < v->shape.rows; j++)
                kc_row(v, i, n, j)[j % v->shape.columns] = 1;
}

/* Stores in counts[c] how many of the keys to which the row attends have column
 * c. Returns the number of all keys to which it attends. */
static int64_t
count_row(const struct kc_case *kc, int64_t batch, int64_t i, int64_t *counts)
{
    const ulyx_attention_t *p = &kc->problem;
    int64_t visible = 0;
    memset(counts, 0, (size_t)p->dim_v * 8);
    for (int64_t n = 0; n < p->batch; n++)
        for (int64_t j = 0; j < p->len_k; j++)
            if (kc_sees(kc, batch, i, n, j)) {
                counts[j % p->dim_v]++;
                visible++;
            }
    return visible;
}

static bool
check_row(const struct kc_case *kc, const double *out, double lse,
    int64_t visible, const int64_t *counts)
{
    double step = half_step(kc->problem.dtype);
    double truth = visible ? log((double)visible) : -INFINITY;
    if (truth != lse && !(fabs(lse - truth) <= 0x1p-22 * (1 + fabs(truth)))) {
        printf("FAILED lse %.9g, %lld keys are visible (ln %.9g)\n", lse,
            (long long)visible, truth);
        return false;
    }
    for (int64_t c = 0; c < kc->problem.dim_v; c++) {
        double share = visible ? (double)counts[c] / (double)visible : 0;
        if (fabs(out[c] - share) > step * share) {
            printf("FAILED out[%lld] %.9g, expected %lld of %lld\n",
                (long long)c, out[c], (long long)counts[c], (long long)visible);
            return false;
        }
    }
    return true;
}

static bool
check_counts(const struct kc_case *kc, const struct kc_result *result)
{
    const ulyx_attention_t *p = &kc->problem;
    int64_t counts[512];
    for (int64_t i = 0; i < p->batch; i++)
        for (int64_t r = 0; r < p->len_q; r++) {
            int64_t visible = count_row(kc, i, r, counts);
            for (int64_t n = 0; n < p->heads_q; n++)
                if (kc_holds(kc, false, i, n, r) &&
                    !check_row(kc, kc_row(&result->values[KC_OUT], i, n, r),
                        *kc_row(&result->values[KC_LSE], i, n, r), visible,
                        counts))
                    return false;
        }
    return true;
}

static int64_t
kv_head(const struct kc_case *kc, int64_t head)
{
    const ulyx_attention_t *p = &kc->problem;
    return p->kv_map ? p->kv_map[head] : head * p->heads_kv / p->heads_q;
}

/* Adds a row's share of dout to the dv of a visible key, for all heads. */
static void
add_share(const struct kc_case *kc, int64_t batch, int64_t i, int64_t k_batch,
    int64_t j, double share, struct kc_values *sum, struct kc_values *most)
{
    for (int64_t n = 0; n < kc->problem.heads_q; n++) {
        if (!kc_holds(kc, false, batch, n, i))
            continue;
        const double *dout = kc_row(&kc->values[KC_DOUT], batch, n, i);
        double *to = kc_row(sum, k_batch, kv_head(kc, n), j);
        double *at_most = kc_row(most, k_batch, kv_head(kc, n), j);
        for (int64_t c = 0; c < kc->problem.dim_v; c++) {
            to[c] += share * dout[c];
            at_most[c] += share * fabs(dout[c]);
        }
    }
}

static void
add_shares(
    const struct kc_case *kc, struct kc_values *sum, struct kc_values *most)
{
    const ulyx_attention_t *p = &kc->problem;
    int64_t counts[512];
    for (int64_t i = 0; i < p->batch * p->len_q; i++) {
        int64_t batch = i / p->len_q, row = i % p->len_q;
        int64_t visible = count_row(kc, batch, row, counts);
        for (int64_t j = 0; j < p->batch * p->len_k && visible; j++)
            if (kc_sees(kc, batch, row, j / p->len_k, j % p->len_k))
                add_share(kc, batch, row, j / p->len_k, j % p->len_k,
                    1 / (double)visible, sum, most);
    }
}

/* Shares are rounded, and so are their sums. */
static bool
check_dv(const struct kc_case *kc, const struct kc_result *result)
{
    struct kc_shape shape = kc->values[KC_DV].shape;
    int64_t count = kc_count(&shape), rows = count / (shape.columns + !count);
    struct kc_values sum = {shape, kc_alloc(8 * count)};
    struct kc_values most = {shape, kc_alloc(8 * count)};
    bool ok = true;
    add_shares(kc, &sum, &most);
    for (int64_t r = 0; r < rows && ok; r++) {
        int64_t head = r / shape.rows, first = r * shape.columns;
        if (!kc_holds(kc, true, head / shape.heads, head % shape.heads,
                r % shape.rows))
            continue;
        for (int64_t at = first; at < first + shape.columns && ok; at++) {
            double is = result->values[KC_DV].at[at];
            ok = fabs(is - sum.at[at]) <=
                 2 * half_step(kc->problem.dtype) * most.at[at];
            if (!ok)
                printf("FAILED dv of row %lld, column %lld: %.9g, expected "
                       "%.9g\n",
                    (long long)r, (long long)(at - first), is, sum.at[at]);
        }
    }
    free(sum.at);
    free(most.at);
    return ok;
}

static bool
count_passes(const struct kc_case *kc, const struct kc_layout *layout)
{
    bool ok = true;
    for (int backward = kc_first_pass; backward < kc_passes && ok; backward++) {
        struct kc_result result;
        ok = kc_run(kc, &kc->problem, layout, backward, &result) &&
             (backward ? check_dv(kc, &result) : check_counts(kc, &result));
        kc_result_free(&result);
    }
    return ok;
}

void
kc_family_counting(
    const struct kc_options *options, const char *kernel, struct kc_tally *t)
{
    static const ulyx_dtype_t dtypes[] = {
        ULYX_DTYPE_F32, ULYX_DTYPE_BF16, ULYX_DTYPE_F16, ULYX_DTYPE_F64};
    for (int64_t n = 0; n < kc_draws(options, 80); n++) {
        struct test_random random = {options->seed + 977 * (uint64_t)n + 3};
        struct kc_preference preference = {
            .dtype = dtypes[n % 4], .max_len = 300};
        struct kc_layout layout = {.kernel = kernel, .threads = 2};
        struct kc_case kc;
        if (!kc_takes(kernel, preference.dtype))
            continue;
        kc_generate(&kc, &random, &preference);
        if (!kc_takes_problem(kernel, &kc.problem)) {
            kc_free(&kc);
            continue;
        }
        kc.problem.sinks = kc.problem.alibi_slopes = NULL;
        fill_indicators(&kc);
        if (kc_passes > 1)
            kc_solve(&kc); /* computes out and lse, which backward takes */
        t->cases++;
        if (!count_passes(&kc, &layout)) {
            char text[512];
            kc_describe(&kc, text, sizeof(text));
            printf("  kernel %s draw %lld: %s\n", kernel, (long long)n, text);
            t->failed++;
        }
        kc_free(&kc);
    }
}

struct long_case {
    int64_t len_q, len_k, left, right;
    ulyx_mask_kind_t mask;
};

/* Stores the keys [low, high) to which row i attends, for BOTTOM_RIGHT. */
static void
long_range(const struct long_case *c, int64_t i, int64_t *low, int64_t *high)
{
    int64_t at = i + c->len_k - c->len_q;
    *low = 0, *high = c->len_k;
    if (c->mask == ULYX_MASK_CAUSAL)
        *high = at + 1;
    if (c->mask == ULYX_MASK_WINDOW) {
        *low = at - c->left;
        *high = at + c->right + 1;
    }
    *low = *low < 0 ? 0 : *low;
    *high = *high > c->len_k ? c->len_k : *high;
    *high = *high < *low ? *low : *high;
}

/* Column 0 marks all keys. Columns 1 and 2 mark the first key inside and the
 * first key outside, at either end of the ranges of sampled rows. */
static void
fill_edges(struct kc_case *kc, const struct long_case *c, int64_t stride)
{
    struct kc_values *v = &kc->values[KC_V];
    memset(
        kc->values[KC_Q].at, 0, (size_t)kc_count(&kc->values[KC_Q].shape) * 8);
    memset(v->at, 0, (size_t)kc_count(&v->shape) * 8);
    for (int64_t j = 0; j < c->len_k; j++)
        v->at[j * v->shape.columns] = 1;
    for (int64_t i = 0; i < c->len_q; i += stride) {
        int64_t low, high;
        long_range(c, i, &low, &high);
        if (low < high) {
            v->at[low * v->shape.columns + 1] = 1;
            v->at[(high - 1) * v->shape.columns + 1] = 1;
        }
        if (low > 0)
            v->at[(low - 1) * v->shape.columns + 2] = 1;
        if (high < c->len_k)
            v->at[high * v->shape.columns + 2] = 1;
    }
}

static bool
check_edges(const struct kc_case *kc, const struct long_case *c,
    const struct kc_result *result, int64_t stride)
{
    const struct kc_values *v = &kc->values[KC_V];
    for (int64_t i = 0; i < c->len_q; i += stride) {
        int64_t low, high, counts[512] = {0};
        long_range(c, i, &low, &high);
        for (int64_t j = low; j < high; j++)
            for (int n = 0; n < 3; n++)
                counts[n] += v->at[j * v->shape.columns + n] != 0;
        if (!check_row(kc, kc_row(&result->values[KC_OUT], 0, 0, i),
                *kc_row(&result->values[KC_LSE], 0, 0, i), high - low, counts))
            return false;
    }
    return true;
}

static bool
run_long(const struct long_case *c, const char *kernel, ulyx_dtype_t dtype)
{
    ulyx_attention_t p = ULYX_ATTENTION_INIT;
    struct test_random random = {5};
    struct kc_layout layout = {.kernel = kernel, .threads = 2};
    struct kc_result result;
    struct kc_case kc;
    int64_t stride = c->len_q / 60 + 1;
    p.dtype = dtype;
    p.param_dtype = ULYX_DTYPE_F32;
    p.batch = p.heads_q = p.heads_kv = 1;
    p.len_q = c->len_q, p.len_k = c->len_k;
    p.dim_qk = p.dim_v = 8;
    p.mask = c->mask, p.window_left = c->left, p.window_right = c->right;
    kc_simple(&kc, &p, &random);
    fill_edges(&kc, c, stride);
    bool ok = kc_run(&kc, &p, &layout, false, &result) &&
              check_edges(&kc, c, &result, stride);
    if (!ok)
        printf("  kernel %s, %lld queries, %lld keys, mask %d\n", kernel,
            (long long)c->len_q, (long long)c->len_k, c->mask);
    kc_result_free(&result);
    kc_free(&kc);
    return ok;
}

void
kc_family_counting_long(
    const struct kc_options *options, const char *kernel, struct kc_tally *t)
{
    static const struct long_case cases[] = {
        {70, 50021, 0, 0, ULYX_MASK_CAUSAL},
        {6011, 6011, 127, 1, ULYX_MASK_WINDOW},
        {4099, 300, 700, 64, ULYX_MASK_WINDOW},
        {40, 1048576, 0, 0, ULYX_MASK_CAUSAL},
        {1048576, 1048576, 200, 3, ULYX_MASK_WINDOW},
        {1048576, 40, 0, 0, ULYX_MASK_CAUSAL},
    };
    bool slow = strcmp(kernel, "reference") == 0;
    for (int n = 0; n < (options->full ? 6 : 3); n++) {
        ulyx_dtype_t dtype =
            kc_takes(kernel, ULYX_DTYPE_F32) ? ULYX_DTYPE_F32 : ULYX_DTYPE_BF16;
        if (slow && n > 2)
            continue;
        t->cases++;
        t->failed += !run_long(&cases[n], kernel, dtype);
    }
}
