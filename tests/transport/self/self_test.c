/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite on self.
 */
#include "transport/conformance.h"

const struct conformance conformance_subject = {
    .ops = &uli_tr_self_ops,
    .same_process = true,
};

ULI_TEST_MAIN("Self", conformance_tests)
