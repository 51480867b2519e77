/* SPDX-License-Identifier: Apache-2.0
 *
 * Bad arguments, one field at a time; sizes that just fit; and directions that
 * a dtype does not have.
 */
#include <stdlib.h>
#include <string.h>
#include "collectives/layout/layout_cases.h"
#include "support/test.h"

static const int64_t splits_short[2] = {3, 4};
static const int64_t splits_negative[2] = {-1, 9};
static const int64_t splits_huge[2] = {INT64_MAX, INT64_MAX};

#define INVALID    ULYX_ERR_INVALID_ARGUMENT
#define BIG        (INT64_C(1) << 62)
#define REPLICATED ULYX_PART_REPLICATED
#define DOCS_ORDER ULYX_TOKENS_ZIGZAG_DOCS
#define KEYS_AXIS(s)                                                           \
    ((s)->nparts = 2, (s)->parts[1].axis = 1, (s)->work_split = 1,             \
        (s)->heads = 3, (s)->tensors[0].heads = 3, (s)->tensors[1].heads = 3)

/* X(name, status, text that the error must have, the wrong field) */
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
    X(kv_heads_divide, INVALID, "not a multiple of its 3",                     \
        s->tensors[1].heads = 3)                                               \
    X(split_heads, INVALID, "tensors[0] is HEADS_QUERY with heads 2",          \
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
    X(flags, ULYX_ERR_UNSUPPORTED,                                             \
        "tensors[0].flags is 0x4: bits 0x4 are unknown",                       \
        s->tensors[0].flags = 4)                                               \
    X(flags_sharded, INVALID, "part 0 is sharded", s->tensors[0].flags = 1)    \
    X(head_splits_sum, INVALID, "head_splits add up to 7, heads is 4",         \
        s->head_splits = splits_short)                                         \
    X(head_splits_sign, INVALID, "head_splits[0] is -1",                       \
        s->head_splits = splits_negative)                                      \
    X(work, INVALID, "work_split is 2", s->work_split = 2)                     \
    X(work_and_splits, INVALID, "head_splits are given and work_split",        \
        (s->work_split = 1, s->head_splits = splits_short))                    \
    X(balanced_axes, INVALID, "tensors[0] is HEADS_QUERY on axis 1",           \
        (KEYS_AXIS(s), s->tensors[0].part = 1))                                \
    X(balanced_keys, INVALID, "tensors[1] is HEADS_KV on axis 0",              \
        KEYS_AXIS(s))                                                          \
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
        shape_small(&shape);
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
    shape_small(&shape);
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
sums_of_bytes_are_refused(void **state)
{
    (void)state;
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    shape_small(&shape);
    shape.nranks = 3;
    shape.tensors[1].dtype = ULYX_DTYPE_F8_E5M2;
    shape.tensors[1].elem_bytes = 1;
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
    assert_status(
        uli_layout_direction_check(layout, ULYX_SEQ_TO_HEAD), ULYX_SUCCESS);
    assert_status(
        uli_layout_direction_check(layout, ULYX_HEAD_TO_SEQ), ULYX_SUCCESS);
    assert_status(uli_layout_direction_check(layout, ULYX_HEAD_TO_SEQ_ADJOINT),
        ULYX_SUCCESS);
    assert_status(uli_layout_direction_check(layout, ULYX_SEQ_TO_HEAD_ADJOINT),
        ULYX_ERR_UNSUPPORTED);
    assert_non_null(strstr(ulyx_last_error(), "tensors[1]"));
    assert_status(uli_layout_direction_check(layout, 4), INVALID);
    assert_status(uli_layout_direction_check(layout, -1), INVALID);
    uli_layout_destroy(layout);
    shape.nranks = 2; /* no head is shared: a permutation */
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
    assert_status(uli_layout_direction_check(layout, ULYX_SEQ_TO_HEAD_ADJOINT),
        ULYX_SUCCESS);
    uli_layout_destroy(layout);
}

static void
sums_of_replicated_bytes_are_refused(void **state)
{
    (void)state;
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    shape_small(&shape);
    shape.parts[0].kind = ULYX_PART_REPLICATED;
    shape.tensors[0].dtype = ULYX_DTYPE_BYTES;
    for (int equal = 0; equal < 2; equal++) {
        shape.tensors[0].flags = equal ? ULYX_TENSOR_GRAD_EQUAL : 0;
        assert_status(
            uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
        assert_status(
            uli_layout_direction_check(layout, ULYX_HEAD_TO_SEQ_ADJOINT),
            equal ? ULYX_SUCCESS : ULYX_ERR_UNSUPPORTED);
        uli_layout_destroy(layout);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bad_field_is_named),
    cmocka_unit_test(sizes_of_2_to_62_are_exact),
    cmocka_unit_test(sums_of_bytes_are_refused),
    cmocka_unit_test(sums_of_replicated_bytes_are_refused),
};

ULI_TEST_MAIN("LayoutArguments", tests)
