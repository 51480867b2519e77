/* SPDX-License-Identifier: Apache-2.0
 *
 * The root's door: who is let in to prove himself, and who has to go when there
 * is no room. Ranks that are in are never dropped for want of room.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"
#include "comm/bootstrap_conn.h"

enum {
    ACCEPT_BATCH = 64,  /* then the ranks that are in get their turn */
    STRANGER_MAX = 4096 /* the oldest goes first */
};
#define CROWDED_S 0.25 /* for a proof, when descriptors are short */

void
uli_door_remove_file(struct uli_root *root)
{
    if (root->unlink_path[0])
        unlink(root->unlink_path);
    root->unlink_path[0] = 0;
}

void
uli_door_shut(struct uli_root *root)
{
    for (int i = 0; i < root->params.listener_count; i++)
        close(root->params.listeners[i]);
    root->params.listener_count = 0;
    uli_door_remove_file(root);
}

void
uli_door_close(struct uli_root *root)
{
    uli_door_shut(root);
    ULI_INFO(ULI_LOG_INIT, -1,
        "bootstrap: all %d ranks have joined; %d connections were dropped",
        root->meeting.nranks, root->meeting.strays.count);
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

/* One that may be dropped for want of room: it has not proved the secret. Its
 * rank, if it is one, dials again; behind the proof it would not. */
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

static void
admit(struct uli_root *root, int fd, const struct sockaddr_storage *peer)
{
    char address[80] = "?";
    peer_text(fd, peer, address, sizeof(address));
    if (root->params.same_user && !uli_socket_same_user(fd)) {
        uli_meeting_stray(&root->meeting, address, "another user");
        close(fd);
        return;
    }
    uli_socket_tune(fd, peer->ss_family);
    if (root->stranger_count >= STRANGER_MAX && oldest_unproven(root))
        uli_conn_drop(oldest_unproven(root), "too many unproven connections");
    if (!uli_conn_open(root, fd, address))
        uli_meeting_fail(&root->meeting, ULYX_ERR_NO_MEMORY,
            "the root has no memory for a connection");
}

/* accept() wants a descriptor even where nobody waits. */
static bool
somebody_knocks(int listener)
{
    struct pollfd waited = {listener, POLLIN, 0};
    return poll(&waited, 1, 0) > 0;
}

/* No descriptor left and somebody knocks: more of them, or that of a stranger
 * who had time to prove himself, or a moment for those who have just come; with
 * no one but ranks inside, the meeting cannot be. */
static void
find_descriptor(struct uli_root *root)
{
    struct rlimit limit = {0};
    struct uli_conn *oldest = oldest_unproven(root);
    double patience_s = fmin(CROWDED_S, root->params.handshake_s / 2);
    uli_deadline_t start =
        uli_deadline_in(root->params.handshake_s - patience_s);
    if (uli_socket_raise_limit())
        return;
    if (oldest && oldest->deadline <= start) {
        uli_conn_drop(oldest, "no file descriptor left");
    } else if (!uli_list_empty(&root->strangers)) {
        const struct timespec moment = {0, 1000000};
        nanosleep(&moment, NULL);
    } else {
        getrlimit(RLIMIT_NOFILE, &limit);
        uli_meeting_fail(&root->meeting, ULYX_ERR_SYSTEM,
            "the root has no file descriptor left: the hard limit of open "
            "files (ulimit -Hn) is %llu, %d ranks have joined",
            (unsigned long long)limit.rlim_max, root->meeting.njoined);
        uli_door_shut(root);
    }
}

void
uli_door_accept(struct uli_root *root, int listener)
{
    for (int i = 0; i < ACCEPT_BATCH && root->params.listener_count; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t length = sizeof(peer);
        int fd = accept4(listener, (struct sockaddr *)&peer, &length,
            SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            admit(root, fd, &peer);
        else if (errno == EAGAIN)
            return;
        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
            if (somebody_knocks(listener))
                find_descriptor(root);
            return;
        }
    }
}
