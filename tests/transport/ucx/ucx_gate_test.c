/* SPDX-License-Identifier: Apache-2.0
 *
 * The hosts whose packets reach the sockets of a net: the filters of gate.c, on
 * UDP sockets, where the result is known at once. All addresses of 127.0.0.0/8
 * belong to this host.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "support/random.h"
#include "support/test.h"
#include "transport/ucx/net.h"

static struct in6_addr
mapped_v4(uint32_t address)
{
    struct in6_addr mapped = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    address = htonl(address);
    memcpy(&mapped.s6_addr[12], &address, 4);
    return mapped;
}

static int
open_receiver(int family, struct sockaddr_storage *at_p)
{
    int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    socklen_t bytes = sizeof(*at_p);
    memset(at_p, 0, sizeof(*at_p));
    at_p->ss_family = (sa_family_t)family;
    if (family == AF_INET)
        ((struct sockaddr_in *)at_p)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        ((struct sockaddr_in6 *)at_p)->sin6_addr = in6addr_loopback;
    if (fd < 0 || bind(fd, (struct sockaddr *)at_p, bytes) ||
        getsockname(fd, (struct sockaddr *)at_p, &bytes)) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

static void
gate_open(struct uli_net *net, int fd, int family)
{
    memset(net, 0, sizeof(*net));
    net->listener = -1;
    net->gate.nlisteners = 1;
    net->gate.listeners[0] =
        (struct uli_ucx_listener){fd, htons(1), (sa_family_t)family};
}

static bool
connection_came(int fd)
{
    char byte;
    bool any = false;
    while (recv(fd, &byte, 1, 0) == 1)
        any = true;
    return any;
}

static bool
gate_passes(int fd, const struct sockaddr_storage *to, uint32_t from)
{
    struct sockaddr_in source = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(from)};
    int out = socket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(bind(out, (struct sockaddr *)&source, sizeof(source)), 0);
    assert_int_equal(sendto(out, "x", 1, 0, (const struct sockaddr *)to,
                         sizeof(struct sockaddr_in)),
        1);
    close(out);
    return connection_came(fd);
}

static bool
is_admitted(const uint32_t *list, int count, uint32_t address)
{
    for (int i = 0; i < count; i++)
        if (list[i] == address)
            return true;
    return false;
}

/* Some single addresses, some in rows; the neighbours of each are tried too. */
static void
check_lists(int count, bool exact)
{
    struct test_random random = {test_seed(71)};
    struct uli_net *net = calloc(1, sizeof(*net));
    struct sockaddr_storage to;
    uint32_t *list = calloc((size_t)count + 1, sizeof(*list));
    int fd = open_receiver(AF_INET, &to), wrong = 0;
    assert_true(fd >= 0);
    gate_open(net, fd, AF_INET);
    for (int i = 0; i < count; i++) {
        bool row = i > 0 && test_random_in(&random, 0, 2) == 0;
        list[i] =
            row ? list[i - 1] + 1
                : 0x7F000000 + (uint32_t)test_random_in(&random, 2, 0xFFFFF0);
        struct in6_addr address = mapped_v4(list[i]);
        assert_status(uli_ucx_gate_admit(net, &address, 1), ULYX_SUCCESS);
    }
    net->gate.stale = true;
    uli_ucx_gate_close(net);
    for (int i = 0; i < count; i++)
        for (int by = -1; by <= 1; by++) {
            uint32_t from = list[i] + (uint32_t)by;
            bool admitted = is_admitted(list, count, from);
            bool passed = gate_passes(fd, &to, from);
            wrong += admitted ? !passed : exact && passed;
        }
    assert_int_equal(wrong, 0);
    if (exact)
        assert_false(gate_passes(fd, &to, INADDR_LOOPBACK));
    close(fd);
    uli_ucx_gate_free(net);
    free(list);
    free(net);
}

static void
only_admitted_addresses_pass(void **state)
{
    (void)state;
    for (int count = 0; count <= 9; count++)
        check_lists(count, true);
    check_lists(400, true);
}

/* More addresses than a filter holds: neighbours may pass too, but no admitted
 * address is dropped.
 */
static void
all_of_too_many_admitted_addresses_pass(void **state)
{
    (void)state;
    check_lists(2000, false);
}

static void
addresses_of_ipv6_are_distinguished(void **state)
{
    (void)state;
    struct uli_net *net = calloc(1, sizeof(*net));
    struct sockaddr_storage to;
    int fd = open_receiver(AF_INET6, &to);
    if (fd < 0) {
        free(net);
        skip();
    }
    gate_open(net, fd, AF_INET6);
    struct in6_addr others[5] = {mapped_v4(INADDR_LOOPBACK)};
    for (int i = 1; i < 5; i++) { /* each differs in one word */
        others[i] = in6addr_loopback;
        others[i].s6_addr[4 * i - 3] ^= 1;
    }
    for (int all = 0; all <= 1; all++) {
        assert_status(uli_ucx_gate_admit(net, others, 5), ULYX_SUCCESS);
        if (all)
            assert_status(
                uli_ucx_gate_admit(net, &in6addr_loopback, 1), ULYX_SUCCESS);
        uli_ucx_gate_close(net);
        int out = socket(AF_INET6, SOCK_DGRAM, 0);
        assert_int_equal(sendto(out, "x", 1, 0, (struct sockaddr *)&to,
                             sizeof(struct sockaddr_in6)),
            1);
        close(out);
        assert_int_equal(connection_came(fd), all);
    }
    close(fd);
    uli_ucx_gate_free(net);
    free(net);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(only_admitted_addresses_pass),
    cmocka_unit_test(all_of_too_many_admitted_addresses_pass),
    cmocka_unit_test(addresses_of_ipv6_are_distinguished),
};

ULI_TEST_MAIN("UcxGate", tests)
