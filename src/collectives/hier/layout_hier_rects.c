/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a node read copies. This file cuts each copy into rectangles, so
 * that all bytes of a rectangle have the same readers: first at all boundaries
 * of heads within one tensor of one source, then at all boundaries of rows
 * within the same heads. A whole-heads layout is cut by heads only (all ranks
 * read the same runs of rows), a packed one by rows only (its rectangles have
 * one head). Sums are only sorted, not cut.
 */
#include "collectives/hier/layout_hier_rects.h"

#include <stdlib.h>
#include <string.h>

void
uli_hier_rects_free(struct uli_hier_rects *rects)
{
    free(rects->at);
    free(rects->pool);
}

/* Makes room for `more` elements; the capacity doubles. */
static bool
array_grow(void *array_p, int64_t count, int64_t more, int64_t *capacity_p,
    size_t bytes)
{
    void *array;
    memcpy(&array, array_p, sizeof(array));
    if (count + more <= *capacity_p)
        return true;
    int64_t capacity = (count + more) * 2 + 16;
    array = realloc(array, (size_t)capacity * bytes);
    if (!array)
        return false;
    memcpy(array_p, &array, sizeof(array));
    *capacity_p = capacity;
    return true;
}

static void
rects_append(struct uli_hier_rects *rects, const struct uli_hier_rect *rect)
{
    struct uli_hier_rect held = *rect; /* rect may lie in the array */
    if (!array_grow(&rects->at, rects->count, 1, &rects->capacity,
            sizeof(*rects->at))) {
        rects->failed = true;
        return;
    }
    rects->at[rects->count++] = held;
}

void
uli_hier_rects_add(struct uli_hier_rects *rects, struct uli_hier_rect rect,
    const struct uli_place *givers)
{
    if (!array_grow(&rects->pool, rects->npool, rect.ngivers,
            &rects->pool_capacity, sizeof(*rects->pool))) {
        rects->failed = true;
        return;
    }
    rect.givers = rects->npool;
    memcpy(rects->pool + rects->npool, givers,
        (size_t)rect.ngivers * sizeof(*givers));
    rects->npool += rect.ngivers;
    rects_append(rects, &rect);
}

/* ---- order --------------------------------------------------------------- */

static int
by_number(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* Copies first, by tensor and source; then sums, by tensor and the rank of
 * `key`. */
static int
by_source(const struct uli_hier_rect *a, const struct uli_hier_rect *b)
{
    int order = by_number(a->sum, b->sum);
    order = order ? order : by_number(a->tensor, b->tensor);
    return order ? order : by_number(a->key.rank, b->key.rank);
}

static int
by_heads(const struct uli_hier_rect *a, const struct uli_hier_rect *b)
{
    int order = by_source(a, b);
    order = order ? order : by_number(a->key.batch, b->key.batch);
    order = order ? order : by_number(a->batches, b->batches);
    order = order ? order : by_number(a->key.head, b->key.head);
    return order ? order : by_number(a->heads, b->heads);
}

static int
by_bytes(const struct uli_hier_rect *a, const struct uli_hier_rect *b)
{
    int order = by_heads(a, b);
    order = order ? order : by_number(a->key.row, b->key.row);
    order = order ? order : by_number(a->rows, b->rows);
    return order ? order : by_number(a->dst.rank, b->dst.rank);
}

static int
rects_compare(const void *a, const void *b)
{
    return by_bytes(a, b);
}

static void
rects_sort(struct uli_hier_rects *rects)
{
    if (rects->count > 1)
        qsort(
            rects->at, (size_t)rects->count, sizeof(*rects->at), rects_compare);
}

bool
uli_hier_rects_same(const struct uli_hier_rects *rects,
    const struct uli_hier_rect *a, const struct uli_hier_rect *b)
{
    if (by_heads(a, b) || a->key.row != b->key.row || a->rows != b->rows ||
        a->ngivers != b->ngivers)
        return false;
    for (int32_t i = 0; a->sum && i < a->ngivers; i++) {
        const struct uli_place *p = &rects->pool[a->givers + i];
        const struct uli_place *q = &rects->pool[b->givers + i];
        if (p->rank != q->rank || p->batch != q->batch || p->row != q->row ||
            p->head != q->head)
            return false;
    }
    return true;
}

/* ---- cutting ------------------------------------------------------------- */

static int
compare_marks(const void *a, const void *b)
{
    return by_number(*(const int64_t *)a, *(const int64_t *)b);
}

static int64_t
begin_of(const struct uli_hier_rect *rect, bool heads)
{
    return heads ? rect->key.head : rect->key.row;
}

static int64_t
end_of(const struct uli_hier_rect *rect, bool heads)
{
    return begin_of(rect, heads) + (heads ? rect->heads : rect->rows);
}

/* Cuts off the part of at[index] that begins at `mark`, as a new last
 * rectangle; returns its index. For copies only, whose one giver is the place
 * `key`. */
static int64_t
cut_at(struct uli_hier_rects *rects, int64_t index, int64_t mark, bool heads)
{
    struct uli_hier_rect *rect = &rects->at[index], tail = *rect;
    struct uli_place giver = rects->pool[rect->givers];
    int64_t kept = mark - begin_of(rect, heads);
    if (heads) {
        rect->heads = kept;
        tail.heads -= kept;
        tail.key.head += kept;
        tail.dst.head += kept;
        giver.head += kept;
    } else {
        rect->rows = kept;
        tail.rows -= kept;
        tail.key.row += kept;
        tail.dst.row += kept;
        giver.row += kept;
    }
    uli_hier_rects_add(rects, tail, &giver);
    return rects->count - 1;
}

static void
cut_group(struct uli_hier_rects *rects, int64_t begin, int64_t end, bool heads,
    int64_t *marks)
{
    int64_t nmarks = 0;
    for (int64_t i = begin; i < end; i++) {
        marks[nmarks++] = begin_of(&rects->at[i], heads);
        marks[nmarks++] = end_of(&rects->at[i], heads);
    }
    qsort(marks, (size_t)nmarks, sizeof(*marks), compare_marks);
    for (int64_t i = begin; i < end && !rects->failed; i++) {
        int64_t index = i, low = 0, high = nmarks;
        while (low < high) { /* first mark inside */
            int64_t middle = (low + high) / 2;
            if (marks[middle] <= begin_of(&rects->at[i], heads))
                low = middle + 1;
            else
                high = middle;
        }
        for (; low < nmarks && marks[low] < end_of(&rects->at[index], heads) &&
               !rects->failed;
             low++)
            if (marks[low] > begin_of(&rects->at[index], heads))
                index = cut_at(rects, index, marks[low], heads);
    }
}

static void
rects_cut(struct uli_hier_rects *rects, bool heads)
{
    int64_t count = rects->count, begin = 0;
    int64_t *marks = malloc(((size_t)count * 2 + 1) * sizeof(*marks));
    if (!marks) {
        rects->failed = true;
        return;
    }
    for (int64_t i = 1; i <= count; i++) {
        const struct uli_hier_rect *first = &rects->at[begin];
        if (i < count && !(heads ? by_source : by_heads)(first, &rects->at[i]))
            continue;
        if (!first->sum && i - begin > 1)
            cut_group(rects, begin, i, heads, marks);
        begin = i;
    }
    free(marks);
    rects_sort(rects);
}

void
uli_hier_rects_cut(struct uli_hier_rects *rects)
{
    rects_sort(rects);
    for (int heads = 1; heads >= 0 && !rects->failed; heads--)
        rects_cut(rects, heads);
}
