/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes log lines without waiting for their readers.
 */
#ifndef ULI_BASE_LOG_SINK_H
#define ULI_BASE_LOG_SINK_H

#include <stdbool.h>
#include <stddef.h>

/* Opens a log file for appending. returns -1 with errno on failure. A pipe
 * without a reader is refused (ENXIO), so the call does not wait. */
int uli_log_sink_open(const char *path);

/* Writes one line of at most PIPE_BUF bytes, as a whole, to a descriptor of
 * uli_log_sink_open or, if shared, to a descriptor of the caller's, whose flags
 * are not changed. Neither waits nor raises SIGPIPE. Any thread. False: there
 * is no room for the line, or the reader is gone. */
bool uli_log_sink_write(int fd, bool shared, const char *line, size_t length);

#endif
