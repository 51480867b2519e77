/* SPDX-License-Identifier: Apache-2.0
 *
 * See layout_oracle.h. Everything is a loop over single rows and heads.
 */
#include "collectives/layout/layout_oracle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef __int128 wide;

static int64_t *
array_filled(int64_t count, int64_t value)
{
    int64_t *array = malloc((size_t)(count + 1) * sizeof(*array));
    assert(array);
    for (int64_t i = 0; i <= count; i++)
        array[i] = value;
    return array;
}

/* ---- documents ----------------------------------------------------------- */

static int64_t
docs_count(const struct oracle *o, int axis)
{
    return o->c->docs[axis].none ? o->batch : o->c->docs[axis].count;
}

static int64_t
docs_begin(const struct oracle *o, int axis, int64_t n)
{
    int real = o->naxes == 2 ? axis : 0;
    return o->c->docs[axis].none ? n * o->rows[real]
                                 : o->c->docs[axis].begin[n];
}

static int64_t
docs_length(const struct oracle *o, int axis, int64_t n)
{
    int real = o->naxes == 2 ? axis : 0;
    return o->c->docs[axis].none ? o->rows[real] : o->c->docs[axis].length[n];
}

/* Returns the document of a flattened row, or -1. */
static int64_t
docs_find(const struct oracle *o, int axis, int64_t flat)
{
    for (int64_t n = 0; n < docs_count(o, axis); n++)
        if (flat >= docs_begin(o, axis, n) &&
            flat < docs_begin(o, axis, n) + docs_length(o, axis, n))
            return n;
    return -1;
}

/* ---- sequence side ------------------------------------------------------- */

/* Gives rows [begin, end) of a part, cut into chunks of the given sizes, to the
 * ranks that own the chunks. Local rows continue after the existing ones. */
static void
oracle_deal(struct oracle *o, int32_t part, int64_t begin, int64_t nchunks,
    const int64_t *sizes, int32_t rank)
{
    int64_t row = begin, rows = o->c->shape.parts[part].rows;
    for (int64_t c = 0; c < nchunks; c++) {
        int64_t owner = c < o->nranks ? c : 2 * o->nranks - 1 - c;
        for (int64_t i = 0; i < sizes[c]; i++, row++)
            if (owner == rank)
                o->local[part][rank * rows + row] = o->seq_rows[part][rank]++;
    }
}

static void
even_sizes(int64_t rows, int64_t nchunks, int64_t *sizes)
{
    for (int64_t c = 0; c < nchunks; c++)
        sizes[c] = 0;
    for (int64_t i = 0; i < rows; i++)
        sizes[i % nchunks]++;
}

/* Gives one document or gap, [begin, end) of the part, to the ranks in zigzag
 * order. */
static void
deal_span(
    struct oracle *o, int32_t part, int64_t begin, int64_t end, int32_t rank)
{
    int64_t sizes[2 * ORACLE_MAX_RANKS];
    even_sizes(end - begin, 2 * o->nranks, sizes);
    oracle_deal(o, part, begin, 2 * o->nranks, sizes, rank);
}

/* Rows with the same document (or the same gap) form a span. */
static void
deal_docs(struct oracle *o, int32_t part, int32_t rank)
{
    const struct uli_shape_part *p = &o->c->shape.parts[part];
    int axis = p->axis;
    if (axis == 1 && o->naxes == 1)
        axis = 0;
    int64_t begin = 0;
    for (int64_t row = 1; row <= p->rows; row++) {
        if (row < p->rows &&
            docs_find(o, axis, o->first_row[part] + row) ==
                docs_find(o, axis, o->first_row[part] + row - 1))
            continue;
        deal_span(o, part, begin, row, rank);
        begin = row;
    }
}

