/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference: the definition in plain loops and doubles, for every dtype,
 * mask and layout. O(len_q * len_k * dim) time, and only a few rows of scratch:
 * scores are computed twice, once for their maximum, once for the sums. A key
 * that a row does not attend to is never read for that row.
 *
 * The gradients, also from the definition: with x = scale * q.k,
 *   p_ij  = exp(score_ij - lse_i)
 *   ds_ij = p_ij * (dout_i.v_j - (delta_i - dlse_i)) * d score_ij / d x_ij
 *   dq_i = scale * sum_j ds_ij k_j     dk_j = scale * sum_i ds_ij q_i
 *   dv_j = sum_i p_ij dout_i
 * once by query rows for dq and once by key rows for dk and dv, so that every
 * sum has one owner and one order (dk, dv: heads ascending, rows ascending).
 */
#include <math.h>
#include <string.h>
#include "attention/element.h"
#include "attention/kernels/kernels.h"
#include "attention/problem.h"
#include "attention/statistics.h"
#include "attention/translate/view.h"
#include "attention/work.h"

enum { DIM_MAX = 512 };

/* One query row: its place, and the keys that it attends to. */
struct ref_row {
    struct uli_attn_run run;
    int64_t row; /* in the batch item */
    bool in_doc;
    struct uli_attn_doc doc;
    int64_t i;          /* in the document */
    int64_t begin, end; /* keys of the document that the row attends to */
    int64_t kv;
    double slope;
};

