/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a case, its rows and its true result.
 */
#include "attention/kernelcheck/kc.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const kc_names[KC_TENSORS] = {
    "q", "k", "v", "out", "lse", "dout", "delta", "dlse", "dq", "dk", "dv"};

void *
kc_alloc(int64_t bytes)
{
    void *memory = calloc(1, (size_t)(bytes > 0 ? bytes : 1));
    if (!memory) {
        fprintf(stderr, "kernelcheck: out of memory (%lld bytes)\n",
            (long long)bytes);
        abort();
    }
    return memory;
}

int64_t
kc_count(const struct kc_shape *shape)
{
    return shape->batch * shape->heads * shape->rows * shape->columns;
}

double *
kc_row(const struct kc_values *values, int64_t batch, int64_t head, int64_t row)
{
    const struct kc_shape *s = &values->shape;
    return values->at +
           ((batch * s->heads + head) * s->rows + row) * s->columns;
}

/* Rounds to the nearest value of the dtype, by the C library's own
 * conversions. */
double
kc_round(ulyx_dtype_t dtype, double value)
{
    int bits = dtype == ULYX_DTYPE_BF16 ? 8 : dtype == ULYX_DTYPE_F16 ? 11 : 24;
    int exponent, least = dtype == ULYX_DTYPE_F16 ? -13 : -125;
    if (dtype == ULYX_DTYPE_F64 || !isfinite(value) || value == 0)
        return value;
    if (dtype == ULYX_DTYPE_F32)
        return (float)value;
    frexp(value, &exponent);
    exponent = exponent < least ? least : exponent;
    return ldexp(nearbyint(ldexp(value, bits - exponent)), exponent - bits);
}

struct kc_shape
kc_shape_of(const struct kc_case *kc, enum kc_name name)
{
    const ulyx_attention_t *p = &kc->problem;
    bool keys = name == KC_K || name == KC_V || name == KC_DK || name == KC_DV;
    bool stat = name == KC_LSE || name == KC_DELTA || name == KC_DLSE;
    bool wide =
        name == KC_V || name == KC_DV || name == KC_OUT || name == KC_DOUT;
    struct kc_shape shape = {p->batch, keys ? p->heads_kv : p->heads_q,
        keys ? p->len_k : p->len_q,
        stat   ? 1
        : wide ? p->dim_v
               : p->dim_qk};
    return shape;
}

void
kc_alloc_values(struct kc_case *kc)
{
    for (int t = 0; t < KC_TENSORS; t++) {
        kc->values[t].shape = kc_shape_of(kc, (enum kc_name)t);
        kc->values[t].at =
            kc_alloc(kc_count(&kc->values[t].shape) * (int64_t)sizeof(double));
    }
    kc->d_sink = kc_alloc(kc->problem.heads_global * 8);
    kc->max_logit = kc_alloc(kc->problem.heads_q * 8);
}

static void
fill_normal(
    struct kc_case *kc, enum kc_name name, struct test_random *random, double g)
{
    struct kc_values *values = &kc->values[name];
    int64_t count = kc_count(&values->shape);
    for (int64_t n = 0; n < count; n++)
        values->at[n] =
            kc_round(kc->problem.dtype, g * test_random_normal(random));
}

/* Clears the gradients of rows outside the segments: the truth is then that of
 * the rows in the call alone. */
static void
clear_rows_not_held(struct kc_case *kc)
{
    const ulyx_attention_t *p = &kc->problem;
    for (int64_t i = 0; i < p->batch; i++)
        for (int64_t n = 0; n < p->heads_q; n++)
            for (int64_t r = 0; r < p->len_q; r++) {
                if (kc_holds(kc, false, i, n, r))
                    continue;
                memset(kc_row(&kc->values[KC_DOUT], i, n, r), 0,
                    (size_t)p->dim_v * sizeof(double));
                *kc_row(&kc->values[KC_DLSE], i, n, r) = 0;
            }
}

