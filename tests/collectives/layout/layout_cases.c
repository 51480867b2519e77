/* SPDX-License-Identifier: Apache-2.0
 *
 * See layout_cases.h. Sizes are small enough for the oracle and large enough
 * that every pair of boundaries meets.
 */
#include "collectives/layout/layout_cases.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/mask.h"

static bool
random_chance(struct test_random *random, int percent)
{
    return test_random_in(random, 0, 99) < percent;
}

/* Draws non-negative numbers, some of them 0, that add up to total. */
static void
random_splits(
    struct test_random *random, int64_t *splits, int32_t n, int64_t total)
{
    memset(splits, 0, (size_t)n * sizeof(*splits));
    while (total > 0) {
        int64_t take = test_random_in(random, 1, total);
        splits[test_random_in(random, 0, n - 1)] += take;
        total -= take;
    }
}

static void
random_part(struct oracle_case *c, int32_t i, struct test_random *random)
{
    struct uli_shape *shape = &c->shape;
    struct uli_shape_part *part = &shape->parts[i];
    part->rows = random_chance(random, 8) ? 0 : test_random_in(random, 1, 37);
    if (random_chance(random, 20)) {
        part->kind = ULYX_PART_REPLICATED;
        return;
    }
    part->order = (int32_t)test_random_in(random, 0, shape->batch == 1 ? 2 : 1);
    if (part->order != ULYX_TOKENS_ZIGZAG_DOCS && random_chance(random, 30)) {
        random_splits(random, c->splits[i], shape->nranks, part->rows);
        part->splits = c->splits[i];
    }
}

/* The parts of axis 0 come first, or are mixed with those of axis 1. */
static void
random_parts(struct oracle_case *c, struct test_random *random)
{
    struct uli_shape *shape = &c->shape;
    bool two = random_chance(random, 35);
    int32_t of_axis[2] = {0, 0};
    shape->nparts = (int32_t)test_random_in(random, two ? 2 : 1, two ? 4 : 3);
    for (int32_t i = 0; i < shape->nparts; i++) {
        int32_t axis = two ? (int32_t)test_random_in(random, 0, 1) : 0;
        if (two && i == shape->nparts - 1 && of_axis[0] == 0)
            axis = 0;
        if (two && i == shape->nparts - 1 && of_axis[1] == 0)
            axis = 1;
        shape->parts[i].axis = axis;
        of_axis[axis]++;
        random_part(c, i, random);
    }
}

static int64_t
random_divisor(struct test_random *random, int64_t n)
{
    int64_t d;
    do
        d = test_random_in(random, 1, n);
    while (n % d != 0);
    return d;
}

static int32_t
part_on_axis(
    const struct uli_shape *shape, struct test_random *random, int axis)
{
    int32_t i;
    do
        i = (int32_t)test_random_in(random, 0, shape->nparts - 1);
    while (shape->parts[i].axis != axis);
    return i;
}

static void
random_dtype(struct uli_shape_tensor *t, struct test_random *random)
{
    static const struct {
        int32_t dtype;
        int64_t bytes;
    } kinds[] = {{ULYX_DTYPE_BF16, 2}, {ULYX_DTYPE_F16, 2}, {ULYX_DTYPE_F32, 4},
        {ULYX_DTYPE_F64, 8}, {ULYX_DTYPE_F8_E4M3, 1}, {ULYX_DTYPE_BYTES, 12}};
    int64_t pick = test_random_in(random, 0, 5);
    t->dtype = kinds[pick].dtype;
    t->elem_bytes = kinds[pick].bytes;
    if (pick < 4 && random_chance(random, 25))
        t->partial_dtype =
            random_chance(random, 50) ? ULYX_DTYPE_F32 : ULYX_DTYPE_F64;
}

static void
random_tensors(struct oracle_case *c, struct test_random *random, bool balanced)
{
    struct uli_shape *shape = &c->shape;
    bool two = false;
    for (int32_t i = 0; i < shape->nparts; i++)
        two = two || shape->parts[i].axis == 1;
    shape->ntensors = (int32_t)test_random_in(random, 1, 3);
    for (int32_t i = 0; i < shape->ntensors; i++) {
        struct uli_shape_tensor *t = &shape->tensors[i];
        t->ownership =
            random_chance(random, 60) ? ULYX_HEADS_KV : ULYX_HEADS_QUERY;
        if (balanced && i == 0)
            t->ownership = ULYX_HEADS_QUERY;
        t->heads = t->ownership == ULYX_HEADS_QUERY
                       ? shape->heads
                       : random_divisor(random, shape->heads);
        t->part = (int32_t)test_random_in(random, 0, shape->nparts - 1);
        if (balanced)
            t->part = part_on_axis(
                shape, random, two && t->ownership == ULYX_HEADS_KV);
        t->dim = test_random_in(random, 1, 8);
        random_dtype(t, random);
        if (shape->parts[t->part].kind == ULYX_PART_REPLICATED) {
            t->flags |= random_chance(random, 40) ? ULYX_TENSOR_FULL : 0;
            t->flags |= random_chance(random, 40) ? ULYX_TENSOR_GRAD_EQUAL : 0;
        }
    }
}

