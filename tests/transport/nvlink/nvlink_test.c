/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite on nvlink, without ULI_TR_MAP_DEVICE.
 */
#include "device/fake_open.h"
#include "transport/conformance.h"

static bool
open_driver(void)
{
    return fake_driver_open() != NULL;
}

const struct conformance conformance_subject = {
    .ops = &uli_tr_nvlink_ops,
    .open = open_driver,
};

ULI_TEST_MAIN("Nvlink", conformance_tests)
