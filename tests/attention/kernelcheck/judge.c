/* SPDX-License-Identifier: Apache-2.0
 *
 * The tolerance rule. It holds for each block of 64 rows of a head, for the
 * maximum and for the RMS of the errors:
 *   error <= 2 * (largest baseline error over its variants) + 2 * floor
 * The floor of a value is how much the true value changes when it is rounded
 * to the output's dtype and when 0.3 is then added and subtracted in that
 * dtype. For gradients through a softcap the factor is 3, and 3e-4 is added;
 * for fp64 there are no baselines, and 1e-12 is added. Where the truth is not
 * finite the result must be the same value.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/kernelcheck/baseline.h"

#define BLOCK 64

struct error {
    double max, square, floor_max, floor_square;
    int64_t count;
    bool same; /* whether the non-finite values agree */
};

/* Returns an upper bound of half a unit in the last place, relative to the
 * value. */
static double
half_place(ulyx_dtype_t dtype)
{
    return dtype == ULYX_DTYPE_BF16  ? 0x1p-9
           : dtype == ULYX_DTYPE_F16 ? 0x1p-12
           : dtype == ULYX_DTYPE_F32 ? 0x1p-25
                                     : 0x1p-54;
}

static void
add_value(struct error *e, ulyx_dtype_t dtype, double truth, double value)
{
    if (!isfinite(truth)) {
        e->same = e->same && value == truth;
        return;
    }
    double error = fabs(value - truth);
    double shifted = kc_round(dtype, kc_round(dtype, truth + 0.3) - 0.3);
    double floor = fabs(shifted - kc_round(dtype, truth)) +
                   fabs(kc_round(dtype, truth) - truth);
    /* in a small block a baseline may by chance round better than its dtype
     * can */
    floor = fmax(floor, half_place(dtype) * fabs(truth));
    if (!isfinite(value))
        error = INFINITY;
    e->max = error > e->max ? error : e->max;
    e->square += error * error;
    e->floor_max = floor > e->floor_max ? floor : e->floor_max;
    e->floor_square += floor * floor;
    e->count++;
}

static struct error
block_error(const struct kc_case *kc, enum kc_name name,
    const struct kc_values *values, ulyx_dtype_t dtype, int64_t batch,
    int64_t head, int64_t first)
{
    struct error e = {.same = true};
    bool keys = name == KC_DK || name == KC_DV;
    const struct kc_values *truth = &kc->values[name];
    for (int64_t r = first; r < first + BLOCK && r < truth->shape.rows; r++) {
        if (!kc_holds(kc, keys, batch, head, r))
            continue;
        const double *t = kc_row(truth, batch, head, r);
        const double *v = kc_row(values, batch, head, r);
        for (int64_t c = 0; c < truth->shape.columns; c++)
            add_value(&e, dtype, t[c], v[c]);
    }
    return e;
}

static bool
judge_block(const struct kc_case *kc, enum kc_name name,
    const struct kc_result *result, struct kc_values base[][KC_TENSORS],
    int64_t batch, int64_t head, int64_t first, bool quiet)
{
    bool stat = name == KC_LSE;
    bool capped = kc->problem.softcap > 0 && name >= KC_DQ;
    ulyx_dtype_t dtype = stat && kc->problem.dtype != ULYX_DTYPE_F64
                             ? ULYX_DTYPE_F32
                             : kc->problem.dtype;
    struct error e =
        block_error(kc, name, &result->values[name], dtype, batch, head, first);
    double base_max = 0, base_square = 0;
    bool exact = kc->problem.dtype == ULYX_DTYPE_F64;
    for (int v = 0; v < KC_VARIANTS && !exact; v++) {
        struct error b =
            block_error(kc, name, &base[v][name], dtype, batch, head, first);
        base_max = b.max > base_max ? b.max : base_max;
        base_square = b.square > base_square ? b.square : base_square;
    }
    double factor = capped ? 3 : 2, extra = exact ? 1e-12 : capped ? 3e-4 : 0;
    double limit = factor * base_max + 2 * e.floor_max + extra;
    double n = e.count > 0 ? (double)e.count : 1;
    double rms = sqrt(e.square / n);
    double rms_limit =
        factor * sqrt(base_square / n) + 2 * sqrt(e.floor_square / n) + extra;
    if (e.same && e.max <= limit && rms <= rms_limit)
        return true;
    if (!quiet)
        printf("FAILED %s[%lld][%lld] rows %lld..: max %.3g (limit %.3g), rms "
               "%.3g (limit %.3g)%s\n",
            kc_names[name], (long long)batch, (long long)head, (long long)first,
            e.max, limit, rms, rms_limit,
            e.same ? "" : ", a non-finite value differs");
    return false;
}

