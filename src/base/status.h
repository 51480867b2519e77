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

/* The text of an errno value, valid until the thread's next call of this
 * function. */
const char *uli_errno_text(int number);

/* Sets the thread's last error without logging it: for an error that comes from
 * another thread or rank and was logged there. returns status. */
ulyx_status_t uli_error_pass(ulyx_status_t status, const char *text);

/* The text of ulyx_last_error(): that of the calling thread, never NULL. */
const char *uli_error_text(void);

/* Name and text of a status: static strings, also for unknown values. */
const char *uli_status_name(ulyx_status_t status);
const char *uli_status_text(ulyx_status_t status);

/* The status that this rank returns when a peer could not do its part of a
 * call. The peer's status is kept if it concerns a third rank (TIMEOUT,
 * RANK_LOST) or memory (NO_MEMORY); any other status becomes PEER_REFUSED. */
ulyx_status_t uli_status_of_peer(ulyx_status_t status);

/* A rank that refuses sends its error text to its peers: at most
 * ULI_REFUSAL_BYTES bytes, cut, and without a final 0 if it fills them. */
enum { ULI_REFUSAL_BYTES = 160, ULI_REFUSAL_TEXT_BYTES = 256 };
/* Makes the text "<text of status>: <reason>". The reason is what a peer has
 * sent: at most `bytes` bytes, up to a 0 if there is one, with ? for each byte
 * that is not printable. Without a reason, only the text of the status. returns
 * text_p. */
const char *uli_status_reason(ulyx_status_t status, const void *reason,
    size_t bytes, char text_p[ULI_REFUSAL_TEXT_BYTES]);

#define ULI_TRY(call)                                                          \
    do {                                                                       \
        ulyx_status_t uli_try_status = (call);                                 \
        if (uli_try_status != ULYX_SUCCESS)                                    \
            return uli_try_status;                                             \
    } while (0)

#endif
