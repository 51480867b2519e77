/* SPDX-License-Identifier: Apache-2.0
 *
 * The last error is in a fixed buffer per thread: reporting a failure must not
 * fail itself, so nothing here allocates.
 */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"

#define ERROR_TEXT_BYTES 1024

static _Thread_local char last_error[ERROR_TEXT_BYTES];

/* The caller gets status and text; this line is for readers of the log. */
static void
log_error(ulyx_status_t status)
{
    ULI_INFO(ULI_LOG_ALL, -1, "%s: %s", uli_status_name(status), last_error);
}

/* The arguments may point into last_error, so the text is made in another
 * buffer. */
static void
set_text(const char *format, va_list arguments)
{
    char text[ERROR_TEXT_BYTES];
    vsnprintf(text, sizeof(text), format, arguments);
    memcpy(last_error, text, sizeof(text));
}

ulyx_status_t
uli_error(ulyx_status_t status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_text(format, arguments);
    va_end(arguments);
    log_error(status);
    return status;
}

ulyx_status_t
uli_error_errno(const char *format, ...)
{
    int number = errno;
    ulyx_status_t status =
        number == ENOMEM ? ULYX_ERR_NO_MEMORY : ULYX_ERR_SYSTEM;
    va_list arguments;
    va_start(arguments, format);
    set_text(format, arguments);
    va_end(arguments);
    size_t used = strlen(last_error);
    snprintf(last_error + used, sizeof(last_error) - used, ": %s",
        uli_errno_text(number));
    log_error(status);
    errno = number;
    return status;
}

const char *
uli_errno_text(int number)
{
    static _Thread_local char unknown[64];
    return strerror_r(number, unknown, sizeof(unknown));
}

ulyx_status_t
uli_error_pass(ulyx_status_t status, const char *text)
{
    if (text != last_error)
        snprintf(last_error, sizeof(last_error), "%s", text);
    return status;
}

const char *
uli_error_text(void)
{
    return last_error;
}

const char *
uli_status_name(ulyx_status_t status)
{
    switch (status) {
#define STATUS_NAME(name, value, text)                                         \
    case value:                                                                \
        return "ULYX_" #name;
        ULYX_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    default:
        return "ULYX_UNKNOWN_STATUS";
    }
}

const char *
uli_status_text(ulyx_status_t status)
{
    switch (status) {
#define STATUS_TEXT(name, value, text)                                         \
    case value:                                                                \
        return text;
        ULYX_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    default:
        return "unknown status";
    }
}

ulyx_status_t
uli_status_of_peer(ulyx_status_t status)
{
    switch (status) {
    case ULYX_ERR_NO_MEMORY:
    case ULYX_ERR_TIMEOUT:
    case ULYX_ERR_RANK_LOST:
        return status;
    default:
        return ULYX_ERR_PEER_REFUSED;
    }
}

const char *
uli_status_reason(ulyx_status_t status, const void *reason, size_t bytes,
    char text_p[ULI_REFUSAL_TEXT_BYTES])
{
    const unsigned char *at = reason;
    const char *words = uli_status_text(status);
    if (bytes > ULI_REFUSAL_BYTES)
        bytes = ULI_REFUSAL_BYTES;
    size_t length = bytes ? strnlen(reason, bytes) : 0;
    size_t used = (size_t)snprintf(
        text_p, ULI_REFUSAL_TEXT_BYTES, "%s%s", words, length ? ": " : "");
    for (size_t n = 0; n < length && used + 1 < ULI_REFUSAL_TEXT_BYTES; n++)
        text_p[used++] = (char)(at[n] >= ' ' && at[n] < 127 ? at[n] : '?');
    text_p[used] = 0;
    return text_p;
}
