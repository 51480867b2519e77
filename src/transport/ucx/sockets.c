/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets that end with this process. A connection ends, and its other end
 * detects the end, when the last copy of its descriptor is closed: a forked
 * child with a copy would hide its parent's death. So a handler closes these
 * sockets in every forked child, and exec closes them too. `lock` is held from
 * before a socket is made until its number is recorded, and a fork waits for
 * the lock, so the handler finds every socket. The handler also clears the
 * record: in the child uli_ucx_hang_up closes nothing, because another file may
 * have the socket's number by then.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include "transport/ucx/net.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int *held; /* the sockets' numbers: nheld, with room for `room` */
static size_t nheld, room; /* these three under lock */

static void
before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void
after_fork_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void
after_fork_child(void)
{
    for (size_t i = 0; i < nheld; i++)
        close(held[i]);
    nheld = 0;
    pthread_mutex_unlock(&lock);
}

static void
install_handlers(void)
{
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* Makes room for one more socket before it is made. True: the lock is held. */
static bool
sockets_prepare(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_handlers);
    pthread_mutex_lock(&lock);
    if (nheld < room)
        return true;
    int *grown = realloc(held, (room + 64) * sizeof(*held));
    if (!grown) {
        pthread_mutex_unlock(&lock);
        errno = ENOMEM;
        return false;
    }
    held = grown;
    room += 64;
    return true;
}

static int
sockets_hold(int fd)
{
    int error = errno;
    if (fd >= 0)
        held[nheld++] = fd;
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}

int
uli_ucx_socket(sa_family_t family)
{
    return sockets_prepare()
               ? sockets_hold(socket(
                     family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0))
               : -1;
}

int
uli_ucx_accept(int listener)
{
    return sockets_prepare() ? sockets_hold(accept4(listener, NULL, NULL,
                                   SOCK_NONBLOCK | SOCK_CLOEXEC))
                             : -1;
}

void
uli_ucx_hang_up(int *fd)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; *fd >= 0 && i < nheld; i++)
        if (held[i] == *fd) {
            held[i] = held[--nheld];
            close(*fd);
            break;
        }
    pthread_mutex_unlock(&lock);
    *fd = -1;
}
