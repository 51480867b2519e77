/* SPDX-License-Identifier: Apache-2.0
 *
 * The queries of a layout about both sides, row by row against the oracle:
 * spans, heads, packed runs, costs and resolved defaults; and that a visitor
 * of moves can end the enumeration at any move.
 */
#include <stdlib.h>
#include <string.h>
#include "collectives/layout/layout_cases.h"
#include "support/test.h"

/* ---- sequence side ------------------------------------------------------- */

/* Spans are in local order, not empty, maximal, and agree with the oracle on
 * each row. */
static void
check_pieces(const struct oracle *o, const struct uli_layout *layout,
    int32_t part, int32_t rank)
{
    int64_t count, local = 0, rows = o->c->shape.parts[part].rows;
    const struct uli_row_span *piece =
        uli_layout_row_spans(layout, part, rank, &count);
    for (int64_t i = 0; i < count; i++) {
        assert_true(piece[i].rows > 0);
        assert_int_equal(piece[i].local, local);
        if (i > 0)
            assert_true(piece[i - 1].row + piece[i - 1].rows < piece[i].row);
        for (int64_t k = 0; k < piece[i].rows; k++)
            assert_int_equal(
                o->local[part][rank * rows + piece[i].row + k], local + k);
        local += piece[i].rows;
    }
    assert_int_equal(local, o->seq_rows[part][rank]);
    assert_int_equal(uli_layout_seq_rows(layout, part, rank), local);
    assert_true(uli_layout_max_seq_rows(layout, part, rank) >= local);
}

static void
check_seq_side(const struct oracle *o, const struct uli_layout *layout)
{
    const struct uli_shape *shape = uli_layout_shape(layout);
    for (int32_t p = 0; p < o->c->shape.nparts; p++) {
        const struct uli_shape_part *part = &o->c->shape.parts[p];
        assert_int_equal(uli_layout_first_row(layout, p), o->first_row[p]);
        assert_int_equal(
            uli_layout_axis_rows(layout, part->axis), o->rows[part->axis]);
        for (int32_t r = 0; r < o->nranks; r++) {
            check_pieces(o, layout, p, r);
            if (part->kind == ULYX_PART_SHARDED &&
                part->order != ULYX_TOKENS_ZIGZAG_DOCS)
                assert_int_equal(shape->parts[p].splits[r], o->seq_rows[p][r]);
        }
    }
}

/* ---- head side ----------------------------------------------------------- */

static int64_t
axis_rows_of(const struct oracle *o, int32_t tensor)
{
    const struct uli_shape *shape = &o->c->shape;
    return o->rows[shape->parts[shape->tensors[tensor].part].axis];
}

/* Checks the range of heads of which the rank has any row: the lowest head, and
 * one above the highest. */
static void
check_heads(const struct oracle *o, const struct uli_layout *layout,
    int32_t tensor, int32_t rank)
{
    int64_t first, count, lowest = -1, end = 0;
    int64_t rows = axis_rows_of(o, tensor);
    uli_layout_heads(layout, tensor, rank, &first, &count);
    for (int64_t h = 0; h < o->c->shape.tensors[tensor].heads; h++)
        for (int64_t x = 0; x < o->batch * rows; x++)
            if (oracle_place(o, tensor, rank, h, x / rows, x % rows) >= 0) {
                lowest = lowest < 0 ? h : lowest;
                end = h + 1;
            }
    if (lowest < 0) {
        assert_true(count == 0 || o->batch * rows == 0);
        return;
    }
    assert_int_equal(first, lowest);
    assert_int_equal(count, end - lowest);
}

