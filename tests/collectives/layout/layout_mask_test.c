/* SPDX-License-Identifier: Apache-2.0
 *
 * The closed forms of masks and costs against loops over rows and keys, also
 * where row positions exceed 64 bits.
 */
#include <string.h>
#include "base/mask.h"
#include "collectives/layout/layout_cases.h"
#include "collectives/layout/layout_cost.h"
#include "support/test.h"

/* Counts the keys of the tiles that row i touches, by definition. */
static int64_t
tile_keys(
    const struct uli_shape *shape, int64_t i, int64_t q_len, int64_t k_len)
{
    int64_t first, end, keys = 0;
    oracle_visible(shape, i, q_len, k_len, &first, &end);
    for (int64_t tile = 0; tile * 128 < k_len; tile++)
        if (first < end && first < (tile + 1) * 128 && end > tile * 128)
            keys += (tile + 1) * 128 < k_len ? 128 : k_len - tile * 128;
    return keys;
}

static int64_t
random_extreme(struct test_random *random, int64_t small)
{
    int64_t near = test_random_in(random, 0, 40);
    switch (test_random_in(random, 0, 7)) {
    case 0:
        return INT64_MAX - near;
    case 1:
        return INT64_MIN + near;
    case 2:
        return INT64_MAX / 2 - 20 + near;
    default:
        return test_random_in(random, -small, small);
    }
}

static void
random_mask(struct uli_shape *shape, struct test_random *random)
{
    memset(shape, 0, sizeof(*shape));
    shape->mask_kind = (int32_t)test_random_in(random, 0, ULI_MASKS - 1);
    shape->mask_align = (int32_t)test_random_in(random, 0, 1);
    shape->mask_diagonal = random_extreme(random, 400);
    shape->mask_left = random_extreme(random, 300);
    shape->mask_right = random_extreme(random, 300);
    if (shape->mask_left < 0)
        shape->mask_left = ~shape->mask_left;
    if (shape->mask_right < 0)
        shape->mask_right = ~shape->mask_right;
}

static void
check_sums(const struct uli_shape *shape, int64_t q_len, int64_t k_len)
{
    int64_t sum = 0;
    struct uli_mask mask = uli_mask_of(shape, q_len, k_len);
    for (int64_t rows = 0; rows <= q_len; rows++) {
        if (sum != (int64_t)uli_mask_cost(&mask, rows))
            print_error("kind %d align %d diagonal %ld left %ld right %ld "
                        "q %ld k %ld rows %ld\n",
                shape->mask_kind, shape->mask_align, (long)shape->mask_diagonal,
                (long)shape->mask_left, (long)shape->mask_right, (long)q_len,
                (long)k_len, (long)rows);
        assert_int_equal(sum, (int64_t)uli_mask_cost(&mask, rows));
        sum += tile_keys(shape, rows, q_len, k_len);
    }
}

static void
check_seen(const struct uli_shape *shape, int64_t q_len, int64_t k_len,
    int64_t begin, int64_t end)
{
    struct uli_mask mask = uli_mask_of(shape, q_len, k_len);
    struct uli_keys seen = uli_mask_seen(&mask, begin, end);
    bool is_seen[512] = {false};
    assert_true(k_len <= 512);
    for (int64_t i = begin; i < end; i++) {
        int64_t first, last;
        oracle_visible(shape, i, q_len, k_len, &first, &last);
        for (int64_t j = first; j < last; j++)
            is_seen[j] = true;
    }
    for (int64_t j = 0; j < k_len; j++)
        assert_int_equal(is_seen[j], j >= seen.first && j < seen.end);
}

static void
mask_sums_equal_loops(void **state)
{
    (void)state;
    struct test_random random = {test_seed(5)};
    for (int64_t n = 0; n < test_draws(1500); n++) {
        struct uli_shape shape;
        random_mask(&shape, &random);
        check_sums(&shape, test_random_in(&random, 0, 60),
            test_random_in(&random, 0, 420));
    }
}

/* Rows at positions around INT64_MAX and beyond, with windows as long: the
 * visible keys still depend on the row. */
static void
distant_masks_equal_loops(void **state)
{
    (void)state;
    struct test_random random = {test_seed(11)};
    for (int64_t n = 0; n < test_draws(300); n++) {
        struct uli_shape shape = {
            .mask_kind = ULYX_MASK_WINDOW, .mask_align = ULYX_ALIGN_TOP_LEFT};
        shape.mask_diagonal = INT64_MAX - test_random_in(&random, 0, 200);
        shape.mask_left = INT64_MAX - test_random_in(&random, 1, 400);
        shape.mask_right = random_extreme(&random, 300) & INT64_MAX;
        int64_t q_len = test_random_in(&random, 1, 300);
        int64_t k_len = test_random_in(&random, 0, 420);
        int64_t begin = test_random_in(&random, 0, q_len);
        check_sums(&shape, q_len, k_len);
        check_seen(
            &shape, q_len, k_len, begin, test_random_in(&random, begin, q_len));
    }
}

