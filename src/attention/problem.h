/* SPDX-License-Identifier: Apache-2.0
 *
 * An attention call, translated from the public structs and checked: the input
 * of every kernel. Pointers into the caller's arrays stay pointers; the
 * accessors below hide their index sizes.
 *
 * A "run" is a range of query or key rows of one head and batch item: a segment
 * of the caller's list, or [0, len) of each (head, batch) in that order.
 * Without documents each batch item counts as one.
 */
#ifndef ULI_ATTENTION_PROBLEM_H
#define ULI_ATTENTION_PROBLEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/mask.h"
#include "base/size.h"
#include "base/system/clock.h"
#include "ulyx/attention.h"

struct uli_attn_run {
    int64_t head, batch, row_begin, row_end;
    int64_t offset; /* packed row of row_begin; unused without segments */
};

struct uli_attn_runs {
    const unsigned char *segments; /* NULL: every (head, batch) is a run */
    int64_t segment_size, count;
    int64_t offset_unit; /* bytes per packed row, in offsets */
    int64_t batch, rows; /* without segments: of the tensors */
};

/* The rows of one document, counted within its batch items. */
struct uli_attn_doc {
    int64_t q_batch, q_begin, q_rows;
    int64_t k_batch, k_begin, k_rows;
    int64_t off; /* row i attends to keys around i + off */
};

struct uli_attn_axis_docs {
    const void *begins;  /* offsets, or begins */
    const void *lengths; /* NULL where begins are offsets */
    int32_t index_bytes;
};

struct uli_attn_problem {
    ulyx_dtype_t dtype, stat_dtype, param_dtype;
    int64_t batch, len_q, len_k, heads_q, heads_kv, dim_qk, dim_v;
    double scale, softcap;
    int64_t left, right, diagonal; /* of NONE both sides are UNBOUNDED; of
                                    * CAUSAL right is 0 */
    bool bottom_right;
    const int64_t *kv_map;
    const int64_t *head_ids;
    int64_t head_offset, heads_global;
    const void *sinks, *slopes;
    ulyx_memory_kind_t memory; /* of tensors and workspace */
    bool has_docs, docs_on_device;
    int64_t doc_count, max_docs; /* batch where there are no documents */
    struct uli_attn_axis_docs docs_q, docs_k;
    struct uli_attn_runs q_runs, k_runs;
    int64_t q_rows; /* of all runs, or an upper bound */
};

/* A tensor; see ulyx_attention_tensor_t. Strides in bytes. base NULL: not
 * given. */
struct uli_attn_view {
    const char *name;
    unsigned char *base;
    int64_t batch_stride, row_stride, head_stride;
    ulyx_dtype_t dtype;
    int64_t element_bytes, row_bytes;
    int64_t rows, heads, columns, batch;
    const ulyx_attention_piece_t *pieces;
    int64_t piece_count, piece_size;
    int64_t packed_rows; /* rows stored, with segments; else -1 */
    bool given, output;
};

/* Entries of the caller's table may be longer than this library's. */
static inline const ulyx_attention_piece_t *
uli_attn_piece_at(const struct uli_attn_view *view, int64_t n)
{
    return (const void *)((const unsigned char *)view->pieces +
                          n * view->piece_size);
}

enum uli_attn_tensor {
    ULI_ATTN_Q,
    ULI_ATTN_K,
    ULI_ATTN_V,
    ULI_ATTN_OUT,
    ULI_ATTN_LSE,
    ULI_ATTN_DOUT,
    ULI_ATTN_DELTA,
    ULI_ATTN_DLSE,
    ULI_ATTN_DQ,
    ULI_ATTN_DK,
    ULI_ATTN_DV,
    ULI_ATTN_TENSORS
};

struct uli_attn_kernel;

