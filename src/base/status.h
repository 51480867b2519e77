/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors. The first function that has the cause reports it, once, through
 * uli_error(); all callers above pass the status up silently.
 */
#ifndef ULI_BASE_STATUS_H
#define ULI_BASE_STATUS_H

#include "ulyx/types.h"

/* Sets the thread's last error to the formatted text, logs it at INFO and
 * returns status: `return uli_error(ULYX_ERR_..., "rank %d: ...", r);` */
ulyx_status_t uli_error(ulyx_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* As uli_error, for a failed system call: ": <strerror(errno)>" is appended.
 * returns ULYX_ERR_NO_MEMORY for ENOMEM, else ULYX_ERR_SYSTEM. */
ulyx_status_t uli_error_errno(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* A system call's error in words, until the thread's next call. */
const char *uli_errno_text(int number);

/* Sets the text without logging: an error that came from another thread or
 * rank and was logged there. */
ulyx_status_t uli_error_pass(ulyx_status_t status, const char *text);

/* What ulyx_last_error() gives: the calling thread's text, never NULL. */
const char *uli_error_text(void);

/* Name and text of a status: static strings, also for unknown values. */
const char *uli_status_name(ulyx_status_t status);
const char *uli_status_text(ulyx_status_t status);

/* The status here of a call that a peer could not carry out. What the peer's
 * status says of a third rank (TIMEOUT, RANK_LOST), or of a shortage
 * (NO_MEMORY), is true here as well; any other refusal is PEER_REFUSED. */
ulyx_status_t uli_status_of_peer(ulyx_status_t status);

/* Why a rank refused, as sent to its peers: its text, of at most this many
 * bytes (cut, without a 0 at the end where it fills them). */
enum { ULI_REFUSAL_BYTES = 160, ULI_REFUSAL_TEXT_BYTES = 256 };
/* "<the status in words>: <reason>" from what a peer has sent, up to `bytes` or
 * a 0, with a ? for what is no printable character; without a reason the words
 * alone. returns text_p. */
const char *uli_status_reason(ulyx_status_t status, const void *reason,
    size_t bytes, char text_p[ULI_REFUSAL_TEXT_BYTES]);

#define ULI_TRY(call)                                                          \
    do {                                                                       \
        ulyx_status_t uli_try_status = (call);                                 \
        if (uli_try_status != ULYX_SUCCESS)                                    \
            return uli_try_status;                                             \
    } while (0)

#endif
