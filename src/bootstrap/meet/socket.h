/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses of a meeting, listeners on them, and bounded stream I/O for a
 * rank's end. All sockets are non-blocking and close-on-exec; EINTR is retried
 * within the deadline. These calls return errno values, not statuses: their
 * callers retry, and only the last failure becomes an error, with a log line.
 */
#ifndef ULI_BOOTSTRAP_MEET_SOCKET_H
#define ULI_BOOTSTRAP_MEET_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include "base/system/clock.h"
#include "base/system/port.h"
#include "ulyx/types.h"

enum {
    ULI_ADDRESS_MAX = 8,        /* of one meeting */
    ULI_ADDRESS_TEXT_BYTES = 80 /* "[ipv6%scope]:port", "@abstract name" */
};

struct uli_socket_address {
    socklen_t length;
    struct sockaddr_storage storage;
};

/* "10.0.0.1:2000", "[fd00::2]:2000", or "@name" of an abstract socket. */
void uli_address_text(
    const struct uli_socket_address *address, char *text_p, size_t bytes);
/* Reads the text of a numeric IPv4 or IPv6 address with a port; a scope is a
 * number or the name of an interface. False: the text is no such address. */
bool uli_address_parse(const char *text, struct uli_socket_address *address_p);
/* Makes the address of an abstract socket. False: the name is too long. */
bool uli_address_abstract(
    const char *name, struct uli_socket_address *address_p);
/* Is it a link-local IPv6 address without its interface? */
bool uli_address_lacks_scope(const struct uli_socket_address *address);
int uli_address_port(const struct uli_socket_address *address);
void uli_address_set_port(struct uli_socket_address *address, int port);

/* Opens a listener with SO_REUSEADDR; an IPv6 listener accepts no IPv4
 * connections. Port 0 in *address is replaced by the port that the system has
 * chosen.
 * returns 0 or errno. */
int uli_socket_listen(struct uli_socket_address *address, int *fd_p);
int uli_socket_connect(const struct uli_socket_address *address,
    uli_deadline_t deadline, int *fd_p);
/* Send or receive whole buffers. returns 0, ETIMEDOUT, ENOTCONN (the other end
 * closed), or another errno. */
int uli_socket_send(
    int fd, const void *data, size_t bytes, uli_deadline_t deadline);
int uli_socket_receive(
    int fd, void *data_p, size_t bytes, uli_deadline_t deadline);
/* Sets no delay and keepalive, for both ends of a TCP connection. */
void uli_socket_tune(int fd, int family);
/* Raises the limit of open files to the hard limit. False: it cannot be
 * raised. */
bool uli_socket_raise_limit(void);
/* The user id of the other end of a Unix connection (-1: not known), and
 * whether it equals that of this process. */
long uli_socket_peer_user(int fd);
bool uli_socket_same_user(int fd);

#endif
