/* SPDX-License-Identifier: Apache-2.0
 *
 * The generator of the tests, and random bytes of the kernel by
 * uli_random_bytes().
 */
#include "support/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/system/random.h"
#include "support/test.h"

/* The published values of splitmix64 for seed 1234567. */
static void
sequence_is_splitmix64(void **fixture)
{
    (void)fixture;
    static const uint64_t expected[] = {UINT64_C(6457827717110365317),
        UINT64_C(3203168211198807973), UINT64_C(9817491932198370423),
        UINT64_C(4593380528125082431), UINT64_C(16408922859458223821)};
    struct test_random random = {1234567};
    for (int i = 0; i < 5; i++)
        assert_true(test_random_next(&random) == expected[i]);
}

static void
range_is_inclusive_and_even(void **fixture)
{
    (void)fixture;
    struct test_random random = {1};
    int64_t counts[7] = {0};
    for (int i = 0; i < 70000; i++) {
        int64_t value = test_random_in(&random, -3, 3);
        assert_true(value >= -3 && value <= 3);
        counts[value + 3]++;
    }
    for (int i = 0; i < 7; i++)
        assert_in_range(counts[i], 9500, 10500);
    assert_true(test_random_in(&random, 5, 5) == 5);
    for (int i = 0; i < 100; i++)
        test_random_in(&random, INT64_MIN, INT64_MAX);
}

static void
normal_has_mean_zero_and_deviation_one(void **fixture)
{
    (void)fixture;
    struct test_random random = {2};
    double sum = 0, squares = 0;
    const int count = 100000;
    for (int i = 0; i < count; i++) {
        double value = test_random_normal(&random);
        assert_true(isfinite(value));
        sum += value;
        squares += value * value;
    }
    assert_true(fabs(sum / count) < 0.02);
    assert_true(fabs(squares / count - 1) < 0.03);
}

static void
seed_and_draws_follow_the_environment(void **fixture)
{
    (void)fixture;
    unsetenv("ULYX_TEST_SEED");
    unsetenv("ULYX_TEST_DRAWS");
    assert_true(test_seed(9) == 9);
    assert_int_equal(test_draws(10), 10);
    setenv("ULYX_TEST_SEED", "0x10", 1);
    setenv("ULYX_TEST_DRAWS", "2.5", 1);
    assert_true(test_seed(9) == 16);
    assert_int_equal(test_draws(10), 25);
    setenv("ULYX_TEST_DRAWS", "0.001", 1);
    assert_int_equal(test_draws(10), 1);
}

static void
kernel_bytes_differ_each_time(void **fixture)
{
    (void)fixture;
    unsigned char a[32] = {0}, b[32] = {0}, large[4096] = {0};
    assert_status(uli_random_bytes(a, sizeof(a)), ULYX_SUCCESS);
    assert_status(uli_random_bytes(b, sizeof(b)), ULYX_SUCCESS);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_status(uli_random_bytes(large, sizeof(large)), ULYX_SUCCESS);
    int zeros = 0;
    for (size_t i = 0; i < sizeof(large); i++)
        zeros += large[i] == 0;
    assert_in_range(zeros, 0, 80);
    assert_status(uli_random_bytes(a, 0), ULYX_SUCCESS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sequence_is_splitmix64),
    cmocka_unit_test(range_is_inclusive_and_even),
    cmocka_unit_test(normal_has_mean_zero_and_deviation_one),
    cmocka_unit_test(seed_and_draws_follow_the_environment),
    cmocka_unit_test(kernel_bytes_differ_each_time),
};

ULI_TEST_MAIN("Random", tests)
