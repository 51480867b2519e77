/* SPDX-License-Identifier: Apache-2.0
 *
 * Document tables: all their forms, their hash, bad tables, and updates that
 * fail without any change.
 */
#include <stdlib.h>
#include <string.h>
#include "collectives/layout/layout_cases.h"
#include "support/test.h"

#define INVALID ULYX_ERR_INVALID_ARGUMENT

static void
make_docs_shape(struct uli_shape *s)
{
    shape_small(s);
    s->nranks = 3;
    s->parts[0].rows = 20;
    s->parts[0].order = ULYX_TOKENS_ZIGZAG_DOCS;
    s->work_split = ULYX_WORK_BALANCED;
    s->mask_kind = ULYX_MASK_CAUSAL;
    s->row_round = 2;
    s->max_docs = 4;
}

/* Returns a hash of all results of a table. */
static uint64_t
layout_fingerprint(const struct uli_layout *layout)
{
    uint64_t sum = uli_layout_table_hash(layout);
    const struct uli_shape *shape = uli_layout_shape(layout);
    for (int32_t r = 0; r < shape->nranks; r++) {
        int64_t count;
        sum = sum * 31 + (uint64_t)uli_layout_seq_rows(layout, 0, r);
        const struct uli_row_span *piece =
            uli_layout_row_spans(layout, 0, r, &count);
        for (int64_t i = 0; i < count; i++)
            sum =
                sum * 31 + (uint64_t)((piece[i].row * 64 + piece[i].rows) * 64 +
                                      piece[i].local);
        for (int32_t t = 0; t < shape->ntensors; t++) {
            const struct uli_run *run = uli_layout_runs(layout, t, r, &count);
            for (int64_t i = 0; i < count; i++)
                sum = sum * 31 +
                      (uint64_t)(run[i].head * 4096 + run[i].row_begin * 64 +
                                 run[i].row_end);
        }
    }
    return sum;
}

static void
all_forms_of_a_table_are_equal(void **state)
{
    (void)state;
    static const int64_t cumulative[] = {2, 7, 7, 20}, begin[] = {2, 7, 7};
    static const int64_t length[] = {5, 0, 13};
    static const int32_t cumulative32[] = {2, 7, 7, 20}, begin32[] = {2, 7, 7};
    static const int32_t length32[] = {5, 0, 13};
    const ulyx_docs_t forms[] = {
        {sizeof(ulyx_docs_t), 3, 8, cumulative, NULL},
        {sizeof(ulyx_docs_t), 3, 8, begin, length},
        {sizeof(ulyx_docs_t), 3, 4, cumulative32, NULL},
        {sizeof(ulyx_docs_t), 3, 4, begin32, length32},
    };
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    make_docs_shape(&shape);
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
    uint64_t none = layout_fingerprint(layout), first = 0;
    assert_true(uli_layout_has_tables(layout));
    assert_true(uli_layout_table_hash(layout) != 0);
    for (int i = 0; i < 4; i++) {
        assert_status(uli_layout_update(layout, &forms[i], NULL), ULYX_SUCCESS);
        first = i ? first : layout_fingerprint(layout);
        assert_true(layout_fingerprint(layout) == first);
    }
    assert_true(first != none);
    assert_status(uli_layout_update(layout, NULL, NULL), ULYX_SUCCESS);
    assert_true(layout_fingerprint(layout) == none);
    uli_layout_destroy(layout);
}

/* The begins, lengths, number and key documents of a table all change its
 * hash. */