static void
check_runs(const struct oracle *o, const struct uli_layout *layout,
    int32_t tensor, int32_t rank)
{
    int64_t count, offset = 0;
    const struct uli_run *run = uli_layout_runs(layout, tensor, rank, &count);
    for (int64_t i = 0; i < count; i++) {
        assert_true(run[i].row_begin < run[i].row_end);
        assert_int_equal(run[i].offset, offset);
        if (i > 0 && run[i].head == run[i - 1].head &&
            run[i].batch == run[i - 1].batch)
            assert_true(run[i - 1].row_end < run[i].row_begin);
        for (int64_t row = run[i].row_begin; row < run[i].row_end; row++)
            assert_int_equal(
                oracle_place(o, tensor, rank, run[i].head, run[i].batch, row),
                offset++);
    }
    assert_int_equal(offset, o->packed_rows[tensor][rank]);
    assert_int_equal(uli_layout_packed_rows(layout, tensor, rank), offset);
    assert_true(offset <= uli_layout_max_packed_rows(layout, tensor));
    assert_true(count <= uli_layout_shape(layout)->max_segments);
}

/* Checks that the cuts are a partition at multiples of row_round. */
static void
check_cuts(const struct oracle *o, const struct uli_layout *layout,
    const int64_t *cuts)
{
    const struct uli_shape *shape = uli_layout_shape(layout);
    assert_int_equal(cuts[o->nranks], o->heads * o->batch * o->rows[0]);
    for (int32_t r = 0; r < o->nranks; r++) {
        int64_t cost = 0, per_head = o->batch * o->rows[0];
        assert_true(cuts[r] <= cuts[r + 1]);
        assert_true(cuts[r + 1] - cuts[r] <= shape->max_rows);
        if (o->rows[0] > 0)
            assert_int_equal(cuts[r] % o->rows[0] % shape->row_round, 0);
        for (int64_t x = cuts[r]; x < cuts[r + 1]; x++)
            cost += oracle_row_cost(
                o, shape->row_cost, x % per_head / o->rows[0], x % o->rows[0]);
        assert_int_equal(uli_layout_cost(layout, r), cost);
    }
}

/* Returns whether any row of any head is at two ranks. */
static bool
is_shared(const struct oracle *o, int32_t tensor)
{
    int64_t rows = axis_rows_of(o, tensor);
    for (int64_t h = 0; h < o->c->shape.tensors[tensor].heads; h++)
        for (int64_t x = 0; x < o->batch * rows; x++) {
            int holders = 0;
            for (int32_t r = 0; r < o->nranks; r++)
                holders +=
                    oracle_place(o, tensor, r, h, x / rows, x % rows) >= 0;
            if (holders > 1)
                return true;
        }
    return false;
}

static void
check_partial(
    const struct oracle *o, const struct uli_layout *layout, int32_t tensor)
{
    const struct uli_shape_tensor *t = &o->c->shape.tensors[tensor];
    int32_t partial = uli_layout_shape(layout)->tensors[tensor].partial_dtype;
    if (t->partial_dtype) {
        assert_int_equal(partial, t->partial_dtype);
        return;
    }
    bool narrow = t->dtype == ULYX_DTYPE_BF16 || t->dtype == ULYX_DTYPE_F16;
    bool shared = is_shared(o, tensor);
    /* the answer must not depend on the documents */
    if (uli_layout_packed(layout))
        shared = t->ownership == ULYX_HEADS_KV;
    else if (o->batch * axis_rows_of(o, tensor) == 0)
        return; /* there is no row that could show it */
    assert_int_equal(partial, narrow && shared ? ULYX_DTYPE_F32 : t->dtype);
}

static void
check_head_side(const struct oracle *o, const struct uli_layout *layout)
{
    for (int32_t t = 0; t < o->c->shape.ntensors; t++) {
        check_partial(o, layout, t);
        for (int32_t r = 0; r < o->nranks; r++) {
            check_heads(o, layout, t, r);
            if (uli_layout_packed(layout))
                check_runs(o, layout, t, r);
        }
    }
}

/* ---- tests --------------------------------------------------------------- */

