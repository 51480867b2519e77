/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlines: the ends of the range, rounding, and waiting for one.
 */
#include "base/system/clock.h"

#include <math.h>
#include <poll.h>
#include "support/test.h"

static void
clock_never_runs_backwards(void **fixture)
{
    (void)fixture;
    int64_t before = uli_clock_ns();
    for (int i = 0; i < 10000; i++) {
        int64_t now = uli_clock_ns();
        assert_true(now >= before);
        before = now;
    }
}

static void
deadline_in_zero_or_less_is_over(void **fixture)
{
    (void)fixture;
    assert_true(uli_deadline_over(uli_deadline_in(0)));
    assert_true(uli_deadline_over(uli_deadline_in(-5)));
    assert_true(uli_deadline_over(uli_deadline_in(-INFINITY)));
    assert_true(uli_deadline_over(uli_deadline_in(NAN)));
}

static void
deadline_beyond_the_clock_never_comes(void **fixture)
{
    (void)fixture;
    assert_true(uli_deadline_in(1e300) == INT64_MAX);
    assert_true(uli_deadline_in(INFINITY) == INT64_MAX);
    assert_false(uli_deadline_over(INT64_MAX));
    assert_int_equal(uli_deadline_poll_ms(INT64_MAX, 50), 50);
}

static void
poll_ms_is_held_between_zero_and_the_slice(void **fixture)
{
    (void)fixture;
    assert_int_equal(uli_deadline_poll_ms(uli_deadline_in(-1), 50), 0);
    assert_int_equal(uli_deadline_poll_ms(INT64_MIN, 50), 0);
    assert_int_equal(uli_deadline_poll_ms(uli_deadline_in(3600), 50), 50);
}

/* If waits were rounded down, one of less than a millisecond would spin. */
static void
poll_ms_rounds_up(void **fixture)
{
    (void)fixture;
    uli_deadline_t deadline = uli_deadline_in(0.0005);
    int ms = uli_deadline_poll_ms(deadline, 50);
    assert_true(ms == 1 || uli_deadline_over(deadline));
}

static void
deadline_passes_when_slept_through(void **fixture)
{
    (void)fixture;
    uli_deadline_t deadline = uli_deadline_in(0.02);
    int64_t begin = uli_clock_ns();
    while (!uli_deadline_over(deadline))
        poll(NULL, 0, uli_deadline_poll_ms(deadline, 5));
    assert_true(uli_clock_ns() - begin >= 19 * 1000000);
}

static void
timeout_zero_takes_the_default(void **fixture)
{
    (void)fixture;
    assert_true(uli_timeout_or(0, 600) == 600);
    assert_true(uli_timeout_or(-1, 600) == 600);
    assert_true(uli_timeout_or(NAN, 60) == 60);
    assert_true(uli_timeout_or(2.5, 600) == 2.5);
}

static void
default_of_zero_is_ten_minutes(void **fixture)
{
    (void)fixture;
    assert_true(uli_timeout_or(0, 0) == 600);
    assert_true(uli_timeout_or(-1, -1) == 600);
    assert_true(uli_timeout_or(NAN, NAN) == 600);
    assert_true(uli_timeout_or(3, 0) == 3);
}

static void
timeout_is_at_most_one_day(void **fixture)
{
    (void)fixture;
    assert_true(uli_timeout_or(1e9, 600) == 86400);
    assert_true(uli_timeout_or(INFINITY, 600) == 86400);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(clock_never_runs_backwards),
    cmocka_unit_test(deadline_in_zero_or_less_is_over),
    cmocka_unit_test(deadline_beyond_the_clock_never_comes),
    cmocka_unit_test(poll_ms_is_held_between_zero_and_the_slice),
    cmocka_unit_test(poll_ms_rounds_up),
    cmocka_unit_test(deadline_passes_when_slept_through),
    cmocka_unit_test(timeout_zero_takes_the_default),
    cmocka_unit_test(default_of_zero_is_ten_minutes),
    cmocka_unit_test(timeout_is_at_most_one_day),
};

ULI_TEST_MAIN("Clock", tests)
