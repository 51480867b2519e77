/* SPDX-License-Identifier: Apache-2.0
 *
 * Per-row and per-head numbers. Sums run in double over a fixed number of lanes
 * or in row order, so they do not depend on threads, tiles or layout.
 */
#include "attention/statistics.h"
#include <math.h>
#include "attention/element.h"
#include "attention/pool.h"
#include "attention/translate/view.h"

/* Eight lanes, added in pairs. */
static inline __attribute__((always_inline)) double
delta_of(const void *dout, const void *out, const ulyx_dtype_t dtype,
    int64_t columns)
{
    double lanes[8] = {0};
    int64_t whole = columns / 8 * 8;
    for (int64_t c = 0; c < whole; c += 8)
        for (int n = 0; n < 8; n++)
            lanes[n] += uli_element_load(dout, dtype, c + n) *
                        uli_element_load(out, dtype, c + n);
    for (int64_t c = whole; c < columns; c++)
        lanes[c - whole] +=
            uli_element_load(dout, dtype, c) * uli_element_load(out, dtype, c);
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
           ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

double
uli_attn_delta_row(
    const void *dout, const void *out, ulyx_dtype_t dtype, int64_t columns)
{
    switch (dtype) {
    case ULYX_DTYPE_F64:
        return delta_of(dout, out, ULYX_DTYPE_F64, columns);
    case ULYX_DTYPE_F32:
        return delta_of(dout, out, ULYX_DTYPE_F32, columns);
    case ULYX_DTYPE_BF16:
        return delta_of(dout, out, ULYX_DTYPE_BF16, columns);
    default:
        return delta_of(dout, out, ULYX_DTYPE_F16, columns);
    }
}

static const char *
strided_at(const struct uli_attn_strided *tensor, int64_t batch, int64_t row,
    int64_t head)
{
    return tensor->base + batch * tensor->strides[0] +
           row * tensor->strides[1] + head * tensor->strides[2];
}

static bool
row_is_zero(const void *row, ulyx_dtype_t dtype, int64_t columns)
{
    for (int64_t c = 0; c < columns; c++)
        if (uli_element_load(row, dtype, c) != 0)
            return false;
    return true;
}

/* delta is rounded before dlse is subtracted, as in kernels that are given
 * both. */
static double
delta_less_dlse(ulyx_dtype_t dtype, ulyx_dtype_t stat, int64_t columns,
    const void *dout, const void *out, const void *dlse)
{
    double delta = uli_attn_delta_row(dout, out, dtype, columns);
    if (isnan(delta) && row_is_zero(out, dtype, columns))
        delta = 0;
    if (stat == ULYX_DTYPE_F32)
        delta = (float)delta;
    return dlse ? delta - uli_element_load(dlse, stat, 0) : delta;
}

void
uli_attn_delta(ulyx_dtype_t dtype, const int64_t sizes[4],
    const struct uli_attn_strided *dout, const struct uli_attn_strided *out,
    const struct uli_attn_strided *dlse, void *delta_p,
    const int64_t delta_strides[3])
{
    ulyx_dtype_t stat =
        dtype == ULYX_DTYPE_F64 ? ULYX_DTYPE_F64 : ULYX_DTYPE_F32;
    for (int64_t i = 0; i < sizes[0]; i++)
        for (int64_t r = 0; r < sizes[1]; r++)
            for (int64_t n = 0; n < sizes[2]; n++) {
                unsigned char *to = (unsigned char *)delta_p +
                                    i * delta_strides[0] +
                                    r * delta_strides[1] + n * delta_strides[2];
                uli_element_store(to, stat, 0,
                    delta_less_dlse(dtype, stat, sizes[3],
                        strided_at(dout, i, r, n), strided_at(out, i, r, n),
                        dlse->base ? strided_at(dlse, i, r, n) : NULL));
            }
}

static double
row_stat(struct uli_attn_call *call, enum uli_attn_tensor tensor,
    const struct uli_attn_run *run, int64_t row)
{
    struct uli_attn_span span =
        uli_attn_q_span(call, tensor, run, row, row + 1);
    return uli_element_load(span.data, call->views[tensor].dtype, 0);
}

double
uli_attn_row_lse(
    struct uli_attn_call *call, const struct uli_attn_run *run, int64_t row)
{
    return row_stat(call, ULI_ATTN_LSE, run, row);
}

double
uli_attn_row_delta(
    struct uli_attn_call *call, const struct uli_attn_run *run, int64_t row)
{
    const struct uli_attn_problem *problem = &call->problem;
    double delta;
    if (call->views[ULI_ATTN_DELTA].given) {
        delta = row_stat(call, ULI_ATTN_DELTA, run, row);
    } else {
        struct uli_attn_span dout =
            uli_attn_q_span(call, ULI_ATTN_DOUT, run, row, row + 1);
        struct uli_attn_span out =
            uli_attn_q_span(call, ULI_ATTN_OUT, run, row, row + 1);
        delta = uli_attn_delta_row(
            dout.data, out.data, problem->dtype, problem->dim_v);
        if (problem->stat_dtype == ULYX_DTYPE_F32)
            delta = (float)delta;
    }
    if (call->views[ULI_ATTN_DLSE].given)
        delta -= row_stat(call, ULI_ATTN_DLSE, run, row);
    return delta;
}

struct sink_task {
    struct uli_attn_call *call;
    double *scratch;
    _Atomic int64_t next;
};

/* d/d sink of lse is exp(sink - lse): 1 for a row without keys. The out of such
 * a row is zero, so only its dlse counts. */
static double
sink_of_row(struct uli_attn_call *call, const struct uli_attn_run *run,
    int64_t row, double sink)
{
    const struct uli_attn_problem *problem = &call->problem;
    int64_t n = uli_attn_doc_of_q(problem, run->batch, row);
    if (n < 0 || sink == -INFINITY)
        return 0;
    struct uli_attn_doc doc = uli_attn_doc_at(problem, n);
    int64_t i = row - doc.q_begin;
    if (uli_attn_visible_begin(problem, &doc, i) <
        uli_attn_visible_end(problem, &doc, i))
        return -exp(sink - uli_attn_row_lse(call, run, row)) *
               uli_attn_row_delta(call, run, row);
    if (call->views[ULI_ATTN_DLSE].given)
        return row_stat(call, ULI_ATTN_DLSE, run, row);
    return call->delta_less_dlse ? -row_stat(call, ULI_ATTN_DELTA, run, row)
                                 : 0;
}

static void
sink_body(void *context, int thread)
{
    struct sink_task *task = context;
    const struct uli_attn_problem *problem = &task->call->problem;
    (void)thread;
    for (;;) {
        int64_t head = atomic_fetch_add(&task->next, 1);
        if (head >= problem->heads_q)
            return;
        double sum = 0, sink = uli_attn_sink(problem, head);
        for (int64_t r = 0; r < problem->q_runs.count; r++) {
            struct uli_attn_run run = uli_attn_run_at(&problem->q_runs, r);
            for (int64_t row = run.row_begin;
                 run.head == head && row < run.row_end; row++)
                sum += sink_of_row(task->call, &run, row, sink);
        }
        task->scratch[head] = sum;
    }
}

void
uli_attn_sink_gradient(struct uli_attn_call *call, double *scratch)
{
    const struct uli_attn_problem *problem = &call->problem;
    if (!call->d_sink)
        return;
    struct sink_task task = {.call = call, .scratch = scratch};
    double flops = 8.0 * (double)problem->batch * (double)problem->len_q *
                   (double)problem->heads_q * (double)problem->dim_v;
    uli_pool_run(uli_pool_threads(flops, call->threads), sink_body, &task);
    for (int64_t g = 0; g < problem->heads_global; g++)
        uli_attn_put_param(call->d_sink, problem->param_dtype, g, 0);
    for (int64_t head = 0; head < problem->heads_q; head++) {
        int64_t g = uli_attn_global_head(problem, head);
        double sum = uli_element_load(call->d_sink, problem->param_dtype, g);
        uli_attn_put_param(
            call->d_sink, problem->param_dtype, g, sum + scratch[head]);
    }
}

void
uli_attn_max_init(struct uli_attn_call *call, double *scratch)
{
    for (int64_t head = 0; head < call->problem.heads_q; head++)
        scratch[head] = -INFINITY;
}

void
uli_attn_max_raise(double *scratch, int64_t head, double value)
{
    double seen;
    __atomic_load(&scratch[head], &seen, __ATOMIC_RELAXED);
    while (
        value > seen && !__atomic_compare_exchange(&scratch[head], &seen,
                            &value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

void
uli_attn_max_store(struct uli_attn_call *call, const double *scratch)
{
    if (call->max_logit)
        uli_row_store(call->max_logit, call->problem.stat_dtype,
            call->problem.heads_q, scratch);
}
