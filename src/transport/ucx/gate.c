/* SPDX-License-Identifier: Apache-2.0
 *
 * Which hosts may connect. UCX trusts every packet that its TCP listener
 * receives: a packet of forty bytes can store any data at any address that it
 * names, whatever features the context has (tcp_ep.c of UCX, PUT_REQ). So
 * nothing may reach UCX from a connection that does not come from a peer's
 * host:
 *
 *   - each end sends the addresses of its host beside UCX's own address
 *   - the sockets that this net listens on get a filter in the kernel, which
 *     drops packets from hosts of no peer. Connections that the sockets accept
 *     inherit the filter
 *   - connections from hosts of no peer that were made before the filter are
 *     ended. UCX reads nothing before the worker's first progress, which
 *     follows
 *
 * The filter is a binary search over ranges of IPv4 addresses, or a list of
 * IPv6 addresses. Where the peers' IPv4 addresses make more than MOST_RANGES
 * ranges, the smallest gaps between ranges are closed, and hosts in these gaps
 * pass too. With ULYX_INSECURE=1 there is no filter. Other users of the peers'
 * hosts cannot be distinguished from peers: see SECURITY.md.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/log.h"
#include "base/status.h"
#include "base/system/clock.h"
#include "transport/ucx/net.h"

enum {
    NOTED_MAX = 512,      /* earlier listeners of the process that are noted */
    ACCEPT_NS = 50000000, /* time for UCX's thread to accept waiting
                           * connections */
    MOST_RANGES = 500,    /* 20 KiB of filter, which every kernel accepts */
    V4_SOURCE = 12,       /* offset of the source's address in an IP header */
    V6_SOURCE = 8,
    DROP = 0,
    PASS = -1,
};

/* ---- addresses ----------------------------------------------------------- */

static bool
is_v4(const struct in6_addr *address)
{
    return IN6_IS_ADDR_V4MAPPED(address);
}

static struct in6_addr
in_addr_mapped(struct in_addr v4)
{
    struct in6_addr address = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memcpy(&address.s6_addr[12], &v4, sizeof(v4));
    return address;
}

static uint32_t
v4_of(const struct in6_addr *address)
{
    uint32_t net_order;
    memcpy(&net_order, &address->s6_addr[12], sizeof(net_order));
    return ntohl(net_order);
}

/* False: not an IP address. */
static bool
address_of(const struct sockaddr *any, struct in6_addr *address_p)
{
    if (any && any->sa_family == AF_INET)
        *address_p =
            in_addr_mapped(((const struct sockaddr_in *)any)->sin_addr);
    else if (any && any->sa_family == AF_INET6)
        *address_p = ((const struct sockaddr_in6 *)any)->sin6_addr;
    else
        return false;
    return true;
}

static bool
in6_addr_holds(
    const struct in6_addr *list, size_t count, const struct in6_addr *address)
{
    for (size_t i = 0; i < count; i++)
        if (IN6_ARE_ADDR_EQUAL(&list[i], address))
            return true;
    return false;
}

/* Whether the device list names the interface. Loopback addresses are sent only
 * if it names loopback. */
static bool
is_named(const char *devices, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = devices; *at; at += strspn(at, ",")) {
        size_t bytes = strcspn(at, ",");
        if (bytes == length && strncmp(at, name, length) == 0)
            return true;
        at += bytes;
    }
    return false;
}

size_t
uli_ucx_gate_addresses(
    const struct uli_net *net, struct in6_addr *list_p, size_t room)
{
    struct ifaddrs *list = NULL;
    size_t count = 0;
    if (getifaddrs(&list))
        return 0;
    /* The device's address first: most connections use it. */
    if (room > 0 && address_of(&net->place.any, &list_p[0]))
        count = 1;
    for (struct ifaddrs *at = list; at && count < room; at = at->ifa_next) {
        struct in6_addr address;
        if (address_of(at->ifa_addr, &address) && at->ifa_flags & IFF_UP &&
            (!(at->ifa_flags & IFF_LOOPBACK) ||
                is_named(net->devices, at->ifa_name)) &&
            !in6_addr_holds(list_p, count, &address))
            list_p[count++] = address;
    }
    freeifaddrs(list);
    return count;
}

