/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz entry of the layout: any bytes are read as a shape and its document
 * tables. Each shape is either refused with an error text, or its layout moves
 * exactly what its destinations hold, within the published bounds. Sizes that
 * would only cost memory are cut; the others range over all 64 bits.
 *
 * In the suite: layout_fuzz_test, a fixed number of random inputs. As a command
 * of its own: ULYX_TEST_DRAWS=1000 layout_fuzz_test, or with clang
 * layout_fuzzer, which is libFuzzer over this file.
 */
#include "collectives/layout/layout_fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mask.h"
#include "collectives/layout/layout.h"

enum { MAX_RANKS = 24, MAX_DOCS = 12 };

struct input {
    const uint8_t *data;
    size_t size;
};

#define REQUIRE(condition)                                                     \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
            abort();                                                           \
        }                                                                      \
    } while (0)

static uint64_t
input_take(struct input *in, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes && in->size > 0; i++, in->size--)
        value = value << 8 | *in->data++;
    return value;
}

/* Returns a number that is mostly in [least, small], and sometimes negative,
 * near a power of two, or anything. */
static int64_t
input_number(struct input *in, int64_t least, int64_t small)
{
    uint64_t how = input_take(in, 1);
    if (how >= 2)
        return least +
               (int64_t)(input_take(in, 1) % (uint64_t)(small + 1 - least));
    switch (input_take(in, 1) % 4) {
    case 0:
        return -1 - (int64_t)input_take(in, 1);
    case 1:
        return (INT64_C(1) << (input_take(in, 1) % 63)) -
               (int64_t)input_take(in, 1) % 3;
    default:
        return (int64_t)input_take(in, 8);
    }
}

/* Returns a number that is mostly in [0, most]. */
static int32_t
input_choice(struct input *in, int32_t most)
{
    if (input_take(in, 1) == 0)
        return (int32_t)input_take(in, 4);
    return (int32_t)(input_take(in, 1) % (uint64_t)(most + 1));
}

/* Draws whether the next value may contradict the others. */
static bool
input_unruly(struct input *in)
{
    return input_take(in, 1) == 1;
}

static void
take_part(struct input *in, struct uli_shape *s, int i, int64_t *splits)
{
    struct uli_shape_part *part = &s->parts[i];
    part->axis = i == 0 ? 0 : input_choice(in, 1);
    part->rows = input_number(in, 0, 60);
    uint64_t left = part->rows > 0 ? (uint64_t)part->rows : 0;
    for (int r = 0; r < MAX_RANKS; r++) {
        uint64_t mine = (uint64_t)input_number(in, 0, 9) % (left + 1);
        splits[r] = (int64_t)(r + 1 >= s->nranks ? left : mine);
        left -= (uint64_t)splits[r];
    }
    if (input_unruly(in))
        splits[0] = input_number(in, 0, 60);
    part->kind = input_choice(in, 3) == 3;
    if (part->kind == ULYX_PART_SHARDED || input_unruly(in))
        part->order = input_choice(in, s->batch == 1 ? 2 : 1);
    if (input_take(in, 1) % 4 == 0 && part->order != ULYX_TOKENS_ZIGZAG_DOCS &&
        (part->kind == ULYX_PART_SHARDED || input_unruly(in)))
        part->splits = splits;
}

