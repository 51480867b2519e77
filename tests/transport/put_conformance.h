/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite of ULI_TR_PUT. A test program of such a transport
 * defines put_subject.
 */
#ifndef TESTS_TRANSPORT_PUT_CONFORMANCE_H
#define TESTS_TRANSPORT_PUT_CONFORMANCE_H

#include "support/test.h"
#include "transport/transport.h"

extern const struct uli_tr_ops *const put_subject;

void put_lands_whole(void **state);

static const struct CMUnitTest put_tests[] = {
    cmocka_unit_test(put_lands_whole),
};

#endif
