/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite on shm.
 */
#include "transport/conformance.h"

const struct conformance conformance_subject = {
    .ops = &uli_tr_shm_ops,
    .same_process = false,
};

ULI_TEST_MAIN("Shm", conformance_tests)
