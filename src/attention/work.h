/* SPDX-License-Identifier: Apache-2.0
 *
 * Dividing rows among threads, and a sort that needs no memory.
 */
#ifndef ULI_ATTENTION_WORK_H
#define ULI_ATTENTION_WORK_H

#include "attention/problem.h"

/* Called with rows [row, end) of run `index`, at most 64. */
typedef void (*uli_work_body)(struct uli_attn_call *call, void *context,
    int64_t index, const struct uli_attn_run *run, int64_t row, int64_t end);

/* Runs body over all rows of a side, on as many threads as flops pay for. */
void uli_work_for_rows(struct uli_attn_call *call,
    const struct uli_attn_runs *runs, double flops, uli_work_body body,
    void *context);

/* The document that holds `row` of a batch item of queries (keys), or -1 in a
 * gap. *end_p: where that document or gap ends, at most `limit`. */
int64_t uli_work_stretch(const struct uli_attn_problem *problem, bool keys,
    int64_t batch, int64_t row, int64_t limit, int64_t *end_p);

/* Heap sort. compare is as for qsort; a total order makes the outcome
 * stable. */
void uli_work_sort(void *base, int64_t count, int64_t size,
    int (*compare)(const void *a, const void *b));

#endif
