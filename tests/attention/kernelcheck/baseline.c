/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain attention, row by row over the list of keys that the row attends to.
 * The bits of a variant: bit 0 sums backwards; bit 1 sums in lanes, and
 * multiplies q by the scale rather than the product; bit 2 begins in the
 * middle.
 */
#include "attention/kernelcheck/baseline.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "attention/element.h"

#define DIM_MAX 512
#define LANES   8

struct pass {
    const struct kc_case *kc;
    int variant;
    bool from_out;
    struct kc_values *values;
    int64_t *seen; /* flattened keys that the row attends to */
    int64_t seen_count;
    float *scores, *slopes;
};

/* Rounds an intermediate value as it is stored. */
static double
pass_stored(const struct pass *pass, double value)
{
    switch (pass->kc->problem.dtype) {
    case ULYX_DTYPE_F64:
        return value;
    case ULYX_DTYPE_F32:
        return (float)value;
    case ULYX_DTYPE_BF16:
        return uli_float_of_bf16(uli_bf16_of_float((float)value));
    default:
        return uli_float_of_f16(uli_f16_of_float((float)value));
    }
}

/* Returns the n-th of `count` positions in the variant's order. */
static int64_t
pass_order(const struct pass *pass, int64_t n, int64_t count)
{
    int64_t at = pass->variant & 1 ? count - 1 - n : n;
    if (pass->variant & 4)
        at = at + count / 2 < count ? at + count / 2 : at + count / 2 - count;
    return at;
}

/* Returns the sum of a[c] * b[c] in fp32, in the variant's order. */
static double
pass_dot(
    const struct pass *pass, const double *a, const double *b, int64_t count)
{
    float lanes[LANES] = {0}, sum = 0;
    int64_t turn = pass->variant & 4 ? count / 2 : 0;
    if (pass->variant & 2) {
        for (int64_t c = 0; c < count; c++)
            lanes[c % LANES] += (float)a[c] * (float)b[c];
        for (int n = 0; n < LANES; n++)
            sum += lanes[pass_order(pass, n, LANES)];
        return sum;
    }
    for (int64_t n = 0; n < count; n++) {
        int64_t c = n + turn < count ? n + turn : n + turn - count;
        c = pass->variant & 1 ? count - 1 - c : c;
        sum += (float)a[c] * (float)b[c];
    }
    return sum;
}

static void
list_seen(struct pass *pass, int64_t batch, int64_t i)
{
    const ulyx_attention_t *p = &pass->kc->problem;
    pass->seen_count = 0;
    for (int64_t n = 0; n < p->batch; n++) {
        if (!p->docs_q && n != batch)
            continue;
        for (int64_t j = 0; j < p->len_k; j++)
            if (kc_sees(pass->kc, batch, i, n, j))
                pass->seen[pass->seen_count++] = n * p->len_k + j;
    }
}

/* Returns the distance of row i from flattened key j within their document. */
static double
pass_distance(const struct pass *pass, int64_t batch, int64_t i, int64_t flat)
{
    const ulyx_attention_t *p = &pass->kc->problem;
    int64_t at[4];
    kc_doc_of(pass->kc, batch, i, at);
    double off = (double)p->diagonal;
    if (p->align == ULYX_ALIGN_BOTTOM_RIGHT)
        off += (double)(at[3] - at[1]);
    return fabs(
        (double)(batch * p->len_q + i - at[0]) + off - (double)(flat - at[2]));
}

static const double *
key_row(const struct pass *pass, enum kc_name name, int64_t kv, int64_t flat)
{
    int64_t len = pass->kc->problem.len_k;
    return kc_row(&pass->kc->values[name], flat / len, kv, flat % len);
}

