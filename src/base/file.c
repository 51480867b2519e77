/* SPDX-License-Identifier: Apache-2.0
 *
 * O_NONBLOCK serves twice: opening a pipe does not wait for its other end, and
 * what the kernel calls regular but has no end (/proc/kmsg) says EAGAIN. The
 * size is checked as the bytes come, since such files have none.
 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIRST_BYTES = 65536 };

/* -1 with errno. */
static int
open_regular(const char *path)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -1;
    int number = fstat(fd, &info) ? errno : 0;
    if (!number && !S_ISREG(info.st_mode))
        number = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
    if (!number)
        return fd;
    close(fd);
    errno = number;
    return -1;
}

/* What is left of the file, at most `bytes` of it; -1 with errno. */
static ssize_t
read_some(int fd, char *to, size_t bytes)
{
    size_t have = 0;
    while (have < bytes) {
        ssize_t got = read(fd, to + have, bytes - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        have += (size_t)got;
    }
    return (ssize_t)have;
}

static ulyx_status_t
file_explain(ulyx_status_t status, char *why_p)
{
    const char *text = errno == EINVAL ? "not a regular file" : strerror(errno);
    snprintf(why_p, ULI_FILE_WHY, "%s",
        status == ULYX_ERR_NO_MEMORY ? "no memory" : text);
    return status;
}

/* Grows *text_p until it holds all of the file and a zero. */
static ulyx_status_t
read_all(int fd, size_t max_bytes, char **text_p, size_t *bytes_p, char *why_p)
{
    size_t have = 0;
    for (size_t room = FIRST_BYTES;; room *= 2) {
        char *larger = realloc(*text_p, room);
        if (!larger)
            return file_explain(ULYX_ERR_NO_MEMORY, why_p);
        *text_p = larger;
        ssize_t got = read_some(fd, larger + have, room - 1 - have);
        if (got < 0)
            return file_explain(ULYX_ERR_SYSTEM, why_p);
        have += (size_t)got;
        if (have > max_bytes) {
            snprintf(why_p, ULI_FILE_WHY, "more than %zu bytes", max_bytes);
            return ULYX_ERR_INVALID_ARGUMENT;
        }
        if (have + 1 < room)
            break;
    }
    (*text_p)[have] = 0;
    *bytes_p = have;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_file_read(const char *path, size_t max_bytes, char **text_p,
    size_t *bytes_p, char why_p[ULI_FILE_WHY])
{
    char *text = NULL;
    size_t bytes = 0;
    int fd = open_regular(path);
    if (fd < 0)
        return file_explain(ULYX_ERR_SYSTEM, why_p);
    ulyx_status_t status = read_all(fd, max_bytes, &text, &bytes, why_p);
    int number = errno;
    close(fd);
    errno = number;
    if (status != ULYX_SUCCESS) {
        free(text);
        return status;
    }
    *text_p = text;
    *bytes_p = bytes;
    return ULYX_SUCCESS;
}

char *
uli_file_next_line(char **at_p, char *end)
{
    char *line = *at_p;
    if (line >= end)
        return NULL;
    char *newline = memchr(line, '\n', (size_t)(end - line));
    *at_p = newline ? newline + 1 : end;
    if (newline)
        *newline = 0;
    return line;
}
