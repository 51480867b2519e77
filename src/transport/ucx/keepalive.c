/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds out whether the host of a silent peer has vanished or the peer is only
 * slow. TCP's keepalive, which UCX sets, does so while a connection is idle.
 * With data on its way TCP's keepalive is off, retransmission continues for a
 * quarter of an hour, and the option that shortens it (TCP_USER_TIMEOUT) also
 * ends the connection to a stopped process whose window is full. So a second
 * connection is tried when data has been on its way to a peer for a quarter of
 * ULYX_KEEPALIVE and nothing has arrived from it. (Sends that UCX has ended
 * count too: UCX may end a small send once the kernel has taken it.) Each end
 * listens on a socket for these connections:
 *
 *   accepted, later closed  the peer runs; it is probed again then
 *   made, and stays         the peer is stopped, its kernel answers: keepalive
 *                           watches this connection, which carries no data
 *   refused or reset        the process has gone
 *   no answer               the host has vanished: the peer is lost, 0.9 of
 *                           ULYX_KEEPALIVE after the silence began
 *
 * The time counts from the first probe, not from the last sign of life: this
 * process may have been stopped itself.
 *
 * For TCP devices only: InfiniBand has timeouts in hardware.
 *
 * Also here, because it needs time: UCX does not end every operation of an
 * endpoint that has failed and was closed (1.18 to 1.22: short rendezvous by
 * active messages). The endpoint is gone and with it the connection, so nothing
 * reads or sends the data any more; after ten checks the operation is
 * abandoned. The operation's memory stays until UCX ends the operation, or
 * until close.
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
    ABANDON_STEPS = 10, /* each at least CHECK_NS and a step of UCX */
};

socklen_t
uli_ucx_place_bytes(const union uli_ucx_place *place)
{
    return place->any.sa_family == AF_INET6 ? sizeof(place->v6)
                                            : sizeof(place->v4);
}

/* ---- the listening socket ------------------------------------------------ */

/* The address of a device, IPv4 first. Link-local addresses are skipped: they
 * mean nothing on other hosts. */
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

/* Listens at the place, on the first free port; -1 with errno. */
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
        "ucx: no socket for keepalive probes, so a vanished host is noticed "
        "late: %s",
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

/* ---- probing ------------------------------------------------------------- */

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

/* The outcome of the probe's connection. 0: none yet; ENOTCONN: the other end
 * has closed the connection, as a running peer does; else the connection's
 * error. */
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
keepalive_evaluate(
    struct uli_net *net, struct uli_ucx_peer *peer, int outcome, int64_t now)
{
    int64_t patience_ns = (int64_t)(net->keepalive_s * 0.65e9);
    bool gone = outcome == ECONNREFUSED || outcome == ECONNRESET;
    if (outcome)
        hang_up(peer);
    if (outcome == ENOTCONN || peer->probe_made) {
        peer->alive_ns = now;
        peer->silent = false; /* TCP's keepalive goes on from here */
        peer->probed_ns = 0;
        return;
    }
    if (!gone && now - peer->probed_ns < patience_ns)
        return;
    hang_up(peer);
    uli_ucx_lose(
        net, peer, gone ? "its process has gone" : "its host does not answer");
    uli_ucx_break(peer, UCS_ERR_ENDPOINT_TIMEOUT);
}

/* ---- checked peers ------------------------------------------------------- */

/* The time between two checks of a peer. A silence may last for a quarter of
 * ULYX_KEEPALIVE, and this is an eighth of that. */
static int64_t
period_ns(const struct uli_net *net)
{
    int64_t period = (int64_t)(net->keepalive_s * 1e9 / 32);
    return period > CHECK_NS ? period : CHECK_NS;
}

/* All peers wait equally long, so appending keeps the list in order. */
static void
look_later(struct uli_net *net, struct uli_ucx_peer *peer, int64_t now)
{
    peer->check_ns = now + period_ns(net);
    uli_list_append(
        peer->probed_ns ? &net->probed : &net->watched, &peer->watch);
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
    return (peer->flying > 0 || peer->silent) && peer->ep && !peer->broken &&
           !peer->bye_received && peer->place.any.sa_family;
}

/* Whether the peer's verb probe is to be repeated. */
static bool
peer_is_resting(const struct uli_ucx_peer *peer)
{
    return peer->link.state == ULI_UCX_RESTING && peer->ep && !peer->broken &&
           !peer->bye_received;
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
        peer->probed_ns = 0;
        hang_up(peer);
    } else if (peer->probe_fd >= 0) {
        keepalive_evaluate(net, peer, keepalive_poll(peer), now);
    } else if (now - peer->alive_ns >= quarter_ns) {
        if (!peer->probed_ns)
            peer->probed_ns = now;
        keepalive_evaluate(net, peer, start_probe(net, peer), now);
    }
    if (peer_is_waiting(peer) || peer_is_resting(peer))
        look_later(net, peer, now);
}

/* A step of UCX lies between two checks, so UCX has had time to end the
 * operations. */
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

/* The cost of one step does not depend on the number of ranks: of the watched
 * peers only the first in the list are due; the probed and the dropped peers,
 * which are few, are all checked. */
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
    struct uli_list *last = net->probed.prev; /* more may be appended */
    for (struct uli_list *n = net->probed.next; n != &net->probed; n = next) {
        next = n == last ? &net->probed : n->next;
        keepalive_check(net, peer_at(n), now);
    }
    while (!uli_list_empty(&net->watched) &&
           peer_at(net->watched.next)->check_ns <= now)
        keepalive_check(net, peer_at(net->watched.next), now);
}
