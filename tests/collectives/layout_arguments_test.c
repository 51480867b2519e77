/* SPDX-License-Identifier: Apache-2.0
 *
 * Bad arguments, one field at a time; document tables in all their forms; and
 * updates that fail without changing anything.
 */
#include <stdlib.h>
#include <string.h>
#include "collectives/layout_cases.h"
#include "support/test.h"

static const int64_t splits_short[2] = {3, 4};
static const int64_t splits_negative[2] = {-1, 9};
static const int64_t splits_huge[2] = {INT64_MAX, INT64_MAX};

/* 2 ranks, 8 rows, 4 heads of which 2 KV, one part. */
static void
make_shape(struct uli_shape *s)
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
        s->tensors[i].ownership = i ? ULYX_READERS : ULYX_SPLIT;
    }
}

#define INVALID    ULYX_ERR_INVALID_ARGUMENT
#define BIG        (INT64_C(1) << 62)
#define REPLICATED ULYX_PART_REPLICATED
#define DOCS_ORDER ULYX_ORDER_ZIGZAG_DOCS
#define KEYS_AXIS(s)                                                           \
    ((s)->nparts = 2, (s)->parts[1].axis = 1, (s)->work_split = 1,             \
        (s)->heads = 3, (s)->tensors[0].heads = 3, (s)->tensors[1].heads = 3)