static void
row_scores(
    struct pass *pass, int64_t batch, int64_t head, int64_t kv, int64_t i)
{
    const ulyx_attention_t *p = &pass->kc->problem;
    const double *q = kc_row(&pass->kc->values[KC_Q], batch, head, i);
    double scaled[DIM_MAX];
    double scale = p->scale > 0 ? p->scale : 1 / sqrt((double)p->dim_qk);
    int64_t global = p->head_ids ? p->head_ids[head] : p->head_offset + head;
    float slope =
        p->alibi_slopes ? ((const float *)p->alibi_slopes)[global] : 0;
    for (int64_t c = 0; c < p->dim_qk; c++)
        scaled[c] = pass->variant & 2 ? pass_stored(pass, q[c] * scale) : q[c];
    for (int64_t n = 0; n < pass->seen_count; n++) {
        const double *k = key_row(pass, KC_K, kv, pass->seen[n]);
        double s = pass_stored(pass, pass_dot(pass, scaled, k, p->dim_qk));
        if (!(pass->variant & 2))
            s = pass_stored(pass, s * scale);
        pass->slopes[n] = 1;
        if (p->softcap > 0) {
            float t = tanhf((float)s / (float)p->softcap);
            s = pass_stored(pass, p->softcap * t);
            pass->slopes[n] = 1 - t * t;
        }
        if (slope != 0)
            s = (float)s -
                slope * (float)pass_distance(pass, batch, i, pass->seen[n]);
        pass->scores[n] = (float)s;
    }
}

/* Computes p of the row's visible keys into scores. Returns lse. */
static double
row_softmax(struct pass *pass, double sink)
{
    float max = (float)sink, sum = 0;
    int64_t count = pass->seen_count;
    for (int64_t n = 0; n < count; n++)
        max = fmaxf(max, pass->scores[n]);
    if (max == -INFINITY)
        return -INFINITY;
    for (int64_t n = 0; n < count; n++) {
        int64_t at = pass_order(pass, n, count);
        pass->scores[at] = expf(pass->scores[at] - max);
        sum += pass->scores[at];
    }
    sum += expf((float)sink - max);
    for (int64_t n = 0; n < count; n++)
        pass->scores[n] = (float)pass_stored(pass, pass->scores[n] / sum);
    return max + logf(sum);
}

/* Adds in fp32: to[c] += a * row[c]. */
static void
add_row(double *to, double a, const double *row, int64_t count)
{
    for (int64_t c = 0; c < count; c++)
        to[c] = (float)to[c] + (float)a * (float)row[c];
}

static double
sink_of(const struct pass *pass, int64_t head)
{
    const ulyx_attention_t *p = &pass->kc->problem;
    int64_t global = p->head_ids ? p->head_ids[head] : p->head_offset + head;
    return p->sinks ? ((const float *)p->sinks)[global] : -INFINITY;
}

static void
forward_row(
    struct pass *pass, int64_t batch, int64_t head, int64_t kv, int64_t i)
{
    const ulyx_attention_t *p = &pass->kc->problem;
    double *out = kc_row(&pass->values[KC_OUT], batch, head, i);
    list_seen(pass, batch, i);
    row_scores(pass, batch, head, kv, i);
    *kc_row(&pass->values[KC_LSE], batch, head, i) =
        row_softmax(pass, sink_of(pass, head));
    for (int64_t n = 0; n < pass->seen_count; n++) {
        int64_t at = pass_order(pass, n, pass->seen_count);
        add_row(out, pass->scores[at], key_row(pass, KC_V, kv, pass->seen[at]),
            p->dim_v);
    }
    for (int64_t c = 0; c < p->dim_v; c++)
        out[c] = pass_stored(pass, out[c]);
}

/* Adds in fp64. In fp32 and in the order of dp, the terms of a row with one key
 * would cancel exactly, which no kernel must do. */
static float
row_delta(const struct pass *pass, int64_t batch, int64_t head, int64_t i)
{
    const struct kc_values *v = pass->kc->values;
    const double *out = kc_row(&v[KC_OUT], batch, head, i);
    const double *dout = kc_row(&v[KC_DOUT], batch, head, i);
    double sum = 0;
    if (!pass->from_out)
        return (float)*kc_row(&v[KC_DELTA], batch, head, i);
    for (int64_t c = 0; c < pass->kc->problem.dim_v; c++)
        sum += dout[c] * pass_stored(pass, out[c]);
    return (float)sum;
}

