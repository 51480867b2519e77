/* SPDX-License-Identifier: Apache-2.0
 *
 * Accessors of a translated problem: runs, documents, per-head parameters.
 */
#include "attention/problem.h"
#include <math.h>

struct uli_attn_run
uli_attn_run_at(const struct uli_attn_runs *runs, int64_t index)
{
    if (!runs->segments) {
        struct uli_attn_run run = {.head = index / runs->batch,
            .batch = index % runs->batch,
            .row_begin = 0,
            .row_end = runs->rows};
        return run;
    }
    const ulyx_segment_t *segment =
        (const void *)(runs->segments + index * runs->segment_size);
    struct uli_attn_run run = {.head = segment->head,
        .batch = segment->batch,
        .row_begin = segment->row_begin,
        .row_end = segment->row_end,
        .offset = segment->offset / runs->offset_unit};
    return run;
}

static int64_t
index_at(const void *array, int32_t index_bytes, int64_t n)
{
    if (index_bytes == 8)
        return ((const int64_t *)array)[n];
    return ((const int32_t *)array)[n];
}

static int64_t
docs_begin(const struct uli_attn_axis_docs *docs, int64_t n)
{
    return index_at(docs->begins, docs->index_bytes, n);
}

static int64_t
docs_rows(const struct uli_attn_axis_docs *docs, int64_t n)
{
    if (docs->lengths)
        return index_at(docs->lengths, docs->index_bytes, n);
    return docs_begin(docs, n + 1) - docs_begin(docs, n);
}

struct uli_attn_doc
uli_attn_doc_at(const struct uli_attn_problem *problem, int64_t n)
{
    struct uli_attn_doc doc = {.q_batch = n,
        .q_rows = problem->len_q,
        .k_batch = n,
        .k_rows = problem->len_k};
    if (problem->has_docs) {
        int64_t q = docs_begin(&problem->docs_q, n);
        int64_t k = docs_begin(&problem->docs_k, n);
        doc.q_rows = docs_rows(&problem->docs_q, n);
        doc.k_rows = docs_rows(&problem->docs_k, n);
        doc.q_batch = doc.q_rows ? q / problem->len_q : 0;
        doc.q_begin = doc.q_rows ? q % problem->len_q : 0;
        doc.k_batch = doc.k_rows ? k / problem->len_k : 0;
        doc.k_begin = doc.k_rows ? k % problem->len_k : 0;
    }
    doc.off = uli_mask_off(
        problem->bottom_right, problem->diagonal, doc.q_rows, doc.k_rows);
    return doc;
}

/* Number of documents that begin at or before row `flat`. */
static int64_t
docs_until(const struct uli_attn_problem *problem,
    const struct uli_attn_axis_docs *docs, int64_t flat)
{
    int64_t low = 0, high = problem->doc_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (docs_begin(docs, middle) <= flat)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Only the last document that begins at or before row `flat` can hold it,
 * because earlier ones end no later than that one begins. */
static int64_t
doc_of(const struct uli_attn_problem *problem,
    const struct uli_attn_axis_docs *docs, int64_t flat)
{
    int64_t n = docs_until(problem, docs, flat) - 1;
    if (n < 0)
        return -1;
    int64_t end = docs_begin(docs, n) + docs_rows(docs, n);
    return flat < end ? n : -1;
}

int64_t
uli_attn_doc_after(const struct uli_attn_problem *problem, bool keys,
    int64_t batch, int64_t row)
{
    if (!problem->has_docs)
        return batch + 1;
    if (keys)
        return docs_until(
            problem, &problem->docs_k, batch * problem->len_k + row);
    return docs_until(problem, &problem->docs_q, batch * problem->len_q + row);
}

int64_t
uli_attn_doc_of_q(
    const struct uli_attn_problem *problem, int64_t batch, int64_t row)
{
    if (!problem->has_docs)
        return batch;
    return doc_of(problem, &problem->docs_q, batch * problem->len_q + row);
}

int64_t
uli_attn_doc_of_k(
    const struct uli_attn_problem *problem, int64_t batch, int64_t row)
{
    if (!problem->has_docs)
        return batch;
    return doc_of(problem, &problem->docs_k, batch * problem->len_k + row);
}

int64_t
uli_attn_kv_head(const struct uli_attn_problem *problem, int64_t head)
{
    if (problem->kv_map)
        return problem->kv_map[head];
    return head * problem->heads_kv / problem->heads_q;
}

int64_t
uli_attn_global_head(const struct uli_attn_problem *problem, int64_t head)
{
    if (problem->head_ids)
        return problem->head_ids[head];
    return problem->head_offset + head;
}

static double
param_at(const struct uli_attn_problem *problem, const void *array, int64_t n)
{
    if (problem->param_dtype == ULYX_DTYPE_F64)
        return ((const double *)array)[n];
    return ((const float *)array)[n];
}

double
uli_attn_sink(const struct uli_attn_problem *problem, int64_t head)
{
    if (!problem->sinks)
        return -INFINITY;
    return param_at(
        problem, problem->sinks, uli_attn_global_head(problem, head));
}

double
uli_attn_slope(const struct uli_attn_problem *problem, int64_t head)
{
    if (!problem->slopes)
        return 0;
    return param_at(
        problem, problem->slopes, uli_attn_global_head(problem, head));
}

void
uli_attn_put_param(void *array, ulyx_dtype_t dtype, int64_t index, double value)
{
    if (dtype == ULYX_DTYPE_F64)
        ((double *)array)[index] = value;
    else
        ((float *)array)[index] = (float)value;
}

double
uli_attn_distance(const struct uli_attn_doc *doc, int64_t i, int64_t j)
{
    return fabs((double)uli_sat_sub(uli_sat_add(i, doc->off), j));
}