ulyx_status_t
uli_ucx_gate_admit(
    struct uli_net *net, const struct in6_addr *list, size_t count)
{
    struct uli_ucx_gate *gate = &net->gate;
    gate->met = true;
    if (gate->open || count == 0)
        return ULYX_SUCCESS;
    struct in6_addr *grown =
        realloc(gate->admitted, (gate->count + count) * sizeof(*grown));
    if (!grown)
        return uli_error(
            ULYX_ERR_NO_MEMORY, "ucx: no memory for a peer's addresses");
    gate->admitted = grown;
    for (size_t i = 0; i < count; i++)
        if (!in6_addr_holds(gate->admitted, gate->count, &list[i]))
            gate->admitted[gate->count++] = list[i];
    gate->stale = true;
    return ULYX_SUCCESS;
}

/* ---- the filter ---------------------------------------------------------- */

struct range {
    uint32_t first, last;
};

struct program {
    struct sock_filter *code;
    size_t used, room;
};

static void
program_emit(
    struct program *program, uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
    if (program->used < program->room)
        program->code[program->used] = (struct sock_filter){code, jt, jf, k};
    program->used++;
}

static void
emit_outcome(struct program *program, int outcome)
{
    program_emit(program, BPF_RET | BPF_K, 0, 0, (uint32_t)outcome);
}

/* A binary search: an address below the middle range jumps to the left half,
 * which is emitted last. */
static void
emit_search(struct program *program, const struct range *ranges, size_t count)
{
    size_t middle = count / 2;
    if (count == 0) {
        emit_outcome(program, DROP);
        return;
    }
    program_emit(
        program, BPF_JMP | BPF_JGE | BPF_K, 1, 0, ranges[middle].first);
    size_t left = program->used;
    program_emit(program, BPF_JMP | BPF_JA, 0, 0, 0);
    program_emit(program, BPF_JMP | BPF_JGT | BPF_K, 1, 0, ranges[middle].last);
    emit_outcome(program, PASS);
    emit_search(program, ranges + middle + 1, count - middle - 1);
    if (left < program->room)
        program->code[left].k = (uint32_t)(program->used - left - 1);
    emit_search(program, ranges, middle);
}

static int
range_order(const void *a, const void *b)
{
    uint32_t x = ((const struct range *)a)->first;
    uint32_t y = ((const struct range *)b)->first;
    return x < y ? -1 : x > y;
}

/* Sorts the IPv4 addresses and joins neighbours into ranges. Returns the number
 * of ranges. */
static size_t
collect_ranges(const struct uli_ucx_gate *gate, struct range *ranges)
{
    size_t count = 0, used = 0;
    for (size_t i = 0; i < gate->count; i++)
        if (is_v4(&gate->admitted[i])) {
            uint32_t address = v4_of(&gate->admitted[i]);
            ranges[count++] = (struct range){address, address};
        }
    qsort(ranges, count, sizeof(*ranges), range_order);
    for (size_t i = 0; i < count; i++)
        if (used > 0 && ranges[i].first <= ranges[used - 1].last + 1 &&
            ranges[used - 1].last != UINT32_MAX)
            ranges[used - 1].last = ranges[i].last;
        else
            ranges[used++] = ranges[i];
    return used;
}

/* Joins ranges until there are MOST_RANGES, those with the smallest gap
 * first. */
static size_t
join_ranges(struct range *ranges, size_t count)
{
    while (count > MOST_RANGES) {
        size_t best = 1;
        for (size_t i = 2; i < count; i++)
            if (ranges[i].first - ranges[i - 1].last <
                ranges[best].first - ranges[best - 1].last)
                best = i;
        ranges[best - 1].last = ranges[best].last;
        memmove(&ranges[best], &ranges[best + 1],
            (count - best - 1) * sizeof(*ranges));
        count--;
    }
    return count;
}

static void
emit_v4(struct program *program, const struct uli_ucx_gate *gate,
    struct range *ranges)
{
    program_emit(program, BPF_LD | BPF_W | BPF_ABS, 0, 0,
        (uint32_t)(SKF_NET_OFF + V4_SOURCE));
    size_t count = join_ranges(ranges, collect_ranges(gate, ranges));
    emit_search(program, ranges, count);
}

