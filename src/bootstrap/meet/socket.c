/* SPDX-License-Identifier: Apache-2.0
 *
 * Stream sockets with deadlines.
 */
#include "bootstrap/meet/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    BACKLOG = 4096, /* 4096 ranks connect at once: a shorter queue costs a
                     * second of SYN retries */
    POLL_SLICE_MS = 1000,
    KEEPALIVE_IDLE_S = 15,
    KEEPALIVE_EVERY_S = 5,
    KEEPALIVE_PROBES = 3
};

/* ---- addresses ----------------------------------------------------------- */

static struct sockaddr_in *
as_v4(const struct uli_socket_address *address)
{
    return (struct sockaddr_in *)&address->storage;
}

static struct sockaddr_in6 *
as_v6(const struct uli_socket_address *address)
{
    return (struct sockaddr_in6 *)&address->storage;
}

void
uli_address_text(
    const struct uli_socket_address *address, char *text_p, size_t bytes)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (address->storage.ss_family == AF_INET) {
        inet_ntop(AF_INET, &as_v4(address)->sin_addr, host, sizeof(host));
        snprintf(text_p, bytes, "%s:%d", host, uli_address_port(address));
    } else if (address->storage.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = as_v6(address);
        char scope[16] = "";
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
        if (v6->sin6_scope_id)
            snprintf(scope, sizeof(scope), "%%%u", v6->sin6_scope_id);
        snprintf(
            text_p, bytes, "[%s%s]:%d", host, scope, uli_address_port(address));
    } else {
        const struct sockaddr_un *local = (const void *)&address->storage;
        size_t fixed = offsetof(struct sockaddr_un, sun_path) + 1;
        int length =
            address->length > fixed ? (int)(address->length - fixed) : 0;
        snprintf(text_p, bytes, "@%.*s", length, local->sun_path + 1);
    }
}

static bool
parse_port(const char *text, int *port_p)
{
    char *end;
    errno = 0;
    long port = strtol(text, &end, 10);
    if (end == text || *end || errno || port < 1 || port > 65535)
        return false;
    *port_p = (int)port;
    return true;
}

/* "7", or "eth0" of this machine. */
static bool
parse_scope(const char *text, uint32_t *scope_p)
{
    char *end;
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end)
        number = if_nametoindex(text);
    else if (errno || number > UINT32_MAX)
        number = 0;
    *scope_p = (uint32_t)number;
    return number != 0;
}

bool
uli_address_parse(const char *text, struct uli_socket_address *address_p)
{
    struct uli_socket_address address = {0};
    char host[INET6_ADDRSTRLEN + 16];
    bool six = text[0] == '[';
    const char *end = strchr(text, six ? ']' : ':');
    int port = 0;
    if (!end || (six && end[1] != ':') || !parse_port(end + 1 + six, &port))
        return false;
    size_t length = (size_t)(end - text) - six;
    if (length >= sizeof(host))
        return false;
    memcpy(host, text + six, length);
    host[length] = 0;
    char *scope = strchr(host, '%');
    if (scope)
        *scope++ = 0;
    if (six) {
        address.storage.ss_family = AF_INET6;
        address.length = sizeof(struct sockaddr_in6);
        if (scope && !parse_scope(scope, &as_v6(&address)->sin6_scope_id))
            return false;
        if (inet_pton(AF_INET6, host, &as_v6(&address)->sin6_addr) != 1)
            return false;
    } else {
        address.storage.ss_family = AF_INET;
        address.length = sizeof(struct sockaddr_in);
        if (scope || inet_pton(AF_INET, host, &as_v4(&address)->sin_addr) != 1)
            return false;
    }
    uli_address_set_port(&address, port);
    *address_p = address;
    return true;
}

bool
uli_address_abstract(const char *name, struct uli_socket_address *address_p)
{
    struct uli_socket_address address = {0};
    struct sockaddr_un *local = (void *)&address.storage;
    size_t length = strlen(name);
    if (length + 1 > sizeof(local->sun_path))
        return false;
    local->sun_family = AF_UNIX;
    memcpy(local->sun_path + 1, name, length);
    address.length =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    *address_p = address;
    return true;
}

bool
uli_address_lacks_scope(const struct uli_socket_address *address)
{
    return address->storage.ss_family == AF_INET6 &&
           IN6_IS_ADDR_LINKLOCAL(&as_v6(address)->sin6_addr) &&
           as_v6(address)->sin6_scope_id == 0;
}

