/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes whole files whose names come from settings. A name may be
 * that of anything: of a pipe without a writer, or of a device without end. So
 * only regular files are read, without waiting and up to a maximum size, and
 * only regular files are replaced.
 */
#ifndef ULI_BASE_SYSTEM_FILE_H
#define ULI_BASE_SYSTEM_FILE_H

#include <stddef.h>
#include "ulyx/types.h"

#define ULI_FILE_WHY 128

/* Fills *text_p with the file; the caller frees it. A zero byte follows the
 * text, which *bytes_p does not count. Logs nothing and sets no last error,
 * because the settings of the log are read with it.
 * returns SUCCESS; else why_p has the reason, without the file's name:
 * ERR_SYSTEM with errno (ENOENT: there is none; EINVAL: not a regular file),
 * ERR_INVALID_ARGUMENT (more than max_bytes), ERR_NO_MEMORY. */
ulyx_status_t uli_file_read(const char *path, size_t max_bytes, char **text_p,
    size_t *bytes_p, char why_p[ULI_FILE_WHY]);

/* Replaces the file at path by these bytes: a reader that opens it finds the
 * old file or the whole new one. The new file is written beside it under
 * another name, which is removed after an error, and then renamed. Waits as
 * long as the file system does. Logs nothing and sets no last error. returns
 * SUCCESS; else ERR_SYSTEM, and why_p has the reason, without the file's name;
 * for instance, path names something that is not a regular file. */
ulyx_status_t uli_file_replace(
    const char *path, const char *text, size_t bytes, char why_p[ULI_FILE_WHY]);

/* Returns the line at *at_p, with a zero in place of its newline, and moves
 * *at_p behind it. The text ends at `end`, where it has a zero; NULL is
 * returned there. A zero byte inside a line ends the line for the caller. */
char *uli_file_next_line(char **at_p, char *end);

#endif
