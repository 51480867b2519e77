/* SPDX-License-Identifier: Apache-2.0
 *
 * Well-formed tensors. Two strided blocks with equal batch and row strides
 * share a byte only if some multiples of those and of their head strides bring
 * two rows within a row's length of each other. With equal strides only the
 * differences of two indices have to be tried. For blocks with different batch
 * or row strides only the address ranges are compared, and overlapping ranges
 * are refused.
 */
#include "attention/translate/view.h"
#include <inttypes.h>
#include <stdlib.h>
#include "base/dtype.h"
#include "base/status.h"
#include "base/params/structs.h"

/* One strided part of a tensor: a piece, or the whole tensor. */
struct block {
    int64_t base;
    int64_t count[3], stride[3]; /* batch, head, row; stride 0 for one entry */
    int64_t row_bytes;
    int64_t low, high; /* addresses of the first byte and past the last */
};

static struct block
block_at(const struct uli_attn_view *view, int64_t index)
{
    struct block block = {.base = (int64_t)(intptr_t)view->base,
        .count = {view->batch, view->heads, view->rows},
        .stride = {view->batch_stride, view->head_stride, view->row_stride},
        .row_bytes = view->row_bytes};
    if (view->packed_rows >= 0) {
        block.count[0] = block.count[1] = 1;
        block.count[2] = view->packed_rows;
    }
    if (view->pieces) {
        const ulyx_attention_piece_t *piece = uli_attn_piece_at(view, index);
        block.base = (int64_t)(intptr_t)piece->base;
        block.count[2] = piece->rows;
        if (piece->batch_stride || piece->head_stride || piece->row_stride) {
            block.stride[0] = piece->batch_stride;
            block.stride[1] = piece->head_stride;
            block.stride[2] = piece->row_stride;
        }
    }
    for (int i = 0; i < 3; i++)
        block.stride[i] = block.count[i] > 1 ? block.stride[i] : 0;
    return block;
}

static bool
block_empty(const struct block *block)
{
    return !block->count[0] || !block->count[1] || !block->count[2] ||
           !block->row_bytes;
}

/* So that sums of three positions in blocks fit 64 bits. */
#define SPAN_MAX ((int64_t)1 << 61)

static bool
block_ends(struct block *block)
{
    block->low = block->base;
    if (!uli_size_add(block->base, block->row_bytes, &block->high))
        return false;
    for (int i = 0; i < 3; i++) {
        int64_t reach;
        if (!uli_size_mul(block->count[i] - 1, block->stride[i], &reach))
            return false;
        int64_t *end = reach < 0 ? &block->low : &block->high;
        if (!uli_size_add(*end, reach, end))
            return false;
    }
    return uli_sat_sub(block->high, block->low) < SPAN_MAX;
}

static ulyx_status_t
check_block(const struct uli_attn_view *view, int64_t index)
{
    struct block block = block_at(view, index);
    if (block_empty(&block))
        return ULYX_SUCCESS;
    if (!block.base)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s: base is NULL: set base of its ulyx_attention_tensor_t",
            view->name);
    int64_t odd = block.base;
    for (int i = 0; i < 3; i++)
        odd |= block.stride[i];
    if (odd % view->element_bytes)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s: base or a stride is not a multiple of %" PRId64 " bytes",
            view->name, view->element_bytes);
    if (!block_ends(&block))
        return uli_error(ULYX_ERR_OVERFLOW,
            "%s: the tensor's end is beyond 64-bit addresses", view->name);
    return ULYX_SUCCESS;
}

/* Pieces are read in the caller's array: see take_runs of translate.c. */
_Static_assert(sizeof(ulyx_attention_piece_t) ==
                   ULI_LEAST(ulyx_attention_piece_t, flag_value),
    "a caller's piece may be shorter than ours");

static ulyx_status_t
check_pieces(const struct uli_attn_view *view)
{
    int64_t next = 0;
    for (int64_t i = 0; i < view->piece_count; i++) {
        const ulyx_attention_piece_t *piece = uli_attn_piece_at(view, i);
        if (piece->row_begin != next || piece->rows < 0 ||
            piece->rows > view->rows - next)
            return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                "%s: piece %" PRId64 " holds rows %" PRId64 " + %" PRId64
                ", expected to begin at %" PRId64 " of %" PRId64,
                view->name, i, piece->row_begin, piece->rows, next, view->rows);
        if (piece->flag && (uintptr_t)piece->flag % 8)
            return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                "%s: flag of piece %" PRId64 " is not aligned to 8 bytes",
                view->name, i);
        next += piece->rows;
        ULI_TRY(check_block(view, i));
    }
    if (next != view->rows)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s: pieces end at row %" PRId64 " of %" PRId64, view->name, next,
            view->rows);
    return ULYX_SUCCESS;
}

