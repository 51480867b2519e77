/* SPDX-License-Identifier: Apache-2.0
 *
 * Aborts by UCX. UCX 1.13 ends a process by an assertion of its own when a peer
 * dies while the two are about to connect (ucp_request.c, "got REP message").
 * Tests do not count such a process.
 */
#ifndef TESTS_SUPPORT_ABORTS_H
#define TESTS_SUPPORT_ABORTS_H

#include <stdatomic.h>

/* From now on an abort by UCX ends this process with exit code 0 and is
 * counted; any other abort ends it as usual. */
void aborts_watch(_Atomic int *count);

#endif
