/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of interfaces, on machines that are given as lists of
 * interfaces.
 */
#include "bootstrap/meet/netif.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include "support/test.h"

static void
names_match_as_nccl_matches_them(void **state)
{
    (void)state;
    static const struct {
        const char *list, *name;
        bool chosen;
    } cases[] = {
        {"", "eth0", true},
        {"eth", "eth0", true},
        {"eth", "ib0", false},
        {"eth,ib", "ib0", true},
        {"eth0", "eth01", true},
        {"=eth0", "eth0", true},
        {"=eth0", "eth01", false},
        {"=eth0,ib1", "ib1", true},
        {"=eth0,ib1", "ib10", false},
        {"^docker,lo", "lo", false},
        {"^docker,lo", "docker0", false},
        {"^docker,lo", "eth0", true},
        {"^=eth1", "eth1", false},
        {"^=eth1", "eth10", true},
        {"^", "eth0", true},
        {"=", "eth0", true},
        {",eth", "eth0", true},
        {",", "eth0", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (uli_netif_matches(cases[i].list, cases[i].name) != cases[i].chosen)
            fail_msg("\"%s\" and \"%s\": expected %d", cases[i].list,
                cases[i].name, cases[i].chosen);
}

struct machine {
    struct uli_netif netifs[16];
    int count;
};

static void
machine_add(struct machine *machine, const char *name, const char *address)
{
    struct uli_netif *netif = &machine->netifs[machine->count++];
    memset(netif, 0, sizeof(*netif));
    strcpy(netif->name, name);
    netif->loopback = strcmp(name, "lo") == 0;
    assert_true(uli_address_parse(address, &netif->address));
}

/* Formats the chosen addresses in order, as "10.0.0.1:9 [fd00::1]:9". */
static void
assert_chosen(const struct machine *machine, const char *list,
    const char *family, const char *expected)
{
    struct uli_socket_address chosen[ULI_ADDRESS_MAX];
    char text[1024] = "";
    int count = 0;
    assert_status(uli_netif_choose(machine->netifs, machine->count, list,
                      family, chosen, &count),
        ULYX_SUCCESS);
    for (int i = 0; i < count; i++) {
        char one[ULI_ADDRESS_TEXT_BYTES];
        uli_address_text(&chosen[i], one, sizeof(one));
        strcat(text, i ? " " : "");
        strcat(text, one);
    }
    assert_string_equal(text, expected);
}

static void
ordinary_machine(struct machine *machine)
{
    machine->count = 0;
    machine_add(machine, "lo", "127.0.0.1:9");
    machine_add(machine, "docker0", "172.17.0.1:9");
    machine_add(machine, "eth0", "[fe80::1%2]:9");
    machine_add(machine, "eth0", "[fd00::2]:9");
    machine_add(machine, "eth0", "10.0.0.2:9");
    machine_add(machine, "ib0", "10.1.0.2:9");
    machine_add(machine, "lo", "[::1]:9");
}

static void
choice_prefers_and_orders(void **state)
{
    (void)state;
    struct machine machine;
    ordinary_machine(&machine);
    assert_chosen(&machine, "", "", "10.1.0.2:9 10.0.0.2:9 [fd00::2]:9");
    assert_chosen(&machine, "", "AF_INET6", "[fd00::2]:9");
    assert_chosen(&machine, "", "AF_INET", "10.1.0.2:9 10.0.0.2:9");
    assert_chosen(&machine, "^ib", "AF_INET", "10.0.0.2:9");
    assert_chosen(&machine, "eth,ib", "AF_INET", "10.0.0.2:9 10.1.0.2:9");
    assert_chosen(&machine, "docker", "", "172.17.0.1:9");
    assert_chosen(&machine, "=lo", "", "127.0.0.1:9 [::1]:9");
    assert_chosen(&machine, "^ib,eth", "", "172.17.0.1:9");
    assert_chosen(&machine, "^ib,eth,docker", "", "127.0.0.1:9 [::1]:9");
}

static void
choice_falls_back(void **state)
{
    (void)state;
    struct machine machine = {.count = 0};
    machine_add(&machine, "lo", "127.0.0.1:9");
    assert_chosen(&machine, "", "", "127.0.0.1:9");
    machine_add(&machine, "eth0", "[fe80::1%2]:9");
    assert_chosen(&machine, "", "", "[fe80::1%2]:9");
    machine_add(&machine, "dummy1", "169.254.20.10:9");
    assert_chosen(&machine, "", "", "169.254.20.10:9 [fe80::1%2]:9");
    machine_add(&machine, "br-ex", "10.0.0.3:9");
    assert_chosen(&machine, "", "", "10.0.0.3:9");
    machine_add(&machine, "lo", "10.9.9.9:9");
    assert_chosen(&machine, "", "", "10.9.9.9:9");
}

static void
choice_has_at_most_the_eight_best(void **state)
{
    (void)state;
    struct machine machine = {.count = 0};
    char address[32], expected[256] = "10.1.0.1:9";
    for (int i = 0; i < 10; i++) {
        snprintf(address, sizeof(address), "10.0.0.%d:9", i + 1);
        machine_add(&machine, "eth0", address);
        if (i < ULI_ADDRESS_MAX - 1) {
            strcat(expected, " ");
            strcat(expected, address);
        }
    }
    machine_add(&machine, "ib0", "10.1.0.1:9");
    assert_chosen(&machine, "", "", expected);
}

static void
choice_of_none_lists_what_there_is(void **state)
{
    (void)state;
    struct machine machine;
    struct uli_socket_address chosen[ULI_ADDRESS_MAX];
    int count = -7;
    ordinary_machine(&machine);
    assert_status(uli_netif_choose(machine.netifs, machine.count, "wlan", "",
                      chosen, &count),
        ULYX_ERR_SYSTEM);
    assert_int_equal(count, -7);
    assert_non_null(strstr(ulyx_last_error(), "ULYX_SOCKET_IFNAME=\"wlan\""));
    assert_non_null(strstr(ulyx_last_error(), "docker0 172.17.0.1"));
    assert_status(uli_netif_choose(machine.netifs, machine.count, "", "IPv4",
                      chosen, &count),
        ULYX_ERR_INVALID_ARGUMENT);
}

static void
this_machine_has_an_interface(void **state)
{
    (void)state;
    struct uli_socket_address chosen[ULI_ADDRESS_MAX];
    int count = 0;
    assert_status(uli_netif_choose_here("", "", chosen, &count), ULYX_SUCCESS);
    assert_in_range(count, 1, ULI_ADDRESS_MAX);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(names_match_as_nccl_matches_them),
    cmocka_unit_test(choice_prefers_and_orders),
    cmocka_unit_test(choice_falls_back),
    cmocka_unit_test(choice_has_at_most_the_eight_best),
    cmocka_unit_test(choice_of_none_lists_what_there_is),
    cmocka_unit_test(this_machine_has_an_interface),
};
ULI_TEST_MAIN("Netif", tests)