static void
backward_row(
    struct pass *pass, int64_t batch, int64_t head, int64_t kv, int64_t i)
{
    const ulyx_attention_t *p = &pass->kc->problem;
    const struct kc_values *v = pass->kc->values;
    const double *q = kc_row(&v[KC_Q], batch, head, i);
    const double *dout = kc_row(&v[KC_DOUT], batch, head, i);
    double *dq = kc_row(&pass->values[KC_DQ], batch, head, i);
    double scale = p->scale > 0 ? p->scale : 1 / sqrt((double)p->dim_qk);
    float lse = (float)*kc_row(&v[KC_LSE], batch, head, i);
    float delta = row_delta(pass, batch, head, i) -
                  (float)*kc_row(&v[KC_DLSE], batch, head, i);
    list_seen(pass, batch, i);
    row_scores(pass, batch, head, kv, i);
    for (int64_t n = 0; n < pass->seen_count; n++) {
        int64_t at = pass_order(pass, n, pass->seen_count);
        int64_t flat = pass->seen[at];
        double prob = pass_stored(pass, expf(pass->scores[at] - lse));
        double dp = pass_stored(pass,
            pass_dot(pass, dout, key_row(pass, KC_V, kv, flat), p->dim_v));
        double ds =
            pass_stored(pass, prob * ((float)dp - delta) * pass->slopes[at]);
        ds = pass_stored(pass, ds * scale);
        add_row(dq, ds, key_row(pass, KC_K, kv, flat), p->dim_qk);
        add_row(
            kc_row(&pass->values[KC_DK], flat / p->len_k, kv, flat % p->len_k),
            ds, q, p->dim_qk);
        add_row(
            kc_row(&pass->values[KC_DV], flat / p->len_k, kv, flat % p->len_k),
            prob, dout, p->dim_v);
    }
    for (int64_t c = 0; c < p->dim_qk; c++)
        dq[c] = pass_stored(pass, dq[c]);
}

static void
all_rows(struct pass *pass, bool backward)
{
    const ulyx_attention_t *p = &pass->kc->problem;
    for (int64_t i = 0; i < p->batch; i++) {
        for (int64_t n = 0; n < p->heads_q; n++) {
            int64_t kv =
                p->kv_map ? p->kv_map[n] : n * p->heads_kv / p->heads_q;
            for (int64_t r = 0; r < p->len_q; r++) {
                int64_t at = pass_order(pass, r, p->len_q);
                if (!kc_holds(pass->kc, false, i, n, at))
                    continue;
                if (backward)
                    backward_row(pass, i, n, kv, at);
                else
                    forward_row(pass, i, n, kv, at);
            }
        }
    }
}

void
kc_baseline(const struct kc_case *kc, int variant, bool backward, bool from_out,
    struct kc_values values_p[KC_TENSORS])
{
    int64_t keys = kc->problem.batch * kc->problem.len_k;
    struct pass pass = {
        .kc = kc, .variant = variant, .from_out = from_out, .values = values_p};
    pass.seen = kc_alloc(8 * keys);
    pass.scores = kc_alloc(4 * keys);
    pass.slopes = kc_alloc(4 * keys);
    for (int t = 0; t < KC_TENSORS; t++) {
        values_p[t].shape = kc_shape_of(kc, (enum kc_name)t);
        values_p[t].at = kc_alloc(8 * kc_count(&values_p[t].shape));
    }
    all_rows(&pass, backward);
    for (int t = KC_DK; backward && t <= KC_DV; t++)
        for (int64_t n = 0; n < kc_count(&values_p[t].shape); n++)
            values_p[t].at[n] = pass_stored(&pass, values_p[t].at[n]);
    free(pass.seen);
    free(pass.scores);
    free(pass.slopes);
}