static struct ref_row
row_at(const struct uli_attn_problem *problem, const struct uli_attn_run *run,
    int64_t row)
{
    struct ref_row at = {.run = *run, .row = row};
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

/* Row j (of the document) of k or v as doubles. */
static void
row_load_key(struct uli_attn_call *call, enum uli_attn_tensor tensor,
    const struct ref_row *row, int64_t j, double *values_p)
{
    int64_t k = row->doc.k_begin + j;
    struct uli_attn_span span =
        uli_attn_k_span(call, tensor, row->kv, row->doc.k_batch, k, k + 1);
    const struct uli_attn_view *view = &call->views[tensor];
    uli_row_load(span.data, view->dtype, view->columns, values_p);
}

static void
row_load_query(struct uli_attn_call *call, enum uli_attn_tensor tensor,
    const struct ref_row *row, double *values_p)
{
    struct uli_attn_span span =
        uli_attn_q_span(call, tensor, &row->run, row->row, row->row + 1);
    const struct uli_attn_view *view = &call->views[tensor];
    uli_row_load(span.data, view->dtype, view->columns, values_p);
}

/* The score of a pair before the softmax. *slope_p: d score / d (scale q.k), 1
 * without a softcap. */
static double
row_score(const struct uli_attn_problem *problem, const struct ref_row *row,
    int64_t j, const double *q, const double *k, double *slope_p)
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

/* The largest score of the row; -infinity where it attends to no key. */
static double
row_max(struct uli_attn_call *call, const struct ref_row *row, const double *q)
{
    double k[DIM_MAX], slope, max = -INFINITY;
    for (int64_t j = row->begin; j < row->end; j++) {
        row_load_key(call, ULI_ATTN_K, row, j, k);
        double score = row_score(&call->problem, row, j, q, k, &slope);
        max = score > max || isnan(score) ? score : max;
    }
    return max;
}

/* Stores out and lse of one row. */
static void
store_row(struct uli_attn_call *call, const struct ref_row *row,
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
    struct ref_row row = row_at(problem, run, index);
    double q[DIM_MAX], k[DIM_MAX], v[DIM_MAX];
    double out[DIM_MAX] = {0}, slope;
    double sink = uli_attn_sink(problem, run->head);
    if (row.begin >= row.end) {
        store_row(call, &row, out, sink);
        return;
    }
    row_load_query(call, ULI_ATTN_Q, &row, q);
    double score_max = row_max(call, &row, q);
    double max = sink > score_max ? sink : score_max;
    double sum = exp(sink - max);
    for (int64_t j = row.begin; j < row.end; j++) {
        row_load_key(call, ULI_ATTN_K, &row, j, k);
        row_load_key(call, ULI_ATTN_V, &row, j, v);
        double score = row_score(problem, &row, j, q, k, &slope);
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

/* Runs body for every row of a side's runs, by threads. */
typedef void (*ref_body)(
    struct uli_attn_call *call, const struct uli_attn_run *run, int64_t row);

static void
chunk_body(struct uli_attn_call *call, void *context, int64_t index,
    const struct uli_attn_run *run, int64_t row, int64_t end)
{
    ref_body *body = context;
    (void)index;
    for (; row < end && !atomic_load(&call->failed); row++)
        (*body)(call, run, row);
}

static void
rows_each(
    struct uli_attn_call *call, const struct uli_attn_runs *runs, ref_body body)
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
    rows_each(call, &call->problem.q_runs, forward_row);
    uli_attn_max_store(call, scratch);
}

/* ---- backward ------------------------------------------------------------ */

/* The data of one query row that all its pairs use. */
struct query {
    struct ref_row row;
    double q[DIM_MAX], dout[DIM_MAX];
    double lse, delta;
};

static void
load_query(struct uli_attn_call *call, struct query *query)
{
    row_load_query(call, ULI_ATTN_Q, &query->row, query->q);
    row_load_query(call, ULI_ATTN_DOUT, &query->row, query->dout);
    query->lse = uli_attn_row_lse(call, &query->row.run, query->row.row);
    query->delta = uli_attn_row_delta(call, &query->row.run, query->row.row);
}

/* p and scale * ds of a pair. */
static void
pair_gradient(const struct uli_attn_problem *problem, const struct query *query,
    int64_t j, const double *k, const double *v, double *p_p, double *ds_p)
{
    double slope, dp = 0;
    double score = row_score(problem, &query->row, j, query->q, k, &slope);
    for (int64_t c = 0; c < problem->dim_v; c++)
        dp += query->dout[c] * v[c];
    /* p <= 1 however lse was rounded to its dtype */
    *p_p = exp(score > query->lse ? 0 : score - query->lse);
    *ds_p = problem->scale * *p_p * (dp - query->delta) * slope;
}

static void
dq_row(
    struct uli_attn_call *call, const struct uli_attn_run *run, int64_t index)
{
    const struct uli_attn_problem *problem = &call->problem;
    struct query query = {.row = row_at(problem, run, index)};
    double k[DIM_MAX], v[DIM_MAX], p, ds;
    double dq[DIM_MAX] = {0};
    if (query.row.begin < query.row.end)
        load_query(call, &query);
    for (int64_t j = query.row.begin; j < query.row.end; j++) {
        row_load_key(call, ULI_ATTN_K, &query.row, j, k);
        row_load_key(call, ULI_ATTN_V, &query.row, j, v);
        pair_gradient(problem, &query, j, k, v, &p, &ds);
        for (int64_t c = 0; c < problem->dim_qk; c++)
            dq[c] += ds * k[c];
    }
    struct uli_attn_span to =
        uli_attn_q_span(call, ULI_ATTN_DQ, run, index, index + 1);
    uli_row_store(to.data, call->views[ULI_ATTN_DQ].dtype, problem->dim_qk, dq);
    atomic_fetch_add(&call->scores, query.row.end - query.row.begin);
}

/* One key row and the sums that it owns. */
struct key {
    int64_t row; /* in the batch item */
    double k[DIM_MAX], v[DIM_MAX];
    double dk[DIM_MAX], dv[DIM_MAX];
};

/* Adds the shares of the rows of one query run to the key's sums. */
static void
add_run(struct uli_attn_call *call, const struct uli_attn_run *run,
    const struct uli_attn_doc *doc, struct key *key)
{
    const struct uli_attn_problem *problem = &call->problem;
    int64_t j = key->row - doc->k_begin, first, end;
    struct query query;
    double p, ds;
    uli_attn_rows_seeing(problem, doc, j, j + 1, &first, &end);
    first = uli_max(first + doc->q_begin, run->row_begin);
    end = uli_min(end + doc->q_begin, run->row_end);
    for (int64_t row = first; row < end; row++) {
        query.row = row_at(problem, run, row);
        if (j < query.row.begin || j >= query.row.end)
            continue;
        load_query(call, &query);
        pair_gradient(problem, &query, j, key->k, key->v, &p, &ds);
        for (int64_t c = 0; c < problem->dim_qk; c++)
            key->dk[c] += ds * query.q[c];
        for (int64_t c = 0; c < problem->dim_v; c++)
            key->dv[c] += p * query.dout[c];
    }
}

/* Adds all query runs of the document that read the kv head, heads
 * ascending. */
static void
add_runs(struct uli_attn_call *call, int64_t kv, const struct uli_attn_doc *doc,
    struct key *key)
{
    const struct uli_attn_problem *problem = &call->problem;
    const struct uli_attn_runs *runs = &problem->q_runs;
    bool listed = runs->segments != NULL;
    int64_t count = listed ? runs->count : problem->heads_q;
    for (int64_t n = 0; n < count; n++) {
        int64_t index = listed ? n : n * problem->batch + doc->q_batch;
        struct uli_attn_run run = uli_attn_run_at(runs, index);
        if (run.batch == doc->q_batch &&
            uli_attn_kv_head(problem, run.head) == kv)
            add_run(call, &run, doc, key);
    }
}

static void
load_sums(struct uli_attn_call *call, const struct uli_attn_span *dk,
    const struct uli_attn_span *dv, struct key *key)
{
    const struct uli_attn_problem *problem = &call->problem;
    memset(key->dk, 0, sizeof(key->dk));
    memset(key->dv, 0, sizeof(key->dv));
    if (!call->accumulate)
        return;
    uli_row_load(
        dk->data, call->views[ULI_ATTN_DK].dtype, problem->dim_qk, key->dk);
    uli_row_load(
        dv->data, call->views[ULI_ATTN_DV].dtype, problem->dim_v, key->dv);
}

static void
dkv_row(
    struct uli_attn_call *call, const struct uli_attn_run *run, int64_t index)
{
    const struct uli_attn_problem *problem = &call->problem;
    struct key key = {.row = index};
    struct uli_attn_span dk = uli_attn_k_span(
        call, ULI_ATTN_DK, run->head, run->batch, index, index + 1);
    struct uli_attn_span dv = uli_attn_k_span(
        call, ULI_ATTN_DV, run->head, run->batch, index, index + 1);
    int64_t n = uli_attn_doc_of_k(problem, run->batch, index);
    load_sums(call, &dk, &dv, &key);
    if (n >= 0 && problem->heads_q > 0) {
        struct uli_attn_doc doc = uli_attn_doc_at(problem, n);
        struct ref_row at = {.doc = doc, .kv = run->head};
        row_load_key(call, ULI_ATTN_K, &at, index - doc.k_begin, key.k);
        row_load_key(call, ULI_ATTN_V, &at, index - doc.k_begin, key.v);
        if (doc.q_rows > 0)
            add_runs(call, run->head, &doc, &key);
    }
    uli_row_store(
        dk.data, call->views[ULI_ATTN_DK].dtype, problem->dim_qk, key.dk);
    uli_row_store(
        dv.data, call->views[ULI_ATTN_DV].dtype, problem->dim_v, key.dv);
}

static void
reference_backward(struct uli_attn_call *call)
{
    rows_each(call, &call->problem.q_runs, dq_row);
    rows_each(call, &call->problem.k_runs, dkv_row);
    uli_attn_sink_gradient(call, (double *)call->workspace);
}

/* ---- the kernel ---------------------------------------------------------- */

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
    .backward = reference_backward,
};
