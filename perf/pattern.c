/* SPDX-License-Identifier: Apache-2.0
 *
 * The pattern that identifies elements, and its check. In the two permutations
 * the bits of an element are a hash of (tensor, batch, token, head, element).
 * In adjoints the elements are small integers, so that sums are exact in every
 * order. The expected places follow from the positions, heads and segments that
 * the plan publishes, not from the moves inside the library.
 */
#include "view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t
hash_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The code of a row, from which the bits of its elements are computed. */
static uint64_t
row_code(int32_t tensor, const struct perf_line *row)
{
    uint64_t code = hash_mix((uint64_t)tensor + 1);

    code = hash_mix(code + (uint64_t)row->batch);
    code = hash_mix(code + (uint64_t)row->position);
    return hash_mix(code + (uint64_t)row->head);
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

/* The small integer that rank `from` contributes to element c of a row in an
 * adjoint. */
static int64_t
code_small(const struct perf_rank *rank, uint64_t code, int64_t c, int32_t from)
{
    return (int64_t)(hash_mix(code + (uint64_t)c + ((uint64_t)from << 40)) &
                     (rank->nranks <= 32 ? 7 : 1));
}

/* The bytes [8 k, 8 k + 8) of a permuted row. One hash gives all elements in
 * these bytes; other places have other hashes, but for rare collisions. */
static uint64_t
word_of(uint64_t code, int64_t k)
{
    return hash_mix(code + (uint64_t)k);
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
fill_row(void *context, const struct perf_view *v, const struct perf_line *row)
{
    unsigned char *at = (unsigned char *)context + row->offset;
    uint64_t code = row_code(v->tensor, row);

    if (v->rank->direction < 2) {
        put_row(at, code, v->dim * v->elem_bytes);
        return;
    }
    for (int64_t c = 0; c < v->dim; c++, at += v->elem_bytes)
        store_float(v->dtype, at, code_small(v->rank, code, c, v->rank->rank));
}

/* ---- expected values ----------------------------------------------------- */

struct checking {
    struct perf_view view;
    const unsigned char *base;
    int64_t wrong;
    /* By rank: what it holds on the head side. */
    int64_t (*heads)[2];       /* {first, count} */
    ulyx_segment_t **segments; /* packed only, else NULL */
    int64_t *nsegments;
};

static bool
row_holds(const struct checking *k, int32_t p, const struct perf_line *row)
{
    if (k->nsegments[p] == 0 && !k->segments[p])
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
expected_small(const struct checking *k, const struct perf_line *row,
    uint64_t code, int64_t c)
{
    const struct perf_rank *rank = k->view.rank;
    bool replicated = perf_view_part(&k->view)->kind == ULYX_PART_REPLICATED;
    int64_t sum = 0;
    int32_t lowest = 0;

    while (lowest < rank->nranks && !row_holds(k, lowest, row))
        lowest++;
    if (rank->direction == ULYX_SEQ_TO_HEAD_ADJOINT) {
        for (int32_t p = 0; p < rank->nranks; p++)
            if (row_holds(k, p, row) && (!replicated || p == rank->rank))
                sum += code_small(rank, code, c, p);
        return sum;
    }
    if (lowest != rank->rank)
        return 0;
    /* A rank fills its gradients with values of its own rank: all ranks have a
     * replicated token, one rank has a sharded token. */
    if (replicated) {
        for (int32_t p = 0; p < rank->nranks; p++)
            sum += code_small(rank, code, c, p);
        return sum;
    }
    const struct uli_row_span *pieces;
    int64_t count;
    for (int32_t p = 0; p < rank->nranks; p++) {
        pieces = uli_layout_row_spans(
            rank->layout, rank->shape->tensors[k->view.tensor].part, p, &count);
        for (int64_t i = 0; i < count; i++)
            if (row->position >= pieces[i].row &&
                row->position < pieces[i].row + pieces[i].rows)
                return code_small(rank, code, c, p);
    }
    return 0;
}

/* Counts the wrong elements of a permuted row. zeros: zeros are expected, as no
 * rank holds the row. */
static int64_t
wrong_permuted(const struct perf_view *v, const unsigned char *at,
    uint64_t code, bool zeros)
{
    int64_t bytes = v->dim * v->elem_bytes, wrong = 0, element = -1;
    uint64_t differ = 0;

    /* First a fast comparison, because nearly all rows are right. */
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
check_row(void *context, const struct perf_view *v, const struct perf_line *row)
{
    struct checking *k = context;
    const unsigned char *at = k->base + row->offset;
    uint64_t code = row_code(v->tensor, row);
    unsigned char expected[8];
    bool nobody = v->rank->direction == ULYX_HEAD_TO_SEQ;

    for (int32_t p = 0; nobody && p < v->rank->nranks; p++)
        nobody = !row_holds(k, p, row);
    if (v->rank->direction < 2) {
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
    perf_view_open(&k->view, rank, tensor, false);
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
            k->segments[p] =
                perf_view_segments(rank, tensor, p, &k->nsegments[p]);
    }
    return true;
}

static void
close_checking(struct checking *k, int32_t nranks)
{
    perf_view_close(&k->view);
    for (int32_t p = 0; k->segments && p < nranks; p++)
        free(k->segments[p]);
    free(k->heads);
    free(k->segments);
    free(k->nsegments);
}

bool
perf_fill(struct perf_rank *rank)
{
    memset(rank->dst.base, 0xff, (size_t)rank->dst.bytes);
    memset(rank->back.base, 0xff, (size_t)rank->back.bytes);
    memset(rank->src.base, 0xff, (size_t)rank->src.bytes);
    for (int32_t t = 0; t < rank->shape->params.ntensors; t++) {
        struct perf_view view;

        perf_view_open(&view, rank, t, true);
        for (int set = 0; set < rank->sets; set++)
            perf_view_each(&view, fill_row,
                rank->src.base + set * rank->src.set_bytes +
                    rank->src.offset[t]);
        perf_view_close(&view);
    }
    return perf_side_up(rank, &rank->dst) && perf_side_up(rank, &rank->back) &&
           perf_side_up(rank, &rank->src);
}

/* Counts the bytes between the tensors of a destination set that are no longer
 * the fill value 0xff. */
static int64_t
check_guards(const struct perf_rank *rank, int set)
{
    const unsigned char *base = rank->dst.base + set * rank->dst.set_bytes;
    int64_t at = 0, wrong = 0;
    int32_t n = rank->shape->params.ntensors;
    bool joint =
        rank->shape->params.nparts > 1 && perf_to_head(rank->direction);

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
            for (int set = rank->algo; set < rank->sets; set += rank->nplans) {
                k.base = rank->dst.base + set * rank->dst.set_bytes +
                         rank->dst.offset[t];
                perf_view_each(&k.view, check_row, &k);
            }
        else
            wrong++;
        wrong += k.wrong;
        close_checking(&k, rank->nranks);
    }
    for (int set = rank->algo; set < rank->sets; set += rank->nplans)
        wrong += check_guards(rank, set);
    return wrong;
}