static void
hash_depends_on_every_entry(void **state)
{
    (void)state;
    static const int64_t begin[][2] = {{0, 9}, {1, 9}, {0, 9}, {0, 9}};
    static const int64_t length[][2] = {{8, 5}, {8, 5}, {8, 6}, {8, 0}};
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    uint64_t hash[9];
    int n = 0;
    make_docs_shape(&shape);
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
    hash[n++] = uli_layout_table_hash(layout);
    for (int i = 0; i < 4; i++) {
        ulyx_docs_t q = {sizeof(q), 2, 8, begin[i], length[i]};
        ulyx_docs_t first = {sizeof(q), 2, 8, begin[0], length[0]};
        assert_status(uli_layout_update(layout, &q, NULL), ULYX_SUCCESS);
        hash[n++] = uli_layout_table_hash(layout);
        assert_status(uli_layout_update(layout, &first, &q), ULYX_SUCCESS);
        hash[n++] = uli_layout_table_hash(layout);
    }
    for (int i = 0; i < n; i++) /* i = 0 of the loop: docs_k is docs_q */
        for (int k = 0; k < i; k++)
            assert_int_equal(hash[i] == hash[k], i == 2 && k == 1);
    uli_layout_destroy(layout);
}

static const int64_t good_begin[] = {0, 5}, good_length[] = {5, 9};
static const int64_t long_length[] = {5, 90};
static const int64_t past_end[] = {0, 21}, backwards[] = {5, 0};
static const int64_t negative[] = {-1, 5}, overlap[] = {0, 4};
static const int64_t negative_length[] = {5, -1};
static const int64_t huge_length[] = {5, INT64_MAX};
static const int64_t many[] = {0, 1, 2, 3, 4, 5};

static const struct {
    ulyx_docs_t docs;
    const char *text;
} bad_tables[] = {
    {{sizeof(ulyx_docs_t), -1, 8, good_begin, good_length},
        "docs_q.count is -1"},
    {{sizeof(ulyx_docs_t), 5, 8, many, NULL}, "max_docs is 4, docs_q needs 5"},
    {{sizeof(ulyx_docs_t), 2, 2, good_begin, good_length},
        "docs_q.index_bytes is 2"},
    {{sizeof(ulyx_docs_t), 2, 8, NULL, good_length}, "docs_q.begin is NULL"},
    {{sizeof(ulyx_docs_t), 1, 8, past_end, NULL}, "ends after the last of 20"},
    {{sizeof(ulyx_docs_t), 1, 8, backwards, NULL}, "has length -5"},
    {{sizeof(ulyx_docs_t), 1, 8, negative, NULL}, "begins at -1"},
    {{sizeof(ulyx_docs_t), 2, 8, overlap, good_length},
        "document 1 begins at 4, before the end of the one before it, 5"},
    {{sizeof(ulyx_docs_t), 2, 8, good_begin, negative_length},
        "document 1 has length -1"},
    {{sizeof(ulyx_docs_t), 2, 8, good_begin, huge_length},
        "document 1 at 5 of length 9223372036854775807 ends after"},
};

static void
bad_table_changes_nothing(void **state)
{
    (void)state;
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    const ulyx_docs_t good = {
        sizeof(ulyx_docs_t), 2, 8, good_begin, good_length};
    const ulyx_docs_t one = {sizeof(ulyx_docs_t), 1, 8, good_begin, NULL};
    make_docs_shape(&shape);
    assert_status(
        uli_layout_create(&shape, &good, NULL, &layout), ULYX_SUCCESS);
    uint64_t before = layout_fingerprint(layout);
    for (size_t i = 0; i < sizeof(bad_tables) / sizeof(bad_tables[0]); i++) {
        struct uli_layout *other = NULL;
        assert_status(
            uli_layout_update(layout, &bad_tables[i].docs, NULL), INVALID);
        if (!strstr(ulyx_last_error(), bad_tables[i].text))
            fail_msg(
                "\"%s\" has no \"%s\"", ulyx_last_error(), bad_tables[i].text);
        assert_true(layout_fingerprint(layout) == before);
        assert_status(
            uli_layout_create(&shape, &bad_tables[i].docs, NULL, &other),
            INVALID);
        assert_null(other);
    }
    assert_status(uli_layout_update(layout, &good, &one), INVALID);
    assert_non_null(
        strstr(ulyx_last_error(), "docs_q has 2 documents, docs_k 1"));
    assert_true(layout_fingerprint(layout) == before);
    uli_layout_destroy(layout);
}

/* A document may not cross a batch item; two documents that touch at its end
 * are valid. */
