/* SPDX-License-Identifier: Apache-2.0
 *
 * Test cases with every outcome. Only reports_test.py runs them.
 */
#include <stdio.h>
#include <unistd.h>
#include "base/status.h"
#include "support/ranks.h"
#include "support/test.h"

static void
passes(void **fixture)
{
    (void)fixture;
    assert_int_equal(1, 1);
}

static void
passes_too(void **fixture)
{
    (void)fixture;
    assert_status(ULYX_SUCCESS, ULYX_SUCCESS);
}

static void
fails(void **fixture)
{
    (void)fixture;
    uli_error_pass(ULYX_ERR_BUSY, "text with <angle> & \"quotes\"");
    assert_status(ULYX_ERR_BUSY, ULYX_SUCCESS);
}

static void
skips(void **fixture)
{
    (void)fixture;
    test_skip("no %s here", "GPU");
}

static int
hang_on_rank_one(int rank, int nranks, void *context)
{
    (void)nranks, (void)context;
    while (rank == 1)
        pause();
    return 0;
}

static void
hangs(void **fixture)
{
    (void)fixture;
    ranks_run_threads(3, hang_on_rank_one, NULL, 0.2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(passes),
    cmocka_unit_test(passes_too),
    cmocka_unit_test(fails),
    cmocka_unit_test(skips),
    cmocka_unit_test(hangs),
};

ULI_TEST_MAIN("Sample", tests)
