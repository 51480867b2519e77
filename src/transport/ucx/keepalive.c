/* SPDX-License-Identifier: Apache-2.0
 *
 * Has the host of a silent peer vanished, or is the peer only slow? TCP's
 * keepalive tells while a connection is idle, and UCX sets it. With data on
 * its way it is off, retransmission goes on for a quarter of an hour, and the
 * option that shortens it (TCP_USER_TIMEOUT) also kills the connection to a
 * stopped process whose window is full. So, when something has been on its way
 * to a peer for a quarter of ULYX_KEEPALIVE and nothing has come from it (UCX
 * may have ended a small send once the kernel had taken it), a
 * second connection is tried, to a socket that each end listens on for this:
 *
 *   accepted, later closed  the peer runs; asked again then
 *   made, and stays         the peer is stopped, its kernel answers: keepalive
 *                           watches this connection, which carries no data
 *   refused or reset        the process has gone
 *   no answer               the host has vanished: lost, after 0.9 of it
 *
 * Time counts from the first question, not from the last sign of life: this
 * process may have been stopped itself.
 *
 * For devices of TCP only: InfiniBand has timeouts in hardware.
 *
 * Here, too, because it is a matter of time: UCX does not end every operation
 * of an endpoint that has failed and was closed (1.18 to 1.22: short rendezvous
 * by active messages). The endpoint is gone and with it the connection, so
 * nothing reads or sends the data any more; after ten looks the operation is
 * given up. What belongs to it stays until UCX ends it, or until close.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/log.h"
#include "base/system/clock.h"
#include "transport/ucx/net.h"

enum {
    CHECK_NS = 10000000,
    ABANDON_STEPS = 10, /* of CHECK_NS and a step of UCX each, at least */
};

socklen_t
uli_ucx_place_bytes(const union uli_ucx_place *place)
{
    return place->any.sa_family == AF_INET6 ? sizeof(place->v6)
                                            : sizeof(place->v4);
}

/* ---- where to ask -------------------------------------------------------- */

/* The address of a device; IPv4 first; link-local ones mean nothing there. */
static bool
place_of(const char *devices, union uli_ucx_place *place_p)
{
    struct ifaddrs *list = NULL;
    size_t length = strcspn(devices, ",:");
    bool found = false;
    if (getifaddrs(&list))
        return false;
    for (struct ifaddrs *at = list; at; at = at->ifa_next) {
        if (!at->ifa_addr || strlen(at->ifa_name) != length ||
            strncmp(at->ifa_name, devices, length))
            continue;
        const struct sockaddr_in6 *v6 = (const void *)at->ifa_addr;
        if (at->ifa_addr->sa_family == AF_INET) {
            memcpy(&place_p->v4, at->ifa_addr, sizeof(place_p->v4));
            found = true;
            break;
        }
        if (at->ifa_addr->sa_family == AF_INET6 &&
            !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) {
            memcpy(&place_p->v6, v6, sizeof(place_p->v6));
            found = true;
        }
    }
    freeifaddrs(list);
    return found;
}

static void
place_set_port(union uli_ucx_place *place, uint16_t port)
{
    if (place->any.sa_family == AF_INET6)
        place->v6.sin6_port = htons(port);
    else
        place->v4.sin_port = htons(port);
}

/* A listener there, or -1 with errno. */
static int
place_listen(union uli_ucx_place *place, struct uli_port_range ports)
{
    struct uli_port_search search = uli_port_search(ports);
    uint16_t port;
    errno = EADDRINUSE;
    while (uli_port_next(&search, &port)) {
        int fd = uli_ucx_socket(place->any.sa_family);
        place_set_port(place, port);
        if (fd >= 0 && bind(fd, &place->any, uli_ucx_place_bytes(place)) == 0 &&
            listen(fd, SOMAXCONN) == 0)
            return fd;
        int number = errno;
        uli_ucx_hang_up(&fd);
        errno = number;
        if (number != EADDRINUSE)
            break;
    }
    return -1;
}

