/* SPDX-License-Identifier: Apache-2.0
 *
 * A short deterministic run of the fuzz entry. ULYX_TEST_DRAWS sets a longer
 * one.
 */
#include <stdlib.h>
#include "collectives/layout/layout_fuzz.h"
#include "support/random.h"
#include "support/test.h"

static void
random_bytes_are_refused_or_right(void **state)
{
    (void)state;
    struct test_random random = {test_seed(10)};
    int64_t accepted = 0, draws = test_draws(20000);
    for (int64_t i = 0; i < draws; i++) {
        uint8_t data[400];
        for (size_t k = 0; k < sizeof(data); k++)
            data[k] = (uint8_t)test_random_next(&random);
        accepted += LLVMFuzzerTestOneInput(
            data, (size_t)test_random_in(&random, 0, sizeof(data)));
    }
    print_message("accepted %ld of %ld\n", (long)accepted, (long)draws);
    assert_true(accepted > draws / 20 && accepted < draws);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_bytes_are_refused_or_right),
};

ULI_TEST_MAIN("LayoutFuzz", tests)
