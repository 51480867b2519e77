/* SPDX-License-Identifier: Apache-2.0
 *
 * Dividing rows among threads.
 */
#include "attention/work.h"
#include "attention/pool.h"

/* Rows that a thread takes at a time. */
#define ROWS_PER_CHUNK 64

struct task {
    struct uli_attn_call *call;
    const struct uli_attn_runs *runs;
    uli_work_body body;
    void *context;
    _Atomic int64_t next; /* chunk, numbered through all runs */
};

/* A thread's chunk numbers only grow, so the search for a chunk continues from
 * the last one. */
static void
task_body(void *argument, int thread)
{
    struct task *task = argument;
    int64_t first = 0, index = 0;
    (void)thread;
    for (;;) {
        int64_t chunk = atomic_fetch_add(&task->next, 1);
        struct uli_attn_run run = {0};
        int64_t chunks = 0;
        for (; index < task->runs->count; index++, first += chunks) {
            run = uli_attn_run_at(task->runs, index);
            chunks = (run.row_end - run.row_begin + ROWS_PER_CHUNK - 1) /
                     ROWS_PER_CHUNK;
            if (chunk < first + chunks)
                break;
        }
        if (index == task->runs->count || atomic_load(&task->call->failed))
            return;
        int64_t row = run.row_begin + (chunk - first) * ROWS_PER_CHUNK;
        int64_t end = uli_min(row + ROWS_PER_CHUNK, run.row_end);
        task->body(task->call, task->context, index, &run, row, end);
    }
}

void
uli_work_for_rows(struct uli_attn_call *call, const struct uli_attn_runs *runs,
    double flops, uli_work_body body, void *context)
{
    struct task task = {
        .call = call, .runs = runs, .body = body, .context = context};
    uli_pool_run(uli_pool_threads(flops, call->threads), task_body, &task);
}

int64_t
uli_work_stretch(const struct uli_attn_problem *problem, bool keys,
    int64_t batch, int64_t row, int64_t limit, int64_t *end_p)
{
    int64_t n = keys ? uli_attn_doc_of_k(problem, batch, row)
                     : uli_attn_doc_of_q(problem, batch, row);
    *end_p = limit;
    if (n >= 0) {
        struct uli_attn_doc doc = uli_attn_doc_at(problem, n);
        int64_t end =
            keys ? doc.k_begin + doc.k_rows : doc.q_begin + doc.q_rows;
        *end_p = uli_min(limit, end);
        return n;
    }
    for (int64_t m = uli_attn_doc_after(problem, keys, batch, row);
         m < problem->doc_count; m++) {
        struct uli_attn_doc doc = uli_attn_doc_at(problem, m);
        if ((keys ? doc.k_rows : doc.q_rows) == 0)
            continue;
        if ((keys ? doc.k_batch : doc.q_batch) == batch)
            *end_p = uli_min(limit, keys ? doc.k_begin : doc.q_begin);
        break;
    }
    return -1;
}

static void
bytes_swap(unsigned char *a, unsigned char *b, int64_t size)
{
    for (int64_t i = 0; i < size; i++) {
        unsigned char byte = a[i];
        a[i] = b[i];
        b[i] = byte;
    }
}

static void
heap_sift(unsigned char *base, int64_t root, int64_t count, int64_t size,
    int (*compare)(const void *a, const void *b))
{
    for (;;) {
        int64_t child = 2 * root + 1;
        if (child >= count)
            return;
        if (child + 1 < count &&
            compare(base + child * size, base + (child + 1) * size) < 0)
            child++;
        if (compare(base + root * size, base + child * size) >= 0)
            return;
        bytes_swap(base + root * size, base + child * size, size);
        root = child;
    }
}

void
uli_work_sort(void *base, int64_t count, int64_t size,
    int (*compare)(const void *a, const void *b))
{
    for (int64_t root = count / 2 - 1; root >= 0; root--)
        heap_sift(base, root, count, size, compare);
    for (int64_t end = count - 1; end > 0; end--) {
        bytes_swap(base, (unsigned char *)base + end * size, size);
        heap_sift(base, 0, end, size, compare);
    }
}
