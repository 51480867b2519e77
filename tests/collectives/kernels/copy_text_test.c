/* SPDX-License-Identifier: Apache-2.0
 *
 * Choices of copies as text: written text is read back as the same choice; text
 * with a mistake is refused, and the error names the line.
 */
#include "support/test.h"

#include <stdio.h>
#include <string.h>
#include "base/system/cpu.h"
#include "collectives/kernels/copy_measure.h"
#include "collectives/kernels/copy_text.h"
#include "support/random.h"

static bool
same_choice(const struct uli_copy_choice *a, const struct uli_copy_choice *b)
{
    bool same =
        a->stream_bytes == b->stream_bytes && a->fan_bytes == b->fan_bytes;
    for (int n = 0; n < ULI_COPY_SIZES * ULI_COPY_SOURCES; n++) {
        const struct uli_copy_way *x = &a->ways[0][0] + n;
        const struct uli_copy_way *y = &b->ways[0][0] + n;
        same = same && x->hint == y->hint && x->lanes == y->lanes &&
               x->ahead == y->ahead && x->stream == y->stream;
    }
    return same;
}

static void
text_is_read_as_it_was_written(void **state)
{
    (void)state;
    struct test_random random = {test_seed(1)};
    char text[ULI_COPY_TEXT], why[ULI_COPY_WHY];
    for (int64_t draw = test_draws(200); draw > 0; draw--) {
        struct uli_copy_choice choice = *uli_copy_defaults(), again;
        for (int n = 0; n < ULI_COPY_SIZES * ULI_COPY_SOURCES; n++) {
            (&choice.ways[0][0])[n] = (struct uli_copy_way){
                (enum uli_copy_hint)test_random_in(&random, 0, ULI_HINTS - 1),
                1 << test_random_in(&random, 0, 3),
                (int32_t)test_random_in(&random, 0, 256), false};
            (&choice.figures[0][0])[n] =
                (struct uli_copy_figure){test_random_unit(&random) * 9e5, 1e-9};
        }
        choice.stream_bytes = test_random_in(&random, 0, 1)
                                  ? INT64_MAX
                                  : test_random_in(&random, 0, INT64_MAX - 1);
        choice.fan_bytes =
            test_random_in(&random, 0, 1)
                ? INT64_MAX
                : test_random_in(&random, ULI_COPY_MEDIUM_BYTES, INT64_MAX - 1);
        size_t bytes = uli_copy_text_write(&choice, text);
        assert_true(bytes < ULI_COPY_TEXT && bytes == strlen(text));
        assert_true(uli_copy_text_read(text, bytes, true, &again, why));
        assert_true(same_choice(&choice, &again));
    }
}

/* Replaces the first `from` in the text of the defaults and reads the
 * result. */
static bool
reads_with(const char *from, const char *to, bool here, char why[ULI_COPY_WHY])
{
    char text[ULI_COPY_TEXT], changed[2 * ULI_COPY_TEXT];
    struct uli_copy_choice choice = *uli_copy_defaults(), read = choice;
    read.stream_bytes = 4711;
    uli_copy_text_write(&choice, text);
    const char *at = strstr(text, from);
    assert_non_null(at);
    int length = snprintf(changed, sizeof(changed), "%.*s%s%s",
        (int)(at - text), text, to, at + strlen(from));
    bool good = uli_copy_text_read(changed, (size_t)length, here, &read, why);
    assert_true(good == (read.stream_bytes != 4711));
    return good;
}

static void
text_of_others_is_refused_by_line(void **state)
{
    (void)state;
    char why[ULI_COPY_WHY] = "";
    static const struct {
        const char *from, *to, *why;
    } wrong[] = {{"ulyx-copies 2", "ulyx-copies 1", "line 1"},
        {"small apart", "tiny apart", "line 6: \"tiny apart"},
        {"small apart", "small beside", "line 6"},
        {"small on", "small apart", "line 7"},
        {"large on", "# large on", "nine ways"},
        {"small apart", "small apart x", "line 6"},
        {"stream ", "stream -", "line 15"},
        {"stream ", "stream 5\nstream ", "line 16"},
        {"stream ", "streams ", "line 15"},
        {"\nfan ", "\nfan 5\n# ", "line 16"},
        {"\nfan ", "\nfan never\nfan ", "line 17"},
        {"\nfan ", "\n# fan ", "a line fan"}, {"cpu ", "cpu \n# ", "line 2"},
        {"version ",
            "a line that is so long that it does not fit where lines "
            "are kept while they are looked at, ",
            "line 3: too long"}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_false(reads_with(wrong[i].from, wrong[i].to, false, why));
        if (!strstr(why, wrong[i].why))
            fail_msg("\"%s\" does not say \"%s\"", why, wrong[i].why);
    }
}

