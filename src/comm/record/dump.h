/* SPDX-License-Identifier: Apache-2.0
 *
 * Dumps: the flight recorders of a process as a file, so that a hang of many
 * hosts can be examined afterwards (ulyx_info report). A dump is written when a
 * communicator fails, by its deadline or otherwise; upon a signal that the user
 * chooses; and by ulyx_comm_dump.
 *
 * A thread of its own writes dumps. It lives while there is a communicator with
 * ULYX_DUMP_FILE set. A file system may hang, and neither a call whose deadline
 * is over nor the service may hang with it. A call that ends by a failure waits
 * a moment for the file, since its caller may end the process next. The handler
 * of the signal, and an abort, which may come from a handler, only record the
 * request and wake the thread.
 */
#ifndef ULI_COMM_RECORD_DUMP_H
#define ULI_COMM_RECORD_DUMP_H

#include "comm/comm.h"

/* For a communicator whose settings are loaded: starts the thread and installs
 * the signal handler, where the settings have them. Errors: SYSTEM. */
ulyx_status_t uli_dump_hold(ulyx_comm_t *comm);
/* Called after the communicator has left the registry. Waits at most one second
 * for a file that is being written. */
void uli_dump_release(ulyx_comm_t *comm);

/* The communicator has just failed: requests a dump, if its settings name a
 * file. Async-signal-safe; does not wait. */
void uli_dump_request(ulyx_comm_t *comm);
/* For a communicator that has failed: waits until the dump is written, at most
 * a quarter of a second from the failure on. Any thread. */
void uli_dump_settle(ulyx_comm_t *comm);
/* The calling thread never waits for dumps: it holds a lock that they need. */
void uli_dump_never_wait(void);

/* Writes a dump now, in the calling thread. pattern: as ULYX_DUMP_FILE.
 * Errors: SYSTEM (the file), NO_MEMORY. */
ulyx_status_t uli_dump_write(const char *pattern);

/* ---- the text (dump_text.c) ---------------------------------------------- */

enum uli_dump_cause { ULI_DUMP_ERROR, ULI_DUMP_SIGNAL, ULI_DUMP_CALL };

struct uli_dump_text {
    char *at; /* freed by the caller; NULL: memory ran out */
    size_t bytes, length;
    bool failed;
    int32_t ncomms;
    int64_t wall_ns; /* since 1970, at zero of the monotonic clock */
};
/* Builds one JSON object of all communicators: begin, add for each, end. add is
 * called under the service's lock, so that the peers do not change. */
void uli_dump_text_begin(
    struct uli_dump_text *text, enum uli_dump_cause cause, const char *host);
void uli_dump_text_add(struct uli_dump_text *text, ulyx_comm_t *comm);
void uli_dump_text_end(struct uli_dump_text *text);

#endif