static int64_t
packed_rows(const struct uli_attn_runs *runs)
{
    if (!runs->segments)
        return -1;
    if (!runs->count)
        return 0;
    struct uli_attn_run last = uli_attn_run_at(runs, runs->count - 1);
    return uli_sat_add(last.offset, last.row_end - last.row_begin);
}

static void
fill_view(const struct uli_attn_problem *problem,
    const struct uli_attn_tensor_rule *rule,
    const ulyx_attention_tensor_t *given, struct uli_attn_view *view)
{
    const struct uli_attn_runs *runs =
        rule->keys ? &problem->k_runs : &problem->q_runs;
    *view = (struct uli_attn_view){.name = rule->name,
        .base = given->base,
        .batch_stride = given->batch_stride,
        .row_stride = given->row_stride,
        .head_stride = given->head_stride,
        .dtype = given->dtype ? given->dtype : rule->dtype,
        .rows = rule->keys ? problem->len_k : problem->len_q,
        .heads = rule->keys ? problem->heads_kv : problem->heads_q,
        .columns = rule->columns,
        .batch = problem->batch,
        .pieces = given->pieces,
        .piece_count = given->pieces ? given->piece_count : 0,
        .piece_size = (int64_t)given->piece_size,
        .packed_rows = packed_rows(runs),
        .given = true,
        .output = rule->output};
    view->element_bytes = uli_dtype_size(view->dtype);
    view->row_bytes = view->element_bytes * view->columns;
}

ulyx_status_t
uli_attn_view_init(const struct uli_attn_problem *problem,
    const struct uli_attn_tensor_rule *rule,
    const ulyx_attention_tensor_t *given, struct uli_attn_view *view_p)
{
    *view_p = (struct uli_attn_view){.name = rule->name};
    if (!given && rule->required)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s: tensor is NULL: set %s of %s", rule->name, rule->name,
            rule->type);
    if (!given)
        return ULYX_SUCCESS;
    if (given->reserved)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s: tensor's reserved is %d, must be 0", rule->name,
            given->reserved);
    fill_view(problem, rule, given, view_p);
    if (view_p->dtype != rule->dtype && view_p->dtype != rule->also_dtype)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "%s: dtype is %d, which does not go with the problem's dtype %d",
            rule->name, view_p->dtype, problem->dtype);
    if (!given->pieces)
        return check_block(view_p, 0);
    if (view_p->packed_rows >= 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s: pieces and segments are both given: give one of them",
            rule->name);
    if (given->piece_count < 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s: piece_count is %" PRId64 ", must be at least 0", rule->name,
            given->piece_count);
    ULI_TRY(uli_struct_array(&uli_structs[ULI_STRUCT_PIECE], given->pieces,
        given->piece_size, given->piece_count, rule->name));
    return check_pieces(view_p);
}

/* The stride of a dimension in which at least one of two blocks has several
 * entries; false where the two strides differ. */
static bool
common_stride(
    const struct block *a, const struct block *b, int i, int64_t *stride_p)
{
    *stride_p = a->count[i] > 1 ? a->stride[i] : b->stride[i];
    return a->count[i] <= 1 || b->count[i] <= 1 || a->stride[i] == b->stride[i];
}

/* A row of a_bytes begins `delta` bytes after a row of b_bytes, and is moved by
 * a number of steps of the row stride, from `low` to `high`: can the two rows
 * share a byte? They do where the distance is above -a_bytes and below b_bytes.
 * So the smallest distance above -a_bytes decides. */
static bool
rows_meet(int64_t delta, int64_t stride, int64_t low, int64_t high,
    int64_t a_bytes, int64_t b_bytes)
{
    int64_t steps = 0, gap = 1 - a_bytes - delta;
    if (stride < 0) {
        int64_t before = low;
        stride = -stride, low = -high, high = -before;
    }
    if (stride > 0) {
        steps = gap > 0 ? (gap + stride - 1) / stride : -(-gap / stride);
        steps = uli_min(uli_max(steps, low), high);
    }
    int64_t at = delta + steps * stride;
    return at > -a_bytes && at < b_bytes;
}

/* Tries all differences of two head indices (all pairs of heads, where the head
 * strides differ) and all differences of two batch indices. */
static bool
lattice_meets(const struct block *a, const struct block *b, int64_t heads,
    int64_t batch_stride, int64_t row_stride)
{
    int64_t head_stride, at;
    bool differences = common_stride(a, b, 1, &head_stride);
    for (int64_t n = 0; n < heads; n++) {
        if (differences)
            at = (n - (b->count[1] - 1)) * head_stride;
        else
            at =
                n % a->count[1] * a->stride[1] - n / a->count[1] * b->stride[1];
        for (int64_t i = 1 - b->count[0]; i < a->count[0]; i++)
            if (rows_meet(a->base - b->base + at + i * batch_stride, row_stride,
                    1 - b->count[2], a->count[2] - 1, a->row_bytes,
                    b->row_bytes))
                return true;
    }
    return false;
}

/* For blocks with more combinations than this only address ranges are
 * compared. */
