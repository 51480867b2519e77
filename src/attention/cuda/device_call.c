/* SPDX-License-Identifier: Apache-2.0
 *
 * From a translated call to the kernels' arguments.
 */
#include "attention/cuda/device_call.h"
#include <string.h>
#include "attention/kernels/tile.h"
#include "base/dtype.h"
#include "base/status.h"

#define L2_BYTES  (INT64_C(32) << 20) /* for keys and values of a head group */
#define AT_ONCE   62 /* pieces that one put carries: entries at a time */
#define ALIGNMENT 64

/* The workspace: offsets of the kernels' parts and of the tables. */
struct parts {
    struct uli_gpu_attn_sizes sizes;
    int64_t pieces_at, segments_at[2], docs_at[4], kv_map_at, head_ids_at;
    int64_t bytes;
};

static bool
add_table(struct parts *parts, int64_t count, int64_t each, int64_t *at_p)
{
    int64_t bytes;
    *at_p = parts->bytes;
    return uli_size_mul(count, each, &bytes) &&
           uli_size_add(bytes, ALIGNMENT - 1, &bytes) &&
           uli_size_add(
               parts->bytes, bytes / ALIGNMENT * ALIGNMENT, &parts->bytes);
}

static bool
find_parts(const struct uli_attn_problem *problem, int32_t tile_rows,
    struct parts *parts)
{
    const struct uli_attn_runs *runs = &problem->q_runs;
    bool packed = runs->segments != NULL;
    int64_t rows = packed ? problem->q_rows : problem->batch * problem->len_q;
    int64_t docs = problem->has_docs ? problem->max_docs : 0;
    memset(parts, 0, sizeof(*parts));
    if (!uli_gpu_attn_sizes(problem->batch, rows, problem->heads_q, docs,
            packed ? runs->count : -1, tile_rows, &parts->sizes))
        return false;
    parts->bytes = parts->sizes.bytes;
    bool ok = add_table(parts, ULI_ATTN_TENSORS * ULI_GPU_ATTN_PIECES_MAX,
        sizeof(struct uli_gpu_attn_piece), &parts->pieces_at);
    ok = ok && add_table(parts, packed ? runs->count : 0,
                   sizeof(struct uli_gpu_attn_segment), &parts->segments_at[0]);
    ok = ok && add_table(parts, packed ? problem->k_runs.count : 0,
                   sizeof(struct uli_gpu_attn_segment), &parts->segments_at[1]);
    for (int n = 0; n < 4 && ok; n++)
        ok = add_table(parts, docs ? docs + 1 : 0, 8, &parts->docs_at[n]);
    ok = ok && add_table(parts, problem->heads_q, 8, &parts->kv_map_at);
    return ok && add_table(parts, problem->heads_q, 8, &parts->head_ids_at);
}

int64_t
uli_gpu_attn_call_bytes(
    const struct uli_attn_problem *problem, int32_t tile_rows)
{
    struct parts parts;
    return find_parts(problem, tile_rows, &parts) ? parts.bytes : -1;
}

static ulyx_status_t
call_put(const struct uli_attn_call *call, int64_t at, const void *host,
    int64_t bytes)
{
    int error =
        uli_gpu_attn_put(call->workspace + at, host, bytes, call->stream);
    if (error)
        return uli_error(ULYX_ERR_INTERNAL,
            "attention: a table's copy to the device: CUDA error %d", error);
    return ULYX_SUCCESS;
}

/* The largest power of two that divides both `before`, which is a power of two,
 * and the number. */
static int32_t
common_power(int32_t before, int64_t number)
{
    while (number % before)
        before /= 2;
    return before;
}

static int32_t
alignment_of(const struct uli_attn_view *view, const void *base,
    int64_t batch_stride, int64_t row_stride, int64_t head_stride)
{
    int32_t power = common_power(16, (int64_t)(uintptr_t)base);
    /* heads and batch items of one row each are packed rows, too */
    if (view->rows > 1 || view->packed_rows > 1)
        power = common_power(power, row_stride);
    if (view->packed_rows >= 0)
        return power;
    if (view->batch > 1)
        power = common_power(power, batch_stride);
    return view->heads > 1 ? common_power(power, head_stride) : power;
}

