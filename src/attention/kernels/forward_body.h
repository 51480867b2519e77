/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward of one item: up to ITEM_ROWS query rows against their key tiles
 * in ascending order. Scores are stored transposed, st[key][query]. So the
 * softmax over keys runs down the lanes without any sum across a vector, keys
 * and values need no transposition, and q is transposed once per item. For
 * every panel of PANEL queries and every key tile:
 *   st[key][query] = sum_u k[key][u] * qt[u][query]
 *   out[query][c]  = out[query][c] * alpha + sum_key st[key][query] * v[key][c]
 * A panel takes only the keys of a tile that one of its rows sees, rounded to
 * ROWS. Extra keys have p = 0 exactly, which adds nothing to any sum, so a row
 * does not depend on the rows beside it. Differences from the running maximum
 * are taken before they are scaled. So the largest p of a row is exactly 1, and
 * a row that sees one key returns the value of that key.
 */
#include "attention/kernels/gemm.h"
#include <math.h>
#include "attention/kernels/rows.h"
#include "attention/statistics.h"

struct forward {
    struct uli_attn_call *call;
    const struct uli_attn_problem *problem;
    const struct uli_tile_item *item;
    struct uli_attn_run run;
    struct uli_attn_doc doc;
    struct uli_tile_head head;
    int64_t kv, units, columns; /* of q and k; of out, padded */
    int64_t k_ld;
    float *qt;                /* [panel][unit][PANEL] */
    float *k;                 /* [key][k_ld] */
    float *v;                 /* [panel][key or pair of keys][PANEL] */
    float *st;                /* [key][PANEL] */
    float *out;               /* [row][columns] */
    float *max, *sum, *alpha; /* [row] */
    float *at, *plus;         /* [PANEL], ALiBi */
    float *staging;           /* rows before they are rearranged */
    int64_t scores;
};

/* Packs the item's queries in transposed panels. */
static void
forward_load_queries(struct forward *f)
{
    int64_t rows = (f->item->rows + PANEL - 1) / PANEL * PANEL;
    int64_t row = f->doc.q_begin + f->item->i;
    load_queries(f->call, ULI_ATTN_Q, &f->run, row, f->item->rows, rows,
        f->staging, layout_plain(f->units, f->problem->dim_qk));
    transpose_panels(f->qt, f->staging, f->units, rows, f->units);
    for (int64_t n = 0; n < rows; n++) {
        f->max[n] = -INFINITY;
        f->sum[n] = 0;
    }
    memset(f->out, 0, (size_t)(rows * f->columns) * 4);
}

/* Packs the tile of keys [j, j + count), then zeros up to a multiple of
 * ROWS. */
static void
forward_load_tile(struct forward *f, int64_t j, int64_t count)
{
    int64_t rows = (count + ROWS - 1) / ROWS * ROWS;
    int64_t dim_v = f->problem->dim_v;
    struct row_layout panels = layout_panels(TILE_UNITS, dim_v);
    load_keys(f->call, ULI_ATTN_K, f->kv, &f->doc, j, j + count, rows, f->k,
        layout_plain(f->k_ld, f->problem->dim_qk));
    if (!PAIRED) {
        load_keys(f->call, ULI_ATTN_V, f->kv, &f->doc, j, j + count, rows, f->v,
            panels);
        return;
    }
    int64_t ld = units_of(dim_v);
    load_keys(f->call, ULI_ATTN_V, f->kv, &f->doc, j, j + count, rows,
        f->staging, layout_plain(ld, dim_v));
    pack_panels(f->v, panels, f->staging, ld, rows, dim_v);
}

/* Computes cap(scale * dot) - slope * distance, in place. */
static void
forward_transform(
    struct forward *f, int64_t first, int64_t i, int64_t j, int64_t count)
{
    const struct uli_tile_head *head = &f->head;
    for (int64_t n = 0; head->slope != 0 && n < PANEL; n++) {
        int64_t row = uli_min(i + first + n, f->item->i + f->item->rows - 1);
        struct uli_tile_alibi alibi =
            uli_tile_alibi_of(f->problem, &f->doc, row, j);
        f->at[n] = alibi.at;
        f->plus[n] = alibi.plus;
    }
    for (int64_t key = 0; key < count; key++) {
        for (int n = 0; n < PANEL; n += LANES) {
            float *to = f->st + key * PANEL + n;
            vf s = v_load(to) * v_set(head->scale);
            if (head->cap > 0)
                s = v_tanh(s * v_set(head->cap_inverse)) * v_set(head->cap);
            if (head->slope != 0)
                s = s - v_set(head->slope) *
                            (v_abs(v_load(f->at + n) - v_set((float)key)) +
                                v_load(f->plus + n));
            v_store(to, s);
        }
    }
}

