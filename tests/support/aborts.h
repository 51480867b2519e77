/* SPDX-License-Identifier: Apache-2.0
 *
 * Aborts that are not ours. UCX 1.13 ends a process by an assertion of its own
 * when a peer dies while the two are about to connect (ucp_request.c, "got REP
 * message"); what becomes of that process is not ours to test.
 */
#ifndef TESTS_SUPPORT_ABORTS_H
#define TESTS_SUPPORT_ABORTS_H

#include <stdatomic.h>

/* From now on an abort that UCX has called ends this process with exit code 0
 * and counts; any other ends it as ever. */
void aborts_watch(_Atomic int *count);

#endif
