/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward of one unit: a key tile of one kv head and document against all
 * query tiles that see it, of all query heads that read the kv head, with heads
 * and tiles in ascending order. A pair of tiles takes five products:
 *   s[query][key]  = sum_u q[query][u] * kt[u][key]        panels of PANEL keys
 *   dp[query][key] = sum_u dout[query][u] * vt[u][key]
 *   dv[key][c]    += sum_query p[query][key] * dout[query][c]
 *   dk[key][c]    += sum_query ds[query][key] * q[query][c]
 *   dq[query][c]  += sum_key ds[query][key] * k[key][c]
 * with p = 2^min(score * factor - lse2, 0) and ds = scale * p * (dp - delta).
 * dk and dv stay in this thread's scratch. The units of a document share dq:
 * unit t adds to a query tile only after unit t - 1 has added, so the sum of a
 * row runs over keys in ascending order on any number of threads. Units never
 * wait in a circle: threads take the units of a document and kv head in
 * ascending order, and a unit that is taken runs. Every sum continues from the
 * stored value, so it is one chain of additions whatever the tiles are.
 */
#include "attention/kernels/gemm.h"
#include <math.h>
#include "attention/kernels/rows.h"

#define SCORE_LD (ULI_TILE_KEYS + LANES)
/* Number of units that hold the queries of a tile. */
#define QUERY_UNITS (PAIRED ? ULI_TILE_QUERIES / 2 : ULI_TILE_QUERIES)

struct backward {
    struct uli_attn_call *call;
    const struct uli_attn_problem *problem;
    const struct uli_tile_unit *unit;
    struct uli_tile_shared *shared;
    struct uli_attn_doc doc;
    struct uli_tile_head head;
    int64_t j, count;         /* first key and number of keys of the tile */
    int64_t keys;             /* count, rounded up to whole panels */
    int64_t q_units, v_units; /* units of rows of q and k, of v and dout */
    int64_t q_columns, v_columns;
    int64_t q_ld, v_ld;
    float *kt, *vt;         /* [panel][unit][PANEL] */
    float *k;               /* [panel][key or pair of keys][PANEL] */
    float *dk, *dv;         /* [key][q_columns], [key][v_columns] */
    float *q, *dout;        /* [query][ld]: units along columns */
    float *q2, *dout2;      /* [panel][query or pair of queries][PANEL] */
    float *s, *dp, *turned; /* [query][SCORE_LD] */
    float *dq;              /* [query][q_columns], for a tile of few rows */
    float *staging;
    int64_t scores;
};

static int64_t
backward_layout(struct backward *b, float *base)
{
    const struct uli_attn_problem *problem = b->problem;
    struct carver c = {base, 0};
    b->q_units = units_of(problem->dim_qk);
    b->v_units = units_of(problem->dim_v);
    b->q_columns = columns_padded(problem->dim_qk);
    b->v_columns = columns_padded(problem->dim_v);
    b->q_ld = b->q_columns + LANES;
    b->v_ld = b->v_columns + LANES;
    b->kt = carver_take(&c, ULI_TILE_KEYS * b->q_units);
    b->vt = carver_take(&c, ULI_TILE_KEYS * b->v_units);
    b->k = carver_take(&c, TILE_UNITS * panels_width(problem->dim_qk));
    b->dk = carver_take(&c, ULI_TILE_KEYS * b->q_columns);
    b->dv = carver_take(&c, ULI_TILE_KEYS * b->v_columns);
    b->q = carver_take(&c, ULI_TILE_QUERIES * b->q_ld);
    b->dout = carver_take(&c, ULI_TILE_QUERIES * b->v_ld);
    b->q2 = carver_take(&c, QUERY_UNITS * panels_width(problem->dim_qk));
    b->dout2 = carver_take(&c, QUERY_UNITS * panels_width(problem->dim_v));
    b->s = carver_take(&c, ULI_TILE_QUERIES * SCORE_LD);
    b->dp = carver_take(&c, ULI_TILE_QUERIES * SCORE_LD);
    b->turned = PAIRED ? carver_take(&c, ULI_TILE_QUERIES * SCORE_LD) : b->dp;
    b->dq = carver_take(&c, ULI_TILE_QUERIES * b->q_columns);
    b->staging =
        carver_take(&c, ULI_TILE_KEYS * uli_max(b->q_units, b->v_units));
    return c.floats;
}

