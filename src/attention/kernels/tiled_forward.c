/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward by tiles: a list of items, longest first, and threads that take items
 * by a shared counter. Neither the thread that takes an item nor the cut of
 * rows into items changes a bit of a row.
 */
#include <math.h>
#include <string.h>
#include "attention/kernels/kernels.h"
#include "attention/kernels/tile.h"
#include "attention/pool.h"
#include "attention/statistics.h"
#include "attention/work.h"

#define ITEM_ROWS_LEAST 64

struct forward_task {
    struct uli_attn_call *call;
    const struct uli_tile_item *items;
    int64_t count;
    double *head_max;
    unsigned char *scratch;
    int64_t scratch_bytes;
    _Atomic int64_t next;
};

/* A run is cut at its start and at both ends of every document. */
static int64_t
items_bound(const struct uli_attn_problem *problem)
{
    return problem->q_rows / ITEM_ROWS_LEAST + problem->q_runs.count +
           problem->heads_q * 2 * problem->max_docs + 1;
}

/* Rows of an item: few where there would be too few items for all threads. */
static int64_t
item_rows(const struct uli_attn_call *call)
{
    int64_t rows = call->kernel->tile->item_rows;
    while (rows > ITEM_ROWS_LEAST &&
           call->problem.q_rows / rows < 4 * (int64_t)call->threads)
        rows /= 2;
    return rows;
}

static double
item_cost(
    const struct uli_attn_problem *problem, const struct uli_tile_item *item)
{
    if (item->doc < 0)
        return 0;
    struct uli_attn_doc doc = uli_attn_doc_at(problem, item->doc);
    int64_t begin = uli_attn_visible_begin(problem, &doc, item->i);
    int64_t end = uli_attn_visible_end(problem, &doc, item->i + item->rows - 1);
    return (double)(end - begin) * (double)item->rows;
}

/* Cuts rows [row, end) of one document or gap into items. */
static int64_t
append_items(const struct uli_attn_problem *problem, int64_t run, int64_t n,
    int64_t row, int64_t end, int64_t rows, struct uli_tile_item *items,
    int64_t count)
{
    int64_t begin = n >= 0 ? uli_attn_doc_at(problem, n).q_begin : 0;
    for (; row < end; row += rows) {
        struct uli_tile_item *item = &items[count++];
        *item = (struct uli_tile_item){.run = run,
            .doc = n,
            .i = row - begin,
            .rows = uli_min(rows, end - row)};
        item->cost = item_cost(problem, item);
    }
    return count;
}

static int
longer_first(const void *a, const void *b)
{
    const struct uli_tile_item *x = a, *y = b;
    if (x->cost != y->cost)
        return x->cost > y->cost ? -1 : 1;
    if (x->run != y->run)
        return x->run < y->run ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

static int64_t
make_items(const struct uli_attn_call *call, struct uli_tile_item *items,
    double *scores_p)
{
    const struct uli_attn_problem *problem = &call->problem;
    int64_t count = 0, rows = item_rows(call);
    *scores_p = 0;
    for (int64_t i = 0; i < problem->q_runs.count; i++) {
        struct uli_attn_run run = uli_attn_run_at(&problem->q_runs, i);
        for (int64_t row = run.row_begin, end; row < run.row_end; row = end) {
            int64_t n = uli_work_stretch(
                problem, false, run.batch, row, run.row_end, &end);
            count = append_items(problem, i, n, row, end, rows, items, count);
        }
    }
    for (int64_t i = 0; i < count; i++)
        *scores_p += items[i].cost;
    uli_work_sort(items, count, sizeof(*items), longer_first);
    return count;
}

static void
forward_body(void *context, int thread)
{
    struct forward_task *task = context;
    struct uli_attn_call *call = task->call;
    const struct uli_attn_problem *problem = &call->problem;
    for (;;) {
        int64_t n = atomic_fetch_add(&task->next, 1);
        if (n >= task->count || atomic_load(&call->failed))
            return;
        const struct uli_tile_item *item = &task->items[n];
        struct uli_attn_run run = uli_attn_run_at(&problem->q_runs, item->run);
        if (item->cost > 0) {
            call->kernel->tile->forward_item(call, item, task->head_max,
                task->scratch + thread * task->scratch_bytes);
            continue;
        }
        int64_t begin =
            item->doc >= 0 ? uli_attn_doc_at(problem, item->doc).q_begin : 0;
        uli_tile_store_empty(call, &run, begin + item->i, item->rows,
            uli_attn_sink(problem, run.head));
    }
}

void
uli_attn_tiled_forward(struct uli_attn_call *call)
{
    const struct uli_attn_problem *problem = &call->problem;
    struct forward_task task = {.call = call};
    double scores;
    int64_t bound = items_bound(problem);
    struct uli_tile_item *items = (void *)call->workspace;
    task.items = items;
    task.head_max =
        (double *)(void *)(call->workspace +
                           uli_round_up(bound * (int64_t)sizeof(*items), 64));
    task.scratch =
        (unsigned char *)task.head_max + uli_round_up(problem->heads_q * 8, 64);
    task.scratch_bytes =
        call->kernel->tile->scratch_bytes(problem, ULYX_ATTENTION_PASS_FORWARD);
    uli_attn_max_init(call, task.head_max);
    task.count = make_items(call, items, &scores);
    double flops = 2 * scores * (double)(problem->dim_qk + problem->dim_v);
    int threads = uli_pool_threads(flops, call->threads);
    uli_pool_run(threads, forward_body, &task);
    uli_attn_max_store(call, task.head_max);
}

int64_t
uli_attn_tiled_forward_bytes(const struct uli_attn_problem *problem)
{
    int64_t bytes;
    if (!uli_size_mul(items_bound(problem),
            (int64_t)sizeof(struct uli_tile_item), &bytes) ||
        !uli_size_add(bytes, problem->heads_q * 8 + 128, &bytes))
        return -1;
    return bytes;
}
