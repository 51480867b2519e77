/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of ranks in messages.
 */
#include "support/test.h"

#include <stdio.h>
#include <string.h>
#include "base/late.h"
#include "base/rank_list.h"
#include "base/status.h"

/* context: a string with one letter per rank, 'x' = chosen. */
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
long_lists_end_with_the_number_left_out(void **state)
{
    char ranks[2001], text[80];
    (void)state;
    for (int i = 0; i < 2000; i++)
        ranks[i] = i % 2 ? '.' : 'x';
    ranks[2000] = 0;
    for (size_t bytes = 40; bytes < sizeof(text); bytes++) {
        int listed = 1, more = 0;
        memset(text, 'g', sizeof(text));
        uli_rank_list_text(2000, is_x, ranks, text, bytes);
        assert_true(strlen(text) < bytes);
        for (const char *at = text; (at = strchr(at, ',')); at++)
            listed++;
        assert_int_equal(
            sscanf(strstr(text, " and "), " and %d more", &more), 1);
        assert_string_equal(text + strlen(text) - 5, " more");
        assert_int_equal(listed + more, 1000);
        assert_int_equal(text[bytes], 'g');
    }
}

/* ---- late ranks ---------------------------------------------------------- */

static void
late_ranks_are_runs_and_the_rest_is_counted(void **state)
{
    struct uli_late late = uli_late_none(ULI_LATE_MOVE);
    char text[128];
    (void)state;
    uli_late_add(&late, 3);
    uli_late_ranks(&late, text, sizeof(text));
    assert_string_equal(text, "rank 3");
    for (int32_t rank = 5; rank < 8; rank++)
        uli_late_add(&late, rank);
    uli_late_ranks(&late, text, sizeof(text));
    assert_string_equal(text, "ranks 3, 5-7");
    assert_true(uli_late_lists(&late, 6) && !uli_late_lists(&late, 4));
    for (int32_t rank = 100; rank < 140; rank += 2)
        uli_late_add(&late, rank);
    uli_late_add(&late, 139); /* next to one that was counted only */
    assert_int_equal(late.count, 25);
    uli_late_ranks(&late, text, sizeof(text));
    assert_string_equal(text,
        "ranks 3, 5-7, 100, 102, 104, 106, 108, 110, 112, 114, 116, 118, 120, "
        "122 and 9 more");
    for (size_t bytes = 24; bytes < sizeof(text); bytes++) {
        memset(text, 'g', sizeof(text));
        uli_late_ranks(&late, text, bytes);
        assert_true(strlen(text) < bytes);
        assert_string_equal(text + strlen(text) - 5, " more");
    }
}

/* A rank's list of late ranks comes from the memory of other ranks. */
static void
late_ranks_of_others_are_taken_only_whole(void **state)
{
    struct uli_late good = uli_late_none(ULI_LATE_REACH), bad, out;
    struct uli_late before = uli_late_none(ULI_LATE_MAP);
    (void)state;
    uli_late_add(&good, 1);
    uli_late_add(&good, 6);
    good.origin = 7;
    assert_true(uli_late_take(&good, 8, &out));
    assert_memory_equal(&out, &good, sizeof(out));
    const struct {
        int32_t *field, value;
    } cases[] = {{&bad.nruns, 0}, {&bad.nruns, -1}, {&bad.nruns, 15},
        {&bad.phase, -1}, {&bad.phase, ULI_LATE_PHASES}, {&bad.origin, -2},
        {&bad.origin, 8}, {&bad.count, 1}, {&bad.count, 9},
        {&bad.runs[0].first, -1}, {&bad.runs[0].last, 0},
        {&bad.runs[1].first, 1}, {&bad.runs[1].last, 8}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bad = good;
        *cases[i].field = cases[i].value;
        out = before;
        assert_false(uli_late_take(&bad, 8, &out));
        assert_memory_equal(&out, &before, sizeof(out));
    }
}

/* ---- the cause ----------------------------------------------------------- */

enum { VIEWED = 6 };

/* The waits of ranks, from which rank 0 finds the cause. */
struct waits {
    bool missing[VIEWED];
    int32_t awaits[VIEWED];
    const char *named;
    bool marks[VIEWED];
};

static bool
waits_missing(void *context, int32_t rank)
{
    return ((const struct waits *)context)->missing[rank];
}

