/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the caller's tables: documents and segments.
 */
#include <inttypes.h>
#include "attention/translate/translate.h"
#include "base/status.h"
#include "base/text.h"

#define INVALID(...) uli_error(ULYX_ERR_INVALID_ARGUMENT, __VA_ARGS__)

static int64_t
index_at(const void *array, int32_t index_bytes, int64_t n)
{
    if (index_bytes == 8)
        return ((const int64_t *)array)[n];
    return ((const int32_t *)array)[n];
}

/* Checks that documents ascend, are disjoint, are inside [0, batch * len), and
 * do not cross a batch item. */
static ulyx_status_t
check_axis(const char *name, const struct uli_attn_axis_docs *docs,
    int64_t count, int64_t batch, int64_t len)
{
    int64_t end_before = 0, limit = batch * len;
    for (int64_t n = 0; n < count; n++) {
        int64_t begin = index_at(docs->begins, docs->index_bytes, n);
        int64_t end, rows;
        if (docs->lengths) {
            rows = index_at(docs->lengths, docs->index_bytes, n);
            end = uli_sat_add(begin, rows);
        } else {
            end = index_at(docs->begins, docs->index_bytes, n + 1);
            rows = uli_sat_sub(end, begin);
        }
        if (rows < 0 || begin < end_before || end > limit)
            return INVALID("%s: document %" PRId64 " is [%" PRId64 ", %" PRId64
                           "), the one before ends at %" PRId64
                           ", rows end at %" PRId64,
                name, n, begin, end, end_before, limit);
        if (rows && begin / len != (end - 1) / len)
            return INVALID("%s: document %" PRId64 " [%" PRId64 ", %" PRId64
                           ") crosses a batch item of %" PRId64 " row%s",
                name, n, begin, end, len, uli_plural(len));
        end_before = end;
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_attn_check_docs(const struct uli_attn_problem *problem)
{
    if (!problem->has_docs)
        return ULYX_SUCCESS;
    ULI_TRY(check_axis("docs_q", &problem->docs_q, problem->doc_count,
        problem->batch, problem->len_q));
    return check_axis("docs_k", &problem->docs_k, problem->doc_count,
        problem->batch, problem->len_k);
}

static ulyx_status_t
check_order(const char *name, const struct uli_attn_problem *problem,
    const struct uli_attn_runs *runs, int64_t heads)
{
    struct uli_attn_run last = {0};
    for (int64_t i = 0; i < runs->count; i++) {
        const ulyx_segment_t *raw =
            (const void *)(runs->segments + i * runs->segment_size);
        struct uli_attn_run run = uli_attn_run_at(runs, i);
        if (run.head < 0 || run.head >= heads || run.batch < 0 ||
            run.batch >= problem->batch || run.row_begin < 0 ||
            run.row_end <= run.row_begin || run.row_end > runs->rows ||
            run.offset < 0 || raw->offset % runs->offset_unit)
            return INVALID("%s: segment %" PRId64 ": head %" PRId64
                           ", batch %" PRId64 ", rows [%" PRId64 ", %" PRId64
                           "), offset %" PRId64 " is out of range",
                name, i, run.head, run.batch, run.row_begin, run.row_end,
                raw->offset);
        bool same = i && run.head == last.head && run.batch == last.batch;
        bool ascends = !i || run.head > last.head ||
                       (run.head == last.head && run.batch > last.batch) ||
                       (same && run.row_begin >= last.row_end);
        int64_t free =
            i ? uli_sat_add(last.offset, last.row_end - last.row_begin) : 0;
        if (!ascends || run.offset < free)
            return INVALID("%s: segment %" PRId64
                           " does not follow the one before it",
                name, i);
        last = run;
    }
    return ULYX_SUCCESS;
}

/* Are keys [begin, end) of (kv head, batch) in the key segments? Several that
 * touch may hold them together. */
static bool
keys_held(const struct uli_attn_runs *runs, int64_t head, int64_t batch,
    int64_t begin, int64_t end)
{
    for (int64_t i = 0; i < runs->count && begin < end; i++) {
        struct uli_attn_run run = uli_attn_run_at(runs, i);
        if (run.head == head && run.batch == batch && run.row_begin <= begin &&
            run.row_end > begin)
            begin = run.row_end;
    }
    return begin >= end;
}

/* The keys that rows [first, end) of a document attend to are one interval. */
static ulyx_status_t
check_run_keys(const struct uli_attn_problem *problem,
    const struct uli_attn_run *run, const struct uli_attn_doc *doc,
    int64_t first, int64_t end)
{
    int64_t k0 = uli_attn_visible_begin(problem, doc, first);
    int64_t k1 = uli_attn_visible_end(problem, doc, end - 1);
    int64_t kv = uli_attn_kv_head(problem, run->head);
    if (k0 >= k1 || keys_held(&problem->k_runs, kv, doc->k_batch,
                        doc->k_begin + k0, doc->k_begin + k1))
        return ULYX_SUCCESS;
    return INVALID("k_segments: head %" PRId64 ", batch %" PRId64
                   " lacks some of the keys [%" PRId64 ", %" PRId64
                   ") that query head %" PRId64 " needs",
        kv, doc->k_batch, doc->k_begin + k0, doc->k_begin + k1, run->head);
}

ulyx_status_t
uli_attn_check_segments(const struct uli_attn_problem *problem)
{
    if (!problem->q_runs.segments)
        return ULYX_SUCCESS;
    ULI_TRY(
        check_order("q_segments", problem, &problem->q_runs, problem->heads_q));
    ULI_TRY(check_order(
        "k_segments", problem, &problem->k_runs, problem->heads_kv));
    for (int64_t i = 0; i < problem->q_runs.count; i++) {
        struct uli_attn_run run = uli_attn_run_at(&problem->q_runs, i);
        for (int64_t n = 0; n < problem->doc_count; n++) {
            struct uli_attn_doc doc = uli_attn_doc_at(problem, n);
            int64_t first = uli_max(run.row_begin, doc.q_begin) - doc.q_begin;
            int64_t end =
                uli_min(run.row_end, doc.q_begin + doc.q_rows) - doc.q_begin;
            if (doc.q_batch == run.batch && first < end)
                ULI_TRY(check_run_keys(problem, &run, &doc, first, end));
        }
    }
    return ULYX_SUCCESS;
}
