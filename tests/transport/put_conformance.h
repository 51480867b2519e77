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
void put_signals_after_data(void **state);
void put_values_only_grow(void **state);
void put_messages_keep_order(void **state);
void put_messages_of_all_sizes(void **state);
void put_moves_by_services(void **state);
void put_takes_many_threads(void **state);
void put_refuses_other_memory(void **state);
void put_refuses_rubbish_addresses(void **state);
void put_close_delivers(void **state);
void put_opens_and_closes(void **state);
void put_describes_itself(void **state);
void put_notices_death_when_idle(void **state);
void put_notices_death_when_busy(void **state);
void put_notices_death_of_the_sender(void **state);
void put_waits_for_a_stopped_peer(void **state);
void put_close_ends_although_a_peer_stands_still(void **state);
void put_reports_no_departure_as_death(void **state);
void put_close_reports_no_leaver_as_dead(void **state);
void put_survives_a_fork(void **state);

static const struct CMUnitTest put_tests[] = {
    cmocka_unit_test(put_lands_whole),
    cmocka_unit_test(put_signals_after_data),
    cmocka_unit_test(put_values_only_grow),
    cmocka_unit_test(put_messages_keep_order),
    cmocka_unit_test(put_messages_of_all_sizes),
    cmocka_unit_test(put_moves_by_services),
    cmocka_unit_test(put_takes_many_threads),
    cmocka_unit_test(put_refuses_other_memory),
    cmocka_unit_test(put_refuses_rubbish_addresses),
    cmocka_unit_test(put_close_delivers),
    cmocka_unit_test(put_opens_and_closes),
    cmocka_unit_test(put_describes_itself),
    cmocka_unit_test(put_notices_death_when_idle),
    cmocka_unit_test(put_notices_death_when_busy),
    cmocka_unit_test(put_notices_death_of_the_sender),
    cmocka_unit_test(put_waits_for_a_stopped_peer),
    cmocka_unit_test(put_close_ends_although_a_peer_stands_still),
    cmocka_unit_test(put_reports_no_departure_as_death),
    cmocka_unit_test(put_close_reports_no_leaver_as_dead),
    cmocka_unit_test(put_survives_a_fork),
};

#endif
