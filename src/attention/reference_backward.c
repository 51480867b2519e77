/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference's gradients, from the definition: with x = scale * q.k,
 *   p_ij  = exp(score_ij - lse_i)
 *   ds_ij = p_ij * (dout_i.v_j - (delta_i - dlse_i)) * d score_ij / d x_ij
 *   dq_i = scale * sum_j ds_ij k_j     dk_j = scale * sum_i ds_ij q_i
 *   dv_j = sum_i p_ij dout_i
 * once by query rows for dq and once by key rows for dk and dv, so that every
 * sum has one owner and one order (dk, dv: heads ascending, rows ascending).
 */
#include "attention/reference.h"
#include <math.h>
#include <string.h>
#include "attention/element.h"
#include "attention/statistics.h"
#include "attention/translate/view.h"

/* What one query row brings to its pairs. */
struct query {
    struct uli_ref_row row;
    double q[ULI_ATTN_DIM_MAX], dout[ULI_ATTN_DIM_MAX];
    double lse, delta;
};

static void
load_query(struct uli_attn_call *call, struct query *query)
{
    uli_ref_load_query(call, ULI_ATTN_Q, &query->row, query->q);
    uli_ref_load_query(call, ULI_ATTN_DOUT, &query->row, query->dout);
    query->lse = uli_attn_row_lse(call, &query->row.run, query->row.row);
    query->delta = uli_attn_row_delta(call, &query->row.run, query->row.row);
}

/* p and scale * ds of a pair. */
static void
pair_gradient(const struct uli_attn_problem *problem, const struct query *query,
    int64_t j, const double *k, const double *v, double *p_p, double *ds_p)
{
    double slope, dp = 0;
    double score = uli_ref_score(problem, &query->row, j, query->q, k, &slope);
    for (int64_t c = 0; c < problem->dim_v; c++)
        dp += query->dout[c] * v[c];
    /* p <= 1 whatever the rounding of lse to its dtype */
    *p_p = exp(score > query->lse ? 0 : score - query->lse);
    *ds_p = problem->scale * *p_p * (dp - query->delta) * slope;
}

static void
dq_row(
    struct uli_attn_call *call, const struct uli_attn_run *run, int64_t index)
{
    const struct uli_attn_problem *problem = &call->problem;
    struct query query = {.row = uli_ref_row_at(problem, run, index)};
    double k[ULI_ATTN_DIM_MAX], v[ULI_ATTN_DIM_MAX], p, ds;
    double dq[ULI_ATTN_DIM_MAX] = {0};
    if (query.row.begin < query.row.end)
        load_query(call, &query);
    for (int64_t j = query.row.begin; j < query.row.end; j++) {
        uli_ref_load_key(call, ULI_ATTN_K, &query.row, j, k);
        uli_ref_load_key(call, ULI_ATTN_V, &query.row, j, v);
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
    int64_t row; /* of the batch item */
    double k[ULI_ATTN_DIM_MAX], v[ULI_ATTN_DIM_MAX];
    double dk[ULI_ATTN_DIM_MAX], dv[ULI_ATTN_DIM_MAX];
};

/* Adds what the rows of one query run give to the key. */
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
        query.row = uli_ref_row_at(problem, run, row);
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

/* All query runs of the document that read the kv head, heads ascending. */
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
        struct uli_ref_row at = {.doc = doc, .kv = run->head};
        uli_ref_load_key(call, ULI_ATTN_K, &at, index - doc.k_begin, key.k);
        uli_ref_load_key(call, ULI_ATTN_V, &at, index - doc.k_begin, key.v);
        if (doc.q_rows > 0)
            add_runs(call, run->head, &doc, &key);
    }
    uli_row_store(
        dk.data, call->views[ULI_ATTN_DK].dtype, problem->dim_qk, key.dk);
    uli_row_store(
        dv.data, call->views[ULI_ATTN_DV].dtype, problem->dim_v, key.dv);
}

void
uli_ref_backward(struct uli_attn_call *call)
{
    uli_ref_for_rows(call, &call->problem.q_runs, dq_row);
    uli_ref_for_rows(call, &call->problem.k_runs, dkv_row);
    uli_attn_sink_gradient(call, (double *)call->workspace);
}