/* X(name, status, text that the error must have, what is wrong) */
#define BAD_MAP(X)                                                             \
    X(nranks, INVALID, "nranks is 0", s->nranks = 0)                           \
    X(batch, INVALID, "batch is -1", s->batch = -1)                            \
    X(heads, INVALID, "heads is 0", s->heads = 0)                              \
    X(nparts_none, INVALID, "nparts is 0", s->nparts = 0)                      \
    X(nparts_many, INVALID, "nparts is 9", s->nparts = 9)                      \
    X(axis, INVALID, "parts[0].axis is 2", s->parts[0].axis = 2)               \
    X(axis_0_missing, INVALID, "no part has axis 0", s->parts[0].axis = 1)     \
    X(axis_full, INVALID, "axis 0 has 5 parts", s->nparts = 5)                 \
    X(kind, INVALID, "parts[0].kind is 2", s->parts[0].kind = 2)               \
    X(order_low, INVALID, "parts[0].order is -1", s->parts[0].order = -1)      \
    X(order_high, INVALID, "parts[0].order is 3", s->parts[0].order = 3)       \
    X(rows, INVALID, "parts[0].rows is -5", s->parts[0].rows = -5)             \
    X(splits_sum, INVALID, "parts[0].splits add up to 7, parts[0].rows is 8",  \
        s->parts[0].splits = splits_short)                                     \
    X(splits_sign, INVALID, "parts[0].splits[0] is -1",                        \
        s->parts[0].splits = splits_negative)                                  \
    X(splits_overflow, INVALID,                                                \
        "parts[0].splits add up to 9223372036854775807",                       \
        s->parts[0].splits = splits_huge)                                      \
    X(replicated_splits, INVALID, "replicated and has splits",                 \
        (s->parts[0].kind = REPLICATED, s->parts[0].splits = splits_short))    \
    X(replicated_order, INVALID, "replicated and has order 1",                 \
        (s->parts[0].kind = REPLICATED, s->parts[0].order = 1))                \
    X(docs_batch, INVALID, "needs batch 1, and batch is 2",                    \
        (s->batch = 2, s->parts[0].order = DOCS_ORDER))                        \
    X(docs_splits, INVALID, "has splits and order zigzag per document",        \
        (s->parts[0].order = DOCS_ORDER, s->parts[0].splits = splits_short))   \
    X(ntensors_none, INVALID, "ntensors is 0", s->ntensors = 0)                \
    X(ntensors_many, INVALID, "ntensors is 9", s->ntensors = 9)                \
    X(tensor_part, INVALID, "tensors[1].part is 1", s->tensors[1].part = 1)    \
    X(tensor_part_low, INVALID, "tensors[1].part is -1",                       \
        s->tensors[1].part = -1)                                               \
    X(tensor_heads, INVALID, "tensors[1].heads is 0", s->tensors[1].heads = 0) \
    X(readers_heads, INVALID, "not a multiple of its 3",                       \
        s->tensors[1].heads = 3)                                               \
    X(split_heads, INVALID, "tensors[0] is SPLIT with heads 2",                \
        s->tensors[0].heads = 2)                                               \
    X(dim, INVALID, "tensors[0].dim is 0", s->tensors[0].dim = 0)              \
    X(dtype, INVALID, "tensors[0].dtype is 7", s->tensors[0].dtype = 7)        \
    X(elem_bytes, INVALID, "tensors[0].elem_bytes is 4",                       \
        s->tensors[0].elem_bytes = 4)                                          \
    X(elem_bytes_none, INVALID, "tensors[0].elem_bytes is 0",                  \
        (s->tensors[0].dtype = 0, s->tensors[0].elem_bytes = 0))               \
    X(elem_bytes_many, INVALID, "tensors[0].elem_bytes is 4097",               \
        (s->tensors[0].dtype = 0, s->tensors[0].elem_bytes = 4097))            \
    X(ownership, INVALID, "tensors[1].ownership is 2",                         \
        s->tensors[1].ownership = 2)                                           \
    X(partial, INVALID, "tensors[1].partial_dtype is 4",                       \
        s->tensors[1].partial_dtype = ULYX_DTYPE_F16)                          \
    X(partial_of_bytes, ULYX_ERR_UNSUPPORTED, "dtype 5 has no sums",           \
        (s->tensors[1].dtype = 5, s->tensors[1].elem_bytes = 1,                \
            s->tensors[1].partial_dtype = ULYX_DTYPE_F32))                     \
    X(flags, INVALID, "tensors[0].flags has unknown bits 0x4",                 \
        s->tensors[0].flags = 4)                                               \
    X(flags_sharded, INVALID, "part 0 is sharded", s->tensors[0].flags = 1)    \
    X(head_splits_sum, INVALID, "head_splits add up to 7, heads is 4",         \
        s->head_splits = splits_short)                                         \
    X(head_splits_sign, INVALID, "head_splits[0] is -1",                       \
        s->head_splits = splits_negative)                                      \
    X(work, INVALID, "work_split is 2", s->work_split = 2)                     \
    X(work_and_splits, INVALID, "head_splits are given and work_split",        \
        (s->work_split = 1, s->head_splits = splits_short))                    \
    X(balanced_axes, INVALID, "tensors[0] is SPLIT on axis 1",                 \
        (KEYS_AXIS(s), s->tensors[0].part = 1))                                \
    X(balanced_keys, INVALID, "tensors[1] is READERS on axis 0", KEYS_AXIS(s)) \
    X(mask, INVALID, "mask_kind is 3", s->mask_kind = 3)                       \
    X(align, INVALID, "mask_align is -1", s->mask_align = -1)                  \
    X(left, INVALID, "mask_left is -1", s->mask_left = -1)                     \
    X(right, INVALID, "mask_right is -2", s->mask_right = -2)                  \
    X(row_cost, INVALID, "row_cost is -1", s->row_cost = -1)                   \
    X(row_round, INVALID, "row_round is -1", s->row_round = -1)                \
    X(max_rows, INVALID, "max_rows is -1", s->max_rows = -1)                   \
    X(max_kv_rows, INVALID, "max_kv_rows is -1", s->max_kv_rows = -1)          \
    X(max_segments, INVALID, "max_segments is -1", s->max_segments = -1)       \
    X(max_local_rows, INVALID, "max_local_rows is -1", s->max_local_rows = -1) \
    X(max_docs, INVALID, "max_docs is -1", s->max_docs = -1)                   \
    X(max_docs_huge, ULYX_ERR_OVERFLOW, "a table of",                          \
        (s->parts[0].order = DOCS_ORDER, s->max_docs = BIG))                   \
    X(axis_overflow, ULYX_ERR_OVERFLOW, "rows of axis 0 do not fit",           \
        (s->nparts = 2, s->parts[0].rows = INT64_MAX, s->parts[1].rows = 1))   \
    X(batch_overflow, ULYX_ERR_OVERFLOW, "batch 4611686018427387904 x rows 8", \
        s->batch = BIG)                                                        \
    X(heads_overflow, ULYX_ERR_OVERFLOW, "x heads 4611686018427387904",        \
        (s->heads = BIG, s->tensors[0].heads = BIG))                           \
    X(dim_overflow, ULYX_ERR_OVERFLOW, "tensors[1]: batch 1 x rows 8",         \
        s->tensors[1].dim = BIG)                                               \
    X(bytes_overflow, ULYX_ERR_OVERFLOW, "x 4 bytes do not fit",               \
        (s->parts[0].rows = INT64_C(1) << 53, s->tensors[0].dim = 64))

#define BAD_FUNCTION(name, status, text, what)                                 \
    static void break_##name(struct uli_shape *s)                              \
    {                                                                          \
        (void)(what);                                                          \
    }
BAD_MAP(BAD_FUNCTION)

static const struct {
    const char *name, *text;
    ulyx_status_t status;
    void (*apply)(struct uli_shape *s);
} bad[] = {
#define BAD_ROW(name, status, text, what) {#name, text, status, break_##name},
    BAD_MAP(BAD_ROW)};

