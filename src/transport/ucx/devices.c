/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the devices of a rank: the user's UCX_NET_DEVICES, else
 * ULYX_NET_DEVICES. If neither is set, a host with any RDMA device uses the
 * rank's nearest NIC by the topology of the node, and any other host the best
 * interface for TCP. Where no such NIC or interface is found, UCX may use all
 * devices.
 *
 * TCP gets one interface only. With several, UCX would divide the data among
 * them by their speeds, but it assumes 100 Mb/s for each interface that reports
 * no speed, loopback included.
 */
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/system/interface.h"
#include "topology/nic.h"
#include "transport/ucx/net.h"

bool
uli_ucx_has_infiniband(void)
{
    DIR *folder = opendir("/sys/class/infiniband");
    bool found = false;
    if (!folder)
        return false;
    for (struct dirent *entry; (entry = readdir(folder));)
        found |= entry->d_name[0] != '.';
    closedir(folder);
    return found;
}

/* Whether the link of a port ("mlx5_0:1") is InfiniBand, by sysfs: only there
 * are puts safe from hosts of no peer (choose_features). A RoCE port does not
 * count, because RoCE packets are UDP packets, which any host that reaches the
 * port can send. */
static bool
is_infiniband_port(const char *folder, const char *device, size_t length)
{
    char path[512], layer[32] = "";
    size_t name = 0;
    while (name < length && device[name] != ':' && device[name] != '/')
        name++;
    if (name == 0 || name + 1 >= length || device[name] != ':')
        return false;
    for (size_t i = name + 1; i < length; i++)
        if (device[i] < '0' || device[i] > '9')
            return false;
    int used = snprintf(path, sizeof(path), "%s/%.*s/ports/%.*s/link_layer",
        folder, (int)name, device, (int)(length - name - 1), device + name + 1);
    FILE *file = used < (int)sizeof(path) ? fopen(path, "re") : NULL;
    if (!file)
        return false;
    bool read = fgets(layer, sizeof(layer), file) != NULL;
    fclose(file);
    return read && strcmp(layer, "InfiniBand\n") == 0;
}

bool
uli_ucx_is_infiniband(const char *folder, const char *devices)
{
    bool all = *devices != 0;
    for (const char *at = devices; all && *at;) {
        size_t length = strcspn(at, ",");
        all = is_infiniband_port(folder, at, length);
        at += length + (at[length] == ',');
    }
    return all;
}

/* ---- TCP ----------------------------------------------------------------- */

/* How good an interface's address is: first by the hosts that reach it (enum
 * uli_interface_reach), then IPv4 before IPv6; 0: cannot be used. A loopback
 * interface with a routed address counts as loopback, because UCX uses its
 * address 127.0.0.1. */
static int
worth_of(const struct ifaddrs *at)
{
    enum uli_interface_reach reach = uli_interface_reach(
        at->ifa_name, at->ifa_flags & IFF_LOOPBACK, at->ifa_addr);
    if (!(at->ifa_flags & IFF_UP) || !(at->ifa_flags & IFF_RUNNING))
        return 0;
    if (reach == ULI_REACH_ROUTED)
        reach = ULI_REACH_LOOPBACK;
    return reach == ULI_REACH_NONE ? 0
                                   : 2 * (ULI_REACH_NONE - (int)reach) +
                                         (at->ifa_addr->sa_family == AF_INET);
}

void
uli_ucx_tcp_device(const struct ifaddrs *list, char *device_p, size_t bytes)
{
    int best = 0;
    for (const struct ifaddrs *at = list; at; at = at->ifa_next) {
        int worth = worth_of(at);
        if (worth > best) {
            best = worth;
            snprintf(device_p, bytes, "%s", at->ifa_name);
        }
    }
}

static void
tcp_device_here(char *device_p, size_t bytes)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list))
        return;
    uli_ucx_tcp_device(list, device_p, bytes);
    freeifaddrs(list);
}

/* ---- the nearest NIC ----------------------------------------------------- */

/* Port 1 of the rank's nearest NIC, if /sys/class/infiniband has a device of
 * this NIC's name. Else devices_p stays "all". */
static void
nearest_nic(const struct uli_net_params *params, char *devices_p, size_t bytes)
{
    char name[ULI_TOPO_NAME], why[256], path[64 + ULI_TOPO_NAME];
    if (params->local_nranks <= 0)
        return;
    if (!uli_node_nic(params->settings, params->local_rank,
            params->local_nranks, name, why, sizeof(why))) {
        ULI_INFO(ULI_LOG_TRANS, params->rank, "ucx: any NIC: %s", why);
        return;
    }
    snprintf(path, sizeof(path), "/sys/class/infiniband/%s", name);
    if (access(path, F_OK) == 0)
        snprintf(devices_p, bytes, "%s:1", name);
    else
        ULI_INFO(ULI_LOG_TRANS, params->rank,
            "ucx: any NIC: the nearest, %s, is not an InfiniBand device", name);
}

void
uli_ucx_choose_devices(const struct uli_net_params *params,
    const char *preference, char *devices_p, size_t bytes)
{
    const char *own = params->settings->net_devices;
    snprintf(devices_p, bytes, "all");
    if (*preference && strcmp(preference, "all"))
        snprintf(devices_p, bytes, "%s", preference);
    else if (*own)
        snprintf(devices_p, bytes, "%s", own);
    else if (!uli_ucx_has_infiniband())
        tcp_device_here(devices_p, bytes);
    else
        nearest_nic(params, devices_p, bytes);
}
