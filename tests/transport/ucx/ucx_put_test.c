/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite of ULI_TR_PUT on ucx.
 */
#include "transport/put_conformance.h"

const struct uli_tr_ops *const put_subject = &uli_tr_ucx_ops;

ULI_TEST_MAIN("UcxPut", put_tests)
