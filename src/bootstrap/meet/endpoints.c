/* SPDX-License-Identifier: Apache-2.0
 *
 * Two meeting points that every rank can compute by itself: an abstract socket
 * of this node, and MASTER_ADDR:ULYX_PORT. Rank 0 listens and then joins like
 * the other ranks, which dial until rank 0 listens.
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/status.h"
#include "bootstrap/meet/dial.h"
#include "bootstrap/launch/env.h"
#include "bootstrap/meet/root.h"
#include "bootstrap/meet/netif.h"

enum { PAUSE_FIRST_MS = 5, HEX_BYTES = 2 * ULI_SECRET_BYTES + 1 };
/* A root of an earlier meeting at the same port has another secret, and ends
 * within these seconds. */
#define LINGER_S 3.0
#define SETTLE_S 6.0

static ulyx_status_t
join_place(const struct uli_env_meeting *env, const struct uli_endpoint *place,
    double settle_s, struct uli_root *root, struct uli_bootstrap **bootstrap_p)
{
    int fd;
    ulyx_status_t status = uli_dial(place, settle_s, env->deadline, &fd);
    if (!status)
        status = uli_bootstrap_open_star(fd, root, env->launch.nranks,
            env->launch.rank, env->settings->ports, env->deadline, bootstrap_p);
    if (status)
        uli_root_stop(root, 0);
    return status;
}

/* ---- one node ------------------------------------------------------------ */

/* An occupied name belongs to another rank 0. Its root is dialled like any
 * root, and all ranks then get the error that there are two ranks 0. */
static ulyx_status_t
serve_abstract(struct uli_endpoint *place, uli_deadline_t deadline,
    struct uli_root **root_p)
{
    struct uli_root_params params = {
        .deadline = deadline, .listener_count = 1, .same_user = true};
    memcpy(params.secret, place->secret, ULI_SECRET_BYTES);
    int number = uli_socket_listen(&place->addresses[0], &params.listeners[0]);
    if (number == EADDRINUSE)
        return ULYX_SUCCESS;
    errno = number;
    if (number)
        return uli_error_errno("bootstrap: an abstract socket");
    return uli_root_start(&params, root_p);
}

ulyx_status_t
uli_bootstrap_open_abstract(
    const struct uli_env_meeting *env, struct uli_bootstrap **bootstrap_p)
{
    struct uli_endpoint place = {
        .count = 1, .same_user = true, .who = "rank 0 on this host"};
    struct uli_root *root = NULL;
    unsigned char digest[ULI_SECRET_BYTES];
    char hex[HEX_BYTES], name[96];
    uli_env_secret(env, "secret", "", place.secret);
    uli_env_secret(env, "name", "", digest);
    for (int i = 0; i < ULI_SECRET_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    snprintf(name, sizeof(name), "ulyx/%u/%s", (unsigned)geteuid(), hex);
    uli_address_abstract(name, &place.addresses[0]);
    if (env->launch.rank == 0)
        ULI_TRY(serve_abstract(&place, env->deadline, &root));
    return join_place(env, &place, 0, root, bootstrap_p);
}

/* ---- MASTER_ADDR:ULYX_PORT ----------------------------------------------- */

static bool
place_holds(
    const struct uli_endpoint *place, const struct uli_socket_address *address)
{
    for (int i = 0; i < place->count; i++)
        if (place->addresses[i].length == address->length &&
            memcmp(&place->addresses[i].storage, &address->storage,
                address->length) == 0)
            return true;
    return false;
}

static int
family_of(const struct uli_settings *settings)
{
    if (strcmp(settings->socket_family, "AF_INET") == 0)
        return AF_INET;
    return strcmp(settings->socket_family, "AF_INET6") == 0 ? AF_INET6
                                                            : AF_UNSPEC;
}

/* Removes the brackets of "[::1]", which are needed only in addresses with a
 * port. */
static void
strip_brackets(char *host)
{
    size_t length = strlen(host);
    if (length < 2 || host[0] != '[' || host[length - 1] != ']')
        return;
    host[length - 1] = 0;
    memmove(host, host + 1, length - 1);
}

/* *numeric_p: MASTER_ADDR is an address, not a name. */
static ulyx_status_t
meeting_resolve(const struct uli_env_meeting *env, struct uli_endpoint *place,
    bool *numeric_p)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
        .ai_family = family_of(env->settings),
        .ai_flags = AI_NUMERICHOST};
    struct addrinfo *all = NULL;
    char host[sizeof(env->launch.master)];
    snprintf(host, sizeof(host), "%s", env->launch.master);
    strip_brackets(host);
    int result = getaddrinfo(host, NULL, &hints, &all);
    *numeric_p = result == 0;
    hints.ai_flags = 0;
    if (result)
        result = getaddrinfo(host, NULL, &hints, &all);
    if (result)
        return uli_error(ULYX_ERR_SYSTEM, "MASTER_ADDR=\"%s\": %s",
            env->launch.master, gai_strerror(result));
    for (const struct addrinfo *one = all; one; one = one->ai_next) {
        struct uli_socket_address address = {.length = one->ai_addrlen};
        memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
        uli_address_set_port(&address, (int)env->settings->port);
        if (place->count < ULI_ADDRESS_MAX && !place_holds(place, &address))
            place->addresses[place->count++] = address;
    }
    freeaddrinfo(all);
    snprintf(place->who, sizeof(place->who),
        "rank 0 on the host of MASTER_ADDR=%s", env->launch.master);
    if (*numeric_p && uli_address_lacks_scope(&place->addresses[0]))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "MASTER_ADDR=\"%s\" is a link-local address without its "
            "interface: write %s%%<interface>, as in fe80::1%%eth0",
            env->launch.master, host);
    return ULYX_SUCCESS;
}