static bool
judge_tensor(const struct kc_case *kc, enum kc_name name,
    const struct kc_result *result, struct kc_values base[][KC_TENSORS],
    bool quiet)
{
    const struct kc_shape *shape = &kc->values[name].shape;
    for (int64_t i = 0; i < shape->batch; i++)
        for (int64_t n = 0; n < shape->heads; n++)
            for (int64_t r = 0; r < shape->rows; r += BLOCK)
                if (!judge_block(kc, name, result, base, i, n, r, quiet))
                    return false;
    return true;
}

/* Gradients that sum terms of many rows have a bound from the rows' own
 * rounding. */
static bool
judge_heads(const char *what, const double *truth, const double *value,
    int64_t count, double unit, bool quiet)
{
    for (int64_t n = 0; n < count; n++) {
        double error = fabs(truth[n] - value[n]);
        if (truth[n] == value[n] || error <= unit * (1 + fabs(truth[n])))
            continue;
        if (!quiet)
            printf("FAILED %s[%lld]: %.9g, expected %.9g\n", what, (long long)n,
                value[n], truth[n]);
        return false;
    }
    return true;
}

static double
head_unit(const struct kc_case *kc, bool backward)
{
    const ulyx_attention_t *p = &kc->problem;
    double eps = p->dtype == ULYX_DTYPE_BF16  ? 0x1p-8
                 : p->dtype == ULYX_DTYPE_F16 ? 0x1p-11
                 : p->dtype == ULYX_DTYPE_F32 ? 0x1p-20
                                              : 0x1p-22;
    double rows = (double)(p->batch * p->len_q);
    return backward ? eps * (4 + sqrt(rows) * 4) : 64 * 0x1p-24 * 16;
}

bool
kc_judge(const struct kc_case *kc, const struct kc_result *result,
    bool backward, bool quiet)
{
    struct kc_values base[KC_VARIANTS][KC_TENSORS];
    bool ok = true;
    if (kc->problem.dtype == ULYX_DTYPE_F64)
        memset(base, 0, sizeof(base));
    else
        for (int v = 0; v < KC_VARIANTS; v++)
            kc_baseline(kc, v, backward, result->from_out, base[v]);
    int first = backward ? KC_DQ : KC_OUT, last = backward ? KC_DV : KC_LSE;
    for (int t = first; t <= last && ok; t++)
        if (result->values[t].at)
            ok = judge_tensor(kc, (enum kc_name)t, result, base, quiet);
    for (int v = 0; v < KC_VARIANTS; v++)
        for (int t = 0; t < KC_TENSORS; t++)
            free(base[v][t].at);
    if (ok && backward && kc->problem.sinks)
        ok = judge_heads("d_sink", kc->d_sink, result->d_sink,
            kc->problem.heads_global, head_unit(kc, true), quiet);
    if (ok && !backward && !kc->partial && result->max_logit)
        ok = judge_heads("max_logit", kc->max_logit, result->max_logit,
            kc->problem.heads_q, head_unit(kc, false), quiet);
    return ok;
}
