/* SPDX-License-Identifier: Apache-2.0
 *
 * Watches the process of one peer, even where others hold copies of UCX's
 * sockets: a forked child of the peer, or a program that it has started, keeps
 * UCX's connections open. So the watcher makes one more connection, to the
 * socket of keepalive.c, which ends with the process (sockets.c):
 *
 *   watcher                    watched
 *   {token of the watched,
 *    rank of the watcher} -->
 *                         <--  {token of the watcher}
 *                              keeps the socket; nothing more is sent
 *
 * Once the answer has come, the end of the connection means that the watched
 * process has ended, unless the peer has sent BYE. The peer is not lost at
 * once: UCX gets a short time first, to deliver data that has arrived before.
 * If the connection ends before the answer, this means nothing, and the watcher
 * tries again. Connections that do not send the watcher's message are kept for
 * a second, at most a few at a time.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include "base/log.h"
#include "base/system/clock.h"
#include "transport/ucx/net.h"

#define AGAIN_NS    1000000000
#define STRANGER_NS 1000000000
#define GRACE_NS    100000000

/* ---- the watched --------------------------------------------------------- */

void
uli_ucx_sentinel_accept(struct uli_net *net, int fd)
{
    struct uli_ucx_caller *place = &net->callers[0];
    for (int i = 0; i < ULI_UCX_CALLERS; i++) {
        struct uli_ucx_caller *caller = &net->callers[i];
        if (caller->fd < 0 ||
            (place->fd >= 0 && caller->since_ns < place->since_ns))
            place = caller;
    }
    uli_ucx_hang_up(&place->fd);
    *place = (struct uli_ucx_caller){.fd = fd, .since_ns = uli_clock_ns()};
}

/* The caller has proved that it has this rank's address, and this rank has the
 * caller's. */
static bool
is_peer(const struct uli_net *net, const struct uli_ucx_hello *hello)
{
    return hello->token == net->token && hello->from >= 0 &&
           hello->from < net->nranks && hello->from != net->rank &&
           net->peers[hello->from].address;
}

/* Whether the caller has closed the connection: a watcher that has waited long
 * for its answer gives this connection up and watches a new one. */
static bool
caller_has_ended(const struct uli_ucx_caller *caller)
{
    char more;
    return recv(caller->fd, &more, sizeof(more), MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void
sentinel_answer(struct uli_net *net, struct uli_ucx_caller *caller)
{
    struct uli_ucx_peer *peer = &net->peers[caller->hello.from];
    if (caller_has_ended(caller) ||
        send(caller->fd, &peer->token, sizeof(peer->token), MSG_NOSIGNAL) !=
            (ssize_t)sizeof(peer->token)) {
        uli_ucx_hang_up(&caller->fd);
        return;
    }
    uli_ucx_hang_up(&peer->watcher_fd);
    peer->watcher_fd = caller->fd;
    caller->fd = -1;
}

static void
caller_receive(struct uli_net *net, struct uli_ucx_caller *caller, int64_t now)
{
    char *at = (char *)&caller->hello + caller->got;
    ssize_t got = caller->got < sizeof(caller->hello)
                      ? recv(caller->fd, at,
                            sizeof(caller->hello) - caller->got, MSG_DONTWAIT)
                      : -1;
    bool over = got == 0 || now - caller->since_ns > STRANGER_NS;
    caller->got += got > 0 ? (size_t)got : 0;
    if (over)
        uli_ucx_hang_up(&caller->fd);
    else if (caller->got == sizeof(caller->hello) &&
             is_peer(net, &caller->hello))
        sentinel_answer(net, caller);
}

/* ---- the watcher --------------------------------------------------------- */

void
uli_ucx_sentinel_watch(struct uli_net *net, int32_t rank)
{
    uli_ucx_enter(net);
    net->sentinel.peer = &net->peers[rank];
    uli_ucx_leave(net);
}

static void
sentinel_call(
    struct uli_net *net, struct uli_ucx_sentinel *sentinel, int64_t now)
{
    const union uli_ucx_place *place = &sentinel->peer->place;
    sentinel->again_ns = now + AGAIN_NS;
    sentinel->requested = sentinel->answered = false;
    sentinel->fd = uli_ucx_socket(place->any.sa_family);
    if (sentinel->fd >= 0 &&
        connect(sentinel->fd, &place->any, uli_ucx_place_bytes(place)) &&
        errno != EINPROGRESS)
        uli_ucx_hang_up(&sentinel->fd);
    (void)net;
}

/* False: the connection has ended or failed. */
static bool
sentinel_send(struct uli_net *net, struct uli_ucx_sentinel *sentinel)
{
    struct uli_ucx_hello hello = {sentinel->peer->token, net->rank, 0};
    struct pollfd ready = {.fd = sentinel->fd, .events = POLLIN | POLLOUT};
    uint64_t token = 0;
    if (poll(&ready, 1, 0) <= 0)
        return true;
    if (!sentinel->requested && ready.revents & POLLOUT) {
        if (send(sentinel->fd, &hello, sizeof(hello), MSG_NOSIGNAL) !=
            (ssize_t)sizeof(hello))
            return false;
        sentinel->requested = true;
    }
    if (!(ready.revents & (POLLIN | POLLERR | POLLHUP)))
        return true;
    ssize_t got = recv(sentinel->fd, &token, sizeof(token), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (sentinel->answered || got != (ssize_t)sizeof(token) ||
        token != net->token)
        return false;
    sentinel->answered = true;
    return true;
}

static void
sentinel_watch(
    struct uli_net *net, struct uli_ucx_sentinel *sentinel, int64_t now)
{
    struct uli_ucx_peer *peer = sentinel->peer;
    if (!peer || !peer->place.any.sa_family || peer->bye_received ||
        peer->broken || peer->lost || net->leaving)
        return;
    if (sentinel->gone_ns) {
        if (now - sentinel->gone_ns < GRACE_NS)
            return;
        uli_ucx_lose(net, peer, "its process has gone");
        uli_ucx_break(peer, UCS_ERR_CONNECTION_RESET);
    } else if (sentinel->fd < 0) {
        if (now >= sentinel->again_ns)
            sentinel_call(net, sentinel, now);
    } else if (!sentinel_send(net, sentinel)) {
        uli_ucx_hang_up(&sentinel->fd);
        if (sentinel->answered)
            sentinel->gone_ns = now;
    } else if (!sentinel->answered && now > sentinel->again_ns + STRANGER_NS) {
        uli_ucx_hang_up(&sentinel->fd);
    }
}

/* ---- both ---------------------------------------------------------------- */

void
uli_ucx_sentinel_step(struct uli_net *net, int64_t now)
{
    for (int i = 0; i < ULI_UCX_CALLERS; i++)
        if (net->callers[i].fd >= 0)
            caller_receive(net, &net->callers[i], now);
    sentinel_watch(net, &net->sentinel, now);
}

void
uli_ucx_sentinel_close(struct uli_net *net)
{
    uli_ucx_hang_up(&net->sentinel.fd);
    for (int i = 0; i < ULI_UCX_CALLERS; i++)
        uli_ucx_hang_up(&net->callers[i].fd);
    for (int32_t p = 0; p < net->nranks; p++)
        uli_ucx_hang_up(&net->peers[p].watcher_fd);
}