#define COMBINATIONS_MAX 4e6

static bool
blocks_meet(struct block *a, struct block *b)
{
    int64_t batch_stride, row_stride, head_stride, heads;
    if (block_empty(a) || block_empty(b) || !block_ends(a) || !block_ends(b))
        return false;
    if (a->high <= b->low || b->high <= a->low)
        return false;
    heads = common_stride(a, b, 1, &head_stride) ? a->count[1] + b->count[1] - 1
                                                 : a->count[1] * b->count[1];
    double combinations =
        (double)heads * ((double)a->count[0] + (double)b->count[0]);
    if (!common_stride(a, b, 0, &batch_stride) ||
        !common_stride(a, b, 2, &row_stride) || combinations > COMBINATIONS_MAX)
        return true;
    return lattice_meets(a, b, heads, batch_stride, row_stride);
}

/* Rows of one block are apart if, by rising stride, each stride is at least the
 * span of the smaller ones. */
static bool
block_meets_itself(const struct block *block)
{
    int64_t span = block->row_bytes;
    bool done[3] = {false, false, false};
    for (int pass = 0; pass < 3; pass++) {
        int least = -1;
        for (int i = 0; i < 3; i++)
            if (!done[i] && (least < 0 || llabs(block->stride[i]) <
                                              llabs(block->stride[least])))
                least = i;
        done[least] = true;
        if (block->count[least] <= 1)
            continue;
        if (llabs(block->stride[least]) < span)
            return true;
        span += (block->count[least] - 1) * llabs(block->stride[least]);
    }
    return false;
}

/* The name of a stride that is 0 where a dimension has several entries: such a
 * stride may have been forgotten, since tensors of attention have no default
 * strides; NULL: there is none. */
static const char *
zero_stride(const struct block *block)
{
    static const char *const names[3] = {
        "batch_stride", "head_stride", "row_stride"};
    for (int i = 0; i < 3; i++)
        if (block->count[i] > 1 && !block->stride[i])
            return names[i];
    return NULL;
}

/* itself: the block that overlaps itself, NULL: a overlaps b. */
static ulyx_status_t
refuse_overlap(const struct uli_attn_view *a, const struct uli_attn_view *b,
    const struct block *itself)
{
    const char *stride = itself ? zero_stride(itself) : NULL;
    if (stride)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s overlaps itself: set %s of its ulyx_attention_tensor_t, which "
            "is 0, in bytes",
            a->name, stride);
    return uli_error(ULYX_ERR_INVALID_ARGUMENT, "%s overlaps %s", a->name,
        itself ? "itself" : b->name);
}

static ulyx_status_t
check_pair(const struct uli_attn_view *a, const struct uli_attn_view *b)
{
    int64_t a_count = a->pieces ? a->piece_count : 1;
    int64_t b_count = b->pieces ? b->piece_count : 1;
    for (int64_t i = 0; i < a_count; i++) {
        for (int64_t n = a == b ? i : 0; n < b_count; n++) {
            struct block x = block_at(a, i), y = block_at(b, n);
            bool same = a == b && i == n;
            if (same ? !block_empty(&x) && block_meets_itself(&x)
                     : blocks_meet(&x, &y))
                return refuse_overlap(a, b, same ? &x : NULL);
        }
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_attn_overlap_check(const struct uli_attn_call *call)
{
    for (int i = 0; i < ULI_ATTN_TENSORS; i++) {
        const struct uli_attn_view *a = &call->views[i];
        if (!a->given || !a->output)
            continue;
        for (int n = 0; n < ULI_ATTN_TENSORS; n++) {
            const struct uli_attn_view *b = &call->views[n];
            if (b->given && (n >= i || !b->output))
                ULI_TRY(check_pair(a, b));
        }
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_attn_array_check(const struct uli_attn_call *call, const char *name,
    const void *array, int64_t count, int64_t element_bytes)
{
    struct block x = {.base = (int64_t)(intptr_t)array, .count = {1, 1, 1}};
    if (!array)
        return ULYX_SUCCESS;
    if (x.base % element_bytes)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s: address is not a multiple of %" PRId64 " bytes", name,
            element_bytes);
    if (!uli_size_mul(count, element_bytes, &x.row_bytes) || !block_ends(&x))
        return uli_error(ULYX_ERR_OVERFLOW,
            "%s: %" PRId64 " elements end beyond 64-bit addresses", name,
            count);
    for (int t = 0; t < ULI_ATTN_TENSORS; t++) {
        const struct uli_attn_view *view = &call->views[t];
        int64_t blocks = view->pieces ? view->piece_count : view->given;
        for (int64_t i = 0; i < blocks; i++) {
            struct block y = block_at(view, i);
            if (blocks_meet(&x, &y))
                return uli_error(ULYX_ERR_INVALID_ARGUMENT, "%s overlaps %s",
                    name, view->name);
        }
    }
    return ULYX_SUCCESS;
}
