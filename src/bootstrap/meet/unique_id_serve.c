/* SPDX-License-Identifier: Apache-2.0
 *
 * The unique ids that this process serves, each by a root of its own. The
 * thread of a root needs no handle. But for each id from ulyx_unique_id_create
 * this process keeps a record (struct made), so that the process can end the
 * id, and can refuse at once an id that was used or destroyed. The record has
 * the handle of the root until the root has ended or the id is destroyed. The
 * record itself is kept until the root has ended and the roots of
 * REMEMBERED_MAX ids that were made later have ended too.
 *
 * The root of such an id stays at its port: after its ranks have met, to answer
 * processes that use the id for another communicator; after the meeting has
 * failed, to send the cause to late ranks. Each root costs a thread and a few
 * descriptors, so only the last STAYING_MAX roots stay. At a port that
 * ULYX_PORT gives, the root of the next id will listen. So there a root ends
 * when its meeting is over, or PORT_LINGER_S after the meeting has failed.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/list.h"
#include "base/log.h"
#include "base/system/random.h"
#include "base/settings.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/meet/dial.h"
#include "bootstrap/meet/root.h"
#include "bootstrap/meet/netif.h"
#include "bootstrap/meet/unique_id.h"

enum { STAYING_MAX = 8, REMEMBERED_MAX = 1024 };
#define DESTROY_S     1.0 /* for the message to the ranks that have joined */
#define PORT_LINGER_S 1.0 /* of a failed meeting at a fixed port */
#define PORT_WAIT_S   2.0 /* for an earlier root to end */

/* ---- serving ------------------------------------------------------------- */

/* At a port that ULYX_PORT gives, the root of a failed meeting may still be
 * answering late ranks; it ends soon, so the port is tried again. */
static int
listen_at(struct uli_socket_address *address, int port,
    struct uli_port_range ports, int *fd_p)
{
    uli_deadline_t deadline = uli_deadline_in(PORT_WAIT_S);
    int pause_ms = 1, number;
    if (port == 0)
        return uli_netif_listen(address, ports, fd_p);
    uli_address_set_port(address, port);
    while ((number = uli_socket_listen(address, fd_p)) == EADDRINUSE &&
           !uli_deadline_over(deadline))
        uli_dial_pause(&pause_ms, deadline);
    return number;
}

/* Listens on the chosen addresses; addresses that are not free are left out. */
static ulyx_status_t
listen_on(struct uli_endpoint *place, const struct uli_settings *settings,
    struct uli_root_params *params)
{
    int count = 0, number = 0;
    char where[ULI_ADDRESS_TEXT_BYTES] = "";
    for (int i = 0; i < place->count; i++) {
        struct uli_socket_address address = place->addresses[i];
        uli_address_set_port(&address, (int)settings->port);
        uli_address_text(&address, where, sizeof(where));
        number = listen_at(&address, (int)settings->port, settings->ports,
            &params->listeners[count]);
        if (number) {
            ULI_INFO(ULI_LOG_INIT, -1, "bootstrap: cannot listen on %s: %s",
                where, uli_errno_text(number));
            continue;
        }
        place->addresses[count++] = address;
    }
    place->count = params->listener_count = count;
    if (count > 0)
        return ULYX_SUCCESS;
    errno = number;
    if (number == EADDRINUSE && !settings->port && settings->ports.first)
        return uli_error_errno(
            "bootstrap: no port of ULYX_PORT_RANGE=%d-%d is free on this host",
            settings->ports.first, settings->ports.last);
    return uli_error_errno("bootstrap: cannot listen on %s", where);
}

static void
log_addresses(const struct uli_endpoint *place)
{
    char text[ULI_ADDRESS_MAX * (ULI_ADDRESS_TEXT_BYTES + 2)] = "";
    for (int i = 0; i < place->count; i++) {
        size_t used = strlen(text);
        text[used] = i ? ',' : 0;
        uli_address_text(&place->addresses[i], text + used + (i > 0),
            sizeof(text) - used - 1);
    }
    ULI_INFO(ULI_LOG_INIT, -1, "bootstrap: root listens on %s", text);
}

/* The caller has set deadline, unlink_path and stays of `params`; this function
 * sets the other members. */