/* Whether this process can listen there: the address may belong to a host in
 * front of this host, which forwards connections. */
static bool
is_here(const struct uli_socket_address *address)
{
    struct uli_socket_address any_port = *address;
    int fd;
    uli_address_set_port(&any_port, 0);
    if (uli_socket_listen(&any_port, &fd))
        return false;
    close(fd);
    return true;
}

/* If MASTER_ADDR is an address of this host, rank 0 listens there alone. A name
 * may resolve to a loopback address on its own host, so rank 0 listens at the
 * name's addresses and on the chosen interfaces. */
static void
add_interfaces(const struct uli_env_meeting *env, struct uli_endpoint *place)
{
    struct uli_socket_address here[ULI_ADDRESS_MAX];
    int count = 0;
    if (uli_netif_choose_here(env->settings->socket_ifname,
            env->settings->socket_family, here, &count))
        return;
    for (int i = 0; i < count && place->count < ULI_ADDRESS_MAX; i++) {
        uli_address_set_port(&here[i], (int)env->settings->port);
        if (!place_holds(place, &here[i]))
            place->addresses[place->count++] = here[i];
    }
}

/* Listens at every address that is free; tries again if there is none because
 * the port is taken. */
static ulyx_status_t
listen_all(const struct uli_endpoint *place, uli_deadline_t deadline,
    struct uli_root_params *params)
{
    int pause_ms = PAUSE_FIRST_MS;
    for (;;) {
        int last = 0, taken = 0;
        for (int i = 0; i < place->count; i++) {
            struct uli_socket_address address = place->addresses[i];
            int *fd_p = &params->listeners[params->listener_count];
            last = uli_socket_listen(&address, fd_p);
            params->listener_count += !last;
            taken |= last == EADDRINUSE;
        }
        if (params->listener_count > 0)
            return ULYX_SUCCESS;
        if (!taken || uli_deadline_over(deadline)) {
            errno = taken ? EADDRINUSE : last;
            return uli_error_errno("bootstrap: rank 0 cannot listen on port %d",
                uli_address_port(&place->addresses[0]));
        }
        uli_dial_pause(&pause_ms, deadline);
    }
}

/* A secret that is too short counts as no secret, because each connection may
 * try a guess. */
static ulyx_status_t
check_secret(const struct uli_env_meeting *env)
{
    const struct uli_settings *settings = env->settings;
    size_t length = strlen(settings->secret);
    char what[96] = "without a secret";
    if (length >= ULI_SECRET_LEAST)
        return ULYX_SUCCESS;
    if (length > 0)
        snprintf(what, sizeof(what),
            "whose secret has %zu characters, fewer than %d", length,
            ULI_SECRET_LEAST);
    if (!settings->insecure)
        return uli_error(ULYX_ERR_AUTH,
            "a meeting at %s:%d %s is refused: set ULYX_SECRET to the same "
            "random text on all ranks (head -c 24 /dev/urandom | base64), or "
            "ULYX_INSECURE=1",
            env->launch.master, (int)settings->port, what);
    ULI_WARN(ULI_LOG_INIT, env->launch.rank,
        "bootstrap: ULYX_INSECURE=1 and a meeting %s: whoever reaches %s:%d "
        "can join",
        what, env->launch.master, (int)settings->port);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_bootstrap_open_master(
    const struct uli_env_meeting *env, struct uli_bootstrap **bootstrap_p)
{
    struct uli_endpoint place = {0};
    bool numeric;
    struct uli_root *root = NULL;
    struct uli_root_params params = {
        .deadline = env->deadline, .linger_s = LINGER_S};
    ULI_TRY(check_secret(env));
    uli_env_secret(env, "master", env->settings->secret, place.secret);
    memcpy(params.secret, place.secret, ULI_SECRET_BYTES);
    ULI_TRY(meeting_resolve(env, &place, &numeric));
    if (env->launch.rank == 0) {
        struct uli_endpoint wide = place;
        if (!numeric || !is_here(&place.addresses[0]))
            add_interfaces(env, &wide);
        ULI_TRY(listen_all(&wide, env->deadline, &params));
        ULI_TRY(uli_root_start(&params, &root));
    }
    return join_place(env, &place, SETTLE_S, root, bootstrap_p);
}
