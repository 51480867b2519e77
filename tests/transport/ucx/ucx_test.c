/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite on ucx, without ULI_TR_PUT.
 */
#include "transport/conformance.h"

const struct conformance conformance_subject = {
    .ops = &uli_tr_ucx_ops,
};

ULI_TEST_MAIN("Ucx", conformance_tests)
