/* SPDX-License-Identifier: Apache-2.0
 *
 * The main of every test program. Each selected case runs as a cmocka group of
 * its own, because only a group's result distinguishes failed from passed; a
 * case that began, did not end and did not fail was skipped.
 */
#include "support/test.h"

#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "support/junit.h"
#include "ulyx/types.h"

#define EXIT_SKIPPED 77

struct test_options {
    const char *filter;
    const char *junit; /* file of the report, or NULL */
    bool list, list_gtest;
};

/* The test case that is running. */
static const struct CMUnitTest *current;
static bool current_ended;

static void
run_current(void **fixture)
{
    current->test_func(fixture);
    current_ended = true;
}

void
test_skip(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("SKIPPED: ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    fflush(stdout);
    skip();
}

void
test_assert_status(int32_t status, int32_t expected, const char *call,
    const char *file, int line)
{
    if (status == expected)
        return;
    print_error("%s gave %s, expected %s; last error: \"%s\"\n", call,
        ulyx_status_name(status), ulyx_status_name(expected),
        ulyx_last_error());
    _fail(file, line);
}

bool
error_has(const char *text)
{
    if (strstr(ulyx_last_error(), text))
        return true;
    fprintf(stderr, "\"%s\" is not in \"%s\"\n", text, ulyx_last_error());
    return false;
}

/* ---- selection ----------------------------------------------------------- */

/* Returns whether the case matches one of the patterns in [begin, end), which
 * ':' separates. */
static bool
any_matches(const char *begin, const char *end, const char *name)
{
    while (begin < end) {
        const char *stop = memchr(begin, ':', (size_t)(end - begin));
        size_t length = (size_t)((stop ? stop : end) - begin);
        char pattern[512];
        snprintf(pattern, sizeof(pattern), "%.*s", (int)length, begin);
        if (length && fnmatch(pattern, name, 0) == 0)
            return true;
        begin += length + 1;
    }
    return false;
}

static bool
test_selected(const char *filter, const char *suite, const char *test)
{
    char name[512];
    snprintf(name, sizeof(name), "%s.%s", suite, test);
    const char *end = filter + strlen(filter);
    const char *minus = strchr(filter, '-');
    const char *positive_end = minus ? minus : end;
    bool in = positive_end == filter || any_matches(filter, positive_end, name);
    return in && !(minus && any_matches(minus + 1, end, name));
}

/* ---- command line -------------------------------------------------------- */

/* Returns the value of `--name=value` or of `--name value`, or NULL if the
 * argument has another name. */
static const char *
value_of(const char *name, char **argv, int *i)
{
    size_t length = strlen(name);
    if (strncmp(argv[*i], name, length))
        return NULL;
    if (argv[*i][length] == '=')
        return argv[*i] + length + 1;
    if (argv[*i][length] == 0 && argv[*i + 1])
        return argv[++*i];
    return NULL;
}

static void
set_gtest_output(struct test_options *options, const char *value)
{
    if (strncmp(value, "xml", 3))
        return;
    options->junit = value[3] == ':' ? value + 4 : "test_detail.xml";
}

static bool
parse_options(int argc, char **argv, struct test_options *options)
{
    *options = (struct test_options){.filter = "*"};
    for (int i = 1; i < argc; i++) {
        const char *value;
        if (strcmp(argv[i], "--list") == 0)
            options->list = true;
        else if (strcmp(argv[i], "--gtest_list_tests") == 0)
            options->list = options->list_gtest = true;
        else if ((value = value_of("--filter", argv, &i)) ||
                 (value = value_of("--gtest_filter", argv, &i)))
            options->filter = value;
        else if ((value = value_of("--junit", argv, &i)))
            options->junit = value;
        else if ((value = value_of("--gtest_output", argv, &i)))
            set_gtest_output(options, value);
        else if (strncmp(argv[i], "--gtest_", 8))
            return false;
    }
    return true;
}

static void
list_tests(const struct test_options *options, const char *suite,
    const struct CMUnitTest *tests, size_t count)
{
    if (options->list_gtest)
        printf("%s.\n", suite);
    for (size_t i = 0; i < count; i++) {
        if (!test_selected(options->filter, suite, tests[i].name))
            continue;
        if (options->list_gtest)
            printf("  %s\n", tests[i].name);
        else
            printf("%s.%s\n", suite, tests[i].name);
    }
}

/* ---- running ------------------------------------------------------------- */

static enum junit_result
run_one(const char *suite, const struct CMUnitTest *test)
{
    struct CMUnitTest one = *test;
    one.test_func = run_current;
    current = test;
    current_ended = false;
    fflush(NULL);
    int failed = _cmocka_run_group_tests(suite, &one, 1, NULL, NULL);
    fflush(NULL);
    if (failed)
        return JUNIT_FAILED;
    return current_ended ? JUNIT_PASSED : JUNIT_SKIPPED;
}

int
test_main(int argc, char **argv, const char *suite,
    const struct CMUnitTest *tests, size_t count)
{
    struct test_options options;
    if (!parse_options(argc, argv, &options)) {
        fprintf(stderr,
            "usage: %s [--list] [--filter PATTERN] [--junit FILE]\n", argv[0]);
        return 2;
    }
    if (options.list) {
        list_tests(&options, suite, tests, count);
        return 0;
    }
    struct junit *report = junit_open(options.junit, suite);
    size_t totals[3] = {0}, selected = 0;
    for (size_t i = 0; i < count; i++) {
        if (!test_selected(options.filter, suite, tests[i].name))
            continue;
        selected++;
        junit_begin(report);
        int64_t begin = uli_clock_ns();
        enum junit_result result = run_one(suite, &tests[i]);
        double seconds = (double)(uli_clock_ns() - begin) * 1e-9;
        junit_end(report, tests[i].name, result, seconds);
        totals[result]++;
    }
    bool written = junit_close(report);
    printf("%s: %zu passed, %zu failed, %zu skipped\n", suite,
        totals[JUNIT_PASSED], totals[JUNIT_FAILED], totals[JUNIT_SKIPPED]);
    if (selected == 0) {
        fprintf(stderr, "no case of %s matches %s; --list shows all cases\n",
            suite, options.filter);
        return 2;
    }
    if (totals[JUNIT_FAILED] || !written)
        return 1;
    return totals[JUNIT_SKIPPED] && !totals[JUNIT_PASSED] ? EXIT_SKIPPED : 0;
}