static void
take_tensor(struct input *in, struct uli_shape *s, int i)
{
    static const int64_t bytes[] = {3, 8, 4, 2, 2, 1, 1};
    struct uli_shape_tensor *t = &s->tensors[i];
    bool two = false;
    for (int32_t p = 0; p < s->nparts && p < ULI_MAX_PARTS; p++)
        two = two || s->parts[p].axis == 1;
    t->part = (int32_t)input_number(in, 0, s->nparts - 1);
    t->ownership = input_choice(in, 1);
    if (two && s->work_split && t->part >= 0 && t->part < s->nparts)
        t->ownership = s->parts[t->part].axis;
    t->dtype = input_choice(in, 6);
    t->elem_bytes = t->dtype >= 0 && t->dtype <= 6 ? bytes[t->dtype] : 1;
    if (input_unruly(in))
        t->partial_dtype = input_choice(in, 2);
    t->heads = s->heads;
    if (t->ownership == ULYX_HEADS_KV)
        t->heads = input_number(in, 1, 6);
    if (t->heads > 0 && s->heads % t->heads != 0 && !input_unruly(in))
        t->heads = 1;
    t->dim = input_number(in, 1, 6);
    if (input_unruly(in) || (t->part >= 0 && t->part < s->nparts &&
                                s->parts[t->part].kind == ULYX_PART_REPLICATED))
        t->flags = (uint64_t)input_choice(in, 3);
}

static void
take_limits(struct input *in, struct uli_shape *s)
{
    s->row_cost = input_number(in, 0, 200);
    s->row_round = input_number(in, 0, 20);
    s->max_rows = input_number(in, 0, 200);
    s->max_kv_rows = input_number(in, 0, 200);
    s->max_segments = input_number(in, 0, 20);
    s->max_local_rows = input_number(in, 0, 60);
}

static void
take_shape(struct input *in, struct uli_shape *s, int64_t splits[][MAX_RANKS])
{
    memset(s, 0, sizeof(*s));
    s->nranks = (int32_t)(input_take(in, 1) % (MAX_RANKS + 1));
    s->batch = input_take(in, 1) % 3 ? 1 : input_number(in, 0, 3);
    s->heads = input_number(in, 1, 12);
    s->work_split = input_choice(in, 1);
    /* BALANCED makes a table of segments for these */
    if (s->batch > 1000 || s->heads > 1000)
        s->work_split = ULYX_WORK_HEADS;
    s->nparts = 1 + (int32_t)(input_take(in, 1) % 4);
    for (int i = 0; i < s->nparts; i++)
        take_part(in, s, i, splits[i]);
    s->ntensors = 1 + (int32_t)(input_take(in, 1) % 4);
    for (int i = 0; i < s->ntensors; i++)
        take_tensor(in, s, i);
    s->mask_kind = input_choice(in, ULI_MASKS - 1);
    s->mask_align = input_choice(in, 1);
    s->mask_diagonal = input_number(in, -30, 30);
    s->mask_left = input_number(in, 0, 30);
    s->mask_right = input_number(in, 0, 30);
    if (input_take(in, 1) % 4 == 0)
        take_limits(in, s);
    s->max_docs = input_number(in, MAX_DOCS / 2, MAX_DOCS);
    if (s->max_docs > MAX_DOCS && s->max_docs < INT64_MAX / 64)
        s->max_docs = MAX_DOCS;
}

static const ulyx_docs_t *
take_docs(struct input *in, ulyx_docs_t *docs, int64_t *begin)
{
    ulyx_docs_t own = ULYX_DOCS_INIT;
    if (input_take(in, 1) % 2)
        return NULL;
    own.count = (int64_t)(input_take(in, 1) % (MAX_DOCS / 2 + 1));
    own.begin = begin;
    for (int64_t n = 0; n <= own.count; n++) /* sums may wrap around */
        begin[n] = (int64_t)((uint64_t)(n ? begin[n - 1] : 0) +
                             (uint64_t)input_number(in, 0, 5));
    *docs = own;
    return docs;
}

/* ---- what must hold ------------------------------------------------------ */

struct tally {
    int64_t volume, moves;
};

static bool
add_move(void *context, const struct uli_move *move)
{
    struct tally *tally = context;
    tally->volume += move->batches * move->rows * move->heads;
    tally->moves++;
    return true;
}

/* Returns the elements, not counting dim, that a direction writes at a
 * rank. */