struct uli_attn_call {
    struct uli_attn_problem problem;
    struct uli_attn_view views[ULI_ATTN_TENSORS];
    void *max_logit, *d_sink;
    bool accumulate;
    bool delta_less_dlse; /* the given delta is less dlse already */
    const struct uli_attn_kernel *kernel;
    int threads;
    double timeout_s;
    uli_deadline_t deadline;
    unsigned char *workspace;
    int64_t workspace_bytes;
    /* On a device: the stream to enqueue on; most multiprocessors to use (0 =
     * all); ranks that share the device (0 = 1); a word for the first cause;
     * the communicator's poison (or NULL). */
    void *stream;
    int32_t max_sms, device_ranks;
    int32_t share_sms; /* use all of so many multiprocessors (0 = of all) */
    bool lies_there;   /* the caller has checked that all is device memory */
    uint64_t *cause;
    const uint64_t *poison;
    const char *why_portable; /* why the row's own kernels were not used, a
                               * constant text; NULL: they were */
    _Atomic int32_t failed;   /* a status; 0: no failure */
    _Atomic int64_t scores;   /* score elements computed */
};

/* Run `index` of a side. */
struct uli_attn_run uli_attn_run_at(
    const struct uli_attn_runs *runs, int64_t index);

/* Document n; without queries or keys its q_rows or k_rows is 0. */
struct uli_attn_doc uli_attn_doc_at(
    const struct uli_attn_problem *problem, int64_t n);

/* The document of a query row (q) or key row (k) of a batch item; -1: none. */
int64_t uli_attn_doc_of_q(
    const struct uli_attn_problem *problem, int64_t batch, int64_t row);
int64_t uli_attn_doc_of_k(
    const struct uli_attn_problem *problem, int64_t batch, int64_t row);

/* The first document that begins after a row of the axis. */
int64_t uli_attn_doc_after(const struct uli_attn_problem *problem, bool keys,
    int64_t batch, int64_t row);

int64_t uli_attn_kv_head(const struct uli_attn_problem *problem, int64_t head);
int64_t uli_attn_global_head(
    const struct uli_attn_problem *problem, int64_t head);
/* The sink of a head, -infinity without sinks; its slope, 0 without slopes. */
double uli_attn_sink(const struct uli_attn_problem *problem, int64_t head);
double uli_attn_slope(const struct uli_attn_problem *problem, int64_t head);
/* Stores value as element `index` of an array of that dtype (F32 or F64). */
void uli_attn_put_param(
    void *array, ulyx_dtype_t dtype, int64_t index, double value);

/* The document's mask (base/mask.h). */
static inline struct uli_mask
uli_attn_mask(
    const struct uli_attn_problem *problem, const struct uli_attn_doc *doc)
{
    return (struct uli_mask){.left = problem->left,
        .right = problem->right,
        .off = doc->off,
        .q_rows = doc->q_rows,
        .k_rows = doc->k_rows};
}

/* uli_mask_begin and uli_mask_end of the document's mask. */
static inline int64_t
uli_attn_visible_begin(const struct uli_attn_problem *problem,
    const struct uli_attn_doc *doc, int64_t i)
{
    const struct uli_mask mask = uli_attn_mask(problem, doc);
    return uli_mask_begin(&mask, i);
}

static inline int64_t
uli_attn_visible_end(const struct uli_attn_problem *problem,
    const struct uli_attn_doc *doc, int64_t i)
{
    const struct uli_mask mask = uli_attn_mask(problem, doc);
    return uli_mask_end(&mask, i);
}

/* uli_mask_rows of the document's mask. */
static inline void
uli_attn_rows_seeing(const struct uli_attn_problem *problem,
    const struct uli_attn_doc *doc, int64_t k0, int64_t k1, int64_t *first_p,
    int64_t *end_p)
{
    const struct uli_mask mask = uli_attn_mask(problem, doc);
    uli_mask_rows(&mask, k0, k1, first_p, end_p);
}

/* |i + off - j| as a double, exact below 2^53. */
double uli_attn_distance(const struct uli_attn_doc *doc, int64_t i, int64_t j);

#endif
