/* SPDX-License-Identifier: Apache-2.0
 *
 * BALANCED: the cost of the ranks is nearly equal, and no cut is better by more
 * than 1/2048 of the mean cost, apart from rounding. A layout respects the
 * caller's maxima; where it cannot, the error names the least value that is
 * enough.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mask.h"
#include "collectives/layout/layout_cases.h"
#include "support/test.h"

static void
make_shape(struct uli_shape *shape, int32_t nranks, int64_t heads,
    int64_t kv_heads, int64_t rows)
{
    memset(shape, 0, sizeof(*shape));
    shape->nranks = nranks;
    shape->batch = 1;
    shape->heads = heads;
    shape->nparts = 1;
    shape->parts[0].rows = rows;
    shape->ntensors = 2;
    shape->work_split = ULYX_WORK_BALANCED;
    for (int i = 0; i < 2; i++) {
        shape->tensors[i].dtype = ULYX_DTYPE_BF16;
        shape->tensors[i].elem_bytes = 2;
        shape->tensors[i].dim = 128;
        shape->tensors[i].heads = i ? kv_heads : heads;
        shape->tensors[i].ownership = i ? ULYX_HEADS_KV : ULYX_HEADS_QUERY;
    }
}

/* Returns the cost of the costliest rank divided by the mean cost. */
static double
layout_imbalance(const struct uli_layout *layout)
{
    double most = 0, sum = 0;
    int32_t nranks = uli_layout_shape(layout)->nranks;
    for (int32_t r = 0; r < nranks; r++) {
        double cost = (double)uli_layout_cost(layout, r);
        most = cost > most ? cost : most;
        sum += cost;
    }
    return most / (sum / nranks);
}

/* ---- equal work ---------------------------------------------------------- */

enum { ROWS = 32768, DOCS = 64 };

/* Makes documents of very different sizes, given by cumulative lengths. */
static void
packed_docs(ulyx_docs_t *docs, int64_t begin[DOCS + 1])
{
    ulyx_docs_t own = ULYX_DOCS_INIT;
    for (int64_t n = 0; n <= DOCS; n++)
        begin[n] = ROWS * n * n / (DOCS * DOCS);
    own.count = DOCS;
    own.begin = begin;
    *docs = own;
}

static void
ranks_are_equally_busy(void **state)
{
    (void)state;
    static const struct {
        int32_t nranks;
        int64_t heads, kv_heads;
    } models[] = {{4, 14, 2}, {12, 8, 8}, {16, 40, 8}};
    int64_t begin[DOCS + 1];
    ulyx_docs_t docs;
    packed_docs(&docs, begin);
    for (int m = 0; m < 3; m++)
        for (int kind = 0; kind < ULI_MASKS; kind++)
            for (int packed = 0; packed < 2; packed++) {
                struct uli_shape shape;
                struct uli_layout *layout = NULL;
                make_shape(&shape, models[m].nranks, models[m].heads,
                    models[m].kv_heads, ROWS);
                shape.mask_kind = kind;
                shape.mask_left = 1023;
                shape.max_docs = DOCS;
                assert_status(uli_layout_create(
                                  &shape, packed ? &docs : NULL, NULL, &layout),
                    ULYX_SUCCESS);
                assert_true(uli_layout_packed(layout));
                if (layout_imbalance(layout) > 1.03)
                    fail_msg("%" PRId64 "/%" PRId64 " on %d, mask %d, "
                             "packed %d: %.4f",
                        models[m].heads, models[m].kv_heads, models[m].nranks,
                        kind, packed, layout_imbalance(layout));
                uli_layout_destroy(layout);
            }
}

/* ---- no better cut ------------------------------------------------------- */

/* Returns the least possible cost of the costliest rank, over all cuts at
 * multiples of row_round with at most max_rows rows per rank. cost[x] is the
 * cost of the rows before x. */
static int64_t
least_most(const struct uli_shape *shape, const int64_t *cost, int64_t rows,
    int64_t total)
{
    int64_t *best = malloc((size_t)(total + 1) * sizeof(*best));
    for (int64_t x = 0; x <= total; x++)
        best[x] = x <= shape->max_rows ? cost[x] : INT64_MAX;
    for (int32_t r = 1; r < shape->nranks; r++)
        for (int64_t x = total; x >= 0; x--)
            for (int64_t y = x; y >= 0 && x - y <= shape->max_rows; y--) {
                if (y % rows % shape->row_round != 0 || best[y] == INT64_MAX)
                    continue;
                int64_t most =
                    cost[x] - cost[y] > best[y] ? cost[x] - cost[y] : best[y];
                best[x] = most < best[x] ? most : best[x];
            }
    int64_t most = best[total];
    free(best);
    return most;
}