void
uli_ucx_keepalive_open(struct uli_net *net, struct uli_port_range ports)
{
    union uli_ucx_place *place = &net->place;
    socklen_t length = sizeof(*place);
    memset(place, 0, sizeof(*place));
    if (!place_of(net->devices, place))
        return;
    int fd = place_listen(place, ports);
    if (fd >= 0 && getsockname(fd, &place->any, &length) == 0) {
        net->listener = fd;
        return;
    }
    ULI_INFO(ULI_LOG_TRANS, net->rank,
        "ucx: no socket to be asked on, a vanished host is noticed late: %s",
        strerror(errno));
    memset(place, 0, sizeof(*place));
    uli_ucx_hang_up(&fd);
}

static void
hang_up(struct uli_ucx_peer *peer)
{
    uli_ucx_hang_up(&peer->probe_fd);
    peer->probe_made = false;
}

void
uli_ucx_keepalive_close(struct uli_net *net)
{
    uli_ucx_sentinel_close(net);
    uli_ucx_hang_up(&net->listener);
    for (int32_t p = 0; p < net->nranks; p++)
        hang_up(&net->peers[p]);
}

/* ---- asking -------------------------------------------------------------- */

static void
set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

static int
start_probe(const struct uli_net *net, struct uli_ucx_peer *peer)
{
    int quarter = (int)(net->keepalive_s / 4);
    int fd = uli_ucx_socket(peer->place.any.sa_family);
    if (fd < 0)
        return 0; /* no descriptor: no outcome */
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, quarter > 1 ? quarter : 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, quarter > 3 ? quarter / 3 : 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    peer->probe_fd = fd;
    if (connect(fd, &peer->place.any, uli_ucx_place_bytes(&peer->place)) == 0 ||
        errno == EINPROGRESS)
        return 0;
    return errno;
}

/* 0: no outcome yet; else what the connection has come to; ENOTCONN when the
 * other end has closed it, which a running one does. */
static int
keepalive_poll(struct uli_ucx_peer *peer)
{
    struct pollfd fd = {.fd = peer->probe_fd, .events = POLLIN | POLLOUT};
    int error = 0;
    socklen_t length = sizeof(error);
    if (poll(&fd, 1, 0) <= 0)
        return 0;
    getsockopt(peer->probe_fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error)
        return error;
    peer->probe_made |= (fd.revents & POLLOUT) != 0;
    return fd.revents & POLLIN ? ENOTCONN : 0;
}

static void
keepalive_judge(
    struct uli_net *net, struct uli_ucx_peer *peer, int outcome, int64_t now)
{
    int64_t patience_ns = (int64_t)(net->keepalive_s * 0.65e9);
    bool gone = outcome == ECONNREFUSED || outcome == ECONNRESET;
    if (outcome)
        hang_up(peer);
    if (outcome == ENOTCONN || peer->probe_made) {
        peer->alive_ns = now;
        peer->unheard = false; /* what was sent arrives; then TCP asks */
        peer->asked_ns = 0;
        return;
    }
    if (!gone && now - peer->asked_ns < patience_ns)
        return;
    hang_up(peer);
    uli_ucx_lose(
        net, peer, gone ? "its process has gone" : "its host does not answer");
    uli_ucx_break(peer, UCS_ERR_ENDPOINT_TIMEOUT);
}

/* ---- who is looked at ---------------------------------------------------- */

/* Eight times in the quarter of ULYX_KEEPALIVE that a silence may last. */
static int64_t
period_ns(const struct uli_net *net)
{
    int64_t period = (int64_t)(net->keepalive_s * 1e9 / 32);
    return period > CHECK_NS ? period : CHECK_NS;
}

/* All wait the same time, so the list stays in order by appending. */
static void
look_later(struct uli_net *net, struct uli_ucx_peer *peer, int64_t now)
{
    peer->check_ns = now + period_ns(net);
    uli_list_append(peer->asked_ns ? &net->asked : &net->watched, &peer->watch);
}

