/* SPDX-License-Identifier: Apache-2.0
 *
 * See interface.h.
 */
#include "base/system/interface.h"

#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

static const char *const bridges[] = {
    "docker", "veth", "virbr", "br-", "cni", "flannel", "podman"};

static bool
name_of_bridge(const char *name)
{
    for (size_t i = 0; i < sizeof(bridges) / sizeof(bridges[0]); i++)
        if (strncmp(name, bridges[i], strlen(bridges[i])) == 0)
            return true;
    return false;
}

static bool
is_link_local(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const void *)address;
        return IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr);
    }
    const struct sockaddr_in *four = (const void *)address;
    return ntohl(four->sin_addr.s_addr) >> 16 == 0xa9fe;
}

static bool
is_own(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const void *)address;
        return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
    }
    const struct sockaddr_in *four = (const void *)address;
    return ntohl(four->sin_addr.s_addr) >> 24 == 127;
}

enum uli_interface_reach
uli_interface_reach(
    const char *name, bool loopback, const struct sockaddr *address)
{
    if (!address ||
        (address->sa_family != AF_INET && address->sa_family != AF_INET6))
        return ULI_REACH_NONE;
    if (is_own(address))
        return ULI_REACH_LOOPBACK;
    if (is_link_local(address))
        return ULI_REACH_LINK_LOCAL;
    if (loopback)
        return ULI_REACH_ROUTED;
    return name_of_bridge(name) ? ULI_REACH_BRIDGE : ULI_REACH_HOSTS;
}
