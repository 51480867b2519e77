/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes calls of the library fail at a chosen moment. The linker replaces the C
 * library's functions by these (--wrap) in the objects of the library and of
 * the test; calls of other libraries are unaffected.
 */
#ifndef TESTS_FAILING_FAILING_H
#define TESTS_FAILING_FAILING_H

#include <pthread.h>
#include <stdbool.h>

/* The names of the wrapped functions, in failing.c's order. */
extern const char *const failing_names[];
int failing_kinds(void);

/* Makes the n-th call (from 1) of this kind fail, counted from now on over all
 * threads of this process. With n = 0 no call fails, and the calls are
 * counted. */
void failing_arm(int kind, int n);
/* From now on no call fails. Returns whether one has failed. Stores the number
 * of calls of the kind in *calls_p, unless calls_p is NULL. */
bool failing_disarm(int *calls_p);

/* Returns how many blocks the wrapped functions have allocated that were not
 * freed. */
long failing_blocks(void);

/* As pthread_create, for the test's own threads: never made to fail. */
int failing_thread(pthread_t *thread, void *(*body)(void *), void *context);

#endif