static int64_t
layout_written(const struct uli_layout *layout, int32_t direction,
    int32_t tensor, int32_t rank)
{
    const struct uli_shape *s = uli_layout_shape(layout);
    const struct uli_shape_tensor *t = &s->tensors[tensor];
    int64_t first, heads, volume = 0, count;
    int64_t begin = uli_layout_first_row(layout, t->part);
    int64_t end = begin + s->parts[t->part].rows;
    if (direction == ULYX_HEAD_TO_SEQ || direction == ULYX_SEQ_TO_HEAD_ADJOINT)
        return s->batch * t->heads * uli_layout_seq_rows(layout, t->part, rank);
    uli_layout_heads(layout, tensor, rank, &first, &heads);
    if (!uli_layout_packed(layout))
        return s->batch * heads * (end - begin);
    const struct uli_run *run = uli_layout_runs(layout, tensor, rank, &count);
    for (int64_t i = 0; i < count; i++) {
        int64_t low = run[i].row_begin > begin ? run[i].row_begin : begin;
        int64_t high = run[i].row_end < end ? run[i].row_end : end;
        volume += high > low ? high - low : 0;
    }
    return volume;
}

static void
check_tensor(const struct uli_layout *layout, int32_t tensor)
{
    struct uli_place scratch[MAX_RANKS];
    int32_t nranks = uli_layout_shape(layout)->nranks;
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        for (int32_t r = 0; r < nranks; r++) {
            struct tally all = {0, 0}, one = {0, 0};
            REQUIRE(uli_layout_each_move(
                layout, op, tensor, r, -1, scratch, add_move, &all));
            REQUIRE(all.volume == layout_written(layout, op, tensor, r));
            REQUIRE(
                all.moves <= uli_layout_max_moves(layout, op, tensor, r, -1));
            REQUIRE(uli_layout_each_move(
                layout, op, tensor, r, 0, scratch, add_move, &one));
            REQUIRE(one.moves <= all.moves);
        }
}

static void
check_layout(const struct uli_layout *layout)
{
    const struct uli_shape *s = uli_layout_shape(layout);
    REQUIRE(uli_layout_scratch(layout) <= MAX_RANKS);
    for (int32_t p = 0; p < s->nparts; p++) {
        int64_t rows = 0;
        for (int32_t r = 0; r < s->nranks; r++) {
            rows += uli_layout_seq_rows(layout, p, r);
            REQUIRE(uli_layout_seq_rows(layout, p, r) <=
                    uli_layout_max_seq_rows(layout, p, r));
            if (s->parts[p].kind == ULYX_PART_REPLICATED)
                rows = s->parts[p].rows;
        }
        REQUIRE(rows == s->parts[p].rows);
    }
    for (int32_t t = 0; t < s->ntensors; t++)
        check_tensor(layout, t);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    int64_t splits[ULI_MAX_PARTS][MAX_RANKS], begin[2][MAX_DOCS + 1];
    ulyx_docs_t docs[2];
    memset(splits, 0, sizeof(splits));
    take_shape(&in, &shape, splits);
    const ulyx_docs_t *q = take_docs(&in, &docs[0], begin[0]);
    const ulyx_docs_t *k = take_docs(&in, &docs[1], begin[1]);
    if (q && k && input_take(&in, 1) % 8)
        docs[0].count = docs[1].count =
            docs[0].count < docs[1].count ? docs[0].count : docs[1].count;
    ulyx_status_t status = uli_layout_create(&shape, q, k, &layout);
    if (status != ULYX_SUCCESS) {
        REQUIRE(ulyx_last_error()[0] != '\0' && layout == NULL);
        return 0;
    }
    check_layout(layout);
    uint64_t hash = uli_layout_table_hash(layout);
    q = take_docs(&in, &docs[0], begin[0]);
    if (uli_layout_update(layout, q, NULL) != ULYX_SUCCESS)
        REQUIRE(uli_layout_table_hash(layout) == hash);
    check_layout(layout);
    uli_layout_destroy(layout);
    return 1;
}
