/* SPDX-License-Identifier: Apache-2.0
 *
 * The identity pattern and its check. In permutations the bits of an element
 * encode (tensor, batch, token, head, element); in adjoints elements are small
 * integers, so that sums are exact in every order. What belongs where is
 * worked out from the plan's published positions, heads and segments, not from
 * the moves that the library makes of them.
 */
#include "perf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The rows of one tensor on one side of a rank, each `dim` elements. */
struct row {
    int64_t offset; /* bytes in the tensor, from its base */
    int64_t batch, position, axis_row, head;
};
struct view {
    const struct perf_rank *rank;
    int32_t tensor;
    bool head_side;
    int32_t dtype;
    int64_t elem_bytes, dim;
    int64_t *positions;         /* sequence side */
    int64_t rows, first, heads; /* of this rank */
    ulyx_segment_t *segments;   /* PACKED */
    int64_t nsegments;
};

static bool
to_head(ulyx_operation_t operation)
{
    return operation == ULYX_SEQ_TO_HEAD ||
           operation == ULYX_HEAD_TO_SEQ_ADJOINT;
}

static const ulyx_part_t *
part_of(const struct view *v)
{
    return &v->rank->shape->parts[v->rank->shape->tensors[v->tensor].part];
}

static ulyx_segment_t *
segments_of(
    const struct perf_rank *rank, int32_t tensor, int32_t of, int64_t *count_p)
{
    ulyx_segment_t *segments;

    *count_p = 0;
    ulyx_plan_get_segments(rank->plan, tensor, of, 0, NULL, count_p);
    segments = calloc((size_t)*count_p + 1, sizeof(*segments));
    ulyx_plan_get_segments(rank->plan, tensor, of, *count_p, segments, count_p);
    return segments;
}

static void
open_view(
    struct view *v, const struct perf_rank *rank, int32_t tensor, bool source)
{
    const ulyx_tensor_t *t = &rank->shape->tensors[tensor];
    int32_t packed = 0;
    int64_t packed_rows;

    *v = (struct view){.rank = rank,
        .tensor = tensor,
        .dim = t->dim,
        .head_side = source != to_head(rank->operation),
        .dtype = t->dtype};
    if (rank->operation == ULYX_SEQ_TO_HEAD_ADJOINT && source)
        ulyx_plan_get_partial_dtype(rank->plan, tensor, &v->dtype);
    v->elem_bytes =
        t->elem_bytes > 0 ? t->elem_bytes : ulyx_dtype_size(v->dtype);
    if (!v->head_side) {
        ulyx_plan_get_seq_rows(rank->plan, t->part, rank->rank, &v->rows);
        v->heads = t->heads;
        v->positions = calloc((size_t)v->rows + 1, sizeof(int64_t));
        ulyx_plan_get_positions(
            rank->plan, t->part, rank->rank, v->rows, v->positions);
        return;
    }
    v->rows = rank->shape->seq;
    for (int32_t p = 1; p < rank->shape->params.nparts; p++)
        v->rows += rank->shape->parts[p].rows;
    ulyx_plan_get_heads(rank->plan, tensor, rank->rank, &v->first, &v->heads);
    ulyx_plan_get_packed_rows(
        rank->plan, tensor, rank->rank, &packed, &packed_rows);
    if (packed)
        v->segments = segments_of(rank, tensor, rank->rank, &v->nsegments);
}

static void
close_view(struct view *v)
{
    free(v->positions);
    free(v->segments);
}

typedef void (*row_fn)(
    void *context, const struct view *v, const struct row *row);

/* First axis row of the tensor's part: parts follow each other. */
static int64_t
first_row(const struct view *v)
{
    return v->rank->shape->tensors[v->tensor].part == 0 ? 0
                                                        : v->rank->shape->seq;
}

