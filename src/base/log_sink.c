/* SPDX-License-Identifier: Apache-2.0
 *
 * A log must not stop the library: a pipe without a reader, or a terminal that
 * is held, would keep a caller beyond its deadline, and the service thread
 * with its lock.
 *
 * Descriptors of our own are non-blocking. Standard error is not ours:
 * O_NONBLOCK belongs to the open file, which other processes share, and poll
 * before write lets in a writer who fills the pipe between the two. So each
 * line opens what the descriptor is anew, for itself, through /proc/self/fd: a
 * file of its own on the same pipe or terminal. It is closed at once, so no
 * reader waits for its end longer than the caller's own descriptor lives, and a
 * descriptor that the caller redirects is followed. Sockets cannot be opened
 * but have a flag per call; regular files have a position, which is the shared
 * file's alone, and no reader that could delay a write. Where opening fails
 * (no /proc, another user's pipe, no descriptor left) poll is what remains: a
 * line of at most PIPE_BUF bytes is taken whole by a pipe that polls as
 * writable, unless another writer is faster.
 *
 * A line costs a few system calls, none of which waits; so it may be written
 * under a lock. A thread for it would end with the last hold, or never; what it
 * had in its ring would be lost with the process, which is when logs matter.
 */
#include "base/log_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int
uli_log_sink_open(const char *path)
{
    return open(path,
        O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
        0644);
}

/* ---- SIGPIPE ------------------------------------------------------------- */

/* Blocked in this thread; true when one was pending already. */
static bool
hold_sigpipe(sigset_t *before_p)
{
    sigset_t pipe_only, pending;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_only, before_p);
    return sigismember(&pending, SIGPIPE) == 1;
}

/* Takes back the one that our write has raised. */
static void
release_sigpipe(const sigset_t *before, bool raised)
{
    static const struct timespec now = {0, 0};
    sigset_t pipe_only;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    if (raised)
        while (sigtimedwait(&pipe_only, NULL, &now) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

static bool
write_once(int fd, const char *line, size_t length)
{
    sigset_t before;
    bool pending = hold_sigpipe(&before);
    ssize_t wrote;
    do
        wrote = write(fd, line, length);
    while (wrote < 0 && errno == EINTR);
    release_sigpipe(&before, wrote < 0 && errno == EPIPE && !pending);
    return wrote == (ssize_t)length;
}

/* ---- kinds of descriptors ------------------------------------------------ */

static bool
write_if_ready(int fd, const char *line, size_t length)
{
    struct pollfd entry = {fd, POLLOUT, 0};
    return poll(&entry, 1, 0) == 1 && !(entry.revents & (POLLERR | POLLNVAL)) &&
           write_once(fd, line, length);
}

/* A pipe or a terminal; false with *opened_p too where it takes no line. */
static bool
write_anew(int fd, const char *line, size_t length, bool *opened_p)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    *opened_p = own >= 0;
    if (own < 0)
        return false;
    bool done = write_once(own, line, length);
    close(own);
    return done;
}

static bool
write_shared(int fd, const char *line, size_t length)
{
    struct stat info;
    bool opened;
    if (fstat(fd, &info))
        return false;
    if (S_ISSOCK(info.st_mode))
        return send(fd, line, length, MSG_DONTWAIT | MSG_NOSIGNAL) ==
               (ssize_t)length;
    if (!S_ISFIFO(info.st_mode) && !S_ISCHR(info.st_mode))
        return write_once(fd, line, length);
    bool done = write_anew(fd, line, length, &opened);
    return opened ? done : write_if_ready(fd, line, length);
}

bool
uli_log_sink_write(int fd, bool shared, const char *line, size_t length)
{
    return shared ? write_shared(fd, line, length)
                  : write_once(fd, line, length);
}