static void
random_mask(struct uli_shape *shape, struct test_random *random)
{
    shape->mask_kind = (int32_t)test_random_in(random, 0, ULI_MASKS - 1);
    shape->mask_align = (int32_t)test_random_in(random, 0, 1);
    if (random_chance(random, 40))
        shape->mask_diagonal = test_random_in(random, -40, 40);
    if (random_chance(random, 4))
        shape->mask_diagonal =
            random_chance(random, 50) ? INT64_MAX : INT64_MIN;
    shape->mask_left = random_chance(random, 25)
                           ? ULYX_UNBOUNDED
                           : test_random_in(random, 0, 12);
    shape->mask_right = random_chance(random, 25)
                            ? ULYX_UNBOUNDED
                            : test_random_in(random, 0, 12);
    if (random_chance(random, 3))
        shape->mask_left = INT64_MAX - test_random_in(random, 1, 60);
}

static int64_t
axis_rows(const struct uli_shape *shape, int axis)
{
    int64_t rows = 0, any = 0;
    for (int32_t i = 0; i < shape->nparts; i++) {
        any += shape->parts[i].axis == axis;
        rows += shape->parts[i].axis == axis ? shape->parts[i].rows : 0;
    }
    return any ? rows : axis_rows(shape, 0);
}

/* Draws documents within batch items, with gaps and empty documents. */
static void
fill_docs(struct oracle_docs *docs, struct test_random *random, int64_t batch,
    int64_t rows, int64_t count)
{
    int64_t at = 0, total = batch * rows;
    docs->none = false;
    docs->count = count;
    for (int64_t n = 0; n < count; n++) {
        int64_t gap =
            random_chance(random, 30) ? test_random_in(random, 0, 5) : 0;
        at = at + gap < total ? at + gap : total;
        int64_t left = rows > 0 ? rows - at % rows : 0;
        if (at == total)
            left = 0;
        int64_t most = random_chance(random, 30) ? left : (left < 9 ? left : 9);
        docs->begin[n] = at;
        docs->length[n] =
            random_chance(random, 10) ? 0 : test_random_in(random, 0, most);
        at += docs->length[n];
    }
}

void
case_random_docs(struct oracle_case *c, struct test_random *random)
{
    struct uli_shape *shape = &c->shape;
    int64_t count = test_random_in(random, 0, shape->max_docs);
    bool two = axis_rows(shape, 1) != axis_rows(shape, 0);
    for (int32_t i = 0; i < shape->nparts; i++)
        two = two || shape->parts[i].axis == 1;
    for (int axis = 0; axis < 2; axis++) {
        c->docs[axis].none = true;
        c->docs[axis].count = 0;
        if (shape->max_docs > 0)
            fill_docs(&c->docs[axis], random, shape->batch,
                axis_rows(shape, axis), count);
    }
    if (!two)
        c->docs[1] = c->docs[0];
}

void
case_random(struct oracle_case *c, struct test_random *random,
    int32_t max_ranks, bool balanced)
{
    struct uli_shape *shape = &c->shape;
    memset(c, 0, sizeof(*c));
    shape->nranks = (int32_t)test_random_in(random, 1, max_ranks);
    shape->batch = random_chance(random, 60) ? 1 : test_random_in(random, 0, 3);
    shape->heads = test_random_in(random, 1, 12);
    random_parts(c, random);
    random_tensors(c, random, balanced);
    random_mask(shape, random);
    if (balanced) {
        shape->work_split = ULYX_WORK_BALANCED;
        shape->row_round =
            random_chance(random, 20) ? 0 : test_random_in(random, 1, 9);
        shape->row_cost =
            random_chance(random, 20) ? 0 : test_random_in(random, 1, 9);
    } else if (random_chance(random, 35)) {
        random_splits(random, c->head_splits, shape->nranks, shape->heads);
        shape->head_splits = c->head_splits;
    }
    if (random_chance(random, 70))
        shape->max_docs = test_random_in(random, 1, 9);
    case_random_docs(c, random);
}

