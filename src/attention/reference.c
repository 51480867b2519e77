/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference: the definition in plain loops and doubles, for every dtype,
 * mask and layout. O(len_q * len_k * dim) time and no scratch but a few rows:
 * scores are computed twice, once for their maximum, once for the sums. A key
 * that a row does not see is never read for it.
 */
#include "attention/reference.h"
#include <math.h>
#include "attention/element.h"
#include "attention/kernels/kernels.h"
#include "attention/statistics.h"
#include "attention/translate/view.h"
#include "attention/work.h"

struct uli_ref_row
uli_ref_row_at(const struct uli_attn_problem *problem,
    const struct uli_attn_run *run, int64_t row)
{
    struct uli_ref_row at = {.run = *run, .row = row};
    int64_t n = uli_attn_doc_of_q(problem, run->batch, row);
    at.kv = uli_attn_kv_head(problem, run->head);
    at.slope = uli_attn_slope(problem, run->head);
    at.in_doc = n >= 0;
    if (at.in_doc) {
        at.doc = uli_attn_doc_at(problem, n);
        at.i = row - at.doc.q_begin;
        at.begin = uli_attn_visible_begin(problem, &at.doc, at.i);
        at.end = uli_attn_visible_end(problem, &at.doc, at.i);
    }
    return at;
}

void
uli_ref_load_key(struct uli_attn_call *call, enum uli_attn_tensor tensor,
    const struct uli_ref_row *row, int64_t j, double *values_p)
{
    int64_t k = row->doc.k_begin + j;
    struct uli_attn_span span =
        uli_attn_k_span(call, tensor, row->kv, row->doc.k_batch, k, k + 1);
    const struct uli_attn_view *view = &call->views[tensor];
    uli_row_load(span.data, view->dtype, view->columns, values_p);
}

void
uli_ref_load_query(struct uli_attn_call *call, enum uli_attn_tensor tensor,
    const struct uli_ref_row *row, double *values_p)
{
    struct uli_attn_span span =
        uli_attn_q_span(call, tensor, &row->run, row->row, row->row + 1);
    const struct uli_attn_view *view = &call->views[tensor];
    uli_row_load(span.data, view->dtype, view->columns, values_p);
}

double
uli_ref_score(const struct uli_attn_problem *problem,
    const struct uli_ref_row *row, int64_t j, const double *q, const double *k,
    double *slope_p)
{
    double dot = 0;
    for (int64_t c = 0; c < problem->dim_qk; c++)
        dot += q[c] * k[c];
    double score = problem->scale * dot;
    *slope_p = 1;
    if (problem->softcap > 0) {
        double t = tanh(score / problem->softcap);
        score = problem->softcap * t;
        *slope_p = 1 - t * t;
    }
    if (row->slope != 0)
        score -= row->slope * uli_attn_distance(&row->doc, row->i, j);
    return score;
}

/* The largest score that the row sees, -infinity where it sees none. */
static double
row_max(
    struct uli_attn_call *call, const struct uli_ref_row *row, const double *q)
{
    double k[ULI_ATTN_DIM_MAX], slope, max = -INFINITY;
    for (int64_t j = row->begin; j < row->end; j++) {
        uli_ref_load_key(call, ULI_ATTN_K, row, j, k);
        double score = uli_ref_score(&call->problem, row, j, q, k, &slope);
        max = score > max || isnan(score) ? score : max;
    }
    return max;
}

/* out and lse of one row. */
static void
store_row(struct uli_attn_call *call, const struct uli_ref_row *row,
    const double *out, double lse)
{
    struct uli_attn_span to =
        uli_attn_q_span(call, ULI_ATTN_OUT, &row->run, row->row, row->row + 1);
    uli_row_store(to.data, call->problem.dtype, call->problem.dim_v, out);
    to = uli_attn_q_span(call, ULI_ATTN_LSE, &row->run, row->row, row->row + 1);
    if (to.data)
        uli_element_store(to.data, call->problem.stat_dtype, 0, lse);
}

static void
forward_row(
    struct uli_attn_call *call, const struct uli_attn_run *run, int64_t index)
{
    const struct uli_attn_problem *problem = &call->problem;
    struct uli_ref_row row = uli_ref_row_at(problem, run, index);
    double q[ULI_ATTN_DIM_MAX], k[ULI_ATTN_DIM_MAX], v[ULI_ATTN_DIM_MAX];
    double out[ULI_ATTN_DIM_MAX] = {0}, slope;
    double sink = uli_attn_sink(problem, run->head);
    if (row.begin >= row.end) {
        store_row(call, &row, out, sink);
        return;
    }
    uli_ref_load_query(call, ULI_ATTN_Q, &row, q);
    double score_max = row_max(call, &row, q);
    double max = sink > score_max ? sink : score_max;
    double sum = exp(sink - max);
    for (int64_t j = row.begin; j < row.end; j++) {
        uli_ref_load_key(call, ULI_ATTN_K, &row, j, k);
        uli_ref_load_key(call, ULI_ATTN_V, &row, j, v);
        double score = uli_ref_score(problem, &row, j, q, k, &slope);
        double p = exp(score - max);
        sum += p;
        for (int64_t c = 0; c < problem->dim_v; c++)
            out[c] += p * v[c];
    }
    for (int64_t c = 0; c < problem->dim_v; c++)
        out[c] /= sum;
    store_row(call, &row, out, max + log(sum));
    uli_attn_max_raise((double *)call->workspace, run->head, score_max);
    atomic_fetch_add(&call->scores, row.end - row.begin);
}

static void
chunk_body(struct uli_attn_call *call, void *context, int64_t index,
    const struct uli_attn_run *run, int64_t row, int64_t end)
{
    uli_ref_body *body = context;
    (void)index;
    for (; row < end && !atomic_load(&call->failed); row++)
        (*body)(call, run, row);
}

void
uli_ref_for_rows(struct uli_attn_call *call, const struct uli_attn_runs *runs,
    uli_ref_body body)
{
    const struct uli_attn_problem *problem = &call->problem;
    double flops = 16.0 * (double)runs->count * (double)runs->rows *
                   (double)problem->len_k * (double)problem->dim_qk;
    uli_work_for_rows(call, runs, flops, chunk_body, &body);
}

static void
reference_forward(struct uli_attn_call *call)
{
    double *scratch = (double *)call->workspace;
    uli_attn_max_init(call, scratch);
    uli_ref_for_rows(call, &call->problem.q_runs, forward_row);
    uli_attn_max_store(call, scratch);
}

static bool
always_usable(void)
{
    return true;
}

static const char *
refuses_nothing(const struct uli_attn_problem *problem)
{
    (void)problem;
    return NULL;
}

static int64_t
reference_workspace(const struct uli_attn_problem *problem,
    ulyx_attention_pass_t pass, int threads)
{
    (void)pass;
    (void)threads;
    return problem->heads_q * (int64_t)sizeof(double);
}

const struct uli_attn_kernel uli_attn_reference_kernel = {
    .name = "reference",
    .what = "plain loops in fp64",
    .usable = always_usable,
    .refuses = refuses_nothing,
    .workspace = reference_workspace,
    .forward = reference_forward,
    .backward = uli_ref_backward,
};
