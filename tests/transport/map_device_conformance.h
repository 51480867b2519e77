/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite of ULI_TR_MAP_DEVICE, over the tests' driver of two
 * devices, whose memory this process can read. A test program of such a
 * transport defines map_device_subject. The owner is another process by its
 * name only; its windows are made here.
 */
#ifndef TESTS_TRANSPORT_MAP_DEVICE_CONFORMANCE_H
#define TESTS_TRANSPORT_MAP_DEVICE_CONFORMANCE_H

#include "support/test.h"
#include "transport/transport.h"

extern const struct uli_tr_ops *const map_device_subject;

int map_device_open(void **state);
int map_device_nothing_left(void **state);

void map_device_shows_the_window(void **state);
void map_device_reaches_addresses_within(void **state);
void map_device_maps_a_run(void **state);
void map_device_maps_many_times(void **state);
void map_device_gives_everything_back(void **state);
void map_device_refuses_bad_windows(void **state);
void map_device_names_the_driver(void **state);

#define MAP_DEVICE_CASE(name)                                                  \
    cmocka_unit_test_setup_teardown(                                           \
        name, map_device_open, map_device_nothing_left)

static const struct CMUnitTest map_device_tests[] = {
    MAP_DEVICE_CASE(map_device_shows_the_window),
    MAP_DEVICE_CASE(map_device_reaches_addresses_within),
    MAP_DEVICE_CASE(map_device_maps_a_run),
    MAP_DEVICE_CASE(map_device_maps_many_times),
    MAP_DEVICE_CASE(map_device_gives_everything_back),
    MAP_DEVICE_CASE(map_device_refuses_bad_windows),
    MAP_DEVICE_CASE(map_device_names_the_driver),
};

#endif