void
kc_fill_random(struct kc_case *kc, struct test_random *random, double gain)
{
    fill_normal(kc, KC_Q, random, gain);
    fill_normal(kc, KC_K, random, 1);
    fill_normal(kc, KC_V, random, 1);
    fill_normal(kc, KC_DOUT, random, 1);
    struct kc_values *dlse = &kc->values[KC_DLSE];
    for (int64_t n = 0; n < kc_count(&dlse->shape); n++)
        dlse->at[n] = (float)test_random_normal(random);
    if (kc->partial)
        clear_rows_not_held(kc);
}

static ulyx_attention_tensor_t
values_dense(const struct kc_values *values)
{
    ulyx_attention_tensor_t tensor = ULYX_ATTENTION_TENSOR_INIT;
    tensor.base = values->at;
    tensor.row_stride = 8 * values->shape.columns;
    tensor.head_stride = tensor.row_stride * values->shape.rows;
    tensor.batch_stride = tensor.head_stride * values->shape.heads;
    return tensor;
}

static void
status_check(ulyx_status_t status)
{
    if (status == ULYX_SUCCESS)
        return;
    fprintf(stderr, "kernelcheck: the reference refused a case: %s\n",
        ulyx_last_error());
    abort();
}

static void
fill_delta(struct kc_case *kc)
{
    const struct kc_values *out = &kc->values[KC_OUT];
    int64_t rows = out->shape.batch * out->shape.heads * out->shape.rows;
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t c = 0; c < out->shape.columns; c++)
            sum += out->at[r * out->shape.columns + c] *
                   kc->values[KC_DOUT].at[r * out->shape.columns + c];
        kc->values[KC_DELTA].at[r] = sum;
    }
}

void
kc_solve(struct kc_case *kc)
{
    ulyx_attention_t p = kc->problem;
    ulyx_attention_tensor_t t[KC_TENSORS];
    ulyx_attention_exec_t exec = ULYX_ATTENTION_EXEC_INIT;
    ulyx_attention_forward_t f = ULYX_ATTENTION_FORWARD_INIT;
    ulyx_attention_backward_t g = ULYX_ATTENTION_BACKWARD_INIT;
    int64_t bytes;
    double *sinks = kc_alloc(p.heads_global * 8);
    double *slopes = kc_alloc(p.heads_global * 8);
    for (int64_t n = 0; n < p.heads_global; n++) {
        sinks[n] = p.sinks ? ((const float *)p.sinks)[n] : 0;
        slopes[n] = p.alibi_slopes ? ((const float *)p.alibi_slopes)[n] : 0;
    }
    p.sinks = p.sinks ? sinks : NULL;
    p.alibi_slopes = p.alibi_slopes ? slopes : NULL;
    p.param_dtype = p.dtype = ULYX_DTYPE_F64;
    p.q_segments = p.k_segments = NULL;
    exec.kernel = "reference";
    for (int n = 0; n < KC_TENSORS; n++)
        t[n] = values_dense(&kc->values[n]);
    status_check(ulyx_attention_workspace(
        &p, ULYX_ATTENTION_PASS_FORWARD, &exec, &bytes));
    void *workspace = aligned_alloc(64, (size_t)(bytes + 64));
    f.q = &t[KC_Q], f.k = &t[KC_K], f.v = &t[KC_V];
    f.out = &t[KC_OUT], f.lse = &t[KC_LSE], f.max_logit = kc->max_logit;
    status_check(ulyx_attention_forward(&p, &f, &exec, workspace, bytes, NULL));
    g.q = f.q, g.k = f.k, g.v = f.v, g.out = f.out, g.lse = f.lse;
    g.dout = &t[KC_DOUT], g.dlse = &t[KC_DLSE];
    g.dq = &t[KC_DQ], g.dk = &t[KC_DK], g.dv = &t[KC_DV];
    g.d_sink = p.sinks ? kc->d_sink : NULL;
    if (kc_passes > 1)
        status_check(
            ulyx_attention_backward(&p, &g, &exec, workspace, bytes, NULL));
    fill_delta(kc);
    free(workspace);
    free(sinks);
    free(slopes);
}

