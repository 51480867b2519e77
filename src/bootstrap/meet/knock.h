/* SPDX-License-Identifier: Apache-2.0
 *
 * Receives one message of a known length from each connection to a listener,
 * for ends that do not run the root's loop. All connections are polled
 * together, so a silent connection delays no other.
 */
#ifndef ULI_BOOTSTRAP_MEET_KNOCK_H
#define ULI_BOOTSTRAP_MEET_KNOCK_H

#include <stdbool.h>
#include <stddef.h>
#include "base/system/clock.h"

enum { ULI_KNOCK_BYTES_MAX = 32 };

/* Returns true if the message comes from an awaited sender; the callback then
 * owns the descriptor, which is non-blocking. */
typedef bool (*uli_knock_fn)(void *context, int fd, const void *message);

/* Receives messages of `bytes` bytes until `take` has accepted `awaited` of
 * them. All other connections are closed: those that `take` refuses, those
 * whose message is not complete after two seconds or at the end, and the oldest
 * of those if there are too many.
 * returns 0; ETIMEDOUT; ECONNABORTED (stop_fd has become readable); errno. */
int uli_knock_receive(int listener, int stop_fd, size_t bytes, int awaited,
    uli_knock_fn take, void *context, uli_deadline_t deadline);

#endif