static int32_t
waits_of(void *context, int32_t rank)
{
    return ((const struct waits *)context)->awaits[rank];
}

static bool *
waits_mark(void *context, int32_t rank)
{
    return &((struct waits *)context)->marks[rank];
}

static void
those_that_only_wait_themselves_are_not_named(void **state)
{
    static const struct waits cases[] = {
        /* no rank has announced a wait */
        {{0, 1, 0, 0, 1, 0}, {-1, -1, -1, -1, -1, -1}, "ranks 1, 4"},
        /* rank 1 waits for rank 2, which is not missing here and waits for rank
         * 5 */
        {{0, 1, 0, 0, 0, 0}, {-1, 2, 5, -1, -1, -1}, "rank 5"},
        {{0, 1, 1, 1, 0, 0}, {-1, 3, 3, -1, -1, -1}, "rank 3"},
        /* a circle, and a rank that waits for rank 0 */
        {{0, 1, 1, 0, 0, 0}, {-1, 2, 1, -1, -1, -1}, "ranks 1-2"},
        {{0, 1, 0, 0, 0, 0}, {-1, 3, -1, 1, -1, -1}, "ranks 1, 3"},
        /* a wait that leads into a circle, and one through this rank */
        {{0, 1, 0, 0, 0, 0}, {-1, 2, 4, -1, 2, -1}, "ranks 2, 4"},
        {{0, 1, 0, 0, 0, 0}, {1, 2, 5, -1, -1, 0}, "ranks 1-2, 5"},
        {{0, 1, 0, 0, 0, 0}, {1, 0, -1, -1, -1, -1}, "rank 1"},
        /* the circle is not the cause, because another rank is */
        {{0, 1, 1, 0, 1, 0}, {-1, 2, 1, -1, 5, -1}, "rank 5"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct waits waits = cases[i];
        struct uli_late_view view = {
            &waits, VIEWED, 0, waits_missing, waits_of, waits_mark};
        char text[64];
        memset(
            /* left by an earlier search */
            waits.marks, true, sizeof(waits.marks));
        struct uli_late late = uli_late_find(&view, ULI_LATE_REACH);
        uli_late_ranks(&late, text, sizeof(text));
        assert_string_equal(text, cases[i].named);
        assert_int_equal(late.phase, ULI_LATE_REACH);
    }
}

/* ---- the wording --------------------------------------------------------- */

static void
each_phase_is_worded(void **state)
{
    char text[ULI_LATE_TEXT_BYTES];
    (void)state;
    struct uli_late late = uli_late_one(ULI_LATE_MAP, 3);
    uli_late_text(&late, "attach", "node5, pid 412", text, sizeof(text));
    assert_string_equal(text,
        "attach: timed out waiting for rank 3 (node5, pid 412) to map it");
    uli_late_add(&late, 5);
    late.origin = 1;
    uli_late_text(&late, "attach", "node5, pid 412", text, sizeof(text));
    assert_string_equal(text,
        "attach: timed out waiting for ranks 3, 5 to map it, by the deadline "
        "of rank 1");
    late = uli_late_none(ULI_LATE_ANSWER);
    uli_late_text(&late, "gather 2", "the root", text, sizeof(text));
    assert_string_equal(
        text, "gather 2: timed out waiting for the root to answer");
    uli_late_text(&late, "gather 2", "", text, sizeof(text));
    assert_non_null(strstr(text, "this rank did not run in time"));
    for (int phase = 0; phase < ULI_LATE_PHASES; phase++) {
        late = uli_late_one((enum uli_late_phase)phase, 7);
        assert_status(uli_late_error(&late, "", "x"), ULYX_ERR_TIMEOUT);
        assert_non_null(strstr(uli_error_text(), "x: timed out waiting for"));
        assert_null(strstr(uli_error_text(), "(null)"));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(late_ranks_are_runs_and_the_rest_is_counted),
    cmocka_unit_test(late_ranks_of_others_are_taken_only_whole),
    cmocka_unit_test(those_that_only_wait_themselves_are_not_named),
    cmocka_unit_test(each_phase_is_worded),
    cmocka_unit_test(ranges_are_as_short_as_can_be),
    cmocka_unit_test(long_lists_end_with_the_number_left_out),
};

ULI_TEST_MAIN("RankList", tests)
