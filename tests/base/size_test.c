/* SPDX-License-Identifier: Apache-2.0
 *
 * Checked and saturating arithmetic, against 128-bit integers as the oracle.
 */
#include "base/size.h"

#include "support/random.h"
#include "support/test.h"

__extension__ typedef __int128 wide;

static bool
wide_fits(wide value)
{
    return value >= INT64_MIN && value <= INT64_MAX;
}

static int64_t
wide_clamp(wide value)
{
    if (value < INT64_MIN)
        return INT64_MIN;
    return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

/* Draws a number: all magnitudes are equally likely, and the ends of the range
 * are frequent. */
static int64_t
size_draw(struct test_random *random)
{
    static const int64_t ends[] = {
        INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX};
    if (test_random_in(random, 0, 3) == 0)
        return ends[test_random_in(random, 0, 6)];
    int shift = (int)test_random_in(random, 0, 63);
    int64_t value = (int64_t)(test_random_next(random) >> shift);
    return test_random_in(random, 0, 1) ? value : -(value / 2);
}

static void
checked_results_match_wide_arithmetic(void **fixture)
{
    (void)fixture;
    struct test_random random = {test_seed(1)};
    for (int64_t i = test_draws(20000); i > 0; i--) {
        int64_t a = size_draw(&random), b = size_draw(&random),
                c = size_draw(&random), out;
        wide product = (wide)a * b;
        assert_int_equal(uli_size_add(a, b, &out), wide_fits((wide)a + b));
        if (wide_fits((wide)a + b))
            assert_true(out == a + b);
        assert_int_equal(uli_size_mul(a, b, &out), wide_fits(product));
        if (wide_fits(product))
            assert_true(out == (int64_t)product);
        bool both = wide_fits(product) && wide_fits(product + c);
        assert_int_equal(uli_size_mul_add(a, b, c, &out), both);
        if (both)
            assert_true(out == (int64_t)(product + c));
    }
}

static void
saturating_results_match_wide_arithmetic(void **fixture)
{
    (void)fixture;
    struct test_random random = {test_seed(2)};
    for (int64_t i = test_draws(20000); i > 0; i--) {
        int64_t a = size_draw(&random), b = size_draw(&random);
        assert_true(uli_sat_add(a, b) == wide_clamp((wide)a + b));
        assert_true(uli_sat_sub(a, b) == wide_clamp((wide)a - b));
    }
}

static void
min_and_max_take_the_ends(void **fixture)
{
    (void)fixture;
    assert_true(uli_min(INT64_MIN, INT64_MAX) == INT64_MIN);
    assert_true(uli_max(INT64_MIN, INT64_MAX) == INT64_MAX);
    assert_true(uli_min(3, -3) == -3 && uli_max(3, -3) == 3);
}

static void
round_up_gives_the_next_multiple(void **fixture)
{
    (void)fixture;
    assert_true(uli_round_up(0, 64) == 0);
    assert_true(uli_round_up(1, 64) == 64);
    assert_true(uli_round_up(64, 64) == 64);
    assert_true(uli_round_up(65, 64) == 128);
    assert_true(uli_round_up(7, 1) == 7);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(checked_results_match_wide_arithmetic),
    cmocka_unit_test(saturating_results_match_wide_arithmetic),
    cmocka_unit_test(min_and_max_take_the_ends),
    cmocka_unit_test(round_up_gives_the_next_multiple),
};

ULI_TEST_MAIN("Size", tests)
