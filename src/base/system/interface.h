/* SPDX-License-Identifier: Apache-2.0
 *
 * How far an address of a network interface reaches: judged by the interface's
 * name and by the address itself, not by routes.
 */
#ifndef ULI_BASE_SYSTEM_INTERFACE_H
#define ULI_BASE_SYSTEM_INTERFACE_H

#include <stdbool.h>
#include <sys/socket.h>

/* The best first. */
enum uli_interface_reach {
    ULI_REACH_HOSTS,      /* other hosts, as far as the name shows */
    ULI_REACH_ROUTED,     /* other hosts, though on a loopback interface: the
                           * address of a host whose links have no addresses, to
                           * which routers forward */
    ULI_REACH_BRIDGE,     /* a bridge for containers or virtual machines */
    ULI_REACH_LINK_LOCAL, /* fe80::/10, 169.254/16: every host has such
                           * addresses */
    ULI_REACH_LOOPBACK,   /* 127/8, ::1 */
    ULI_REACH_NONE,       /* neither IPv4 nor IPv6 */
};

/* loopback: the interface has IFF_LOOPBACK. */
enum uli_interface_reach uli_interface_reach(
    const char *name, bool loopback, const struct sockaddr *address);

#endif
