/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of the library that fail at a chosen moment. The linker puts these
 * functions in the place of the C library's (--wrap), for the library's objects
 * and the test's own; what other libraries call is not touched.
 */
#ifndef TESTS_FAILING_FAILING_H
#define TESTS_FAILING_FAILING_H

#include <pthread.h>
#include <stdbool.h>

/* The functions, in failing.c's order. */
extern const char *const failing_names[];
int failing_kinds(void);

/* From now on the n-th call (from 1) of this kind fails, in any thread of this
 * process; 0: no call fails, calls are counted. */
void failing_arm(int kind, int n);
/* Nothing fails any more. returns whether anything has; *calls_p, unless NULL:
 * how many calls of the kind there were. */
bool failing_disarm(int *calls_p);

/* Blocks that the wrapped functions have allocated and that were not freed. */
long failing_blocks(void);

/* For the test itself: never fails. */
int failing_thread(pthread_t *thread, void *(*body)(void *), void *context);

#endif
