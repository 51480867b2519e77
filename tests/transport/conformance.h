/* SPDX-License-Identifier: Apache-2.0
 *
 * What every transport has to pass, one group of cases a capability. A test
 * program of a transport defines conformance_subject and runs
 * conformance_tests; cases of capabilities that it lacks check that it says
 * so.
 */
#ifndef TESTS_TRANSPORT_CONFORMANCE_H
#define TESTS_TRANSPORT_CONFORMANCE_H

#include "support/test.h"
#include "transport/transport.h"

struct conformance {
    const struct uli_tr_ops *ops;
    bool same_process; /* reaches ranks of this process only */
};

extern const struct conformance conformance_subject;

void conformance_says_why(void **state);
void conformance_reaches_alike(void **state);
void conformance_maps(void **state);
void conformance_unmaps(void **state);
void conformance_probes(void **state);
void conformance_reads_pieces(void **state);
void conformance_reads_many_pieces(void **state);
void conformance_names_a_lost_peer(void **state);
void conformance_refuses_what_it_lacks(void **state);

static const struct CMUnitTest conformance_tests[] = {
    cmocka_unit_test(conformance_says_why),
    cmocka_unit_test(conformance_reaches_alike),
    cmocka_unit_test(conformance_maps),
    cmocka_unit_test(conformance_unmaps),
    cmocka_unit_test(conformance_probes),
    cmocka_unit_test(conformance_reads_pieces),
    cmocka_unit_test(conformance_reads_many_pieces),
    cmocka_unit_test(conformance_names_a_lost_peer),
    cmocka_unit_test(conformance_refuses_what_it_lacks),
};

#endif
