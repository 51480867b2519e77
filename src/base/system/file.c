/* SPDX-License-Identifier: Apache-2.0
 *
 * O_NONBLOCK serves twice: opening a pipe does not wait for its other end, and
 * a read of a file that is regular to the kernel but has no end (/proc/kmsg)
 * gives EAGAIN. The size is checked while reading, because such files report
 * none.
 */
#include "base/system/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
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

/* Reads the rest of the file, at most `bytes` bytes; -1 with errno. */
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

/* ---- writing ------------------------------------------------------------- */

static bool
write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t wrote = write(fd, text, bytes);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        text += wrote;
        bytes -= (size_t)wrote;
    }
    return true;
}

/* False, with errno, if path names anything but a regular file. */
static bool
may_replace(const char *path)
{
    struct stat info;
    if (lstat(path, &info))
        return errno == ENOENT;
    errno = EINVAL;
    return S_ISREG(info.st_mode);
}

ulyx_status_t
uli_file_replace(
    const char *path, const char *text, size_t bytes, char why_p[ULI_FILE_WHY])
{
    static _Atomic uint32_t written;
    char name[PATH_MAX];
    int length = snprintf(name, sizeof(name), "%s.%d.%u", path, (int)getpid(),
        atomic_fetch_add(&written, 1));
    errno = ENAMETOOLONG;
    if (length >= (int)sizeof(name) || !may_replace(path))
        return file_explain(ULYX_ERR_SYSTEM, why_p);
    int fd =
        open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return file_explain(ULYX_ERR_SYSTEM, why_p);
    bool good = write_all(fd, text, bytes);
    int number = errno;
    if (close(fd) && good) {
        good = false;
        number = errno;
    }
    if (good && rename(name, path) == 0)
        return ULYX_SUCCESS;
    number = good ? errno : number;
    unlink(name);
    errno = number;
    return file_explain(ULYX_ERR_SYSTEM, why_p);
}

/* ---- lines --------------------------------------------------------------- */

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