void
kc_free(struct kc_case *kc)
{
    for (int t = 0; t < KC_TENSORS; t++)
        free(kc->values[t].at);
    for (int n = 0; n < 4; n++)
        free(kc->docs_arrays[n]);
    free(kc->kv_map);
    free(kc->head_ids);
    free(kc->sinks);
    free(kc->slopes);
    free(kc->q_segments);
    free(kc->k_segments);
    free(kc->d_sink);
    free(kc->max_logit);
    memset(kc, 0, sizeof(*kc));
}

bool
kc_holds(const struct kc_case *kc, bool keys, int64_t batch, int64_t head,
    int64_t row)
{
    const ulyx_segment_t *list = keys ? kc->k_segments : kc->q_segments;
    int64_t count =
        keys ? kc->problem.k_segment_count : kc->problem.q_segment_count;
    if (!list)
        return true;
    for (int64_t n = 0; n < count; n++)
        if (list[n].head == head && list[n].batch == batch &&
            row >= list[n].row_begin && row < list[n].row_end)
            return true;
    return false;
}

static int64_t
index_at(const ulyx_docs_t *docs, const void *array, int64_t n)
{
    return docs->index_bytes == 8 ? ((const int64_t *)array)[n]
                                  : ((const int32_t *)array)[n];
}

static void
doc_bounds(const ulyx_docs_t *docs, int64_t n, int64_t *begin, int64_t *rows)
{
    *begin = index_at(docs, docs->begin, n);
    *rows = docs->length ? index_at(docs, docs->length, n)
                         : index_at(docs, docs->begin, n + 1) - *begin;
}

static bool
mask_shows(const ulyx_attention_t *p, int64_t i, int64_t j, int64_t rows_q,
    int64_t rows_k)
{
    __int128 off = p->diagonal;
    if (p->align == ULYX_ALIGN_BOTTOM_RIGHT)
        off += rows_k - rows_q;
    if (p->mask == ULYX_MASK_CAUSAL)
        return j <= i + off;
    if (p->mask == ULYX_MASK_WINDOW)
        return (p->window_left == ULYX_UNBOUNDED ||
                   j >= i + off - p->window_left) &&
               (p->window_right == ULYX_UNBOUNDED ||
                   j <= i + off + p->window_right);
    return true;
}

int64_t
kc_doc_of(
    const struct kc_case *kc, int64_t batch, int64_t i, int64_t bounds_p[4])
{
    const ulyx_attention_t *p = &kc->problem;
    const ulyx_docs_t *docs_k = p->docs_k ? p->docs_k : p->docs_q;
    int64_t row = batch * p->len_q + i;
    bounds_p[0] = batch * p->len_q, bounds_p[1] = p->len_q;
    bounds_p[2] = batch * p->len_k, bounds_p[3] = p->len_k;
    if (!p->docs_q)
        return batch;
    for (int64_t n = 0; n < p->docs_q->count; n++) {
        doc_bounds(p->docs_q, n, &bounds_p[0], &bounds_p[1]);
        doc_bounds(docs_k, n, &bounds_p[2], &bounds_p[3]);
        if (row >= bounds_p[0] && row < bounds_p[0] + bounds_p[1])
            return n;
    }
    return -1;
}

bool
kc_sees(const struct kc_case *kc, int64_t q_batch, int64_t i, int64_t k_batch,
    int64_t j)
{
    const ulyx_attention_t *p = &kc->problem;
    int64_t at[4], key = k_batch * p->len_k + j;
    return kc_doc_of(kc, q_batch, i, at) >= 0 && key >= at[2] &&
           key < at[2] + at[3] &&
           mask_shows(
               p, q_batch * p->len_q + i - at[0], key - at[2], at[1], at[3]);
}
