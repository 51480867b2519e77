/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of ranks in messages.
 */
#include "support/test.h"

#include <string.h>
#include "comm/rank_list.h"

/* context: a string with a letter a rank, 'x' = chosen. */
static bool
is_x(const void *context, int32_t rank)
{
    return ((const char *)context)[rank] == 'x';
}

static void
ranges_are_as_short_as_can_be(void **state)
{
    static const struct {
        const char *ranks, *ranges, *list;
    } cases[] = {
        {"....", "", "ranks "},
        {"..x.", "2", "rank 2"},
        {"x.x.", "0, 2", "ranks 0, 2"},
        {"xx.x", "0-1, 3", "ranks 0-1, 3"},
        {"xxxx", "0-3", "ranks 0-3"},
    };
    char text[64];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int32_t n = (int32_t)strlen(cases[i].ranks);
        uli_rank_ranges(n, is_x, cases[i].ranks, text, sizeof(text));
        assert_string_equal(text, cases[i].ranges);
        uli_rank_list_text(n, is_x, cases[i].ranks, text, sizeof(text));
        assert_string_equal(text, cases[i].list);
    }
}

static void
long_lists_end_in_dots_and_stay_inside(void **state)
{
    char ranks[2001], text[80];
    (void)state;
    for (int i = 0; i < 2000; i++)
        ranks[i] = i % 2 ? '.' : 'x';
    ranks[2000] = 0;
    for (size_t bytes = 40; bytes < sizeof(text); bytes++) {
        memset(text, 'g', sizeof(text));
        uli_rank_list_text(2000, is_x, ranks, text, bytes);
        assert_true(strlen(text) < bytes);
        assert_string_equal(text + strlen(text) - 5, ", ...");
        assert_int_equal(text[bytes], 'g');
    }
}

static void
a_cut_list_has_whole_numbers(void **state)
{
    static const char list[] = "9, 10, 11, 12";
    char text[16];
    (void)state;
    for (size_t bytes = 1; bytes < sizeof(text); bytes++) {
        memset(text, 'g', sizeof(text));
        uli_rank_list_cut(list, text, bytes);
        size_t length = strlen(text);
        assert_true(length < bytes);
        assert_memory_equal(text, list, length);
        assert_true(length == 0 || list[length] == ',' || !list[length]);
        assert_int_equal(text[bytes], 'g');
    }
    assert_string_equal(text, list);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_cut_list_has_whole_numbers),
    cmocka_unit_test(ranges_are_as_short_as_can_be),
    cmocka_unit_test(long_lists_end_in_dots_and_stay_inside),
};

ULI_TEST_MAIN("RankList", tests)
