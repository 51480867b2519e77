/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of a test program as JUnit XML, in the shape GoogleTest writes.
 */
#ifndef TESTS_SUPPORT_JUNIT_H
#define TESTS_SUPPORT_JUNIT_H

#include <stdbool.h>
#include <stddef.h>

enum junit_result {
    JUNIT_PASSED,
    JUNIT_FAILED,
    JUNIT_SKIPPED,
};

struct junit;

/* NULL when path is NULL; the calls below then do nothing. */
struct junit *junit_open(const char *path, const char *suite);
/* What is written to stderr between begin and end is kept for the report; end
 * also writes it to the real stderr. */
void junit_begin(struct junit *report);
void junit_end(struct junit *report, const char *test, enum junit_result result,
    double seconds);
/* Writes the file. If this fails, prints the reason and returns false. */
bool junit_close(struct junit *report);

#endif
