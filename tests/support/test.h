/* SPDX-License-Identifier: Apache-2.0
 *
 * One cmocka program per file. Every test ends with
 *     ULI_TEST_MAIN("Suite", tests)
 * where tests is a static const array of struct CMUnitTest. The program takes
 * --list, --filter PATTERN, --junit FILE, and GoogleTest's --gtest_list_tests,
 * --gtest_filter=, --gtest_output=xml: with the same meanings. PATTERN is
 * GoogleTest's: A*:B?-C* selects what A* or B? matches and C* does not. It is
 * compared with Suite.case; a PATTERN that no case matches ends with 2.
 */
#ifndef TESTS_SUPPORT_TEST_H
#define TESTS_SUPPORT_TEST_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

int test_main(int argc, char **argv, const char *suite,
    const struct CMUnitTest *tests, size_t count);

#define ULI_TEST_MAIN(suite, tests)                                            \
    int main(int argc, char **argv)                                            \
    {                                                                          \
        return test_main(                                                      \
            argc, argv, suite, tests, sizeof(tests) / sizeof((tests)[0]));     \
    }

/* Skips the running test and prints the reason as "SKIPPED: <text>". A program
 * whose selected tests were all skipped ends with 77. */
void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Fails the test unless the call returns the status. On failure prints both
 * statuses by name and the library's last error. */
#define assert_status(call, expected)                                          \
    test_assert_status((call), (expected), #call, __FILE__, __LINE__)
void test_assert_status(int32_t status, int32_t expected, const char *call,
    const char *file, int line);

/* Returns whether the last error of this thread contains the text. If not,
 * prints both. */
bool error_has(const char *text);

#endif
