/* SPDX-License-Identifier: Apache-2.0
 *
 * The root's listener: which connections are accepted to prove the secret, and
 * which are dropped when there is no room. Ranks that have joined are never
 * dropped for lack of room, and lack of room never ends a meeting: the listener
 * pauses, longer each time, and if the deadline is over first, the error names
 * the cause.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/log.h"
#include "base/size.h"
#include "base/status.h"
#include "base/text.h"
#include "bootstrap/meet/conn.h"

enum {
    ACCEPT_BATCH = 64,   /* then the ranks that have joined are served */
    STRANGER_MAX = 4096, /* beyond this the oldest is dropped */
    LATE_MAX = 8,        /* the same after all ranks have joined */
    STRANGER_SHARE = 4,  /* strangers have at most a quarter of the descriptors;
                          * the rest is for ranks and the process */
    PAUSE_FIRST_MS = 1,
    PAUSE_LONGEST_MS = 250
};
#define CROWDED_S 0.25 /* time for a proof if descriptors are short */

void
uli_listener_remove_file(struct uli_root *root)
{
    if (root->unlink_path[0])
        unlink(root->unlink_path);
    root->unlink_path[0] = 0;
}

void
uli_listener_shut(struct uli_root *root)
{
    for (int i = 0; i < root->params.listener_count; i++)
        close(root->params.listeners[i]);
    root->params.listener_count = 0;
    uli_listener_remove_file(root);
}

static void
peer_text(int fd, const struct sockaddr_storage *peer, char *text_p, size_t n)
{
    const struct sockaddr_in *v4 = (const void *)peer;
    const struct sockaddr_in6 *v6 = (const void *)peer;
    struct ucred user = {0};
    socklen_t length = sizeof(user);
    if (peer->ss_family == AF_INET) {
        inet_ntop(AF_INET, &v4->sin_addr, text_p, (socklen_t)n);
    } else if (peer->ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &v6->sin6_addr, text_p, (socklen_t)n);
    } else {
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &length);
        snprintf(text_p, n, "process %d of user %u", user.pid, user.uid);
    }
}

/* A connection that may be dropped for lack of room: it has not proved the
 * secret. If it is a rank's, the rank dials again, which it would not do after
 * the proof. */
static struct uli_conn *
oldest_unproven(const struct uli_root *root)
{
    const struct uli_list *node = root->strangers.next;
    for (; node != &root->strangers; node = node->next) {
        struct uli_conn *conn = ULI_CONTAINER_OF(node, struct uli_conn, node);
        if (conn->stage < ULI_CONN_JOIN)
            return conn;
    }
    return NULL;
}

void
uli_listener_close(struct uli_root *root)
{
    struct uli_conn *unproven;
    if (!root->params.stays)
        uli_listener_shut(root);
    while ((unproven = oldest_unproven(root)))
        uli_conn_drop(unproven, "all ranks have joined");
    ULI_INFO(ULI_LOG_INIT, -1,
        "bootstrap: all of %d rank%s joined; connections dropped: %d",
        root->meeting.nranks, uli_plural(root->meeting.nranks),
        root->meeting.strays.count);
}

/* ---- room ---------------------------------------------------------------- */

static void
watch_listeners(struct uli_root *root, uint32_t events)
{
    for (int i = 0; i < root->params.listener_count; i++) {
        int *listener = &root->params.listeners[i];
        struct epoll_event event = {.events = events, .data.ptr = listener};
        epoll_ctl(root->epoll_fd, EPOLL_CTL_MOD, *listener, &event);
    }
}

/* Removes the listeners from the epoll set for a while: they stay readable, and
 * an epoll with them would not sleep. */
static void
pause_door(struct uli_root *root)
{
    root->pause_ms = root->pause_ms
                         ? (int)uli_min(2 * root->pause_ms, PAUSE_LONGEST_MS)
                         : PAUSE_FIRST_MS;
    root->reopen = uli_deadline_in(root->pause_ms / 1000.0);
    watch_listeners(root, 0);
}

