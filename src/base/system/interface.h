/* SPDX-License-Identifier: Apache-2.0
 *
 * How far an address of a network interface reaches: by the interface's name
 * and by the address itself, without a look at routes.
 */
#ifndef ULI_BASE_SYSTEM_INTERFACE_H
#define ULI_BASE_SYSTEM_INTERFACE_H

#include <stdbool.h>
#include <sys/socket.h>

/* The best first. */
enum uli_interface_reach {
    ULI_REACH_HOSTS,      /* of other hosts, as far as the name has it */
    ULI_REACH_ROUTED,     /* the same on a loopback interface: what routers send
                           * to a host that has no addresses on its links */
    ULI_REACH_BRIDGE,     /* of a bridge for containers or virtual machines */
    ULI_REACH_LINK_LOCAL, /* fe80::/10, 169.254/16: each host has such */
    ULI_REACH_LOOPBACK,   /* 127/8, ::1 */
    ULI_REACH_NONE,       /* neither IPv4 nor IPv6 */
};

/* loopback: the interface is one (IFF_LOOPBACK). */
enum uli_interface_reach uli_interface_reach(
    const char *name, bool loopback, const struct sockaddr *address);

#endif