static void
each_segment_row(const struct view *v, row_fn fn, void *context)
{
    int64_t low = first_row(v), high = low + part_of(v)->rows;
    int64_t row_bytes = v->dim * v->elem_bytes;
    /* Published offsets count rows of the tensor's own dtype; partials lie in
     * the same places by their own rows. */
    const ulyx_tensor_t *t = &v->rank->shape->tensors[v->tensor];
    int64_t published =
        t->dim *
        (t->elem_bytes > 0 ? t->elem_bytes : ulyx_dtype_size(t->dtype));

    for (int64_t s = 0; s < v->nsegments; s++) {
        const ulyx_segment_t *segment = &v->segments[s];

        for (int64_t r = segment->row_begin; r < segment->row_end; r++) {
            struct row row = {.offset = (segment->offset / published + r -
                                            segment->row_begin) *
                                        row_bytes,
                .batch = segment->batch,
                .position = r - low,
                .axis_row = r,
                .head = segment->head};

            if (r >= low && r < high)
                fn(context, v, &row);
        }
    }
}

static void
each_row(const struct view *v, row_fn fn, void *context)
{
    int64_t rows = v->head_side ? part_of(v)->rows : v->rows;

    if (v->segments != NULL) {
        each_segment_row(v, fn, context);
        return;
    }
    for (int64_t b = 0; b < v->rank->shape->params.batch; b++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t h = 0; h < v->heads; h++) {
                int64_t position = v->head_side ? r : v->positions[r];
                int64_t at = v->head_side ? first_row(v) + r : r;
                struct row row = {.batch = b,
                    .position = position,
                    .axis_row = first_row(v) + position,
                    .head = v->first + h,
                    .offset = ((b * v->rows + at) * v->heads + h) * v->dim *
                              v->elem_bytes};

                fn(context, v, &row);
            }
}

static uint64_t
mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Code of a row: its elements' bits follow from it. */
static uint64_t
row_code(int32_t tensor, const struct row *row)
{
    uint64_t code = mix((uint64_t)tensor + 1);

    code = mix(code + (uint64_t)row->batch);
    code = mix(code + (uint64_t)row->position);
    return mix(code + (uint64_t)row->head);
}

static void
store_float(int32_t dtype, unsigned char *at, int64_t value)
{
    float f = (float)value;
    double d = (double)value;
    uint32_t bits;
    uint16_t half;
    int exponent = 0;

    memcpy(&bits, &f, sizeof(bits));
    switch (dtype) {
    case ULYX_DTYPE_F64:
        memcpy(at, &d, sizeof(d));
        return;
    case ULYX_DTYPE_F32:
        memcpy(at, &f, sizeof(f));
        return;
    case ULYX_DTYPE_BF16:
        half = (uint16_t)(bits >> 16);
        break;
    default: /* F16 of a small integer: exact */
        exponent = (int)(bits >> 23) - 127 + 15;
        half =
            value == 0 ? 0 : (uint16_t)(exponent << 10 | (bits >> 13 & 0x3ff));
    }
    memcpy(at, &half, sizeof(half));
}

/* The small integer that rank `from` has for an element of an adjoint. */
static int64_t
small(const struct perf_rank *rank, uint64_t code, int64_t c, int32_t from)
{
    return (int64_t)(mix(code + (uint64_t)c + ((uint64_t)from << 40)) &
                     (rank->nranks <= 32 ? 7 : 1));
}

/* The bytes [8 k, 8 k + 8) of a permuted row: one mix serves all elements in
 * them, and each still has bits that no other place has. */
static uint64_t
word_of(uint64_t code, int64_t k)
{
    return mix(code + (uint64_t)k);
}

static void
put_row(unsigned char *at, uint64_t code, int64_t bytes)
{
    for (int64_t k = 0; 8 * k < bytes; k++) {
        uint64_t word = word_of(code, k);
        int64_t left = bytes - 8 * k;

        memcpy(at + 8 * k, &word, left < 8 ? (size_t)left : 8);
    }
}