/* Packs keys and values of the tile in all layouts; zeros past the tile's
 * end. */
static void
backward_load_keys(struct backward *b)
{
    const struct uli_attn_problem *problem = b->problem;
    int64_t end = b->j + b->count, rows = b->keys;
    load_keys(b->call, ULI_ATTN_V, b->unit->kv, &b->doc, b->j, end, rows,
        b->staging, layout_plain(b->v_units, problem->dim_v));
    transpose_panels(b->vt, b->staging, b->v_units, rows, b->v_units);
    load_keys(b->call, ULI_ATTN_K, b->unit->kv, &b->doc, b->j, end, rows,
        b->staging, layout_plain(b->q_units, problem->dim_qk));
    transpose_panels(b->kt, b->staging, b->q_units, rows, b->q_units);
    pack_panels(b->k, layout_panels(TILE_UNITS, problem->dim_qk), b->staging,
        b->q_units, rows, problem->dim_qk);
}

/* Loads (load true) or stores the sums dk or dv of the rows of the tile that
 * the call has. */
static void
backward_sums(struct backward *b, enum uli_attn_tensor tensor, float *sums,
    int64_t ld, bool load)
{
    const struct uli_attn_view *view = &b->call->views[tensor];
    for (int64_t n = 0; n < b->count;) {
        int64_t row = b->doc.k_begin + b->j + n;
        struct uli_attn_span span = uli_attn_k_span(b->call, tensor,
            b->unit->kv, b->doc.k_batch, row, row + b->count - n);
        for (int64_t r = 0; span.data && r < span.rows; r++) {
            unsigned char *at = span.data + r * span.stride;
            if (load)
                memcpy(sums + (n + r) * ld, at, (size_t)view->row_bytes);
            else
                uli_tile_store_row(
                    at, view->dtype, sums + (n + r) * ld, view->columns);
        }
        n += span.rows;
    }
}

/* Rows that see no key become zeros: their values must not enter any sum. */
static void
clear_blind_rows(struct backward *b, const float *lse2, int64_t rows)
{
    for (int64_t n = 0; n < rows; n++) {
        if (lse2[n] != INFINITY)
            continue;
        memset(b->q + n * b->q_ld, 0, (size_t)b->q_units * 4);
        memset(b->dout + n * b->v_ld, 0, (size_t)b->v_units * 4);
    }
}

/* Rows of a query tile, rounded up to what products take. */
INLINE int64_t
whole_rows(int64_t rows)
{
    return (rows + ROWS - 1) / ROWS * ROWS;
}

/* Packs query rows [i, i + rows) of a run, in all layouts. */
static void
backward_load_queries(struct backward *b, const struct uli_attn_run *run,
    int64_t i, int64_t rows, const float *lse2)
{
    const struct uli_attn_problem *problem = b->problem;
    int64_t row = b->doc.q_begin + i, all = whole_rows(rows);
    int64_t dim_qk = problem->dim_qk, dim_v = problem->dim_v;
    load_queries(b->call, ULI_ATTN_Q, run, row, rows, all, b->q,
        layout_plain(b->q_ld, dim_qk));
    load_queries(b->call, ULI_ATTN_DOUT, run, row, rows, all, b->dout,
        layout_plain(b->v_ld, dim_v));
    clear_blind_rows(b, lse2, rows);
    pack_panels(
        b->q2, layout_panels(QUERY_UNITS, dim_qk), b->q, b->q_ld, all, dim_qk);
    pack_panels(b->dout2, layout_panels(QUERY_UNITS, dim_v), b->dout, b->v_ld,
        all, dim_v);
}

/* Turns dot products into scores; multiplies *gain_p by the derivative of the
 * cap. */
