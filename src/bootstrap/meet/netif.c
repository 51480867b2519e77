/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses interfaces: every address gets a tier, and the addresses of the best
 * tier that has any are used, in order of preference.
 */
#include "bootstrap/meet/netif.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "base/status.h"
#include "base/system/interface.h"

enum { NETIF_MAX = 256 };

/* A tier is a reach (base/system/interface.h); interfaces that the list names
 * are of the first tier, unless they are link-local. */
enum { TIER_NEVER = ULI_REACH_NONE };

/* ---- the list ------------------------------------------------------------ */

/* The position of the first entry of a comma separated list that equals the
 * name, or, if not exact, is a prefix of the name; -1: there is none. */
static int
find_entry(const char *list, const char *name, bool exact)
{
    int position = 0;
    while (*list) {
        size_t length = strcspn(list, ",");
        bool same = length > 0 && strncmp(list, name, length) == 0 &&
                    (!exact || name[length] == 0);
        if (same)
            return position;
        position++;
        list += length + (list[length] == ',');
    }
    return -1;
}

/* Like find_entry, for a list with the marks ^ and =; 0 for names that a list
 * of exclusions does not exclude. */
static int
netif_preference(const char *list, const char *name)
{
    bool exclude = *list == '^';
    list += exclude;
    bool exact = *list == '=';
    list += exact;
    if (!*list)
        return 0;
    int position = find_entry(list, name, exact);
    if (exclude)
        return position < 0 ? 0 : -1;
    return position;
}

bool
uli_netif_matches(const char *list, const char *name)
{
    return netif_preference(list, name) >= 0;
}

/* ---- choosing ------------------------------------------------------------ */

static int
tier_of(const struct uli_netif *netif, const char *list, int family)
{
    bool named = *list && *list != '^';
    if ((family && netif->address.storage.ss_family != family) ||
        !uli_netif_matches(list, netif->name))
        return TIER_NEVER;
    enum uli_interface_reach reach = uli_interface_reach(
        netif->name, netif->loopback, (const void *)&netif->address.storage);
    return named && reach != ULI_REACH_LINK_LOCAL ? ULI_REACH_HOSTS
                                                  : (int)reach;
}

/* Less is earlier: the list's order, InfiniBand, then IPv4 before IPv6. */
static int
order_of(const struct uli_netif *netif, const char *list)
{
    bool ib = strncmp(netif->name, "ib", 2) == 0;
    bool six = netif->address.storage.ss_family == AF_INET6;
    return netif_preference(list, netif->name) * 4 + !ib * 2 + six;
}

static ulyx_status_t
none_fits(const struct uli_netif *netifs, int count, const char *list,
    const char *family)
{
    char text[512] = "";
    for (int i = 0; i < count; i++) {
        char address[ULI_ADDRESS_TEXT_BYTES];
        size_t used = strlen(text);
        uli_address_text(&netifs[i].address, address, sizeof(address));
        *strrchr(address, ':') = 0;
        snprintf(text + used, sizeof(text) - used, "%s%s %s", i ? ", " : "",
            netifs[i].name, address);
    }
    return uli_error(ULYX_ERR_SYSTEM,
        "no interface fits ULYX_SOCKET_IFNAME=\"%s\" "
        "ULYX_SOCKET_FAMILY=\"%s\"; there is: %s",
        list, family, count ? text : "none");
}

ulyx_status_t
uli_netif_choose(const struct uli_netif *netifs, int count, const char *list,
    const char *family, struct uli_socket_address *addresses_p, int *count_p)
{
    int required_family = strcmp(family, "AF_INET") == 0    ? AF_INET
                          : strcmp(family, "AF_INET6") == 0 ? AF_INET6
                                                            : 0;
    if (*family && !required_family)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "ULYX_SOCKET_FAMILY=\"%s\": expected AF_INET or AF_INET6", family);
    int best = TIER_NEVER;
    for (int i = 0; i < count; i++) {
        int tier = tier_of(&netifs[i], list, required_family);
        best = tier < best ? tier : best;
    }
    if (best == TIER_NEVER)
        return none_fits(netifs, count, list, family);

    int chosen = 0, orders[ULI_ADDRESS_MAX];
    for (int i = 0; i < count; i++) {
        if (tier_of(&netifs[i], list, required_family) != best)
            continue;
        int order = order_of(&netifs[i], list);
        int at = chosen < ULI_ADDRESS_MAX ? chosen++ : ULI_ADDRESS_MAX;
        for (; at > 0 && orders[at - 1] > order; at--) {
            if (at == ULI_ADDRESS_MAX)
                continue;
            orders[at] = orders[at - 1];
            addresses_p[at] = addresses_p[at - 1];
        }
        if (at == ULI_ADDRESS_MAX)
            continue;
        orders[at] = order;
        addresses_p[at] = netifs[i].address;
    }
    *count_p = chosen;
    return ULYX_SUCCESS;
}

/* ---- this machine -------------------------------------------------------- */

static bool
ifaddrs_take(const struct ifaddrs *from, struct uli_netif *netif_p)
{
    if (!from->ifa_addr || !(from->ifa_flags & IFF_UP))
        return false;
    int family = from->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6)
        return false;
    memset(netif_p, 0, sizeof(*netif_p));
    netif_p->address.length = family == AF_INET ? sizeof(struct sockaddr_in)
                                                : sizeof(struct sockaddr_in6);
    memcpy(&netif_p->address.storage, from->ifa_addr, netif_p->address.length);
    snprintf(netif_p->name, sizeof(netif_p->name), "%s", from->ifa_name);
    netif_p->loopback = from->ifa_flags & IFF_LOOPBACK;
    return true;
}

ulyx_status_t
uli_netif_choose_here(const char *list, const char *family,
    struct uli_socket_address *addresses_p, int *count_p)
{
    static _Thread_local struct uli_netif netifs[NETIF_MAX];
    struct ifaddrs *all = NULL;
    int count = 0;
    if (getifaddrs(&all) != 0)
        return uli_error_errno("the list of network interfaces");
    for (const struct ifaddrs *one = all; one && count < NETIF_MAX;
         one = one->ifa_next)
        count += ifaddrs_take(one, &netifs[count]);
    freeifaddrs(all);
    return uli_netif_choose(netifs, count, list, family, addresses_p, count_p);
}

/* ---- the port ------------------------------------------------------------ */

int
uli_netif_listen(
    struct uli_socket_address *address, struct uli_port_range ports, int *fd_p)
{
    struct uli_port_search search = uli_port_search(ports);
    uint16_t port;
    int number = EADDRINUSE;
    while (number == EADDRINUSE && uli_port_next(&search, &port)) {
        uli_address_set_port(address, port);
        number = uli_socket_listen(address, fd_p);
    }
    return number;
}