void
case_random_capacities(struct oracle_case *c, struct test_random *random)
{
    int64_t sure = test_random_in(random, 0, c->shape.nparts - 1);
    for (int32_t i = 0; i < c->shape.nparts; i++) {
        struct uli_shape_part *part = &c->shape.parts[i];
        if (i == sure || random_chance(random, 50))
            part->row_capacity =
                part->rows + test_random_in(random, part->rows == 0, 30);
    }
}

void
case_random_rows(
    struct oracle_case *c, struct test_random *random, struct case_rows *rows_p)
{
    rows_p->has_splits = false;
    for (int32_t i = 0; i < c->shape.nparts; i++) {
        struct uli_shape_part *part = &c->shape.parts[i];
        if (part->row_capacity)
            part->rows = random_chance(random, 25)
                             ? part->row_capacity
                             : test_random_in(random, 0, part->row_capacity);
        rows_p->rows[i] = part->rows;
        rows_p->splits[i] = NULL;
        if (!part->row_capacity || !part->splits)
            continue;
        random_splits(random, c->splits[i], c->shape.nranks, part->rows);
        rows_p->splits[i] = c->splits[i];
        rows_p->has_splits = true;
    }
    case_random_docs(c, random);
}

const ulyx_docs_t *
case_docs(const struct oracle_case *c, int axis, ulyx_docs_t *storage)
{
    const struct oracle_docs *docs = &c->docs[axis];
    ulyx_docs_t own = ULYX_DOCS_INIT;
    if (docs->none)
        return NULL;
    own.count = docs->count;
    own.begin = docs->begin;
    own.length = docs->length;
    *storage = own;
    return storage;
}

ulyx_status_t
case_create(const struct oracle_case *c, struct uli_layout **layout_p)
{
    ulyx_docs_t q, k;
    return uli_layout_create(
        &c->shape, case_docs(c, 0, &q), case_docs(c, 1, &k), layout_p);
}

const int64_t *
case_cuts(const struct oracle_case *c, const struct uli_layout *layout,
    int64_t cuts[ORACLE_MAX_RANKS + 1])
{
    if (!uli_layout_packed(layout))
        return NULL;
    cuts[0] = 0;
    for (int32_t r = 0; r < c->shape.nranks; r++)
        cuts[r + 1] = cuts[r] + uli_layout_packed_rows(layout, 0, r);
    return cuts;
}

void
case_print(const struct oracle_case *c)
{
    const struct uli_shape *s = &c->shape;
    printf("P=%d b=%" PRId64 " h=%" PRId64 " work=%d mask=%d/%d diag=%" PRId64
           " left=%" PRId64 " right=%" PRId64 " round=%" PRId64 "\n",
        s->nranks, s->batch, s->heads, s->work_split, s->mask_kind,
        s->mask_align, s->mask_diagonal, s->mask_left, s->mask_right,
        s->row_round);
    for (int32_t i = 0; i < s->nparts; i++)
        printf("  part %d: axis %d kind %d order %d rows %" PRId64 "%s\n", i,
            s->parts[i].axis, s->parts[i].kind, s->parts[i].order,
            s->parts[i].rows, s->parts[i].splits ? " splits" : "");
    for (int32_t i = 0; i < s->ntensors; i++)
        printf("  tensor %d: part %d heads %" PRId64 " own %d dtype %d/%d\n", i,
            s->tensors[i].part, s->tensors[i].heads, s->tensors[i].ownership,
            s->tensors[i].dtype, s->tensors[i].partial_dtype);
    for (int axis = 0; axis < 2; axis++) {
        printf("  docs %d:", axis);
        for (int64_t n = 0; n < c->docs[axis].count; n++)
            printf(" %" PRId64 "+%" PRId64, c->docs[axis].begin[n],
                c->docs[axis].length[n]);
        printf("%s\n", c->docs[axis].none ? " none" : "");
    }
}

void
shape_small(struct uli_shape *s)
{
    memset(s, 0, sizeof(*s));
    s->nranks = 2;
    s->batch = 1;
    s->heads = 4;
    s->nparts = 1;
    s->parts[0].rows = 8;
    s->ntensors = 2;
    for (int i = 0; i < 2; i++) {
        s->tensors[i].dtype = ULYX_DTYPE_BF16;
        s->tensors[i].elem_bytes = 2;
        s->tensors[i].dim = 8;
        s->tensors[i].heads = i ? 2 : 4;
        s->tensors[i].ownership = i ? ULYX_HEADS_KV : ULYX_HEADS_QUERY;
    }
}