INLINE vf
backward_transform(const struct backward *b, vf s, vf *gain_p, int32_t key,
    const struct uli_tile_alibi *alibi)
{
    const struct uli_tile_head *head = &b->head;
    s = s * v_set(head->scale);
    if (head->cap > 0) {
        vf t = v_tanh(s * v_set(head->cap_inverse));
        *gain_p = *gain_p * (v_set(1.0f) - t * t);
        s = t * v_set(head->cap);
    }
    if (head->slope != 0) {
        vf n = COUNTED;
        vf away = v_abs(v_set(alibi->at - (float)key) - n);
        s = s - v_set(head->slope) * (away + v_set(alibi->plus));
    }
    return s;
}

/* Computes p and ds of PANEL keys of one row, in place of s and dp. key counts
 * from the tile's first key. */
INLINE void
backward_panel(const struct backward *b, float *s_at, float *dp_at, int32_t key,
    float lse2, float delta, const struct uli_tile_alibi *alibi, int32_t low,
    int32_t high, const bool transformed, const bool masked)
{
    const struct uli_tile_head *head = &b->head;
    vf p[VECTORS], gain[VECTORS];
    for (int i = 0; i < VECTORS; i++) {
        vf s = v_load(s_at + i * LANES);
        gain[i] = v_set(head->scale);
        if (transformed)
            s = backward_transform(b, s, &gain[i], key + i * LANES, alibi);
        /* p <= 1, however large scores and lse were rounded */
        p[i] = -v_max(v_set(0.0f), v_set(lse2) - s * v_set(head->factor));
    }
    v_exp2_each(p, VECTORS);
    for (int i = 0; i < VECTORS; i++) {
        vf ds = p[i] * (v_load(dp_at + i * LANES) - v_set(delta)) * gain[i];
        if (masked) {
            vi at = v_seti(key + i * LANES) + (vi)COUNTED;
            vi seen = (at >= v_seti(low)) & (at < v_seti(high));
            p[i] = (vf)((vi)p[i] & seen);
            ds = (vf)((vi)ds & seen);
        }
        v_store(s_at + i * LANES, p[i]);
        v_store(dp_at + i * LANES, ds);
    }
}

/* Computes p and ds of one row and keys [begin, end) of the tile (multiples of
 * PANEL). */
INLINE void
backward_row(struct backward *b, int64_t n, int64_t i, int64_t begin,
    int64_t end, float lse2, float delta, const bool transformed,
    const bool masked)
{
    struct uli_tile_alibi alibi = {0, 0};
    int32_t low = 0, high = 0;
    if (transformed && b->head.slope != 0)
        alibi = uli_tile_alibi_of(b->problem, &b->doc, i, b->j);
    if (masked) {
        int64_t first = uli_attn_visible_begin(b->problem, &b->doc, i) - b->j;
        int64_t last = uli_attn_visible_end(b->problem, &b->doc, i) - b->j;
        low = (int32_t)uli_min(uli_max(first, 0), ULI_TILE_KEYS);
        high = (int32_t)uli_min(uli_max(last, 0), ULI_TILE_KEYS);
    }
    for (int64_t key = begin; key < end; key += PANEL)
        backward_panel(b, b->s + n * SCORE_LD + key, b->dp + n * SCORE_LD + key,
            (int32_t)key, lse2, delta, &alibi, low, high, transformed, masked);
}

static void
backward_scores(struct backward *b, int64_t i, int64_t rows, int64_t begin,
    int64_t end, const float *lse2, const float *delta)
{
    bool transformed = b->head.transformed;
    for (int64_t n = 0; n < whole_rows(rows); n++) {
        if (n >= rows) { /* rows past the end add nothing */
            memset(b->s + n * SCORE_LD + begin, 0, (size_t)(end - begin) * 4);
            memset(b->dp + n * SCORE_LD + begin, 0, (size_t)(end - begin) * 4);
            continue;
        }
        bool whole =
            uli_attn_visible_begin(b->problem, &b->doc, i + n) <=
                b->j + begin &&
            uli_attn_visible_end(b->problem, &b->doc, i + n) >= b->j + end;
        if (transformed)
            backward_row(
                b, n, i + n, begin, end, lse2[n], delta[n], true, true);
        else if (whole)
            backward_row(
                b, n, i + n, begin, end, lse2[n], delta[n], false, false);
        else
            backward_row(
                b, n, i + n, begin, end, lse2[n], delta[n], false, true);
    }
}