void
uli_ucx_watch(struct uli_net *net, struct uli_ucx_peer *peer)
{
    if (!uli_list_empty(&peer->watch) || peer->broken)
        return;
    int64_t now = uli_clock_ns();
    peer->moved = false;
    peer->alive_ns = now;
    look_later(net, peer, now);
}

void
uli_ucx_watch_end(struct uli_net *net, struct uli_ucx_peer *peer)
{
    uli_list_remove(&peer->watch);
    hang_up(peer);
    peer->steps_left = ABANDON_STEPS;
    uli_list_append(&net->dropped, &peer->watch);
}

static bool
peer_is_waiting(const struct uli_ucx_peer *peer)
{
    return (peer->flying > 0 || peer->unheard) && peer->ep && !peer->broken &&
           !peer->said_bye && peer->place.any.sa_family;
}

/* A probe is to be made again. */
static bool
peer_is_resting(const struct uli_ucx_peer *peer)
{
    return peer->link.state == ULI_UCX_RESTING && peer->ep && !peer->broken &&
           !peer->said_bye;
}

static void
keepalive_check(struct uli_net *net, struct uli_ucx_peer *peer, int64_t now)
{
    int64_t quarter_ns = (int64_t)(net->keepalive_s * 1e9 / 4);
    uli_list_remove(&peer->watch);
    uli_ucx_verb_retry(peer, now);
    if (peer->moved || !peer_is_waiting(peer)) {
        peer->moved = false;
        peer->alive_ns = now;
        peer->asked_ns = 0;
        hang_up(peer);
    } else if (peer->probe_fd >= 0) {
        keepalive_judge(net, peer, keepalive_poll(peer), now);
    } else if (now - peer->alive_ns >= quarter_ns) {
        if (!peer->asked_ns)
            peer->asked_ns = now;
        keepalive_judge(net, peer, start_probe(net, peer), now);
    }
    if (peer_is_waiting(peer) || peer_is_resting(peer))
        look_later(net, peer, now);
}

/* A step of UCX lies between two looks: it has had its chances. */
static void
look_at_dropped(struct uli_net *net, struct uli_ucx_peer *peer)
{
    if (peer->flying > 0 && --peer->steps_left > 0)
        return;
    uli_list_remove(&peer->watch);
    if (peer->flying == 0)
        return;
    ULI_INFO(ULI_LOG_TRANS, net->rank,
        "ucx: rank %d: %lld operations that UCX has not ended are given up",
        peer->rank, (long long)peer->flying);
    uli_ucx_abandon_sends(peer);
    uli_ucx_abandon_receives(peer);
}

static struct uli_ucx_peer *
peer_at(struct uli_list *node)
{
    return ULI_CONTAINER_OF(node, struct uli_ucx_peer, watch);
}

/* What one look costs does not depend on the number of ranks: of those that
 * something is on its way to, the first in the list are due, the few that are
 * silent or gone are all looked at. */
void
uli_ucx_keepalive_step(struct uli_net *net)
{
    int64_t now = uli_clock_ns();
    struct uli_list *next;
    int fd;
    if (now < net->next_check_ns)
        return;
    net->next_check_ns = now + CHECK_NS;
    while (net->listener >= 0 && (fd = uli_ucx_accept(net->listener)) >= 0)
        uli_ucx_sentinel_accept(net, fd);
    uli_ucx_sentinel_step(net, now);
    for (struct uli_list *n = net->dropped.next; n != &net->dropped; n = next) {
        next = n->next;
        look_at_dropped(net, peer_at(n));
    }
    struct uli_list *last = net->asked.prev; /* more may join them */
    for (struct uli_list *n = net->asked.next; n != &net->asked; n = next) {
        next = n == last ? &net->asked : n->next;
        keepalive_check(net, peer_at(n), now);
    }
    while (!uli_list_empty(&net->watched) &&
           peer_at(net->watched.next)->check_ns <= now)
        keepalive_check(net, peer_at(net->watched.next), now);
}