static void
numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"l2 3 16 0 0", "l2 0 16 0 0",
        "l2 16 16 0 0", "l2 4 -1 0 0", "l2 4 257 0 0", "l2 4 16 -1 0",
        "l2 4 16 nan 0", "l2 4 16 0 inf", "l2 4 16 0", "l2 4 16 0 0 0",
        "l3 4 16 0 0", "l2 99999999999999999999 16 0 0"};
    char why[ULI_COPY_WHY], text[ULI_COPY_TEXT], line[96];
    uli_copy_text_write(uli_copy_defaults(), text);
    const char *at = strstr(text, "small apart");
    snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
    assert_true(reads_with(line, "small apart l2 4 256 0 1.5", false, why));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char to[96];
        snprintf(to, sizeof(to), "small apart %s", wrong[i]);
        if (reads_with(line, to, false, why))
            fail_msg("\"%s\" was taken", to);
    }
}

/* Text of another machine is accepted from a requested file, but not from the
 * cache. */
static void
text_belongs_to_a_machine_and_version(void **state)
{
    (void)state;
    char why[ULI_COPY_WHY];
    static const char *const owners[][2] = {{"cpu ", "cpu other-"},
        {"version ", "version 9"}, {"kernel ", "kernel my"}};
    for (size_t i = 0; i < sizeof(owners) / sizeof(owners[0]); i++) {
        assert_true(reads_with(owners[i][0], owners[i][1], false, why));
        assert_false(reads_with(owners[i][0], owners[i][1], true, why));
        assert_non_null(strstr(why, "another processor"));
    }
    assert_true(strspn(uli_cpu_name(),
                    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                    "0123456789-._") == strlen(uli_cpu_name()));
    assert_true(uli_cpu_name()[0] != 0);
}

static void
text_of_any_bytes_is_survived(void **state)
{
    (void)state;
    struct test_random random = {test_seed(2)};
    char text[ULI_COPY_TEXT], why[ULI_COPY_WHY];
    for (int64_t draw = test_draws(2000); draw > 0; draw--) {
        struct uli_copy_choice choice;
        size_t bytes = uli_copy_text_write(uli_copy_defaults(), text);
        for (int64_t n = test_random_in(&random, 1, 4); n > 0; n--)
            text[test_random_in(&random, 0, (int64_t)bytes - 1)] =
                (char)test_random_in(&random, 0, 255);
        bytes = (size_t)test_random_in(&random, 0, (int64_t)bytes);
        if (!uli_copy_text_read(text, bytes, false, &choice, why))
            continue;
        for (int n = 0; n < ULI_COPY_SIZES * ULI_COPY_SOURCES; n++) {
            const struct uli_copy_way *way = &choice.ways[0][0] + n;
            assert_true((int)way->hint >= 0 && way->hint < ULI_HINTS);
            assert_true(way->lanes >= 1 && way->lanes <= ULI_LANES_MAX);
        }
    }
}

/* Any measured choice can be written and read back, and every measured way has
 * figures. */
static void
measured_choice_is_whole(void **state)
{
    (void)state;
    struct uli_copy_choice choice, again;
    char text[ULI_COPY_TEXT], why[ULI_COPY_WHY];
    uli_copy_measure(&choice);
    size_t bytes = uli_copy_text_write(&choice, text);
    assert_true(uli_copy_text_read(text, bytes, true, &again, why));
    assert_true(same_choice(&choice, &again));
    for (int n = 0; n < ULI_COPY_SIZES * ULI_COPY_SOURCES; n++) {
        const struct uli_copy_figure *figure = &choice.figures[0][0] + n;
        assert_true(figure->chosen >= figure->usual);
    }
    assert_true(choice.stream_bytes > 0);
    assert_true(choice.fan_bytes >= ULI_COPY_MEDIUM_BYTES);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(text_is_read_as_it_was_written),
    cmocka_unit_test(text_of_others_is_refused_by_line),
    cmocka_unit_test(numbers_out_of_range_are_refused),
    cmocka_unit_test(text_belongs_to_a_machine_and_version),
    cmocka_unit_test(text_of_any_bytes_is_survived),
    cmocka_unit_test(measured_choice_is_whole),
};

ULI_TEST_MAIN("CopyText", tests)