/* Sets scores of keys that a row does not see to -inf. Keys count from j. */
static void
forward_mask(
    struct forward *f, int64_t first, int64_t i, int64_t j, int64_t count)
{
    int32_t low[PANEL], high[PANEL];
    for (int64_t n = 0; n < PANEL; n++) {
        int64_t row = uli_min(i + first + n, f->item->i + f->item->rows - 1);
        int64_t begin = uli_attn_visible_begin(f->problem, &f->doc, row) - j;
        int64_t end = uli_attn_visible_end(f->problem, &f->doc, row) - j;
        low[n] = (int32_t)uli_min(uli_max(begin, 0), count);
        high[n] = (int32_t)uli_min(uli_max(end, 0), count);
    }
    for (int n = 0; n < PANEL; n += LANES) {
        vi from, to;
        memcpy(&from, low + n, sizeof(from));
        memcpy(&to, high + n, sizeof(to));
        for (int64_t key = 0; key < count; key++) {
            float *s = f->st + key * PANEL + n;
            vi at = v_seti((int32_t)key);
            v_store(s, v_select((at >= from) & (at < to), v_load(s),
                           v_set(-INFINITY)));
        }
    }
}

/* Turns scores into p, in place (in paired kernels rows 2n and 2n + 1 become
 * the units of row n), and the running maximum and sum of every query. */
static void
forward_softmax(struct forward *f, int64_t first, int64_t count)
{
    const vf factor = v_set(f->head.factor);
    vf top[VECTORS], total[VECTORS];
    for (int n = 0; n < VECTORS; n++)
        top[n] = v_set(-INFINITY);
    for (int64_t key = 0; key < count; key++)
        for (int n = 0; n < VECTORS; n++)
            top[n] = v_max(top[n], v_load(f->st + key * PANEL + n * LANES));
    for (int n = 0; n < VECTORS; n++) {
        float *max = f->max + first + n * LANES;
        vf before = v_load(max);
        vf now = v_max(before, top[n]);
        v_store(max, now);
        top[n] = v_select(now == v_set(-INFINITY), v_set(0.0f), now);
        v_store(f->alpha + n * LANES, v_exp2((before - top[n]) * factor));
        total[n] = v_set(0.0f);
    }
    for (int64_t key = 0; key < count; key += 2) {
        float *st = f->st + key * PANEL;
        vf p[2 * VECTORS];
        for (int n = 0; n < 2 * VECTORS; n++)
            p[n] = (v_load(st + n * LANES) - top[n % VECTORS]) * factor;
        v_exp2_each(p, 2 * VECTORS);
        for (int n = 0; n < 2 * VECTORS; n++)
            total[n % VECTORS] += p[n];
        for (int n = 0; n < VECTORS; n++) {
            if (PAIRED) {
                v_store(f->st + key / 2 * PANEL + n * LANES,
                    v_pair(p[n], p[n + VECTORS]));
            } else {
                v_store(st + n * LANES, p[n]);
                v_store(st + PANEL + n * LANES, p[n + VECTORS]);
            }
        }
    }
    for (int n = 0; n < VECTORS; n++) {
        float *sum = f->sum + first + n * LANES;
        vf alpha = v_load(f->alpha + n * LANES);
        v_store(sum, v_load(sum) * alpha + total[n]);
    }
}

/* Multiplies rows [first, first + PANEL) of the item by the tile at key j, and
 * adds to out. */
static void
forward_panel(struct forward *f, int64_t first, int64_t j, int64_t tile_count)
{
    const struct uli_attn_problem *problem = f->problem;
    int64_t i = f->item->i;
    int64_t last = uli_min(first + PANEL, f->item->rows) - 1 + i;
    int64_t begin = uli_attn_visible_begin(problem, &f->doc, i + first) - j;
    int64_t end = uli_attn_visible_end(problem, &f->doc, last) - j;
    begin = uli_max(begin, 0) / ROWS * ROWS;
    end = (uli_min(end, tile_count) + ROWS - 1) / ROWS * ROWS;
    if (begin >= end)
        return;
    int64_t count = end - begin;
    bool whole = uli_attn_visible_begin(problem, &f->doc, last) <= j + begin &&
                 uli_attn_visible_end(problem, &f->doc, i + first) >= j + end;
    gemm_stripes(GEMM_ZERO, count, PANEL, f->units, f->k + begin * f->k_ld,
        f->k_ld, 1, f->qt + first * f->units, 0, f->st, PANEL, f->alpha);
    if (f->head.transformed)
        forward_transform(f, first, i, j + begin, count);
    if (!whole)
        forward_mask(f, first, i, j + begin, count);
    forward_softmax(f, first, count);
    gemm_stripes(GEMM_SCALE, PANEL, f->columns, PAIRED ? count / 2 : count,
        f->st, 1, PANEL, f->v + (PAIRED ? begin / 2 : begin) * PANEL,
        TILE_UNITS * PANEL, f->out + first * f->columns, f->columns, f->alpha);
    f->scores += count * PANEL;
}