static ulyx_status_t
id_serve(const struct uli_settings *settings, struct uli_root_params *params,
    struct uli_endpoint *place_p, struct uli_root **root_p)
{
    struct uli_endpoint place = {0};
    ULI_TRY(uli_auth_init());
    ULI_TRY(uli_random_bytes(place.secret, ULI_SECRET_BYTES));
    memcpy(params->secret, place.secret, ULI_SECRET_BYTES);
    params->linger_s = settings->port ? PORT_LINGER_S : 0;
    ULI_TRY(uli_netif_choose_here(settings->socket_ifname,
        settings->socket_family, place.addresses, &place.count));
    ULI_TRY(listen_on(&place, settings, params));
    ULI_TRY(uli_root_start(params, root_p));
    log_addresses(&place);
    *place_p = place;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_unique_id_serve(const struct uli_settings *settings,
    uli_deadline_t deadline, const char *unlink_path, ulyx_unique_id_t *id_p,
    struct uli_root **root_p)
{
    struct uli_root_params params = {
        .deadline = deadline, .unlink_path = unlink_path};
    struct uli_endpoint place;
    ULI_TRY(id_serve(settings, &params, &place, root_p));
    uli_unique_id_encode(&place, id_p);
    return ULYX_SUCCESS;
}

/* ---- the ids of this process --------------------------------------------- */

struct made {
    struct uli_list node;
    pid_t process; /* the copies in a forked child are not the child's to end */
    unsigned char secret[ULI_SECRET_BYTES];
    struct uli_root *root; /* NULL: it has ended */
    enum uli_root_state state;
    bool destroyed;
};

/* The records, in the order in which the ids were made. */
static struct {
    pthread_mutex_t lock;
    struct uli_list ids;
} made_here = {PTHREAD_MUTEX_INITIALIZER, {&made_here.ids, &made_here.ids}};

static void
served_refresh(struct made *made)
{
    if (!made->root)
        return;
    bool ended = uli_root_ended(made->root);
    made->state = uli_root_state(made->root);
    if (!ended)
        return;
    uli_root_release(made->root, 0);
    made->root = NULL;
}

/* Ends the roots that only answer late ranks, except the STAYING_MAX newest,
 * and frees the records of ids that have ended, except the REMEMBERED_MAX
 * newest. */
static void
forget_old(void)
{
    int staying = 0, ended = 0;
    struct uli_list *node = made_here.ids.prev;
    while (node != &made_here.ids) {
        struct made *made = ULI_CONTAINER_OF(node, struct made, node);
        node = node->prev;
        served_refresh(made);
        if (made->root && uli_root_awaits_late(made->root) &&
            ++staying > STAYING_MAX) {
            uli_root_stop(made->root, 0);
            made->root = NULL;
        }
        if (!made->root && ++ended > REMEMBERED_MAX) {
            uli_list_remove(&made->node);
            free(made);
        }
    }
}

static struct made *
served_find(const unsigned char *secret)
{
    struct uli_list *node = made_here.ids.next;
    for (; node != &made_here.ids; node = node->next) {
        struct made *made = ULI_CONTAINER_OF(node, struct made, node);
        if (memcmp(made->secret, secret, ULI_SECRET_BYTES) == 0 &&
            made->process == getpid())
            return made;
    }
    return NULL;
}

ulyx_status_t
uli_unique_id_create(ulyx_unique_id_t *id_p)
{
    struct uli_settings settings;
    struct uli_endpoint place;
    ULI_TRY(uli_settings_load(&settings));
    double timeout_s = uli_timeout_or(0, settings.timeout_s);
    struct uli_root_params params = {
        .deadline = uli_deadline_in(timeout_s), .stays = settings.port == 0};
    struct made *made = calloc(1, sizeof(*made));
    if (!made)
        return uli_error(ULYX_ERR_NO_MEMORY, "out of memory for a unique id");
    ulyx_status_t status = id_serve(&settings, &params, &place, &made->root);
    if (status) {
        free(made);
        return status;
    }
    made->process = getpid();
    memcpy(made->secret, place.secret, ULI_SECRET_BYTES);
    pthread_mutex_lock(&made_here.lock);
    uli_list_append(&made_here.ids, &made->node);
    forget_old();
    pthread_mutex_unlock(&made_here.lock);
    uli_unique_id_encode(&place, id_p);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_unique_id_destroy(const ulyx_unique_id_t *id)
{
    struct uli_endpoint place;
    struct uli_root *root = NULL;
    ULI_TRY(uli_unique_id_decode(id, &place));
    pthread_mutex_lock(&made_here.lock);
    struct made *made = served_find(place.secret);
    bool here = made && !made->destroyed;
    if (here) {
        served_refresh(made);
        root = made->root;
        made->root = NULL;
        made->destroyed = true;
    }
    pthread_mutex_unlock(&made_here.lock);
    if (!here)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT, "%s",
            made ? "this unique id was destroyed before"
                 : "this process did not make this unique id, or its meeting "
                   "is long over");
    uli_root_cancel(root, DESTROY_S);
    return ULYX_SUCCESS;
}

/* Checks an id without a query to its root, if this process made it. */
static ulyx_status_t
check_made(const struct uli_endpoint *place)
{
    const char *why = NULL;
    pthread_mutex_lock(&made_here.lock);
    struct made *made = served_find(place->secret);
    if (made)
        served_refresh(made);
    if (made && made->destroyed)
        why = "was destroyed";
    else if (made && made->state != ULI_ROOT_OPEN)
        why = "has been used: an id serves one communicator, make a new id for "
              "each communicator";
    else if (made && !made->root)
        why = "has ended: its meeting failed, or its deadline is over";
    pthread_mutex_unlock(&made_here.lock);
    if (why)
        return uli_error(
            ULYX_ERR_INVALID_ARGUMENT, "bootstrap: this unique id %s", why);
    return ULYX_SUCCESS;
}

/* ---- joining ------------------------------------------------------------- */

ulyx_status_t
uli_bootstrap_open_id(const ulyx_unique_id_t *id, int32_t nranks, int32_t rank,
    const struct uli_settings *settings, uli_deadline_t deadline,
    struct uli_bootstrap **bootstrap_p)
{
    struct uli_endpoint place;
    int fd;
    ULI_TRY(uli_unique_id_decode(id, &place));
    strcpy(place.who, "the process that made the unique id");
    ULI_TRY(check_made(&place));
    ULI_TRY(uli_dial(&place, 0, deadline, &fd));
    return uli_bootstrap_open_star(
        fd, NULL, nranks, rank, settings->ports, deadline, bootstrap_p);
}
