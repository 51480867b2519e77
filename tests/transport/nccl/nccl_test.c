/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite on nccl, without ULI_TR_BATCH.
 */
#include "transport/conformance.h"

const struct conformance conformance_subject = {
    .ops = &uli_tr_nccl_ops,
};

ULI_TEST_MAIN("Nccl", conformance_tests)
