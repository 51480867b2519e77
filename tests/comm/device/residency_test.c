/* SPDX-License-Identifier: Apache-2.0
 *
 * Claims of blocks that wait for each other: all granted blocks fit on the
 * device at one time, beside the launches of one warp that wait, whichever
 * kernels claim, in whichever order.
 */
#include "comm/device/residency.h"

#include <stdint.h>
#include "support/random.h"
#include "support/test.h"

enum { DEVICE = 40, OTHER = 41, SMS = 10 };

static void
give_back(int32_t device, int32_t per_sm, int32_t blocks)
{
    struct uli_residency room = {.per_sm = per_sm, .claimed = blocks};
    uli_residency_release(device, &room);
}

static void
stop_waiting(int32_t device, int32_t waits)
{
    struct uli_residency room = {.waits = waits};
    uli_residency_release(device, &room);
}

static void
claims_are_refused_beyond_the_devices_room(void **state)
{
    (void)state;
    assert_true(uli_residency_claim(DEVICE, SMS, 2, 16));
    assert_false(uli_residency_claim(DEVICE, SMS, 2, 4));
    assert_true(uli_residency_claim(OTHER, SMS, 2, 19));
    assert_true(uli_residency_claim(DEVICE, SMS, 2, 3));
    give_back(DEVICE, 2, 16);
    assert_true(uli_residency_claim(DEVICE, SMS, 2, 16));
    give_back(DEVICE, 2, 16);
    give_back(DEVICE, 2, 3);
    give_back(OTHER, 2, 19);
}

/* A block that takes a whole multiprocessor leaves no room there for blocks
 * that take a half, and blocks that take a half may each lie on a different
 * multiprocessor. */
static void
kernels_of_different_sizes_share_by_the_largest(void **state)
{
    (void)state;
    assert_true(uli_residency_claim(DEVICE, SMS, 1, 7));
    assert_false(uli_residency_claim(DEVICE, SMS, 2, 3));
    assert_true(uli_residency_claim(DEVICE, SMS, 2, 2));
    give_back(DEVICE, 1, 7);
    assert_true(uli_residency_claim(DEVICE, SMS, 2, 17));
    assert_false(uli_residency_claim(DEVICE, SMS, 1, 1));
    give_back(DEVICE, 2, 12);
    assert_true(uli_residency_claim(DEVICE, SMS, 1, 2));
    assert_false(uli_residency_claim(DEVICE, SMS, 1, 1));
    give_back(DEVICE, 1, 2);
    give_back(DEVICE, 2, 7);
}

/* One warp may keep a block of a whole multiprocessor from starting. */
static void
a_wait_takes_the_room_of_a_block(void **state)
{
    (void)state;
    assert_true(uli_residency_claim(DEVICE, SMS, 1, SMS - 1));
    assert_true(uli_residency_wait(DEVICE, SMS, 1));
    assert_false(uli_residency_wait(DEVICE, SMS, 1)); /* counted all the same */
    give_back(DEVICE, 1, SMS - 1);
    assert_false(uli_residency_claim(DEVICE, SMS, 1, SMS - 1));
    assert_true(uli_residency_claim(DEVICE, SMS, 1, SMS - 2));
    give_back(DEVICE, 1, SMS - 2);
    stop_waiting(DEVICE, 2);
    assert_true(uli_residency_claim(DEVICE, SMS, 1, SMS - 1));
    give_back(DEVICE, 1, SMS - 1);
}

/* Draws claims and waits, then places the granted blocks at random, each wait
 * as if its multiprocessor had to hold one more of the largest. */
static void
granted_blocks_fit_in_any_placement(void **state)
{
    struct test_random random = {test_seed(31)};
    (void)state;
    for (int64_t left = test_draws(200); left > 0; left--) {
        int64_t blocks[64];
        int32_t per_sm[64], n = 0, most = 8, waits = 0;
        int64_t used[SMS] = {0}; /* in 840ths, which 1 to 8 divide */
        for (int i = 0; i < 64; i++) {
            per_sm[n] = (int32_t)test_random_in(&random, 1, 8);
            blocks[n] = test_random_in(&random, 1, 9);
            if (test_random_in(&random, 0, 9) == 0) {
                bool fits = uli_residency_wait(DEVICE, SMS, 1);
                waits += fits;
                if (!fits)
                    stop_waiting(DEVICE, 1);
            } else if (uli_residency_claim(DEVICE, SMS, per_sm[n], blocks[n])) {
                most = per_sm[n] < most ? per_sm[n] : most;
                n++;
            }
        }
        per_sm[n] = most;
        blocks[n] = waits;
        for (int i = 0; i <= n; i++)
            for (int64_t b = 0; b < blocks[i]; b++) {
                int64_t at = test_random_in(&random, 0, SMS - 1), tries = 0;
                while (used[at] + 840 / per_sm[i] > 840 && tries++ < SMS)
                    at = (at + 1) % SMS;
                used[at] += 840 / per_sm[i];
                assert_in_range(used[at], 0, 840);
            }
        assert_true(n > 0);
        for (int i = 0; i < n; i++)
            give_back(DEVICE, per_sm[i], (int32_t)blocks[i]);
        stop_waiting(DEVICE, waits);
    }
    assert_true(uli_residency_claim(DEVICE, SMS, 1, SMS - 1));
    give_back(DEVICE, 1, SMS - 1);
}

static void
no_such_device_has_no_room(void **state)
{
    (void)state;
    assert_false(uli_residency_claim(-1, SMS, 1, 1));
    assert_false(uli_residency_claim(64, SMS, 1, 1));
    assert_false(uli_residency_wait(64, SMS, 1));
    stop_waiting(-1, 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(claims_are_refused_beyond_the_devices_room),
    cmocka_unit_test(kernels_of_different_sizes_share_by_the_largest),
    cmocka_unit_test(a_wait_takes_the_room_of_a_block),
    cmocka_unit_test(granted_blocks_fit_in_any_placement),
    cmocka_unit_test(no_such_device_has_no_room),
};

ULI_TEST_MAIN("CommResidency", tests)
