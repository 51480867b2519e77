/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward by tiles. First lse and delta of every query row, and zeros where
 * nothing else will write; then the units; then the gradients of the sinks.
 *
 * A unit is one key tile of a document and kv head. Units that share these two
 * are a chain: the key tiles of a query row add to its dq in ascending order,
 * so a unit waits for earlier tiles of its chain. Threads take units by the
 * cost of what remains of the chain from the unit on, the highest first.
 */
#include <math.h>
#include <string.h>
#include "attention/kernels/kernels.h"
#include "attention/kernels/tile.h"
#include "attention/pool.h"
#include "attention/statistics.h"
#include "attention/translate/view.h"
#include "attention/work.h"

#define LOG2_E 1.4426950408889634

/* Where the parts of the workspace lie. */
struct parts {
    struct uli_tile_shared shared;
    int64_t *row_base;
    struct uli_tile_unit *units;
    double *sinks;
    unsigned char *scratch;
    int64_t bytes; /* of all but scratch; -1: does not fit */
};

static void *
parts_add(struct parts *parts, unsigned char *base, int64_t count, int64_t size)
{
    int64_t bytes, at = parts->bytes;
    if (at < 0 || !uli_size_mul(count, size, &bytes) ||
        !uli_size_add(bytes, at + 64, &bytes)) {
        parts->bytes = -1;
        return NULL;
    }
    parts->bytes = bytes / 64 * 64;
    return base ? base + at : NULL;
}

static int64_t
units_bound(const struct uli_attn_problem *problem)
{
    return problem->heads_kv *
           (problem->batch * problem->len_k / ULI_TILE_KEYS +
               problem->max_docs + problem->batch);
}

static struct parts
lay_out(const struct uli_attn_problem *problem, int64_t dq_columns,
    unsigned char *base)
{
    struct parts parts = {.bytes = 0};
    int64_t rows = problem->q_rows;
    bool listed = problem->q_runs.segments != NULL;
    parts.sinks = parts_add(&parts, base, problem->heads_q, 8);
    parts.row_base =
        parts_add(&parts, base, listed ? problem->q_runs.count : 0, 8);
    parts.units = parts_add(
        &parts, base, units_bound(problem), sizeof(struct uli_tile_unit));
    parts.shared.lse2 = parts_add(&parts, base, rows, 4);
    parts.shared.delta = parts_add(&parts, base, rows, 4);
    parts.shared.turns = parts_add(&parts, base, rows, 4);
    parts.shared.dq = parts_add(&parts, base, rows, 4 * dq_columns);
    parts.scratch = base ? base + parts.bytes : NULL;
    parts.shared.row_base = listed ? parts.row_base : NULL;
    return parts;
}

static void
number_rows(const struct uli_attn_problem *problem, int64_t *row_base)
{
    int64_t rows = 0;
    for (int64_t i = 0; problem->q_runs.segments && i < problem->q_runs.count;
         i++) {
        struct uli_attn_run run = uli_attn_run_at(&problem->q_runs, i);
        row_base[i] = rows;
        rows += run.row_end - run.row_begin;
    }
}

/* Sets lse2 and delta of one row. With ALiBi, lse2 is relative to the ALiBi of
 * the row's nearest key. If the row sees no key, stores zeros in its dq. */
static void
prepare_row(struct uli_attn_call *call, struct uli_tile_shared *shared,
    const struct uli_attn_run *run, const struct uli_attn_doc *doc, int64_t row,
    int64_t at)
{
    const struct uli_attn_problem *problem = &call->problem;
    int64_t i = doc ? row - doc->q_begin : 0;
    const float zeros[512] = {0};
    atomic_store_explicit(&shared->turns[at], 0, memory_order_relaxed);
    shared->lse2[at] = INFINITY;
    shared->delta[at] = 0;
    if (!doc || uli_attn_visible_begin(problem, doc, i) >=
                    uli_attn_visible_end(problem, doc, i)) {
        uli_tile_store_rows(call, ULI_ATTN_DQ, run, row, 1, zeros, 0);
        return;
    }
    double slope = (float)uli_attn_slope(problem, run->head);
    double shift =
        slope == 0 ? 0 : slope * (double)uli_tile_nearest(problem, doc, i);
    shared->lse2[at] =
        (float)((uli_attn_row_lse(call, run, row) + shift) * LOG2_E);
    shared->delta[at] = (float)uli_attn_row_delta(call, run, row);
}

static void
prepare_rows(struct uli_attn_call *call, void *context, int64_t index,
    const struct uli_attn_run *run, int64_t row, int64_t end)
{
    struct uli_tile_shared *shared = context;
    const struct uli_attn_problem *problem = &call->problem;
    int64_t at = uli_tile_row(problem, shared, index, run, row);
    while (row < end) {
        int64_t stop;
        int64_t n =
            uli_work_stretch(problem, false, run->batch, row, end, &stop);
        struct uli_attn_doc doc = {0};
        if (n >= 0)
            doc = uli_attn_doc_at(problem, n);
        for (; row < stop; row++, at++)
            prepare_row(call, shared, run, n >= 0 ? &doc : NULL, row, at);
    }
}

/* Zeros for key rows that no document holds. */
static void
clear_gaps(struct uli_attn_call *call, void *context, int64_t index,
    const struct uli_attn_run *run, int64_t row, int64_t end)
{
    (void)context;
    (void)index;
    while (row < end) {
        int64_t stop;
        int64_t n =
            uli_work_stretch(&call->problem, true, run->batch, row, end, &stop);
        for (int t = ULI_ATTN_DK; n < 0 && t <= ULI_ATTN_DV; t++)
            for (int64_t r = row; r < stop; r++) {
                struct uli_attn_span span = uli_attn_k_span(call,
                    (enum uli_attn_tensor)t, run->head, run->batch, r, r + 1);
                memset(span.data, 0, (size_t)call->views[t].row_bytes);
            }
        row = stop;
    }
}