struct uli_gpu_attn_piece
uli_gpu_attn_piece_at(const struct uli_attn_view *view, int64_t n)
{
    const ulyx_attention_piece_t *p = uli_attn_piece_at(view, n);
    bool own = p->batch_stride || p->row_stride || p->head_stride;
    return (struct uli_gpu_attn_piece){.row_begin = p->row_begin,
        .rows = p->rows,
        .base = p->base,
        .batch_stride = own ? p->batch_stride : view->batch_stride,
        .row_stride = own ? p->row_stride : view->row_stride,
        .head_stride = own ? p->head_stride : view->head_stride,
        .flag = p->flag,
        .flag_value = p->flag_value};
}

ulyx_status_t
uli_gpu_attn_tensor_describe(
    const struct uli_attn_view *view, struct uli_gpu_attn_tensor *tensor_p)
{
    memset(tensor_p, 0, sizeof(*tensor_p));
    tensor_p->align = 16;
    if (!view->given)
        return ULYX_SUCCESS;
    if (!view->pieces) {
        tensor_p->base = view->base;
        tensor_p->batch_stride = view->batch_stride;
        tensor_p->row_stride = view->row_stride;
        tensor_p->head_stride = view->head_stride;
        tensor_p->align = alignment_of(view, view->base, view->batch_stride,
            view->row_stride, view->head_stride);
        return ULYX_SUCCESS;
    }
    if (view->piece_count > ULI_GPU_ATTN_PIECES_MAX)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "%s: %lld pieces, on a device at most %d", view->name,
            (long long)view->piece_count, ULI_GPU_ATTN_PIECES_MAX);
    tensor_p->npieces = (int32_t)view->piece_count;
    for (int64_t n = 0; n < view->piece_count; n++) {
        struct uli_gpu_attn_piece p = uli_gpu_attn_piece_at(view, n);
        tensor_p->flags |= p.flag != NULL;
        tensor_p->align = common_power(
            tensor_p->align, alignment_of(view, p.base, p.batch_stride,
                                 p.row_stride, p.head_stride));
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
put_pieces(const struct uli_attn_call *call, enum uli_attn_tensor name,
    const struct parts *parts, struct uli_gpu_attn_tensor *tensor_p)
{
    const struct uli_attn_view *view = &call->views[name];
    struct uli_gpu_attn_piece pieces[AT_ONCE];
    int64_t size = sizeof(pieces[0]);
    int64_t at =
        parts->pieces_at + (int64_t)name * ULI_GPU_ATTN_PIECES_MAX * size;
    if (!view->given || !view->pieces)
        return ULYX_SUCCESS;
    tensor_p->pieces = (const void *)(call->workspace + at);
    for (int64_t n = 0; n < view->piece_count; n++) {
        pieces[n % AT_ONCE] = uli_gpu_attn_piece_at(view, n);
        if (n % AT_ONCE == AT_ONCE - 1 || n == view->piece_count - 1) {
            int64_t first = n / AT_ONCE * AT_ONCE;
            ULI_TRY(call_put(
                call, at + first * size, pieces, (n + 1 - first) * size));
        }
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
put_segments(const struct uli_attn_call *call, const struct uli_attn_runs *runs,
    int64_t at)
{
    struct uli_gpu_attn_segment segments[AT_ONCE];
    for (int64_t n = 0; n < runs->count; n++) {
        struct uli_attn_run run = uli_attn_run_at(runs, n);
        segments[n % AT_ONCE] = (struct uli_gpu_attn_segment){
            run.head, run.batch, run.row_begin, run.row_end, run.offset};
        if (n % AT_ONCE == AT_ONCE - 1 || n == runs->count - 1) {
            int64_t first = n / AT_ONCE * AT_ONCE, size = sizeof(segments[0]);
            ULI_TRY(call_put(
                call, at + first * size, segments, (n + 1 - first) * size));
        }
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
set_docs(const struct uli_attn_call *call, const struct parts *parts, bool keys,
    struct uli_gpu_attn_docs *docs_p)
{
    const struct uli_attn_problem *problem = &call->problem;
    const struct uli_attn_axis_docs *docs =
        keys ? &problem->docs_k : &problem->docs_q;
    int64_t at = parts->docs_at[keys ? 2 : 0], count = problem->doc_count;
    docs_p->begins = docs->begins;
    docs_p->lengths = docs->lengths;
    docs_p->index_bytes = docs->index_bytes;
    if (problem->docs_on_device)
        return ULYX_SUCCESS;
    docs_p->begins = call->workspace + at;
    ULI_TRY(call_put(call, at, docs->begins,
        (docs->lengths ? count : count + 1) * docs->index_bytes));
    if (!docs->lengths)
        return ULYX_SUCCESS;
    at = parts->docs_at[keys ? 3 : 1];
    docs_p->lengths = call->workspace + at;
    return call_put(call, at, docs->lengths, count * docs->index_bytes);
}

/* The number of query heads whose keys and values stay in the cache together.
 * The keys of all batch items count, because tiles of equal cost are taken from
 * all batch items at the same time. */
static int64_t
head_group_of(const struct uli_attn_problem *problem, int64_t section_rows)
{
    int64_t heads = uli_max(1, problem->heads_q);
    int64_t readers = uli_max(1, heads / uli_max(1, problem->heads_kv));
    int64_t keys = uli_max(1, problem->batch) * uli_max(1, problem->len_k);
    int64_t fit = section_rows / keys;
    return uli_min(heads, uli_min(heads, uli_max(1, fit)) * readers);
}

/* The number of rows of keys and values of one head that stay in the cache. */
static int64_t
section_rows_of(const struct uli_attn_problem *problem)
{
    int64_t row =
        (problem->dim_qk + problem->dim_v) * uli_dtype_size(problem->dtype);
    return L2_BYTES / row;
}

static void
set_scores(
    const struct uli_attn_problem *problem, struct uli_gpu_attn_args *args_p)
{
    /* scale and cap do not depend on the head; slopes join on the device */
    struct uli_attn_problem plain = *problem;
    plain.sinks = plain.slopes = NULL;
    struct uli_tile_head head = uli_tile_head_of(&plain, 0), last = head;
    if (problem->slopes && !(head.cap > 0)) {
        plain.softcap = 1; /* any: scores are transformed, by the slopes */
        last = uli_tile_head_of(&plain, 0);
    }
    args_p->factor = last.factor;
    args_p->exact = last.exact;
    args_p->scale = head.scale;
    args_p->cap = head.cap;
    args_p->cap_inverse = head.cap_inverse;
}

static ulyx_status_t
put_heads(const struct uli_attn_call *call, const struct parts *parts,
    struct uli_gpu_attn_args *args_p)
{
    const struct uli_attn_problem *problem = &call->problem;
    args_p->head_offset = problem->head_offset;
    args_p->sinks = problem->sinks;
    args_p->slopes = problem->slopes;
    args_p->param_f64 = problem->param_dtype == ULYX_DTYPE_F64;
    args_p->max_logit = call->max_logit;
    if (problem->kv_map) {
        args_p->kv_map = (const void *)(call->workspace + parts->kv_map_at);
        ULI_TRY(call_put(
            call, parts->kv_map_at, problem->kv_map, problem->heads_q * 8));
    }
    if (problem->head_ids) {
        args_p->head_ids = (const void *)(call->workspace + parts->head_ids_at);
        ULI_TRY(call_put(
            call, parts->head_ids_at, problem->head_ids, problem->heads_q * 8));
    }
    return ULYX_SUCCESS;
}

/* Self-attention: one table serves both axes. */
static bool
same_docs(
    const struct uli_attn_axis_docs *q, const struct uli_attn_axis_docs *k)
{
    return q->begins == k->begins && q->lengths == k->lengths &&
           q->index_bytes == k->index_bytes;
}

static ulyx_status_t
put_tables(const struct uli_attn_call *call, const struct parts *parts,
    struct uli_gpu_attn_args *args_p)
{
    const struct uli_attn_problem *problem = &call->problem;
    if (problem->has_docs) {
        args_p->has_docs = 1;
        args_p->ndocs = problem->doc_count;
        ULI_TRY(set_docs(call, parts, false, &args_p->docs_q));
        if (same_docs(&problem->docs_q, &problem->docs_k))
            args_p->docs_k = args_p->docs_q;
        else
            ULI_TRY(set_docs(call, parts, true, &args_p->docs_k));
    }
    if (problem->q_runs.segments) {
        args_p->q_segments =
            (const void *)(call->workspace + parts->segments_at[0]);
        args_p->k_segments =
            (const void *)(call->workspace + parts->segments_at[1]);
        args_p->nq_segments = problem->q_runs.count;
        args_p->nk_segments = problem->k_runs.count;
        ULI_TRY(put_segments(call, &problem->q_runs, parts->segments_at[0]));
        ULI_TRY(put_segments(call, &problem->k_runs, parts->segments_at[1]));
    }
    return put_heads(call, parts, args_p);
}

ulyx_status_t
uli_gpu_attn_tensor_put(const struct uli_attn_call *call, int32_t tile_rows,
    enum uli_attn_tensor name, struct uli_gpu_attn_tensor *tensor)
{
    struct parts parts;
    if (!find_parts(&call->problem, tile_rows, &parts))
        return uli_error(
            ULYX_ERR_OVERFLOW, "attention: the workspace does not fit 64 bits");
    return put_pieces(call, name, &parts, tensor);
}

/* Which of the arguments' tensors is which of the call's. */
static struct uli_gpu_attn_tensor *
tensor_of(struct uli_gpu_attn_args *args, enum uli_attn_tensor name)
{
    switch (name) {
    case ULI_ATTN_Q:
        return &args->q;
    case ULI_ATTN_K:
        return &args->k;
    case ULI_ATTN_V:
        return &args->v;
    case ULI_ATTN_OUT:
        return &args->out;
    default:
        return &args->lse;
    }
}

ulyx_status_t
uli_gpu_attn_call_describe(
    const struct uli_attn_call *call, struct uli_gpu_attn_args *args_p)
{
    const struct uli_attn_problem *problem = &call->problem;
    int64_t section_rows = section_rows_of(problem);
    struct uli_gpu_attn_args args = {.dtype = problem->dtype,
        .batch = problem->batch,
        .len_q = problem->len_q,
        .len_k = problem->len_k,
        .heads_q = problem->heads_q,
        .heads_kv = problem->heads_kv,
        .dim_qk = (int32_t)problem->dim_qk,
        .dim_v = (int32_t)problem->dim_v,
        .left = problem->left,
        .right = problem->right,
        .diagonal = problem->diagonal,
        .bottom_right = problem->bottom_right,
        .head_group = head_group_of(problem, section_rows),
        .section_rows = section_rows,
        .cause = call->cause,
        .poison = call->poison,
        .timeout_ns = (uint64_t)(call->timeout_s * 1e9)};
    set_scores(problem, &args);
    for (int t = ULI_ATTN_Q; t <= ULI_ATTN_LSE; t++)
        ULI_TRY(uli_gpu_attn_tensor_describe(
            &call->views[t], tensor_of(&args, (enum uli_attn_tensor)t)));
    *args_p = args;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_gpu_attn_call_put(const struct uli_attn_call *call, int32_t tile_rows,
    int32_t tile_keys, struct uli_gpu_attn_args *args)
{
    struct parts parts;
    if (!find_parts(&call->problem, tile_rows, &parts))
        return uli_error(
            ULYX_ERR_OVERFLOW, "attention: the workspace does not fit 64 bits");
    args->tile_rows = tile_rows;
    args->tile_keys = tile_keys;
    uli_gpu_attn_place(args, &parts.sizes, call->workspace);
    for (int t = ULI_ATTN_Q; t <= ULI_ATTN_LSE; t++)
        ULI_TRY(put_pieces(call, (enum uli_attn_tensor)t, &parts,
            tensor_of(args, (enum uli_attn_tensor)t)));
    return put_tables(call, &parts, args);
}