static void
fixed_sizes(const struct oracle *o, int32_t part, int64_t *sizes)
{
    const struct uli_shape_part *p = &o->c->shape.parts[part];
    int64_t nchunks =
        p->order == ULYX_TOKENS_ZIGZAG ? 2 * o->nranks : o->nranks;
    even_sizes(p->rows, nchunks, sizes);
    for (int32_t r = 0; p->splits && r < o->nranks; r++) {
        int64_t front = (p->splits[r] + 1) / 2;
        if (p->order != ULYX_TOKENS_ZIGZAG)
            front = p->splits[r];
        else
            sizes[2 * o->nranks - 1 - r] = p->splits[r] - front;
        sizes[r] = front;
    }
}

static void
init_part(struct oracle *o, int32_t part)
{
    const struct uli_shape_part *p = &o->c->shape.parts[part];
    int64_t sizes[2 * ORACLE_MAX_RANKS];
    o->local[part] = array_filled(o->nranks * p->rows, -1);
    for (int32_t r = 0; r < o->nranks; r++) {
        if (p->kind == ULYX_PART_REPLICATED) {
            for (int64_t row = 0; row < p->rows; row++)
                o->local[part][r * p->rows + row] = row;
            o->seq_rows[part][r] = p->rows;
        } else if (p->order == ULYX_TOKENS_ZIGZAG_DOCS) {
            deal_docs(o, part, r);
        } else {
            bool zigzag = p->order == ULYX_TOKENS_ZIGZAG;
            fixed_sizes(o, part, sizes);
            oracle_deal(
                o, part, 0, zigzag ? 2 * o->nranks : o->nranks, sizes, r);
        }
    }
}

/* ---- masks --------------------------------------------------------------- */

static int64_t
wide_saturated(wide value)
{
    if (value > INT64_MAX)
        return INT64_MAX;
    return value < INT64_MIN ? INT64_MIN : (int64_t)value;
}

static bool
shape_sees(const struct uli_shape *shape, int64_t i, int64_t j, int64_t q_len,
    int64_t k_len)
{
    int64_t off =
        shape->mask_align == ULYX_ALIGN_BOTTOM_RIGHT ? k_len - q_len : 0;
    off = wide_saturated((wide)off + shape->mask_diagonal);
    wide at = (wide)i + off;
    if (shape->mask_kind == ULYX_MASK_NONE)
        return true;
    if (shape->mask_kind == ULYX_MASK_CAUSAL)
        return j <= at;
    if (shape->mask_left != ULYX_UNBOUNDED && j < at - shape->mask_left)
        return false;
    return shape->mask_right == ULYX_UNBOUNDED || j <= at + shape->mask_right;
}

void
oracle_visible(const struct uli_shape *shape, int64_t i, int64_t q_len,
    int64_t k_len, int64_t *first_p, int64_t *end_p)
{
    *first_p = *end_p = 0;
    for (int64_t j = 0; j < k_len; j++)
        if (shape_sees(shape, i, j, q_len, k_len)) {
            if (*end_p == 0)
                *first_p = j;
            *end_p = j + 1;
        }
}

int64_t
oracle_row_cost(
    const struct oracle *o, int64_t row_cost, int64_t batch, int64_t row)
{
    int64_t n = docs_find(o, 0, batch * o->rows[0] + row), keys = 0;
    if (n < 0)
        return row_cost;
    int64_t q_len = docs_length(o, 0, n), k_len = docs_length(o, 1, n);
    int64_t i = batch * o->rows[0] + row - docs_begin(o, 0, n);
    for (int64_t tile = 0; tile * 128 < k_len; tile++) {
        int64_t end = (tile + 1) * 128 < k_len ? (tile + 1) * 128 : k_len;
        for (int64_t j = tile * 128; j < end; j++)
            if (shape_sees(&o->c->shape, i, j, q_len, k_len)) {
                keys += end - tile * 128;
                break;
            }
    }
    return row_cost + keys;
}

/* ---- head side ----------------------------------------------------------- */