/* Converts p (in s) and ds (in dp) to units of bf16. p: pairs of queries, in
 * place (rows 2n and 2n + 1 become row n). ds: pairs of queries, in turned; and
 * pairs of keys, in place, the first at unit begin / 2. */
static void
backward_pack(struct backward *b, int64_t rows, int64_t begin, int64_t end)
{
    for (int64_t n = 0; n < rows; n += 2) {
        float *s = b->s + n * SCORE_LD, *dp = b->dp + n * SCORE_LD;
        float *s_to = b->s + n / 2 * SCORE_LD;
        float *turned = b->turned + n / 2 * SCORE_LD;
        for (int64_t key = begin; key < end; key += LANES) {
            vf low = v_load(dp + key), high = v_load(dp + SCORE_LD + key);
            v_store(turned + key, v_pair(low, high));
            low = v_load(s + key), high = v_load(s + SCORE_LD + key);
            v_store(s_to + key, v_pair(low, high));
        }
        for (int r = 0; r < 2; r++)
            narrow_row(dp + r * SCORE_LD + begin / 2, dp + r * SCORE_LD + begin,
                end - begin);
    }
}

/* Adds the tile's part to dq when the unit's turn has come. The unit of the
 * last tile that the rows see writes dq to the tensor. */
static void
backward_dq(struct backward *b, const struct uli_attn_run *run,
    int64_t run_index, int64_t i, int64_t rows, int64_t begin, int64_t end)
{
    const struct uli_attn_problem *problem = b->problem;
    int64_t row = b->doc.q_begin + i, first, last;
    int64_t at = uli_tile_row(problem, b->shared, run_index, run, row);
    float *sums = b->shared->dq + at * b->q_columns;
    int64_t all = whole_rows(rows);
    float *dq = rows == all ? sums : b->dq;
    uli_tile_key_range(problem, &b->doc, i, i + rows, &first, &last);
    uli_tile_await(
        b->call, &b->shared->turns[at], (int32_t)(b->unit->tile - first));
    size_t bytes = (size_t)(rows * b->q_columns) * 4;
    if (b->unit->tile == first)
        memset(sums, 0, bytes);
    if (dq != sums) {
        memset(dq, 0, (size_t)(all * b->q_columns) * 4);
        memcpy(dq, sums, bytes);
    }
    gemm_stripes(GEMM_ADD, all, b->q_columns,
        PAIRED ? (end - begin) / 2 : end - begin,
        b->dp + (PAIRED ? begin / 2 : begin), SCORE_LD, 1,
        b->k + (PAIRED ? begin / 2 : begin) * PANEL, TILE_UNITS * PANEL, dq,
        b->q_columns, b->dq);
    if (dq != sums)
        memcpy(sums, dq, bytes);
    if (b->unit->tile == last - 1)
        uli_tile_store_rows(
            b->call, ULI_ATTN_DQ, run, row, rows, sums, b->q_columns);
    atomic_store_explicit(&b->shared->turns[at],
        (int32_t)(b->unit->tile - first + 1), memory_order_release);
}

/* Computes the five products of query rows [i, i + rows) of a run's document
 * and the unit. */
