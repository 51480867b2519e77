/* SPDX-License-Identifier: Apache-2.0
 *
 * Who knocks at a listener and says one message of a known length, for ends
 * that have no root's loop. All are heard at the same time, so one who says
 * nothing holds up nobody.
 */
#ifndef ULI_BOOTSTRAP_MEET_KNOCK_H
#define ULI_BOOTSTRAP_MEET_KNOCK_H

#include <stdbool.h>
#include <stddef.h>
#include "base/system/clock.h"

enum { ULI_KNOCK_BYTES_MAX = 32 };

/* Whether the message is of one that is wanted, whose descriptor (which does
 * not block) is the callee's from then on. */
typedef bool (*uli_knock_fn)(void *context, int fd, const void *message);

/* Hears messages of `bytes` bytes until `wanted` were taken. Others are closed,
 * also those that have not spoken by the end or within two seconds, or stand
 * longest where too many are silent.
 * returns 0; ETIMEDOUT; ECONNABORTED (stop_fd has become readable); errno. */
int uli_knock_hear(int listener, int stop_fd, size_t bytes, int wanted,
    uli_knock_fn take, void *context, uli_deadline_t deadline);

#endif
