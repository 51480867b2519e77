/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents and runs as the prepare kernel sees them. Included by prepare.cu.
 *
 * The flattened query axis has row batch * len_q + r. A run is a segment, or
 * without segments a batch item. Run r overlaps documents [first, end). Each of
 * these documents, with the gap before it, is a unit of the run; the gap after
 * the last document is one more unit.
 */
#ifndef ULI_ATTENTION_CUDA_PREPARE_AXIS_H
#define ULI_ATTENTION_CUDA_PREPARE_AXIS_H

#include "attention/cuda/mask_range.h"

struct axis_range {
    int64_t begin, end;
};

static __device__ int64_t
axis_index(const struct uli_gpu_attn_docs &docs, const void *array, int64_t n)
{
    if (docs.index_bytes == 8)
        return ((const int64_t *)array)[n];
    return ((const int32_t *)array)[n];
}

/* Document n on the flattened axis of one side, as given. */
static __device__ struct axis_range
axis_given(const struct uli_gpu_attn_docs &docs, int64_t n)
{
    struct axis_range range;
    range.begin = axis_index(docs, docs.begins, n);
    range.end = docs.lengths ? mask_sat((mask_wide)range.begin +
                                        axis_index(docs, docs.lengths, n))
                             : axis_index(docs, docs.begins, n + 1);
    return range;
}

static __device__ struct axis_range
axis_doc(const struct uli_gpu_attn_args &args, bool keys, int64_t n)
{
    if (args.has_docs)
        return axis_given(keys ? args.docs_k : args.docs_q, n);
    int64_t len = keys ? args.len_k : args.len_q;
    return {n * len, n * len + len};
}

/* What is wrong with document n of a side, or 0. */
static __device__ int
axis_fault(const struct uli_gpu_attn_args &args, bool keys, int64_t n)
{
    const struct uli_gpu_attn_docs &docs = keys ? args.docs_k : args.docs_q;
    int64_t len = keys ? args.len_k : args.len_q;
    struct axis_range doc = axis_given(docs, n);
    int64_t before = n ? axis_given(docs, n - 1).end : 0;
    if (doc.end < doc.begin || doc.begin < before || doc.end > args.batch * len)
        return keys ? ULI_GPU_ATTN_DOCS_K_ORDER : ULI_GPU_ATTN_DOCS_Q_ORDER;
    if (doc.end > doc.begin && doc.begin / len != (doc.end - 1) / len)
        return keys ? ULI_GPU_ATTN_DOCS_K_CROSSES : ULI_GPU_ATTN_DOCS_Q_CROSSES;
    return 0;
}

/* The first document whose end (begin) is after (not before) a row. */
static __device__ int64_t
axis_search(const struct uli_gpu_attn_args &args, bool ends, int64_t row)
{
    int64_t low = 0, high = args.has_docs ? args.ndocs : args.batch;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        struct axis_range doc = axis_doc(args, false, middle);
        if (ends ? doc.end > row : doc.begin >= row)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct axis_run {
    int64_t head, batch, packed;
    struct axis_range rows; /* flattened */
    struct axis_range docs;
};

static __device__ struct axis_run
axis_run_at(const struct uli_gpu_attn_args &args, int64_t r)
{
    struct axis_run run = {
        -1, r, 0, {r * args.len_q, (r + 1) * args.len_q}, {0, 0}};
    if (args.q_segments) {
        const struct uli_gpu_attn_segment &segment = args.q_segments[r];
        int64_t base = segment.batch * args.len_q;
        run.head = segment.head;
        run.batch = segment.batch;
        run.packed = segment.row;
        run.rows = {base + segment.row_begin, base + segment.row_end};
    }
    run.docs.begin = axis_search(args, true, run.rows.begin);
    run.docs.end = axis_search(args, false, run.rows.end);
    return run;
}

static __device__ int64_t
axis_tiles(const struct uli_gpu_attn_args &args, struct axis_range rows)
{
    int64_t count = rows.end - rows.begin;
    return count > 0 ? (count + args.tile_rows - 1) / args.tile_rows : 0;
}

/* Unit k of a run: the gap and, but in the last unit, the document's rows. */
struct axis_unit {
    struct axis_range gap, rows;
    int64_t doc; /* -1: none */
};

static __device__ struct axis_unit
axis_unit_at(
    const struct uli_gpu_attn_args &args, const struct axis_run &run, int64_t k)
{
    struct axis_unit unit = {run.rows, {0, 0}, -1};
    int64_t n = run.docs.begin + k;
    if (k > 0)
        unit.gap.begin =
            mask_max(run.rows.begin, axis_doc(args, false, n - 1).end);
    if (n >= run.docs.end)
        return unit;
    struct axis_range doc = axis_doc(args, false, n);
    unit.doc = n;
    unit.gap.end = mask_min(run.rows.end, doc.begin);
    unit.rows.begin = mask_max(run.rows.begin, doc.begin);
    unit.rows.end = mask_min(run.rows.end, doc.end);
    return unit;
}

/* Tile t of a unit. */
static __device__ struct uli_gpu_attn_tile
axis_tile_at(const struct uli_gpu_attn_args &args, const struct axis_run &run,
    const struct axis_unit &unit, int64_t t)
{
    int64_t gaps = axis_tiles(args, unit.gap);
    struct axis_range rows = t < gaps ? unit.gap : unit.rows;
    int64_t flat = rows.begin + (t < gaps ? t : t - gaps) * args.tile_rows;
    struct uli_gpu_attn_tile tile = {};
    tile.rows = (int32_t)mask_min(args.tile_rows, rows.end - flat);
    tile.head = (int32_t)run.head;
    tile.batch = (int32_t)run.batch;
    tile.row = flat - run.batch * args.len_q;
    tile.packed = run.packed + (flat - run.rows.begin);
    if (t < gaps)
        return tile;
    struct axis_range q = axis_doc(args, false, unit.doc);
    struct axis_range k = axis_doc(args, true, unit.doc);
    tile.i = flat - q.begin;
    tile.k_rows = k.end - k.begin;
    if (tile.k_rows) {
        tile.k_batch = (int32_t)(k.begin / args.len_k);
        tile.k_begin = k.begin % args.len_k;
    }
    tile.off = uli_mask_off(
        args.bottom_right, args.diagonal, q.end - q.begin, tile.k_rows);
    return tile;
}

#endif
