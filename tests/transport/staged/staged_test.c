/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite on staged, without ULI_TR_BATCH.
 */
#include "device/fake_open.h"
#include "transport/conformance.h"

static bool
open_driver(void)
{
    return fake_driver_open() != NULL;
}

const struct conformance conformance_subject = {
    .ops = &uli_tr_staged_ops,
    .open = open_driver,
};

ULI_TEST_MAIN("Staged", conformance_tests)