static void
backward_tile(struct backward *b, const struct uli_attn_run *run,
    int64_t run_index, int64_t i, int64_t rows)
{
    const struct uli_attn_problem *problem = b->problem;
    int64_t at =
        uli_tile_row(problem, b->shared, run_index, run, b->doc.q_begin + i);
    const float *lse2 = b->shared->lse2 + at;
    int64_t begin = uli_attn_visible_begin(problem, &b->doc, i) - b->j;
    int64_t end = uli_attn_visible_end(problem, &b->doc, i + rows - 1) - b->j;
    begin = uli_max(begin, 0) / PANEL * PANEL;
    end = (uli_min(end, b->count) + PANEL - 1) / PANEL * PANEL;
    int64_t first, last;
    uli_tile_key_range(problem, &b->doc, i, i + rows, &first, &last);
    if (b->unit->tile < first || b->unit->tile >= last)
        return;
    backward_load_queries(b, run, i, rows, lse2);
    int64_t keys = end - begin, all = whole_rows(rows);
    int64_t depth = all / (PAIRED ? 2 : 1);
    gemm_stripes(GEMM_ZERO, all, keys, b->q_units, b->q, b->q_ld, 1,
        b->kt + begin * b->q_units, b->q_units * PANEL, b->s + begin, SCORE_LD,
        b->s);
    gemm_stripes(GEMM_ZERO, all, keys, b->v_units, b->dout, b->v_ld, 1,
        b->vt + begin * b->v_units, b->v_units * PANEL, b->dp + begin, SCORE_LD,
        b->dp);
    backward_scores(b, i, rows, begin, end, lse2, b->shared->delta + at);
    if (PAIRED)
        backward_pack(b, all, begin, end);
    gemm_stripes(GEMM_ADD, keys, b->v_columns, depth, b->s + begin, 1, SCORE_LD,
        b->dout2, QUERY_UNITS * PANEL, b->dv + begin * b->v_columns,
        b->v_columns, b->dv);
    gemm_stripes(GEMM_ADD, keys, b->q_columns, depth, b->turned + begin, 1,
        SCORE_LD, b->q2, QUERY_UNITS * PANEL, b->dk + begin * b->q_columns,
        b->q_columns, b->dk);
    backward_dq(b, run, run_index, i, rows, begin, end);
    b->scores += keys * all;
}

/* Goes through all query tiles of one run; tiles count from the document's
 * first row. */
static void
backward_run(struct backward *b, int64_t run_index)
{
    const struct uli_attn_problem *problem = b->problem;
    struct uli_attn_run run = uli_attn_run_at(&problem->q_runs, run_index);
    int64_t first, end;
    b->head = uli_tile_head_of(problem, run.head);
    uli_attn_rows_seeing(problem, &b->doc, b->j, b->j + b->count, &first, &end);
    int64_t low = uli_max(run.row_begin - b->doc.q_begin, 0);
    int64_t high = uli_min(run.row_end - b->doc.q_begin, b->doc.q_rows);
    first = first / ULI_TILE_QUERIES * ULI_TILE_QUERIES;
    for (int64_t i = first; i < end && i < high; i += ULI_TILE_QUERIES) {
        int64_t from = uli_max(i, low);
        int64_t to = uli_min(i + ULI_TILE_QUERIES, high);
        if (from < to)
            backward_tile(b, &run, run_index, from, to - from);
    }
}

static void
backward_unit(struct uli_attn_call *call, const struct uli_tile_unit *unit,
    struct uli_tile_shared *shared, void *scratch)
{
    const struct uli_attn_problem *problem = &call->problem;
    struct backward b = {
        .call = call, .problem = problem, .unit = unit, .shared = shared};
    b.doc = uli_attn_doc_at(problem, unit->doc);
    b.j = unit->tile * ULI_TILE_KEYS;
    b.count = uli_min(ULI_TILE_KEYS, b.doc.k_rows - b.j);
    b.keys = (b.count + PANEL - 1) / PANEL * PANEL;
    backward_layout(&b, scratch);
    memset(b.dk, 0, (size_t)(b.keys * b.q_columns) * 4);
    memset(b.dv, 0, (size_t)(b.keys * b.v_columns) * 4);
    if (call->accumulate) {
        backward_sums(&b, ULI_ATTN_DK, b.dk, b.q_columns, true);
        backward_sums(&b, ULI_ATTN_DV, b.dv, b.v_columns, true);
    }
    backward_load_keys(&b);
    struct uli_tile_readers readers =
        uli_tile_readers_of(problem, &b.doc, unit->kv);
    int64_t run;
    while ((run = uli_tile_next_reader(problem, &readers)) >= 0)
        backward_run(&b, run);
    backward_sums(&b, ULI_ATTN_DK, b.dk, b.q_columns, false);
    backward_sums(&b, ULI_ATTN_DV, b.dv, b.v_columns, false);
    atomic_fetch_add_explicit(&call->scores, b.scores, memory_order_relaxed);
}
