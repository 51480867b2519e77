/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranges of ports: what is read and what is refused, and that a search gives
 * each port of the range once.
 */
#include "base/system/port.h"

#include <string.h>
#include "support/test.h"

static void
ranges_are_read(void **state)
{
    static const struct {
        const char *text;
        uint16_t first, last;
    } rows[] = {{"", 0, 0}, {"29600", 29600, 29600}, {"1-65535", 1, 65535},
        {"29600-29699", 29600, 29699}, {"7-7", 7, 7}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct uli_port_range range = {9, 9};
        assert_true(uli_port_range_parse(rows[i].text, &range));
        assert_int_equal(range.first, rows[i].first);
        assert_int_equal(range.last, rows[i].last);
    }
}

static void
other_texts_are_refused(void **state)
{
    static const char *const rows[] = {"0", "0-5", "5-4", "5-", "-5", "65536",
        "1-65536", "1-2-3", "a", "1a", "1-a", " 1", "1 ", "1,2", "999999999999",
        "+5", "1--2"};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct uli_port_range range = {9, 9};
        if (uli_port_range_parse(rows[i], &range))
            fail_msg("\"%s\" is taken for a range", rows[i]);
        assert_int_equal(range.first, 9); /* unchanged */
    }
}

static void
search_gives_each_port_once(void **state)
{
    static const struct uli_port_range ranges[] = {
        {0, 0}, {5, 5}, {1, 65535}, {29600, 29699}, {65534, 65535}};
    static int seen[65536];
    (void)state;
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        struct uli_port_search search = uli_port_search(ranges[i]);
        int count = 0;
        uint16_t port;
        memset(seen, 0, sizeof(seen));
        for (; uli_port_next(&search, &port); count++) {
            assert_in_range(port, ranges[i].first, ranges[i].last);
            assert_int_equal(seen[port]++, 0);
        }
        assert_int_equal(count, ranges[i].last - ranges[i].first + 1);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranges_are_read),
    cmocka_unit_test(other_texts_are_refused),
    cmocka_unit_test(search_gives_each_port_once),
};

ULI_TEST_MAIN("Port", tests)
