/* SPDX-License-Identifier: Apache-2.0
 *
 * Connects to a service, as a strange process could.
 */
#ifndef TESTS_COMM_SERVICE_SERVICE_DIAL_H
#define TESTS_COMM_SERVICE_SERVICE_DIAL_H

#include <stdbool.h>

/* A connection to the abstract socket; -1 where no socket has the name. */
int dial(const char *name);
/* True where the service of that name answers. */
bool answers_ping(const char *name);

#endif
