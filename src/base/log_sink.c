/* SPDX-License-Identifier: Apache-2.0
 *
 * Logging must never block the library. A write to a pipe that nobody reads, or
 * to a terminal that is stopped, could delay a caller beyond its deadline, or
 * the service thread while it holds a lock.
 *
 * Descriptors that the library opens are non-blocking. Standard error belongs
 * to the program: O_NONBLOCK would also affect other processes that share the
 * open file, and poll before write fails if another writer fills the pipe
 * between the two. So for each line the pipe or terminal behind the descriptor
 * is opened again, through /proc/self/fd. This gives an open file of the
 * library's own, which is closed at once: no reader waits longer for the end of
 * the pipe, and a descriptor that the caller redirects is followed. Sockets
 * cannot be opened again, but send has a flag per call. Regular files are
 * written directly: they have no reader that could delay a write, and only the
 * shared open file has the right position. If opening fails (no /proc, a pipe
 * of another user, no free descriptor), poll is used: a pipe that polls as
 * writable takes a line of at most PIPE_BUF bytes whole, unless another writer
 * is faster.
 *
 * A line costs a few system calls, none of which waits, so a line may be
 * written under a lock. A logging thread with a queue would lose its queue when
 * the process dies, which is when logs matter.
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

/* Blocks SIGPIPE in this thread; true if one was pending already. */
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

/* Removes the SIGPIPE that the write has raised, and restores the mask. */
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

/* Writes to a pipe or a terminal, which it opens again. *opened_p: whether it
 * could be opened. False with *opened_p true: there is no room for the line. */
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