static void
fill_row(void *context, const struct view *v, const struct row *row)
{
    unsigned char *at = (unsigned char *)context + row->offset;
    uint64_t code = row_code(v->tensor, row);

    if (v->rank->operation < 2) {
        put_row(at, code, v->dim * v->elem_bytes);
        return;
    }
    for (int64_t c = 0; c < v->dim; c++, at += v->elem_bytes)
        store_float(v->dtype, at, small(v->rank, code, c, v->rank->rank));
}

/* ---- what the check expects ---------------------------------------------- */

struct checking {
    struct view view;
    const unsigned char *base;
    int64_t wrong;
    int32_t nholders; /* table of all ranks' holdings */
    int64_t (*heads)[2];
    ulyx_segment_t **segments;
    int64_t *nsegments;
};

static bool
holds(const struct checking *k, int32_t p, const struct row *row)
{
    if (k->nsegments[p] == 0 && k->segments[p] == NULL)
        return row->head >= k->heads[p][0] &&
               row->head < k->heads[p][0] + k->heads[p][1];
    for (int64_t s = 0; s < k->nsegments[p]; s++) {
        const ulyx_segment_t *segment = &k->segments[p][s];

        if (segment->head == row->head && segment->batch == row->batch &&
            segment->row_begin <= row->axis_row &&
            row->axis_row < segment->row_end)
            return true;
    }
    return false;
}

static int64_t
expected_small(
    const struct checking *k, const struct row *row, uint64_t code, int64_t c)
{
    const struct perf_rank *rank = k->view.rank;
    bool replicated = part_of(&k->view)->kind == ULYX_PART_REPLICATED;
    int64_t sum = 0;
    int32_t lowest = 0;

    while (lowest < rank->nranks && !holds(k, lowest, row))
        lowest++;
    if (rank->operation == ULYX_SEQ_TO_HEAD_ADJOINT) {
        for (int32_t p = 0; p < rank->nranks; p++)
            if (holds(k, p, row) && (!replicated || p == rank->rank))
                sum += small(rank, code, c, p);
        return sum;
    }
    if (lowest != rank->rank)
        return 0;
    /* The owner of the token filled its gradient with its own rank's value. */
    if (replicated) {
        for (int32_t p = 0; p < rank->nranks; p++)
            sum += small(rank, code, c, p);
        return sum;
    }
    const struct uli_piece *pieces;
    int64_t count;
    for (int32_t p = 0; p < rank->nranks; p++) {
        pieces = uli_layout_pieces(
            rank->layout, rank->shape->tensors[k->view.tensor].part, p, &count);
        for (int64_t i = 0; i < count; i++)
            if (row->position >= pieces[i].row &&
                row->position < pieces[i].row + pieces[i].rows)
                return small(rank, code, c, p);
    }
    return 0;
}

/* Wrong elements of a permuted row; a row that no rank holds is zeros. */
static int64_t
wrong_permuted(
    const struct view *v, const unsigned char *at, uint64_t code, bool zeros)
{
    int64_t bytes = v->dim * v->elem_bytes, wrong = 0, element = -1;
    uint64_t differ = 0;

    /* The quick look first: nearly all rows are right. */
    for (int64_t k = 0; 8 * k + 8 <= bytes; k++) {
        uint64_t word;

        memcpy(&word, at + 8 * k, 8);
        differ |= word ^ (zeros ? 0 : word_of(code, k));
    }
    if (differ == 0 && bytes % 8 == 0)
        return 0;
    for (int64_t i = 0; i < bytes; i++) {
        uint64_t word = zeros ? 0 : word_of(code, i / 8);

        if (at[i] == ((unsigned char *)&word)[i % 8] ||
            element == i / v->elem_bytes)
            continue;
        element = i / v->elem_bytes;
        wrong++;
    }
    return wrong;
}

