/* SPDX-License-Identifier: Apache-2.0
 *
 * The device chosen for TCP, on machines given as lists of interfaces.
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include "support/test.h"
#include "transport/ucx/net.h"

enum { MOST = 8 };

struct interface {
    const char *name, *address; /* NULL: no IP address */
    unsigned flags;
};

static void
address_fill(const char *text, struct sockaddr_storage *address_p)
{
    struct sockaddr_in *four = (void *)address_p;
    struct sockaddr_in6 *six = (void *)address_p;
    address_p->ss_family = AF_INET;
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1)
        return;
    address_p->ss_family = AF_INET6;
    assert_int_equal(inet_pton(AF_INET6, text, &six->sin6_addr), 1);
}

static void
assert_device(const struct interface *interfaces, int count, const char *device)
{
    struct sockaddr_storage addresses[MOST] = {{0}};
    struct ifaddrs list[MOST] = {{0}};
    char names[MOST][IFNAMSIZ], got[64] = "none";
    for (int i = 0; i < count; i++) {
        snprintf(names[i], sizeof(names[i]), "%s", interfaces[i].name);
        list[i].ifa_name = names[i];
        list[i].ifa_flags = interfaces[i].flags;
        list[i].ifa_next = i + 1 < count ? &list[i + 1] : NULL;
        if (!interfaces[i].address)
            continue;
        address_fill(interfaces[i].address, &addresses[i]);
        list[i].ifa_addr = (struct sockaddr *)&addresses[i];
    }
    uli_ucx_tcp_device(list, got, sizeof(got));
    assert_string_equal(got, device);
}

#define UP IFF_UP | IFF_RUNNING
#define LO UP | IFF_LOOPBACK
#define DEVICE(device, ...)                                                    \
    assert_device((const struct interface[]){__VA_ARGS__},                     \
        sizeof((const struct interface[]){__VA_ARGS__}) /                      \
            sizeof(struct interface),                                          \
        device)

static void
device_that_reaches_other_hosts_is_chosen(void **state)
{
    (void)state;
    DEVICE("eth0", {"lo", "127.0.0.1", LO}, {"docker0", "172.17.0.1", UP},
        {"eth0", "10.0.0.2", UP});
    DEVICE("eth0", {"docker0", "172.17.0.1", UP}, {"eth0", "fd00::2", UP});
    DEVICE("eth1", {"eth0", "fd00::2", UP}, {"eth1", "10.0.0.2", UP});
    DEVICE("eth1", {"eth0", "10.0.0.2", IFF_UP}, {"eth1", "10.0.0.3", UP});
    DEVICE("dummy0", {"eth0", "fe80::1", UP}, {"dummy0", "10.0.0.2", UP});
}

static void
link_local_addresses_come_after_bridges(void **state)
{
    (void)state;
    DEVICE("br-ex", {"lo", "127.0.0.1", LO}, {"uplink", "fe80::1", UP},
        {"br-ex", "10.9.8.1", UP}, {"br-ex", "fe80::2", UP});
    DEVICE("docker0", {"nodelocaldns", "169.254.20.10", UP},
        {"docker0", "172.17.0.1", UP});
    DEVICE("uplink", {"lo", "127.0.0.1", LO}, {"uplink", "fe80::1", UP});
}

static void
loopback_is_the_last(void **state)
{
    (void)state;
    DEVICE("lo", {"lo", "127.0.0.1", LO}, {"eth0", NULL, UP});
    DEVICE("lo", {"lo", "::1", LO});
    DEVICE("uplink", {"lo", "127.0.0.1", LO}, {"lo", "10.0.0.1", LO},
        {"uplink", "fe80::1", UP});
    DEVICE("none", {"eth0", NULL, UP}, {"lo", "127.0.0.1", IFF_LOOPBACK});
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(device_that_reaches_other_hosts_is_chosen),
    cmocka_unit_test(link_local_addresses_come_after_bridges),
    cmocka_unit_test(loopback_is_the_last),
};
ULI_TEST_MAIN("UcxDevices", tests)