static bool
tile_held(struct uli_attn_call *call, const struct uli_attn_doc *doc,
    int64_t kv, int64_t j, int64_t end)
{
    while (j < end) {
        struct uli_attn_span span = uli_attn_k_span(call, ULI_ATTN_DK, kv,
            doc->k_batch, doc->k_begin + j, doc->k_begin + end);
        if (span.data)
            return true;
        j += span.rows;
    }
    return false;
}

static double
tile_cost(const struct uli_attn_problem *problem,
    const struct uli_attn_doc *doc, int64_t j, int64_t end)
{
    int64_t first, last;
    uli_attn_rows_seeing(problem, doc, j, end, &first, &last);
    return (double)(last - first) * ULI_TILE_KEYS;
}

/* The units of one document and kv head; cost adds up from the last tile. */
static int64_t
append_units(struct uli_attn_call *call, const struct uli_attn_doc *doc,
    int64_t n, int64_t kv, struct uli_tile_unit *units, int64_t count)
{
    double cost = 0;
    int64_t tiles = (doc->k_rows + ULI_TILE_KEYS - 1) / ULI_TILE_KEYS;
    for (int64_t tile = tiles - 1; tile >= 0; tile--) {
        int64_t j = tile * ULI_TILE_KEYS;
        int64_t end = uli_min(j + ULI_TILE_KEYS, doc->k_rows);
        if (!tile_held(call, doc, kv, j, end))
            continue;
        cost += tile_cost(&call->problem, doc, j, end);
        units[count++] = (struct uli_tile_unit){
            .kv = kv, .doc = n, .tile = tile, .cost = cost};
    }
    return count;
}

/* The cost never rises from one tile of a chain to the next, and equal costs
 * are ordered by tile. So each tile comes after the tiles for which it waits,
 * and the threads cannot all wait. */
static int
longer_chain_first(const void *a, const void *b)
{
    const struct uli_tile_unit *x = a, *y = b;
    if (x->cost != y->cost)
        return x->cost > y->cost ? -1 : 1;
    if (x->tile != y->tile)
        return x->tile < y->tile ? -1 : 1;
    if (x->doc != y->doc)
        return x->doc < y->doc ? -1 : 1;
    return x->kv < y->kv ? -1 : x->kv > y->kv;
}

struct backward_task {
    struct uli_attn_call *call;
    struct parts *parts;
    int64_t count, scratch_bytes;
    _Atomic int64_t next;
};

static void
backward_body(void *context, int thread)
{
    struct backward_task *task = context;
    for (;;) {
        int64_t n = atomic_fetch_add(&task->next, 1);
        if (n >= task->count || atomic_load(&task->call->failed))
            return;
        task->call->kernel->tile->backward_unit(task->call,
            &task->parts->units[n], &task->parts->shared,
            task->parts->scratch + thread * task->scratch_bytes);
    }
}

static void
run_units(struct uli_attn_call *call, struct parts *parts)
{
    const struct uli_attn_problem *problem = &call->problem;
    struct backward_task task = {.call = call, .parts = parts};
    double scores = 0, group = problem->heads_kv ? (double)problem->heads_q /
                                                       (double)problem->heads_kv
                                                 : 0;
    task.scratch_bytes = call->kernel->tile->scratch_bytes(
        problem, ULYX_ATTENTION_PASS_BACKWARD);
    for (int64_t n = 0; n < problem->doc_count; n++) {
        struct uli_attn_doc doc = uli_attn_doc_at(problem, n);
        for (int64_t kv = 0; kv < problem->heads_kv; kv++) {
            int64_t before = task.count;
            task.count =
                append_units(call, &doc, n, kv, parts->units, task.count);
            if (task.count > before)
                scores += parts->units[task.count - 1].cost;
        }
    }
    uli_work_sort(
        parts->units, task.count, sizeof(*parts->units), longer_chain_first);
    double flops =
        5 * scores * group * (double)(problem->dim_qk + problem->dim_v);
    uli_pool_run(uli_pool_threads(flops, call->threads), backward_body, &task);
}

void
uli_attn_tiled_backward(struct uli_attn_call *call)
{
    const struct uli_attn_problem *problem = &call->problem;
    int64_t columns = call->kernel->tile->dq_columns(problem);
    struct parts parts = lay_out(problem, columns, call->workspace);
    double row_flops = 16.0 * (double)problem->q_rows * (double)problem->dim_v;
    number_rows(problem, parts.row_base);
    uli_work_for_rows(
        call, &problem->q_runs, row_flops, prepare_rows, &parts.shared);
    if (!call->accumulate && problem->has_docs)
        uli_work_for_rows(call, &problem->k_runs, 0, clear_gaps, NULL);
    run_units(call, &parts);
    uli_attn_sink_gradient(call, parts.sinks);
}

int64_t
uli_attn_tiled_workspace(const struct uli_attn_tile_ops *ops,
    const struct uli_attn_problem *problem, ulyx_attention_pass_t pass,
    int threads)
{
    int64_t scratch, bytes = uli_attn_tiled_forward_bytes(problem);
    if (pass == ULYX_ATTENTION_PASS_BACKWARD)
        bytes = lay_out(problem, ops->dq_columns(problem), NULL).bytes;
    if (bytes < 0 ||
        !uli_size_mul(ops->scratch_bytes(problem, pass), threads, &scratch) ||
        !uli_size_add(bytes, scratch + 64, &bytes))
        return -1;
    return bytes;
}