static void
check_row(void *context, const struct view *v, const struct row *row)
{
    struct checking *k = context;
    const unsigned char *at = k->base + row->offset;
    uint64_t code = row_code(v->tensor, row);
    unsigned char expected[8];
    bool nobody = v->rank->operation == ULYX_HEAD_TO_SEQ;

    for (int32_t p = 0; nobody && p < v->rank->nranks; p++)
        nobody = !holds(k, p, row);
    if (v->rank->operation < 2) {
        k->wrong += wrong_permuted(v, at, code, nobody);
        return;
    }
    for (int64_t c = 0; c < v->dim; c++, at += v->elem_bytes) {
        store_float(v->dtype, expected, expected_small(k, row, code, c));
        k->wrong += memcmp(at, expected, (size_t)v->elem_bytes) != 0;
    }
}

static bool
open_checking(struct checking *k, const struct perf_rank *rank, int32_t tensor)
{
    size_t n = (size_t)rank->nranks;
    int32_t packed = 0;
    int64_t rows;

    memset(k, 0, sizeof(*k));
    open_view(&k->view, rank, tensor, false);
    k->heads = calloc(n, sizeof(*k->heads));
    k->segments = calloc(n, sizeof(*k->segments));
    k->nsegments = calloc(n, sizeof(*k->nsegments));
    if (!k->heads || !k->segments || !k->nsegments)
        return false;
    for (int32_t p = 0; p < rank->nranks; p++) {
        ulyx_plan_get_heads(
            rank->plan, tensor, p, &k->heads[p][0], &k->heads[p][1]);
        ulyx_plan_get_packed_rows(rank->plan, tensor, p, &packed, &rows);
        if (packed)
            k->segments[p] = segments_of(rank, tensor, p, &k->nsegments[p]);
    }
    return true;
}

static void
close_checking(struct checking *k, int32_t nranks)
{
    close_view(&k->view);
    for (int32_t p = 0; k->segments != NULL && p < nranks; p++)
        free(k->segments[p]);
    free(k->heads);
    free(k->segments);
    free(k->nsegments);
}

void
perf_fill(struct perf_rank *rank)
{
    memset(rank->dst.base, 0xff, (size_t)rank->dst.bytes);
    memset(rank->back.base, 0xff, (size_t)rank->back.bytes);
    memset(rank->src.base, 0xff, (size_t)rank->src.bytes);
    for (int32_t t = 0; t < rank->shape->params.ntensors; t++) {
        struct view view;

        open_view(&view, rank, t, true);
        for (int set = 0; set < rank->sets; set++)
            each_row(&view, fill_row,
                rank->src.base + set * rank->src.set_bytes +
                    rank->src.offset[t]);
        close_view(&view);
    }
}

/* Bytes between the tensors of a destination set must still be poison. */
static int64_t
check_guards(const struct perf_rank *rank, int set)
{
    const unsigned char *base = rank->dst.base + set * rank->dst.set_bytes;
    int64_t at = 0, wrong = 0;
    int32_t n = rank->shape->params.ntensors;
    bool joint = rank->shape->params.nparts > 1 && to_head(rank->operation);

    for (int32_t t = 0; t < (joint ? n / 2 : n); t++) {
        int64_t end = rank->dst.offset[t];

        for (; at < end; at++)
            wrong += base[at] != 0xff;
        at += rank->dst.extent[t];
        if (joint && rank->dst.extent[t + n / 2] > rank->dst.extent[t])
            at = end + rank->dst.extent[t + n / 2];
    }
    for (; at < rank->dst.set_bytes; at++)
        wrong += base[at] != 0xff;
    return wrong;
}

int64_t
perf_check(struct perf_rank *rank)
{
    int64_t wrong = 0;

    for (int32_t t = 0; t < rank->shape->params.ntensors; t++) {
        struct checking k;

        if (open_checking(&k, rank, t))
            for (int set = 0; set < rank->sets; set++) {
                k.base = rank->dst.base + set * rank->dst.set_bytes +
                         rank->dst.offset[t];
                each_row(&k.view, check_row, &k);
            }
        else
            wrong++;
        wrong += k.wrong;
        close_checking(&k, rank->nranks);
    }
    for (int set = 0; set < rank->sets; set++)
        wrong += check_guards(rank, set);
    return wrong;
}