static void
check_best(const struct oracle *o, const struct uli_layout *layout)
{
    const struct uli_shape *shape = uli_layout_shape(layout);
    int64_t total = o->heads * o->batch * o->rows[0], most = 0;
    int64_t per_head = o->batch * o->rows[0];
    int64_t *cost = calloc((size_t)total + 1, sizeof(*cost));
    for (int64_t x = 0; x < total; x++)
        cost[x + 1] = cost[x] + oracle_row_cost(o, shape->row_cost,
                                    x % per_head / o->rows[0], x % o->rows[0]);
    for (int32_t r = 0; r < o->nranks; r++)
        if (uli_layout_cost(layout, r) > most)
            most = uli_layout_cost(layout, r);
    int64_t least = total ? least_most(shape, cost, o->rows[0], total) : 0;
    assert_true(most >= least);
    assert_true(most <= least + cost[total] / o->nranks / 2048 + 2);
    free(cost);
}

static void
no_cut_is_better(void **state)
{
    (void)state;
    struct test_random random = {test_seed(8)};
    for (int64_t n = 0; n < test_draws(400); n++) {
        struct oracle_case c;
        struct oracle o;
        struct uli_layout *layout = NULL;
        int64_t space[ORACLE_MAX_RANKS + 1];
        case_random(&c, &random, 7, true);
        assert_status(case_create(&c, &layout), ULYX_SUCCESS);
        const int64_t *cuts = case_cuts(&c, layout, space);
        oracle_init(&o, &c, cuts);
        if (cuts)
            check_best(&o, layout);
        oracle_free(&o);
        uli_layout_destroy(layout);
    }
}

/* ---- maxima -------------------------------------------------------------- */

static void
check_maxima(const struct uli_shape *shape, const struct uli_layout *layout)
{
    for (int32_t r = 0; r < shape->nranks; r++)
        for (int32_t t = 0; t < shape->ntensors; t++) {
            int64_t count;
            bool kv = shape->tensors[t].ownership == ULYX_HEADS_KV;
            int64_t most = kv ? shape->max_kv_rows : shape->max_rows;
            uli_layout_runs(layout, t, r, &count);
            int64_t bound = uli_layout_max_packed_rows(layout, t);
            assert_true(uli_layout_packed_rows(layout, t, r) <= bound);
            if (most)
                assert_true(bound <= most);
            if (shape->max_segments)
                assert_true(count <= shape->max_segments);
        }
}

static bool
count_move(void *context, const struct uli_move *move)
{
    (void)move;
    ++*(int64_t *)context;
    return true;
}

/* The number of moves never exceeds its bound. The caller's maxima make this
 * bound lower. */
static void
check_bounds(const struct uli_layout *layout)
{
    const struct uli_shape *shape = uli_layout_shape(layout);
    struct uli_place scratch[ORACLE_MAX_RANKS];
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        for (int32_t t = 0; t < shape->ntensors; t++)
            for (int32_t src = -1; src < shape->nranks; src++) {
                int64_t moves = 0;
                uli_layout_each_move(
                    layout, op, t, 0, src, scratch, count_move, &moves);
                assert_true(
                    moves <= uli_layout_max_moves(layout, op, t, 0, src));
            }
}

/* Returns the maximum that the last error names, and stores the value that the
 * error asks for. */
static int64_t *
shape_blamed(struct uli_shape *shape, int64_t *needed_p)
{
    static const char *const needs[] = {"ranks need ", "documents need "};
    const char *text = ulyx_last_error();
    for (int i = 0; i < 2; i++)
        if (strstr(text, needs[i]))
            *needed_p =
                strtoll(strstr(text, needs[i]) + strlen(needs[i]), NULL, 10);
    if (strncmp(text, "max_rows", 8) == 0)
        return &shape->max_rows;
    if (strncmp(text, "max_kv_rows", 11) == 0)
        return &shape->max_kv_rows;
    assert_int_equal(strncmp(text, "max_segments", 12), 0);
    return &shape->max_segments;
}

/* Raises each refused maximum to the value that the error asks for, until the
 * layout is made; one less must still be refused.
 * returns the number of refusals. */
static int
follow_refusals(struct oracle_case *c, struct uli_layout **layout_p)
{
    int refusals = 0;
    while (case_create(c, layout_p) != ULYX_SUCCESS) {
        int64_t needed = -1;
        int64_t *field = shape_blamed(&c->shape, &needed);
        assert_true(needed > *field);
        if (needed - 1 > *field) {
            *field = needed - 1;
            assert_status(case_create(c, layout_p), ULYX_ERR_INVALID_ARGUMENT);
        }
        *field = needed;
        refusals++;
        assert_true(refusals <= 3);
    }
    return refusals;
}