static void
run_draws(bool balanced, int64_t draws, uint64_t seed)
{
    struct test_random random = {test_seed(seed)};
    for (int64_t i = 0; i < test_draws(draws); i++) {
        struct oracle_case c;
        struct oracle o;
        struct uli_layout *layout = NULL;
        int64_t space[ORACLE_MAX_RANKS + 1];
        case_random(&c, &random, 9, balanced);
        assert_status(case_create(&c, &layout), ULYX_SUCCESS);
        const int64_t *cuts = case_cuts(&c, layout, space);
        assert_int_equal(
            cuts != NULL, balanced && c.shape.heads % c.shape.nranks != 0);
        oracle_init(&o, &c, cuts);
        check_seq_side(&o, layout);
        check_head_side(&o, layout);
        if (cuts)
            check_cuts(&o, layout, cuts);
        oracle_free(&o);
        uli_layout_destroy(layout);
    }
}

static void
queries_of_heads_equal_oracle(void **state)
{
    (void)state;
    run_draws(false, 3000, 3);
}

static void
queries_of_balanced_equal_oracle(void **state)
{
    (void)state;
    run_draws(true, 3000, 4);
}

/* 14 query and 2 KV heads on 4 ranks: rank 1 reads both KV heads. */
static void
queries_of_14_2_on_4(void **state)
{
    (void)state;
    static const int64_t q_first[] = {0, 4, 8, 11}, q_count[] = {4, 4, 3, 3};
    static const int64_t k_first[] = {0, 0, 1, 1}, k_count[] = {1, 2, 1, 1};
    struct uli_shape shape = {
        .nranks = 4, .batch = 1, .heads = 14, .nparts = 1, .ntensors = 2};
    struct uli_layout *layout = NULL;
    shape.parts[0].rows = 10;
    for (int i = 0; i < 2; i++) {
        shape.tensors[i].dtype = ULYX_DTYPE_BF16;
        shape.tensors[i].elem_bytes = 2;
        shape.tensors[i].dim = 8;
        shape.tensors[i].heads = i ? 2 : 14;
        shape.tensors[i].ownership = i ? ULYX_HEADS_KV : ULYX_HEADS_QUERY;
    }
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
    for (int32_t r = 0; r < 4; r++) {
        int64_t first, count;
        uli_layout_heads(layout, 0, r, &first, &count);
        assert_int_equal(first, q_first[r]);
        assert_int_equal(count, q_count[r]);
        uli_layout_heads(layout, 1, r, &first, &count);
        assert_int_equal(first, k_first[r]);
        assert_int_equal(count, k_count[r]);
    }
    assert_int_equal(
        uli_layout_shape(layout)->tensors[0].partial_dtype, ULYX_DTYPE_BF16);
    assert_int_equal(
        uli_layout_shape(layout)->tensors[1].partial_dtype, ULYX_DTYPE_F32);
    assert_true(uli_layout_bytes(layout) > 0);
    uli_layout_destroy(layout);
    uli_layout_destroy(NULL);
}

/* ---- a visitor that ends early ------------------------------------------- */

static bool
take_some(void *context, const struct uli_move *move)
{
    (void)move;
    return --*(int64_t *)context > 0;
}

static void
visitor_ends_the_enumeration(void **state)
{
    (void)state;
    struct test_random random = {test_seed(12)};
    struct uli_place scratch[ORACLE_MAX_RANKS];
    for (int64_t n = 0; n < test_draws(600); n++) {
        struct oracle_case c;
        struct uli_layout *layout = NULL;
        case_random(&c, &random, 9, n % 2);
        assert_status(case_create(&c, &layout), ULYX_SUCCESS);
        for (int op = 0; op < ULYX_DIRECTIONS; op++) {
            int64_t all = INT64_MAX;
            assert_true(uli_layout_each_move(
                layout, op, 0, 0, -1, scratch, take_some, &all));
            for (int64_t stop = 1; stop <= INT64_MAX - all; stop++) {
                int64_t left = stop;
                assert_false(uli_layout_each_move(
                    layout, op, 0, 0, -1, scratch, take_some, &left));
                assert_int_equal(left, 0);
            }
        }
        uli_layout_destroy(layout);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(queries_of_heads_equal_oracle),
    cmocka_unit_test(queries_of_balanced_equal_oracle),
    cmocka_unit_test(queries_of_14_2_on_4),
    cmocka_unit_test(visitor_ends_the_enumeration),
};

ULI_TEST_MAIN("LayoutQueries", tests)