int
uli_address_port(const struct uli_socket_address *address)
{
    if (address->storage.ss_family == AF_INET)
        return ntohs(as_v4(address)->sin_port);
    if (address->storage.ss_family == AF_INET6)
        return ntohs(as_v6(address)->sin6_port);
    return 0;
}

void
uli_address_set_port(struct uli_socket_address *address, int port)
{
    if (address->storage.ss_family == AF_INET)
        as_v4(address)->sin_port = htons((uint16_t)port);
    else if (address->storage.ss_family == AF_INET6)
        as_v6(address)->sin6_port = htons((uint16_t)port);
}

/* ---- opening ------------------------------------------------------------- */

void
uli_socket_tune(int fd, int family)
{
    const int on = 1, idle = KEEPALIVE_IDLE_S, every = KEEPALIVE_EVERY_S,
              probes = KEEPALIVE_PROBES;
    if (family == AF_UNIX)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

bool
uli_socket_raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
        limit.rlim_cur >= limit.rlim_max)
        return false;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static int
open_stream(int family, int *fd_p)
{
    const int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    int fd = socket(family, type, 0);
    if (fd < 0 && errno == EMFILE && uli_socket_raise_limit())
        fd = socket(family, type, 0);
    if (fd < 0)
        return errno;
    *fd_p = fd;
    return 0;
}

int
uli_socket_listen(struct uli_socket_address *address, int *fd_p)
{
    const int on = 1;
    int family = address->storage.ss_family;
    struct uli_socket_address bound = *address;
    int fd = -1, number = open_stream(family, &fd);
    if (number)
        return number;
    if (family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    socklen_t length = sizeof(bound.storage);
    if (bind(fd, (const void *)&address->storage, address->length) != 0 ||
        listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (void *)&bound.storage, &length) != 0) {
        number = errno;
        close(fd);
        return number;
    }
    uli_address_set_port(address, uli_address_port(&bound));
    *fd_p = fd;
    return 0;
}

/* Waits until fd is ready for `events`. 0 or errno. */
static int
wait_ready(int fd, short events, uli_deadline_t deadline)
{
    for (;;) {
        struct pollfd waited = {fd, events, 0};
        int wait_ms = uli_deadline_poll_ms(deadline, POLL_SLICE_MS);
        int ready = poll(&waited, 1, wait_ms);
        if (ready > 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return errno;
        if (uli_deadline_over(deadline))
            return ETIMEDOUT;
    }
}

/* A connect that was interrupted continues by itself, like a connect in
 * progress. */
static int
finish_connect(int fd, uli_deadline_t deadline)
{
    int number = 0;
    socklen_t length = sizeof(number);
    int waited = wait_ready(fd, POLLOUT, deadline);
    if (waited)
        return waited;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &length) != 0)
        return errno;
    return number;
}

int
uli_socket_connect(const struct uli_socket_address *address,
    uli_deadline_t deadline, int *fd_p)
{
    int family = address->storage.ss_family;
    int fd = -1, number = open_stream(family, &fd);
    if (number)
        return number;
    uli_socket_tune(fd, family);
    if (connect(fd, (const void *)&address->storage, address->length) != 0)
        number = errno;
    if (number == EINPROGRESS || number == EINTR)
        number = finish_connect(fd, deadline);
    if (number) {
        close(fd);
        return number;
    }
    *fd_p = fd;
    return 0;
}

long
uli_socket_peer_user(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
        return -1;
    return (long)peer.uid;
}

bool
uli_socket_same_user(int fd)
{
    return uli_socket_peer_user(fd) == (long)geteuid();
}

/* ---- moving -------------------------------------------------------------- */

int
uli_socket_send(int fd, const void *data, size_t bytes, uli_deadline_t deadline)
{
    const unsigned char *from = data;
    while (bytes > 0) {
        ssize_t sent = send(fd, from, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno != EAGAIN)
            return errno;
        if (sent < 0) {
            int number = wait_ready(fd, POLLOUT, deadline);
            if (number)
                return number;
            continue;
        }
        from += sent;
        bytes -= (size_t)sent;
    }
    return 0;
}

int
uli_socket_receive(int fd, void *data_p, size_t bytes, uli_deadline_t deadline)
{
    unsigned char *to = data_p;
    while (bytes > 0) {
        ssize_t got = recv(fd, to, bytes, 0);
        if (got == 0)
            return ENOTCONN;
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno != EAGAIN)
            return errno;
        if (got < 0) {
            int number = wait_ready(fd, POLLIN, deadline);
            if (number)
                return number;
            continue;
        }
        to += got;
        bytes -= (size_t)got;
    }
    return 0;
}