static void
bad_field_is_named(void **state)
{
    (void)state;
    struct uli_layout *const untouched = (struct uli_layout *)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct uli_shape shape;
        struct uli_layout *layout = untouched;
        make_shape(&shape);
        bad[i].apply(&shape);
        ulyx_status_t status = uli_layout_create(&shape, NULL, NULL, &layout);
        if (status != bad[i].status || !strstr(ulyx_last_error(), bad[i].text))
            fail_msg("%s: status %d, text \"%s\", expected \"%s\"", bad[i].name,
                status, ulyx_last_error(), bad[i].text);
        assert_ptr_equal(layout, untouched);
    }
}

/* ---- sizes that just fit ------------------------------------------------- */

static bool
count_rows(void *context, const struct uli_move *move)
{
    *(int64_t *)context += move->rows * move->heads * move->batches;
    return true;
}

static void
sizes_of_2_to_62_are_exact(void **state)
{
    (void)state;
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    struct uli_place scratch[2];
    make_shape(&shape);
    shape.heads = shape.tensors[0].heads = 1;
    shape.ntensors = 1;
    shape.tensors[0].dtype = ULYX_DTYPE_BYTES;
    shape.tensors[0].elem_bytes = shape.tensors[0].dim = 1;
    shape.parts[0].rows = BIG + 1;
    for (int order = 0; order < 3; order++)
        for (int work = 0; work < 2; work++) {
            int64_t moved = 0;
            shape.parts[0].order = order;
            shape.work_split = work;
            assert_status(
                uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
            for (int32_t r = 0; r < 2; r++) {
                assert_true(uli_layout_seq_rows(layout, 0, r) >= BIG / 2);
                uli_layout_each_move(layout, ULYX_SEQ_TO_HEAD, 0, r, -1,
                    scratch, count_rows, &moved);
            }
            assert_true(moved == BIG + 1);
            uli_layout_destroy(layout);
        }
}

/* ---- operations ---------------------------------------------------------- */

static void
sums_of_bytes_do_not_exist(void **state)
{
    (void)state;
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    make_shape(&shape);
    shape.nranks = 3;
    shape.tensors[1].dtype = ULYX_DTYPE_F8_E5M2;
    shape.tensors[1].elem_bytes = 1;
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
    assert_status(
        uli_layout_operation_check(layout, ULYX_SEQ_TO_HEAD), ULYX_SUCCESS);
    assert_status(
        uli_layout_operation_check(layout, ULYX_HEAD_TO_SEQ), ULYX_SUCCESS);
    assert_status(uli_layout_operation_check(layout, ULYX_HEAD_TO_SEQ_ADJOINT),
        ULYX_SUCCESS);
    assert_status(uli_layout_operation_check(layout, ULYX_SEQ_TO_HEAD_ADJOINT),
        ULYX_ERR_UNSUPPORTED);
    assert_non_null(strstr(ulyx_last_error(), "tensors[1]"));
    assert_status(uli_layout_operation_check(layout, 4), INVALID);
    assert_status(uli_layout_operation_check(layout, -1), INVALID);
    uli_layout_destroy(layout);
    shape.nranks = 2; /* then no head is shared: a permutation */
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
    assert_status(uli_layout_operation_check(layout, ULYX_SEQ_TO_HEAD_ADJOINT),
        ULYX_SUCCESS);
    uli_layout_destroy(layout);
}

static void
sums_of_replicated_bytes_do_not_exist(void **state)
{
    (void)state;
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    make_shape(&shape);
    shape.parts[0].kind = ULYX_PART_REPLICATED;
    shape.tensors[0].dtype = ULYX_DTYPE_BYTES;
    for (int equal = 0; equal < 2; equal++) {
        shape.tensors[0].flags = equal ? ULYX_TENSOR_GRAD_EQUAL : 0;
        assert_status(
            uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
        assert_status(
            uli_layout_operation_check(layout, ULYX_HEAD_TO_SEQ_ADJOINT),
            equal ? ULYX_SUCCESS : ULYX_ERR_UNSUPPORTED);
        uli_layout_destroy(layout);
    }
}

/* ---- document tables ----------------------------------------------------- */

static void
make_docs_shape(struct uli_shape *s)
{
    make_shape(s);
    s->nranks = 3;
    s->parts[0].rows = 20;
    s->parts[0].order = ULYX_ORDER_ZIGZAG_DOCS;
    s->work_split = ULYX_WORK_BALANCED;
    s->mask_kind = ULYX_MASK_CAUSAL;
    s->row_round = 2;
    s->max_docs = 4;
}

/* Everything that a table decides, in one number. */
static uint64_t
fingerprint(const struct uli_layout *layout)
{
    uint64_t sum = uli_layout_table_hash(layout);
    const struct uli_shape *shape = uli_layout_shape(layout);
    for (int32_t r = 0; r < shape->nranks; r++) {
        int64_t count;
        const struct uli_piece *piece = uli_layout_pieces(layout, 0, r, &count);
        for (int64_t i = 0; i < count; i++)
            sum = sum * 31 + (uint64_t)(piece[i].row * 64 + piece[i].rows);
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
    uint64_t none = fingerprint(layout), first = 0;
    assert_true(uli_layout_has_tables(layout));
    assert_true(uli_layout_table_hash(layout) != 0);
    for (int i = 0; i < 4; i++) {
        assert_status(uli_layout_update(layout, &forms[i], NULL), ULYX_SUCCESS);
        first = i ? first : fingerprint(layout);
        assert_true(fingerprint(layout) == first);
    }
    assert_true(first != none);
    assert_status(uli_layout_update(layout, NULL, NULL), ULYX_SUCCESS);
    assert_true(fingerprint(layout) == none);
    uli_layout_destroy(layout);
}

static const int64_t good_begin[] = {0, 5}, good_length[] = {5, 9};
static const int64_t past_end[] = {0, 21}, backwards[] = {5, 0};
static const int64_t negative[] = {-1, 5}, overlap[] = {0, 4};
static const int64_t negative_length[] = {5, -1};
static const int64_t huge_length[] = {5, INT64_MAX};
static const int64_t many[] = {0, 1, 2, 3, 4, 5};

static const struct {
    ulyx_docs_t docs;
    const char *text;
} bad_tables[] = {
    {{8, 2, 8, good_begin, good_length}, "docs_q.size is 8"},
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
    uint64_t before = fingerprint(layout);
    for (size_t i = 0; i < sizeof(bad_tables) / sizeof(bad_tables[0]); i++) {
        struct uli_layout *other = NULL;
        assert_status(
            uli_layout_update(layout, &bad_tables[i].docs, NULL), INVALID);
        if (!strstr(ulyx_last_error(), bad_tables[i].text))
            fail_msg(
                "\"%s\" has no \"%s\"", ulyx_last_error(), bad_tables[i].text);
        assert_true(fingerprint(layout) == before);
        assert_status(
            uli_layout_create(&shape, &bad_tables[i].docs, NULL, &other),
            INVALID);
        assert_null(other);
    }
    assert_status(uli_layout_update(layout, &good, &one), INVALID);
    assert_non_null(
        strstr(ulyx_last_error(), "docs_q has 2 documents, docs_k 1"));
    assert_true(fingerprint(layout) == before);
    uli_layout_destroy(layout);
}

/* Documents may not cross a batch item; two that touch there are fine. */
static void
document_across_batch_items_is_refused(void **state)
{
    (void)state;
    static const int64_t across[] = {0, 9, 16}, within[] = {0, 8, 16};
    ulyx_docs_t docs = {sizeof(ulyx_docs_t), 2, 8, across, NULL};
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    make_shape(&shape);
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

/* Tables that exceed what creation reserved: the value needed, no change. */
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
    uint64_t before = fingerprint(layout);
    assert_status(uli_layout_update(layout, &docs, NULL), INVALID);
    assert_non_null(strstr(ulyx_last_error(),
        "max_local_rows is 7, these documents need 8 in part 0"));
    assert_true(fingerprint(layout) == before);
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
    make_shape(&shape);
    assert_status(
        uli_layout_create(&shape, &docs, NULL, &layout), ULYX_SUCCESS);
    assert_false(uli_layout_has_tables(layout));
    assert_true(uli_layout_table_hash(layout) == 0);
    assert_status(uli_layout_update(layout, &docs, NULL), ULYX_ERR_UNSUPPORTED);
    uli_layout_destroy(layout);
    shape.work_split = ULYX_WORK_BALANCED; /* which is HEADS, with 4 on 2 */
    assert_status(
        uli_layout_create(&shape, &docs, NULL, &layout), ULYX_SUCCESS);
    assert_false(uli_layout_packed(layout));
    assert_status(uli_layout_update(layout, &docs, NULL), ULYX_SUCCESS);
    uli_layout_destroy(layout);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bad_field_is_named),
    cmocka_unit_test(sizes_of_2_to_62_are_exact),
    cmocka_unit_test(sums_of_bytes_do_not_exist),
    cmocka_unit_test(sums_of_replicated_bytes_do_not_exist),
    cmocka_unit_test(all_forms_of_a_table_are_equal),
    cmocka_unit_test(bad_table_changes_nothing),
    cmocka_unit_test(document_across_batch_items_is_refused),
    cmocka_unit_test(table_beyond_maxima_changes_nothing),
    cmocka_unit_test(update_without_tables_is_unsupported),
};

ULI_TEST_MAIN("LayoutArguments", tests)
