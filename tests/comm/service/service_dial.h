/* SPDX-License-Identifier: Apache-2.0
 *
 * Talking to a service as a stranger would.
 */
#ifndef TESTS_COMM_SERVICE_SERVICE_DIAL_H
#define TESTS_COMM_SERVICE_SERVICE_DIAL_H

#include <stdbool.h>

/* A connection to the abstract socket; -1 when nobody has the name. */
int dial(const char *name);
/* True when the service by that name answers. */
bool answers_ping(const char *name);

#endif