/* out = sum / l + 0: the last term makes -0 of an underflow a 0. */
static void
forward_store(struct forward *f, double *head_max)
{
    struct uli_attn_call *call = f->call;
    double max = -INFINITY;
    for (int64_t n = 0; n < f->item->rows; n++) {
        int64_t i = f->item->i + n, row = f->doc.q_begin + i;
        double shift = f->head.slope == 0 || f->max[n] == -INFINITY
                           ? 0
                           : f->head.slope * (double)uli_tile_nearest(
                                                 f->problem, &f->doc, i);
        struct uli_tile_final final =
            uli_tile_finish(&f->head, f->max[n], f->sum[n], shift);
        float *out = f->out + n * f->columns;
        /* A row that saw no key is 0 even where hidden values are not finite;
         * a visible NaN has made the sum NaN. */
        if (f->max[n] == -INFINITY && f->sum[n] == 0)
            memset(out, 0, (size_t)f->columns * 4);
        for (int64_t c = 0; c < f->columns; c++)
            out[c] = out[c] * final.factor + 0.0f;
        struct uli_attn_span to =
            uli_attn_q_span(call, ULI_ATTN_OUT, &f->run, row, row + 1);
        uli_tile_store_row(to.data, f->problem->dtype, out, f->problem->dim_v);
        uli_tile_store_lse(call, &f->run, row, final.lse);
        max = final.max > max ? final.max : max;
    }
    if (call->max_logit)
        uli_attn_max_raise(head_max, f->run.head, max);
    atomic_fetch_add_explicit(&call->scores, f->scores, memory_order_relaxed);
}

/* Lays the scratch out and returns its number of floats; base NULL only
 * counts. */
static int64_t
forward_layout(struct forward *f, int64_t rows, float *base)
{
    struct carver c = {base, 0};
    f->units = units_of(f->problem->dim_qk);
    f->columns = columns_padded(f->problem->dim_v);
    f->k_ld = f->units + LANES;
    f->k = carver_take(&c, ULI_TILE_KEYS * f->k_ld);
    f->v = carver_take(&c, TILE_UNITS * panels_width(f->problem->dim_v));
    f->st = carver_take(&c, ULI_TILE_KEYS * PANEL);
    f->alpha = carver_take(&c, PANEL);
    f->at = carver_take(&c, PANEL);
    f->plus = carver_take(&c, PANEL);
    f->max = carver_take(&c, rows);
    f->sum = carver_take(&c, rows);
    f->out = carver_take(&c, rows * f->columns);
    f->qt = carver_take(&c, rows * f->units);
    f->staging = carver_take(
        &c, uli_max(rows * f->units,
                ULI_TILE_KEYS * columns_filled(f->problem->dim_v) / 2));
    return c.floats;
}

static void
forward_item(struct uli_attn_call *call, const struct uli_tile_item *item,
    double *head_max, void *scratch)
{
    const struct uli_attn_problem *problem = &call->problem;
    struct forward f = {.call = call, .problem = problem, .item = item};
    int64_t rows = (item->rows + PANEL - 1) / PANEL * PANEL, first, end;
    f.run = uli_attn_run_at(&problem->q_runs, item->run);
    f.doc = uli_attn_doc_at(problem, item->doc);
    f.head = uli_tile_head_of(problem, f.run.head);
    f.kv = uli_attn_kv_head(problem, f.run.head);
    forward_layout(&f, rows, scratch);
    forward_load_queries(&f);
    uli_tile_key_range(
        problem, &f.doc, item->i, item->i + item->rows, &first, &end);
    for (int64_t tile = first; tile < end; tile++) {
        int64_t j = tile * ULI_TILE_KEYS;
        int64_t count = uli_min(ULI_TILE_KEYS, f.doc.k_rows - j);
        forward_load_tile(&f, j, count);
        for (int64_t n = 0; n < item->rows; n += PANEL)
            forward_panel(&f, n, j, count);
    }
    forward_store(&f, head_max);
}