/* Compares each address as four words; a word that differs jumps to the next
 * address. */
static void
emit_v6(struct program *program, const struct uli_ucx_gate *gate)
{
    for (size_t i = 0; i < gate->count; i++) {
        if (is_v4(&gate->admitted[i]))
            continue;
        for (uint8_t word = 4; word-- > 0;) {
            uint32_t bits;
            memcpy(&bits, &gate->admitted[i].s6_addr[4 * word], sizeof(bits));
            program_emit(program, BPF_LD | BPF_W | BPF_ABS, 0, 0,
                (uint32_t)(SKF_NET_OFF + V6_SOURCE + 4 * word));
            program_emit(program, BPF_JMP | BPF_JEQ | BPF_K, 0,
                (uint8_t)(2 * word + 1), ntohl(bits));
        }
        emit_outcome(program, PASS);
    }
    emit_outcome(program, DROP);
}

/* Attaches the filter to a socket. Errors: NO_MEMORY; SYSTEM where the kernel
 * accepts no filter. */
static ulyx_status_t
ucx_gate_attach(const struct uli_ucx_gate *gate, int fd, int family)
{
    struct program program = {.room = 5 * gate->count + 2};
    struct range *ranges = malloc((gate->count + 1) * sizeof(*ranges));
    if (program.room < 9 * gate->count + 1)
        program.room = 9 * gate->count + 1;
    program.code = malloc(program.room * sizeof(*program.code));
    int error = ENOMEM;
    if (program.code && ranges) {
        if (family == AF_INET)
            emit_v4(&program, gate, ranges);
        else
            emit_v6(&program, gate);
        struct sock_fprog filter = {(unsigned short)program.used, program.code};
        error = program.used > BPF_MAXINSNS ? E2BIG
                : setsockopt(
                      fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter))
                    ? errno
                    : 0;
    }
    free(program.code);
    free(ranges);
    if (error == 0)
        return ULYX_SUCCESS;
    errno = error;
    return uli_error_errno("ucx: cannot attach a filter of %zu addresses to "
                           "its port (ULYX_INSECURE=1 does without a filter)",
        gate->count);
}

/* ---- sockets ------------------------------------------------------------- */

/* Calls visit for each descriptor of this process. */
static ulyx_status_t
for_each_descriptor(
    void (*visit)(struct uli_net *net, int fd), struct uli_net *net)
{
    DIR *folder = opendir("/proc/self/fd");
    if (!folder)
        return uli_error_errno("ucx: cannot list /proc/self/fd to find its "
                               "sockets (ULYX_INSECURE=1 does without a "
                               "filter)");
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder))
            visit(net, atoi(entry->d_name));
    closedir(folder);
    return ULYX_SUCCESS;
}

static bool
gate_listens(int fd)
{
    int on = 0, protocol = 0;
    socklen_t length = sizeof(on);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &length) || !on)
        return false;
    length = sizeof(protocol);
    return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 &&
           protocol == IPPROTO_TCP;
}

static in_port_t
port_of(const union uli_ucx_place *place)
{
    return place->any.sa_family == AF_INET6 ? place->v6.sin6_port
                                            : place->v4.sin_port;
}

/* Notes a listening socket. Before the worker is made, the socket is not UCX's.
 * Afterwards a socket is UCX's if it was not noted before and its port is in
 * the worker's address. */
static void
note_listener(struct uli_net *net, int fd)
{
    struct uli_ucx_gate *gate = &net->gate;
    union uli_ucx_place place;
    socklen_t length = sizeof(place);
    struct stat about;
    if (!gate_listens(fd) || getsockname(fd, &place.any, &length) ||
        fstat(fd, &about))
        return;
    in_port_t port = port_of(&place);
    if (!net->address) {
        if (gate->nbefore < NOTED_MAX)
            gate->before[gate->nbefore++] = about.st_ino;
        return;
    }
    for (int i = 0; i < gate->nbefore; i++)
        if (gate->before[i] == about.st_ino)
            return;
    if (gate->nlisteners < ULI_UCX_LISTENERS &&
        memmem(net->address, net->address_bytes, &port, sizeof(port)))
        gate->listeners[gate->nlisteners++] =
            (struct uli_ucx_listener){fd, port, place.any.sa_family};
}