static void
maxima_are_respected_or_refused(void **state)
{
    (void)state;
    struct test_random random = {test_seed(9)};
    int refusals = 0;
    for (int64_t n = 0; n < test_draws(1500); n++) {
        struct oracle_case c;
        struct uli_layout *layout = NULL;
        case_random(&c, &random, 9, true);
        if (c.shape.heads % c.shape.nranks == 0)
            continue;
        if (test_random_in(&random, 0, 1))
            c.shape.max_rows = test_random_in(&random, 1, 120);
        if (test_random_in(&random, 0, 1))
            c.shape.max_kv_rows = test_random_in(&random, 1, 100);
        if (test_random_in(&random, 0, 1))
            c.shape.max_segments = test_random_in(&random, 1, 6);
        refusals += follow_refusals(&c, &layout);
        check_maxima(&c.shape, layout);
        check_bounds(layout);
        uli_layout_destroy(layout);
    }
    assert_true(refusals > 20); /* the draws include refused maxima */
}

/* A rank that gets more rows may need fewer segments of keys, because the keys
 * of the new rows can close the gap between two segments. With the boundaries
 * nearest to equal shares, a rank would need three segments; if each rank takes
 * as many rows as the maxima allow, two segments are enough. */
static void
merging_segments_still_fit(void **state)
{
    (void)state;
    static const int64_t begin[] = {0, 31, 40, 49}, length[] = {31, 9, 7, 1};
    const ulyx_docs_t docs = {sizeof(docs), 4, 8, begin, length};
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    make_shape(&shape, 6, 8, 2, 50);
    shape.row_round = 6;
    shape.row_cost = 9;
    shape.max_rows = 138;
    shape.max_kv_rows = 97;
    shape.max_segments = 2;
    shape.max_docs = 4;
    assert_status(
        uli_layout_create(&shape, &docs, NULL, &layout), ULYX_SUCCESS);
    check_maxima(&shape, layout);
    uli_layout_destroy(layout);
}

/* The limit of rows takes precedence over equal cost: causal rows of one head
 * on 8 ranks, at most an eighth of the rows each. */
static void
max_rows_moves_boundaries(void **state)
{
    (void)state;
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    make_shape(&shape, 8, 1, 1, 8192);
    shape.mask_kind = ULYX_MASK_CAUSAL;
    shape.max_rows = 1024;
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
    for (int32_t r = 0; r < 8; r++)
        assert_int_equal(uli_layout_packed_rows(layout, 0, r), 1024);
    uli_layout_destroy(layout);
    shape.max_rows = 1023;
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(
        strstr(ulyx_last_error(), "max_rows is 1023, 8 ranks need 1024 with"));
}

/* With whole heads a rank's cost is that of its heads; each batch item is a
 * document. */
static void
cost_of_whole_heads(void **state)
{
    (void)state;
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    make_shape(&shape, 2, 4, 2, 256);
    shape.batch = 3;
    shape.mask_kind = ULYX_MASK_CAUSAL;
    shape.row_cost = 1;
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
    for (int32_t r = 0; r < 2; r++)
        assert_int_equal(
            uli_layout_cost(layout, r), 2 * 3 * (128 * 128 + 128 * 256 + 256));
    uli_layout_destroy(layout);
}

/* Among cuts with the same cost of the costliest rank, the one with boundaries
 * near equal shares is taken: 9 blocks on 4 ranks are 2 2 3 2, not 3 3 3 0. */
static void
boundaries_lie_near_equal_shares(void **state)
{
    (void)state;
    static const int64_t blocks[] = {2, 2, 3, 2};
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    make_shape(&shape, 4, 3, 3, 192);
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
    for (int32_t r = 0; r < 4; r++)
        assert_int_equal(uli_layout_packed_rows(layout, 0, r), 64 * blocks[r]);
    uli_layout_destroy(layout);
}

/* 2^40 rows: sums of 2^79 keys, and memory that does not grow with rows. */
static void
huge_axis_is_cut_without_tables(void **state)
{
    (void)state;
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    make_shape(&shape, 5, 3, 3, INT64_C(1) << 40);
    shape.mask_kind = ULYX_MASK_CAUSAL;
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
    assert_true(uli_layout_bytes(layout) < 100000);
    int64_t rows = 0;
    for (int32_t r = 0; r < 5; r++)
        rows += uli_layout_packed_rows(layout, 0, r);
    assert_int_equal(rows, INT64_C(3) << 40);
    assert_int_equal(uli_layout_cost(layout, 0), INT64_MAX); /* saturates */
    uli_layout_destroy(layout);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_are_equally_busy),
    cmocka_unit_test(no_cut_is_better),
    cmocka_unit_test(maxima_are_respected_or_refused),
    cmocka_unit_test(merging_segments_still_fit),
    cmocka_unit_test(max_rows_moves_boundaries),
    cmocka_unit_test(cost_of_whole_heads),
    cmocka_unit_test(boundaries_lie_near_equal_shares),
    cmocka_unit_test(huge_axis_is_cut_without_tables),
};

ULI_TEST_MAIN("LayoutBalanced", tests)