void
uli_listener_reopen(struct uli_root *root)
{
    root->reopen = INT64_MAX;
    watch_listeners(root, EPOLLIN);
}

static bool
root_crowded(const struct uli_root *root)
{
    struct rlimit limit = {0};
    if (root->stranger_count >=
        (root->state == ULI_ROOT_OPEN ? STRANGER_MAX : LATE_MAX))
        return true;
    getrlimit(RLIMIT_NOFILE, &limit);
    return (rlim_t)root->stranger_count >= limit.rlim_cur / STRANGER_SHARE &&
           !uli_socket_raise_limit();
}

static void
note_hindrance(struct uli_root *root, int number)
{
    char *text = root->meeting.hindrance;
    size_t bytes = sizeof(root->meeting.hindrance);
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    if (number == EMFILE)
        snprintf(text, bytes,
            "the root has no file descriptor left: the hard limit of open "
            "files (ulimit -Hn) is %llu, %d rank%s joined",
            (unsigned long long)limit.rlim_max, root->meeting.njoined,
            uli_plural(root->meeting.njoined));
    else
        snprintf(text, bytes, "the root can take no connection: %s",
            uli_errno_text(number));
}

/* A connection waits, and there is no descriptor for it: raises the limit, or
 * closes a stranger that had time for its proof, or pauses. */
static void
make_room(struct uli_root *root, int number)
{
    struct uli_conn *oldest = oldest_unproven(root);
    double patience_s = fmin(CROWDED_S, root->params.handshake_s / 2);
    uli_deadline_t start =
        uli_deadline_in(root->params.handshake_s - patience_s);
    if (number == EMFILE && uli_socket_raise_limit())
        return;
    note_hindrance(root, number);
    if (oldest && oldest->deadline <= start)
        uli_conn_drop(oldest, "no room for a connection");
    else
        pause_door(root);
}

/* ---- accepting ----------------------------------------------------------- */

static void
root_admit(struct uli_root *root, int fd, const struct sockaddr_storage *peer)
{
    char address[80] = "?";
    peer_text(fd, peer, address, sizeof(address));
    if (root->params.same_user && !uli_socket_same_user(fd)) {
        uli_meeting_stray(&root->meeting, address, "another user");
        close(fd);
        return;
    }
    uli_socket_tune(fd, peer->ss_family);
    if (oldest_unproven(root) && root_crowded(root))
        uli_conn_drop(oldest_unproven(root), "too many unproven connections");
    if (!uli_conn_open(root, fd, address)) {
        make_room(root, ENOMEM); /* if it is a rank's, the rank dials again */
        return;
    }
    root->pause_ms = 0;
    root->meeting.hindrance[0] = 0;
}

/* Does a connection wait? accept() cannot show this without a free
 * descriptor. */
static bool
somebody_knocks(int listener)
{
    struct pollfd waited = {listener, POLLIN, 0};
    return poll(&waited, 1, 0) > 0;
}

/* Is it an error of a single connection, which has ended? */
static bool
door_passes(int number)
{
    return number == EINTR || number == ECONNABORTED || number == EPROTO ||
           number == EPERM || number == ENETDOWN || number == ENETUNREACH ||
           number == EHOSTDOWN || number == EHOSTUNREACH || number == ENONET ||
           number == ENOPROTOOPT || number == EOPNOTSUPP ||
           number == ETIMEDOUT || number == ECONNRESET;
}

void
uli_listener_accept(struct uli_root *root, int listener)
{
    for (int i = 0; i < ACCEPT_BATCH && root->reopen == INT64_MAX; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t length = sizeof(peer);
        int fd = accept4(listener, (struct sockaddr *)&peer, &length,
            SOCK_NONBLOCK | SOCK_CLOEXEC);
        int number = fd < 0 ? errno : 0;
        if (fd >= 0) {
            root_admit(root, fd, &peer);
        } else if (!door_passes(number)) {
            if (number != EAGAIN && somebody_knocks(listener))
                make_room(root, number);
            return;
        }
    }
}
