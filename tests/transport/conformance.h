/* SPDX-License-Identifier: Apache-2.0
 *
 * The suite that every transport must pass: selection, MAP and READ. A test
 * program of a transport defines conformance_subject and runs
 * conformance_tests; for a capability that the transport lacks, the cases check
 * that it returns UNSUPPORTED. The other capabilities have suites of their own:
 * PUT put_conformance.h, MAP_DEVICE map_device_conformance.h, BATCH
 * batch_conformance.h.
 */
#ifndef TESTS_TRANSPORT_CONFORMANCE_H
#define TESTS_TRANSPORT_CONFORMANCE_H

#include "support/test.h"
#include "transport/transport.h"

struct conformance {
    const struct uli_tr_ops *ops;
    bool same_process;  /* reaches ranks of this process only */
    bool (*open)(void); /* prepares the machine; NULL: nothing needed */
};

extern const struct conformance conformance_subject;

int conformance_open(void **state);

void conformance_reports_the_reason(void **state);
void conformance_reach_is_symmetric(void **state);
void conformance_maps(void **state);
void conformance_unmaps(void **state);
void conformance_refuses_bad_handles(void **state);
void conformance_refuses_unsafe_files(void **state);
void conformance_probes(void **state);
void conformance_reads_pieces(void **state);
void conformance_reads_many_pieces(void **state);
void conformance_names_a_lost_peer(void **state);
void conformance_refuses_what_it_lacks(void **state);

#define CONFORMANCE_CASE(name) cmocka_unit_test_setup(name, conformance_open)

static const struct CMUnitTest conformance_tests[] = {
    CONFORMANCE_CASE(conformance_reports_the_reason),
    CONFORMANCE_CASE(conformance_reach_is_symmetric),
    CONFORMANCE_CASE(conformance_maps),
    CONFORMANCE_CASE(conformance_unmaps),
    CONFORMANCE_CASE(conformance_refuses_bad_handles),
    CONFORMANCE_CASE(conformance_refuses_unsafe_files),
    CONFORMANCE_CASE(conformance_probes),
    CONFORMANCE_CASE(conformance_reads_pieces),
    CONFORMANCE_CASE(conformance_reads_many_pieces),
    CONFORMANCE_CASE(conformance_names_a_lost_peer),
    CONFORMANCE_CASE(conformance_refuses_what_it_lacks),
};

#endif