static void
document_across_batch_items_is_refused(void **state)
{
    (void)state;
    static const int64_t across[] = {0, 9, 16}, within[] = {0, 8, 16};
    ulyx_docs_t docs = {sizeof(ulyx_docs_t), 2, 8, across, NULL};
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    shape_small(&shape);
    shape.nranks = 3;
    shape.batch = 2;
    shape.max_docs = 2;
    shape.work_split = ULYX_WORK_BALANCED;
    assert_status(uli_layout_create(&shape, &docs, NULL, &layout), INVALID);
    assert_non_null(strstr(ulyx_last_error(), "crosses a batch item of 8"));
    docs.begin = within;
    assert_status(
        uli_layout_create(&shape, &docs, NULL, &layout), ULYX_SUCCESS);
    uli_layout_destroy(layout);
}

/* Tables that exceed the sizes reserved at creation: the error names the value
 * needed, and nothing changes. */
static void
table_beyond_maxima_changes_nothing(void **state)
{
    (void)state;
    static const int64_t ends[] = {0, 1, 2, 3, 20};
    const ulyx_docs_t docs = {sizeof(ulyx_docs_t), 4, 8, ends, NULL};
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    make_docs_shape(&shape);
    shape.max_local_rows = 7;
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
    uint64_t before = layout_fingerprint(layout);
    assert_status(uli_layout_update(layout, &docs, NULL), INVALID);
    assert_non_null(strstr(ulyx_last_error(),
        "max_local_rows is 7, these documents need 8 in part 0"));
    assert_true(layout_fingerprint(layout) == before);
    uli_layout_destroy(layout);
    shape.max_local_rows = 8;
    assert_status(
        uli_layout_create(&shape, &docs, NULL, &layout), ULYX_SUCCESS);
    uli_layout_destroy(layout);
}

static void
update_without_tables_is_unsupported(void **state)
{
    (void)state;
    const ulyx_docs_t docs = {
        sizeof(ulyx_docs_t), 2, 8, good_begin, good_length};
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    shape_small(&shape);
    assert_status(
        uli_layout_create(&shape, &docs, NULL, &layout), ULYX_SUCCESS);
    assert_false(uli_layout_has_tables(layout));
    assert_true(uli_layout_table_hash(layout) == 0);
    assert_status(uli_layout_update(layout, &docs, NULL), ULYX_ERR_UNSUPPORTED);
    uli_layout_destroy(layout);
    shape.work_split = ULYX_WORK_BALANCED; /* equals HEADS: 4 heads, 2 ranks */
    shape.max_docs = 2;
    shape.parts[0].rows = 20;
    assert_status(
        uli_layout_create(&shape, &docs, NULL, &layout), ULYX_SUCCESS);
    assert_false(uli_layout_packed(layout));
    assert_status(uli_layout_update(layout, &docs, NULL), ULYX_SUCCESS);
    assert_true(uli_layout_table_hash(layout) == 0);
    /* A wrong table is refused even where no table is kept. */
    const ulyx_docs_t bad = {
        sizeof(ulyx_docs_t), 2, 8, good_begin, long_length};
    const ulyx_docs_t too_many = {
        sizeof(ulyx_docs_t), shape.max_docs + 1, 8, good_begin, good_length};
    assert_status(
        uli_layout_update(layout, &bad, NULL), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(
        uli_layout_update(layout, &too_many, NULL), ULYX_ERR_INVALID_ARGUMENT);
    uli_layout_destroy(layout);
    shape.max_docs = 0;
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
    assert_status(uli_layout_update(layout, &docs, NULL), ULYX_ERR_UNSUPPORTED);
    uli_layout_destroy(layout);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(all_forms_of_a_table_are_equal),
    cmocka_unit_test(hash_depends_on_every_entry),
    cmocka_unit_test(bad_table_changes_nothing),
    cmocka_unit_test(document_across_batch_items_is_refused),
    cmocka_unit_test(table_beyond_maxima_changes_nothing),
    cmocka_unit_test(update_without_tables_is_unsupported),
};

ULI_TEST_MAIN("LayoutDocs", tests)
