/* SPDX-License-Identifier: Apache-2.0
 *
 * Claims of blocks that wait for each other: all granted blocks fit on the
 * device at one time, whichever kernels claim, in whichever order.
 */
#include "comm/device/residency.h"

#include <stdint.h>
#include "support/random.h"
#include "support/test.h"

enum { DEVICE = 40, OTHER = 41, SMS = 10 };

static void
claims_end_where_the_device_is_full(void **state)
{
    (void)state;
    assert_true(uli_residency_claim(DEVICE, SMS, 2, 16));
    assert_false(uli_residency_claim(DEVICE, SMS, 2, 5));
    assert_true(uli_residency_claim(OTHER, SMS, 2, 20));
    assert_true(uli_residency_claim(DEVICE, SMS, 2, 4));
    uli_residency_release(DEVICE, 2, 16);
    assert_true(uli_residency_claim(DEVICE, SMS, 2, 16));
    uli_residency_release(DEVICE, 2, 16);
    uli_residency_release(DEVICE, 2, 4);
    uli_residency_release(OTHER, 2, 20);
}

/* A block that takes a whole multiprocessor leaves no room there for blocks
 * that take a half, and blocks that take a half may each lie on a different
 * multiprocessor. */
static void
kernels_of_different_sizes_share_by_the_largest(void **state)
{
    (void)state;
    assert_true(uli_residency_claim(DEVICE, SMS, 1, 8));
    assert_false(uli_residency_claim(DEVICE, SMS, 2, 3));
    assert_true(uli_residency_claim(DEVICE, SMS, 2, 2));
    uli_residency_release(DEVICE, 1, 8);
    assert_true(uli_residency_claim(DEVICE, SMS, 2, 18));
    assert_false(uli_residency_claim(DEVICE, SMS, 1, 1));
    uli_residency_release(DEVICE, 2, 12);
    assert_true(uli_residency_claim(DEVICE, SMS, 1, 2));
    assert_false(uli_residency_claim(DEVICE, SMS, 1, 1));
    uli_residency_release(DEVICE, 1, 2);
    uli_residency_release(DEVICE, 2, 8);
}

/* Draws claims, then places the granted blocks at random. */
static void
what_is_granted_has_room_however_it_is_placed(void **state)
{
    struct test_random random = {test_seed(31)};
    (void)state;
    for (int64_t left = test_draws(200); left > 0; left--) {
        int64_t blocks[64];
        int32_t per_sm[64], n = 0;
        int64_t used[SMS] = {0}; /* in 840ths, which 1 to 8 divide */
        for (int i = 0; i < 64; i++) {
            per_sm[n] = (int32_t)test_random_in(&random, 1, 8);
            blocks[n] = test_random_in(&random, 1, 9);
            n += uli_residency_claim(DEVICE, SMS, per_sm[n], blocks[n]);
        }
        for (int i = 0; i < n; i++)
            for (int64_t b = 0; b < blocks[i]; b++) {
                int64_t at = test_random_in(&random, 0, SMS - 1), tries = 0;
                while (used[at] + 840 / per_sm[i] > 840 && tries++ < SMS)
                    at = (at + 1) % SMS;
                used[at] += 840 / per_sm[i];
                assert_in_range(used[at], 0, 840);
            }
        assert_true(n > 0);
        for (int i = 0; i < n; i++)
            uli_residency_release(DEVICE, per_sm[i], blocks[i]);
    }
    assert_true(uli_residency_claim(DEVICE, SMS, 1, SMS));
    uli_residency_release(DEVICE, 1, SMS);
}

static void
no_such_device_has_no_room(void **state)
{
    (void)state;
    assert_false(uli_residency_claim(-1, SMS, 1, 1));
    assert_false(uli_residency_claim(64, SMS, 1, 1));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(claims_end_where_the_device_is_full),
    cmocka_unit_test(kernels_of_different_sizes_share_by_the_largest),
    cmocka_unit_test(what_is_granted_has_room_however_it_is_placed),
    cmocka_unit_test(no_such_device_has_no_room),
};

ULI_TEST_MAIN("CommResidency", tests)
