/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that a setting names, read or written whole. A name may be anything: a
 * pipe without a writer, a device without end. So only regular files are read,
 * never waiting, and up to a size, and only such are replaced.
 */
#ifndef ULI_BASE_SYSTEM_FILE_H
#define ULI_BASE_SYSTEM_FILE_H

#include <stddef.h>
#include "ulyx/types.h"

#define ULI_FILE_WHY 128

/* Fills *text_p (freed by the caller, ended by a zero that *bytes_p does not
 * count) with the file. Logs nothing and sets no last error: the settings of
 * the log are read by it.
 * returns SUCCESS; else why_p has the reason, without the name: ERR_SYSTEM
 * with errno (ENOENT: there is none; EINVAL: not a regular file),
 * ERR_INVALID_ARGUMENT (more than max_bytes), ERR_NO_MEMORY. */
ulyx_status_t uli_file_read(const char *path, size_t max_bytes, char **text_p,
    size_t *bytes_p, char why_p[ULI_FILE_WHY]);

/* Replaces the file at path by these bytes: a reader that opens it finds the
 * old file or the whole new one. The new file is written beside it under
 * another name, which is removed after an error, and then renamed. Waits as
 * long as the file system does. Logs nothing and sets no last error. returns
 * SUCCESS; else ERR_SYSTEM, and why_p has the reason, without the name: path
 * names something that is not a regular file, for instance. */
ulyx_status_t uli_file_replace(
    const char *path, const char *text, size_t bytes, char why_p[ULI_FILE_WHY]);

/* Cuts the line at *at_p off a text that ends at `end` (where its zero is),
 * without its newline; NULL at the end. A zero inside ends its line. */
char *uli_file_next_line(char **at_p, char *end);

#endif
