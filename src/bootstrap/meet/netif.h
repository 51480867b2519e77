/* SPDX-License-Identifier: Apache-2.0
 *
 * Which interfaces a root listens on, and at which port. ULYX_SOCKET_IFNAME has
 * NCCL's grammar: comma separated prefixes of interface names ("eth,ib"); "="
 * first makes the names exact ("=eth0"), "^" first excludes ("^docker,lo"),
 * "^=" excludes exact names. Without the setting, InfiniBand's interfaces come
 * first, then all others. Addresses that reach less far
 * (base/system/interface.h: bridges of containers, link-local addresses,
 * loopback) are used only if there are no better ones.
 */
#ifndef ULI_BOOTSTRAP_MEET_NETIF_H
#define ULI_BOOTSTRAP_MEET_NETIF_H

#include <stdbool.h>
#include "bootstrap/meet/socket.h"
#include "ulyx/types.h"

struct uli_netif {
    char name[32];
    bool loopback;
    struct uli_socket_address address; /* port 0 */
};

/* Whether a name is chosen by a list. An empty list chooses all. */
bool uli_netif_matches(const char *list, const char *name);

/* Picks and orders up to ULI_ADDRESS_MAX addresses out of count interfaces.
 * family: "", "AF_INET" or "AF_INET6".
 * returns SUCCESS (at least one); ERR_INVALID_ARGUMENT (family); ERR_SYSTEM (no
 * interface fits; the text lists the interfaces). */
ulyx_status_t uli_netif_choose(const struct uli_netif *netifs, int count,
    const char *list, const char *family,
    struct uli_socket_address *addresses_p, int *count_p);

/* As above, for this machine. */
ulyx_status_t uli_netif_choose_here(const char *list, const char *family,
    struct uli_socket_address *addresses_p, int *count_p);

/* Opens a listener at a port of the range; *address gets the port.
 * returns 0 or errno; EADDRINUSE: all are taken. */
int uli_netif_listen(
    struct uli_socket_address *address, struct uli_port_range ports, int *fd_p);

#endif