static void
init_heads(struct oracle *o, int32_t tensor)
{
    const struct uli_shape *shape = &o->c->shape;
    const struct uli_shape_tensor *t = &shape->tensors[tensor];
    int64_t rows = o->rows[shape->parts[t->part].axis], query = 0;
    for (int32_t r = 0; r < o->nranks; r++) {
        int64_t mine = shape->head_splits
                           ? shape->head_splits[r]
                           : o->heads / o->nranks + (r < o->heads % o->nranks);
        int64_t last = -1, next = 0;
        for (int64_t i = query; i < query + mine; i++) {
            int64_t head = i * t->heads / o->heads;
            if (head == last)
                continue;
            last = head;
            for (int64_t x = 0; x < o->batch * rows; x++)
                o->place[tensor][(r * t->heads + head) * o->batch * rows + x] =
                    next;
            next++;
        }
        query += mine;
    }
}

/* Marks the keys that (query head, batch, row) reads. */
static void
mark_keys(
    struct oracle *o, int32_t tensor, int32_t rank, int64_t query, int64_t flat)
{
    const struct uli_shape_tensor *t = &o->c->shape.tensors[tensor];
    int64_t n = docs_find(o, 0, flat), first, end;
    if (n < 0)
        return;
    int64_t head = query * t->heads / o->heads;
    int64_t total = o->batch * o->rows[oracle_key_axis(o)];
    oracle_visible(&o->c->shape, flat - docs_begin(o, 0, n),
        docs_length(o, 0, n), docs_length(o, 1, n), &first, &end);
    for (int64_t j = first; j < end; j++)
        o->place[tensor][(rank * t->heads + head) * total +
                         docs_begin(o, 1, n) + j] = 0;
}

static void
init_packed(struct oracle *o, int32_t tensor, const int64_t *cuts)
{
    const struct uli_shape_tensor *t = &o->c->shape.tensors[tensor];
    int64_t per_head = o->batch * o->rows[0];
    int axis = o->c->shape.parts[t->part].axis;
    int64_t entries = t->heads * o->batch * o->rows[axis];
    for (int32_t r = 0; r < o->nranks; r++) {
        for (int64_t x = cuts[r]; x < cuts[r + 1]; x++) {
            if (t->ownership == ULYX_HEADS_KV)
                mark_keys(o, tensor, r, x / per_head, x % per_head);
            else
                o->place[tensor][r * entries + x] = 0;
        }
        for (int64_t x = 0; x < entries; x++)
            if (o->place[tensor][r * entries + x] == 0)
                o->place[tensor][r * entries + x] = o->packed_rows[tensor][r]++;
    }
}

void
oracle_init(struct oracle *o, const struct oracle_case *c, const int64_t *cuts)
{
    memset(o, 0, sizeof(*o));
    o->c = c;
    o->nranks = c->shape.nranks;
    o->batch = c->shape.batch;
    o->heads = c->shape.heads;
    o->naxes = 1;
    for (int32_t i = 0; i < c->shape.nparts; i++) {
        int axis = c->shape.parts[i].axis;
        o->first_row[i] = o->rows[axis];
        o->rows[axis] += c->shape.parts[i].rows;
        if (axis == 1)
            o->naxes = 2;
    }
    for (int32_t i = 0; i < c->shape.nparts; i++)
        init_part(o, i);
    for (int32_t i = 0; i < c->shape.ntensors; i++) {
        const struct uli_shape_tensor *t = &c->shape.tensors[i];
        int axis = c->shape.parts[t->part].axis;
        o->place[i] =
            array_filled(o->nranks * t->heads * o->batch * o->rows[axis], -1);
        if (cuts)
            init_packed(o, i, cuts);
        else
            init_heads(o, i);
    }
}

void
oracle_free(struct oracle *o)
{
    for (int32_t i = 0; i < o->c->shape.nparts; i++)
        free(o->local[i]);
    for (int32_t i = 0; i < o->c->shape.ntensors; i++)
        free(o->place[i]);
}