ulyx_status_t
uli_ucx_gate_before(struct uli_net *net)
{
    if (net->gate.open)
        return ULYX_SUCCESS;
    net->gate.before = malloc(NOTED_MAX * sizeof(*net->gate.before));
    if (!net->gate.before)
        return uli_error(ULYX_ERR_NO_MEMORY, "ucx: no memory for its sockets");
    return for_each_descriptor(note_listener, net);
}

/* Finds UCX's sockets, and tests with a filter that passes every packet whether
 * the kernel accepts filters for them. */
ulyx_status_t
uli_ucx_gate_after(struct uli_net *net)
{
    struct uli_ucx_gate *gate = &net->gate;
    struct sock_filter pass = {BPF_RET | BPF_K, 0, 0, (uint32_t)PASS};
    struct sock_fprog filter = {1, &pass};
    if (gate->open)
        return ULYX_SUCCESS;
    ULI_TRY(for_each_descriptor(note_listener, net));
    if (net->listener >= 0 && gate->nlisteners == 0)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "ucx: its listening port over %s is not found, so no filter can "
            "close it to other hosts; ULYX_INSECURE=1 does without a filter",
            net->devices);
    if (net->listener >= 0 && gate->nlisteners < ULI_UCX_LISTENERS)
        gate->listeners[gate->nlisteners++] = (struct uli_ucx_listener){
            net->listener, port_of(&net->place), net->place.any.sa_family};
    for (int i = 0; i < gate->nlisteners; i++)
        if (setsockopt(gate->listeners[i].fd, SOL_SOCKET, SO_ATTACH_FILTER,
                &filter, sizeof(filter)))
            return uli_error_errno(
                "ucx: its port cannot be closed to other hosts "
                "(ULYX_INSECURE=1 does without a filter)");
    return ULYX_SUCCESS;
}

void
uli_ucx_gate_free(struct uli_net *net)
{
    free(net->gate.before);
    free(net->gate.admitted);
}

/* ---- making the filters -------------------------------------------------- */

/* Waits until UCX's thread has accepted the connections that exist already. */
static void
await_accepts(const struct uli_ucx_gate *gate)
{
    int64_t deadline = uli_clock_ns() + ACCEPT_NS;
    for (int i = 0; i < gate->nlisteners; i++) {
        struct tcp_info about = {0};
        socklen_t length = sizeof(about);
        while (getsockopt(gate->listeners[i].fd, IPPROTO_TCP, TCP_INFO, &about,
                   &length) == 0 &&
               about.tcpi_unacked > 0 && uli_clock_ns() < deadline)
            sched_yield();
    }
}

/* Ends a connection to UCX's port from a host of no peer. */
static void
end_stranger(struct uli_net *net, int fd)
{
    const struct uli_ucx_gate *gate = &net->gate;
    union uli_ucx_place here, there;
    socklen_t here_bytes = sizeof(here), there_bytes = sizeof(there);
    struct in6_addr from;
    bool ours = false;
    if (getsockname(fd, &here.any, &here_bytes) ||
        getpeername(fd, &there.any, &there_bytes) ||
        !address_of(&there.any, &from))
        return;
    for (int i = 0; i < gate->nlisteners; i++)
        ours |= gate->listeners[i].port == port_of(&here) &&
                gate->listeners[i].family == here.any.sa_family;
    if (!ours || in6_addr_holds(gate->admitted, gate->count, &from))
        return;
    ULI_INFO(ULI_LOG_TRANS, net->rank,
        "ucx: closed a connection from a host that is no peer's");
    shutdown(fd, SHUT_RDWR);
}

void
uli_ucx_gate_close(struct uli_net *net)
{
    struct uli_ucx_gate *gate = &net->gate;
    gate->stale = false;
    for (int i = 0; i < gate->nlisteners; i++)
        if (ucx_gate_attach(gate, gate->listeners[i].fd,
                gate->listeners[i].family) != ULYX_SUCCESS)
            ULI_WARN(ULI_LOG_TRANS, net->rank,
                "the port keeps its last filter, or stays open to all: %s",
                uli_error_text());
    if (gate->nlisteners == 0)
        return;
    await_accepts(gate);
    (void)for_each_descriptor(end_stranger, net);
}