static void
visible_keys_equal_loops(void **state)
{
    (void)state;
    struct test_random random = {test_seed(6)};
    for (int64_t n = 0; n < test_draws(3000); n++) {
        struct uli_shape shape;
        random_mask(&shape, &random);
        int64_t q_len = test_random_in(&random, 1, 60);
        int64_t k_len = test_random_in(&random, 0, 90);
        int64_t begin = test_random_in(&random, 0, q_len);
        int64_t end = test_random_in(&random, begin, q_len);
        check_seen(&shape, q_len, k_len, begin, end);
    }
}

/* The keys that any range of a head needs are compared with marks of single
 * rows. */
static void
check_use(const struct uli_layout *layout, const struct oracle *o,
    int64_t group, int64_t begin, int64_t end)
{
    int axis = oracle_key_axis(o);
    int64_t per_head = o->batch * o->rows[0], rows = 0, runs = 0;
    int64_t entries = o->batch * o->rows[axis];
    for (int64_t kv = 0; kv < o->heads / group; kv++) {
        bool seen[256] = {false};
        assert_true(entries < 256);
        for (int64_t x = begin; x < end; x++) {
            if (x / per_head / group != kv)
                continue;
            int64_t doc =
                uli_docs_at(layout, uli_layout_tables(layout), x % per_head);
            if (doc < 0)
                continue;
            int64_t at = x % per_head - uli_docs_begin(layout,
                                            uli_layout_tables(layout), 0, doc);
            struct uli_keys keys = uli_doc_seen(
                layout, uli_layout_tables(layout), doc, at, at + 1);
            for (int64_t j = keys.first; j < keys.end; j++)
                seen[j] = true;
        }
        for (int64_t j = 0; j < entries; j++) {
            rows += seen[j];
            runs += seen[j] && (j % o->rows[axis] == 0 || !seen[j - 1]);
        }
    }
    struct uli_kv_use use =
        uli_kv_use_of(layout, uli_layout_tables(layout), group, begin, end);
    assert_int_equal(use.rows, rows);
    assert_int_equal(use.runs, runs);
}

static void
needed_keys_equal_loops(void **state)
{
    (void)state;
    struct test_random random = {test_seed(7)};
    for (int64_t n = 0; n < test_draws(1500); n++) {
        struct oracle_case c;
        struct oracle o;
        struct uli_layout *layout = NULL;
        int64_t space[ORACLE_MAX_RANKS + 1];
        case_random(&c, &random, 9, true);
        assert_status(case_create(&c, &layout), ULYX_SUCCESS);
        const int64_t *cuts = case_cuts(&c, layout, space);
        oracle_init(&o, &c, cuts);
        int64_t total = o.heads * o.batch * o.rows[0];
        int64_t group = test_random_in(&random, 1, o.heads);
        while (o.heads % group)
            group--;
        for (int i = 0; i < 5 && cuts && total > 0 &&
                        o.batch * o.rows[oracle_key_axis(&o)] < 256;
             i++) {
            int64_t begin = test_random_in(&random, 0, total);
            int64_t end = test_random_in(&random, begin, total);
            check_use(layout, &o, group, begin, end);
        }
        oracle_free(&o);
        uli_layout_destroy(layout);
    }
}

/* A window of (S - 1, 0) is the causal mask; a window of (0, 0) is the own
 * token. */
static void
window_of_all_keys_equals_causal(void **state)
{
    (void)state;
    struct uli_shape causal = {.mask_kind = ULYX_MASK_CAUSAL};
    struct uli_shape window = {.mask_kind = ULYX_MASK_WINDOW, .mask_left = 299};
    struct uli_shape own = {.mask_kind = ULYX_MASK_WINDOW};
    struct uli_mask a = uli_mask_of(&causal, 300, 300);
    struct uli_mask b = uli_mask_of(&window, 300, 300);
    struct uli_mask c = uli_mask_of(&own, 300, 300);
    for (int64_t rows = 0; rows <= 300; rows++) {
        assert_true(uli_mask_cost(&a, rows) == uli_mask_cost(&b, rows));
        struct uli_keys seen = uli_mask_seen(&b, 0, rows);
        assert_int_equal(seen.end - seen.first, rows);
        if (rows > 0) {
            seen = uli_mask_seen(&c, rows - 1, rows);
            assert_int_equal(seen.first, rows - 1);
            assert_int_equal(seen.end, rows);
        }
    }
}

/* With 2^62 rows and keys, tiles have n (n + 128) / 2 keys, without
 * overflow. */
static void
mask_cost_of_huge_document(void **state)
{
    (void)state;
    struct uli_shape causal = {.mask_kind = ULYX_MASK_CAUSAL};
    int64_t n = INT64_C(1) << 62;
    struct uli_mask mask = uli_mask_of(&causal, n, n);
    uli_u128 expected = (uli_u128)n / 2 * ((uli_u128)n + 128);
    assert_true(uli_mask_cost(&mask, n) == expected);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(mask_sums_equal_loops),
    cmocka_unit_test(distant_masks_equal_loops),
    cmocka_unit_test(visible_keys_equal_loops),
    cmocka_unit_test(needed_keys_equal_loops),
    cmocka_unit_test(window_of_all_keys_equals_causal),
    cmocka_unit_test(mask_cost_of_huge_document),
};

ULI_TEST_MAIN("LayoutMask", tests)
