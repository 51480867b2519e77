/* SPDX-License-Identifier: Apache-2.0
 *
 * Dumps: the flight recorders of a process as a file, so that a hang of many
 * hosts can be looked at afterwards (ulyx_info report). One is written when a
 * communicator fails, by its deadline or otherwise, upon a signal that the user
 * chooses, and by ulyx_comm_dump.
 *
 * A thread of its own writes it, alive while a communicator has asked for it by
 * ULYX_DUMP_FILE: a file system may hang, and neither a call whose deadline is
 * over nor the service may hang with it. A call that ends by a failure waits a
 * moment for the file, since its caller may end the process next. The handler
 * of the signal, and an abort, which may come from a handler, only count the
 * request and wake the thread.
 */
#ifndef ULI_COMM_RECORD_DUMP_H
#define ULI_COMM_RECORD_DUMP_H

#include "comm/comm.h"

/* For a communicator whose settings are loaded: starts the thread and takes the
 * signal, if they ask for it. Errors: SYSTEM. */
ulyx_status_t uli_dump_hold(ulyx_comm_t *comm);
/* After the communicator has left the registry. Waits for a file that is being
 * written for at most a second. */
void uli_dump_release(ulyx_comm_t *comm);

/* The communicator has just failed: has a dump written, if it has asked for
 * them. Async-signal-safe; waits for nothing. */
void uli_dump_request(ulyx_comm_t *comm);
/* Of a communicator that has failed: waits until the dump is there, at most a
 * quarter of a second from the failure on. Any thread. */
void uli_dump_settle(ulyx_comm_t *comm);
/* The calling thread never waits for dumps: it holds what they need. */
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
    int64_t wall_ns; /* of a zero of the monotonic clock, since 1970 */
};
/* One JSON object of all communicators: begin, each of them, end. To add one
 * takes the service's lock, under which its peers do not change. */
void uli_dump_text_begin(
    struct uli_dump_text *text, enum uli_dump_cause cause, const char *host);
void uli_dump_text_add(struct uli_dump_text *text, ulyx_comm_t *comm);
void uli_dump_text_end(struct uli_dump_text *text);

#endif
