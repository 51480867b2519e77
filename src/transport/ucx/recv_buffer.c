/* SPDX-License-Identifier: Apache-2.0
 *
 * Arriving puts whose data is on its way; see net.h. The header names the
 * places of data and signal. What shows that the data has landed:
 *
 *   rendezvous   UCX's receive, begun here, has ended
 *   TAG          UCX's receive of the tagged message has ended
 *   PUT          the header itself: its sender sends it after a flush has shown
 *                that the data has landed here
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/log.h"
#include "base/status.h"
#include "transport/ucx/net.h"
#include "transport/ucx/order.h"

enum { PREPARED = 32 };

/* ---- memory -------------------------------------------------------------- */

static struct uli_ucx_incoming *
peer_take(struct uli_ucx_peer *peer)
{
    struct uli_net *net = peer->net;
    struct uli_ucx_incoming *incoming = net->free_incoming;
    if (incoming)
        net->free_incoming = incoming->next;
    else
        incoming = malloc(sizeof(*incoming));
    if (!incoming) {
        uli_ucx_refuse(net, peer, "this rank has no memory to receive its put");
        return NULL;
    }
    memset(incoming, 0, sizeof(*incoming));
    uli_list_init(&incoming->node);
    incoming->peer = peer;
    return incoming;
}

static void
recv_give(struct uli_net *net, struct uli_ucx_incoming *incoming)
{
    incoming->next = net->free_incoming;
    net->free_incoming = incoming;
}

ulyx_status_t
uli_ucx_recv_open(struct uli_net *net)
{
    void *scratch = mmap(NULL, ULI_UCX_SCRATCH_BYTES, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (scratch == MAP_FAILED)
        return uli_error_errno(
            "ucx: %d bytes to probe with", ULI_UCX_SCRATCH_BYTES);
    net->scratch = scratch;
    for (int i = 0; i < PREPARED; i++) {
        struct uli_ucx_incoming *incoming = malloc(sizeof(*incoming));
        if (!incoming)
            return uli_error(
                ULYX_ERR_NO_MEMORY, "ucx: no memory for %d puts", PREPARED);
        recv_give(net, incoming);
    }
    return ULYX_SUCCESS;
}

static void
free_list(struct uli_ucx_incoming *list)
{
    while (list) {
        struct uli_ucx_incoming *next = list->next;
        free(list);
        list = next;
    }
}

void
uli_ucx_recv_close(struct uli_net *net)
{
    if (net->scratch)
        munmap(net->scratch, ULI_UCX_SCRATCH_BYTES);
    free_list(net->free_incoming);
    for (int32_t p = 0; p < net->nranks; p++) /* UCX never ended these */
        while (!uli_list_empty(&net->peers[p].receives)) {
            struct uli_list *first = net->peers[p].receives.next;
            uli_list_remove(first);
            free(ULI_CONTAINER_OF(first, struct uli_ucx_incoming, node));
        }
}

/* ---- targets ------------------------------------------------------------- */

static bool
find_scratch(struct uli_ucx_peer *peer, const struct uli_ucx_head *head,
    size_t bytes, void **data_p, _Atomic uint64_t **signal_p)
{
    *data_p = peer->net->scratch;
    *signal_p = &peer->probe_end;
    return head->offset == 0 && bytes <= ULI_UCX_SCRATCH_BYTES &&
           head->signal_window == ULI_UCX_SCRATCH;
}

bool
uli_ucx_find(struct uli_ucx_peer *peer, const struct uli_ucx_head *head,
    size_t bytes, void **data_p, _Atomic uint64_t **signal_p)
{
    struct uli_net *net = peer->net;
    void *context = net->hooks.context;
    if (head->window == ULI_UCX_SCRATCH)
        return find_scratch(peer, head, bytes, data_p, signal_p);
    void *signal = net->hooks.target(
        context, head->signal_window, head->signal_offset, sizeof(uint64_t));
    *data_p = bytes ? net->hooks.target(
                          context, head->window, head->offset, (int64_t)bytes)
                    : NULL;
    *signal_p = signal;
    return signal && (uintptr_t)signal % sizeof(uint64_t) == 0 &&
           (*data_p || !bytes);
}

void
uli_ucx_refuse_put(
    struct uli_ucx_peer *peer, const struct uli_ucx_head *head, size_t bytes)
{
    char how[160];
    snprintf(how, sizeof(how),
        "it put %zu bytes to (%u, %lld), signal at (%u, %lld): not windows "
        "of this rank",
        bytes, head->window, (long long)head->offset, head->signal_window,
        (long long)head->signal_offset);
    uli_ucx_refuse(peer->net, peer, how);
}

/* Only steps of this net write these words, one step at a time. */
void
uli_ucx_land(struct uli_ucx_peer *peer, _Atomic uint64_t *signal,
    uint64_t value, bool counted)
{
    uli_ucx_after(peer->net->token);
    if (atomic_load_explicit(signal, memory_order_relaxed) < value)
        atomic_store_explicit(signal, value, memory_order_release);
    peer->eager_landed += counted;
    peer->net->happened = true;
    if (signal == &peer->probe_end) {
        peer->link.to_acknowledge++;
        uli_ucx_due(peer->net, peer);
    }
}

/* ---- receives that UCX has begun ----------------------------------------- */

static void
incoming_begun(struct uli_ucx_incoming *incoming)
{
    struct uli_ucx_peer *peer = incoming->peer;
    incoming->flying = true;
    peer->net->flying++;
    peer->flying++;
    peer->receive_buffer++;
    uli_list_append(&peer->receives, &incoming->node);
    uli_ucx_watch(peer->net, peer);
}

static void
incoming_uncount(struct uli_ucx_incoming *incoming)
{
    if (!incoming->flying)
        return;
    incoming->flying = false;
    incoming->peer->net->flying--;
    incoming->peer->flying--;
    incoming->peer->receive_buffer--;
}

static void
incoming_ended(struct uli_ucx_incoming *incoming)
{
    incoming_uncount(incoming);
    uli_list_remove(&incoming->node);
    incoming->peer->moved = true;
    incoming->peer->silent = false;
}

void
uli_ucx_abandon_receives(struct uli_ucx_peer *peer)
{
    for (struct uli_list *n = peer->receives.next; n != &peer->receives;
         n = n->next) {
        struct uli_ucx_incoming *incoming =
            ULI_CONTAINER_OF(n, struct uli_ucx_incoming, node);
        incoming_uncount(incoming);
        incoming->signal = NULL; /* the window may be gone */
    }
}

/* This rank may be notified of a death by others while the connection is whole
 * and data still arrives. Then the connection is closed, and UCX ends its
 * receives, or they are abandoned as those of any closed connection. */
bool
uli_ucx_landed(struct uli_net *net, int32_t rank, bool dead)
{
    struct uli_ucx_peer *peer = &net->peers[rank];
    uli_ucx_enter(net);
    if (dead) {
        atomic_store(&peer->lost, true);
        if (!peer->broken && peer->ep)
            uli_ucx_break(peer, UCS_ERR_CANCELED);
    }
    bool landed = peer->receive_buffer == 0;
    uli_ucx_leave(net);
    if (!landed)
        net->ops->net->wake(net);
    return landed;
}

/* ---- rendezvous ---------------------------------------------------------- */

static void
incoming_received(
    void *request, ucs_status_t status, size_t bytes, void *argument)
{
    struct uli_ucx_incoming *incoming = argument;
    struct uli_ucx_peer *peer = incoming->peer;
    struct uli_net *net = peer->net;
    (void)bytes;
    incoming_ended(incoming);
    net->ucx->request_free(request);
    if (incoming->signal && status == UCS_OK)
        uli_ucx_land(peer, incoming->signal, incoming->value, false);
    recv_give(net, incoming);
}

/* Refuses a put outside this rank's windows, and names the put. The data is not
 * received. */
static bool
accept_put(struct uli_ucx_incoming *incoming, const struct uli_ucx_head *head,
    size_t bytes, void **data_p)
{
    incoming->value = head->signal;
    if (uli_ucx_find(incoming->peer, head, bytes, data_p, &incoming->signal))
        return true;
    uli_ucx_refuse_put(incoming->peer, head, bytes);
    return false;
}

ucs_status_t
uli_ucx_receive_rendezvous(struct uli_ucx_peer *peer,
    const struct uli_ucx_head *head, void *descriptor, size_t bytes)
{
    struct uli_net *net = peer->net;
    struct uli_ucx_incoming *incoming = peer_take(peer);
    void *data;
    ucp_request_param_t how = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
            UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv_am = incoming_received,
        .user_data = incoming,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    if (!incoming)
        return UCS_OK;
    if (!accept_put(incoming, head, bytes, &data)) {
        recv_give(net, incoming);
        return UCS_OK;
    }
    ucs_status_ptr_t request =
        net->ucx->am_recv_data_nbx(net->worker, descriptor, data, bytes, &how);
    if (UCS_PTR_IS_PTR(request)) {
        incoming_begun(incoming);
        return UCS_INPROGRESS;
    }
    recv_give(net, incoming);
    uli_ucx_lose(
        net, peer, net->ucx->status_string(UCS_PTR_RAW_STATUS(request)));
    return UCS_OK;
}

/* ---- TAG ----------------------------------------------------------------- */

static void
unlink_tagged(struct uli_net *net, const struct uli_ucx_incoming *incoming)
{
    struct uli_ucx_incoming **at = &net->tagged;
    while (*at && *at != incoming)
        at = &(*at)->next;
    if (*at)
        *at = incoming->next;
}

static void
received_tagged(void *request, ucs_status_t status,
    const ucp_tag_recv_info_t *info, void *argument)
{
    struct uli_ucx_incoming *incoming = argument;
    struct uli_ucx_peer *peer = incoming->peer;
    struct uli_net *net = peer->net;
    incoming_ended(incoming);
    unlink_tagged(net, incoming);
    net->ucx->request_free(request);
    if (incoming->signal && status == UCS_OK &&
        (int64_t)info->length == incoming->bytes) {
        uli_ucx_land(peer, incoming->signal, incoming->value, true);
        uli_ucx_take_turns(peer);
    } else if (incoming->signal && status != UCS_ERR_CANCELED) {
        uli_ucx_refuse(net, peer, "a tagged put is not what its header says");
    }
    recv_give(net, incoming);
}

/* The data of a refused put is not received: a receive of 0 bytes ends the put
 * at both ends. */
void
uli_ucx_receive_tagged(
    struct uli_ucx_peer *peer, const struct uli_ucx_head *head)
{
    struct uli_net *net = peer->net;
    struct uli_ucx_incoming *incoming = peer_take(peer);
    void *data = NULL;
    ucp_request_param_t how = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
            UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv = received_tagged,
        .user_data = incoming,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    if (!incoming)
        return;
    incoming->bytes = head->bytes;
    if (head->bytes <= 0 ||
        !accept_put(incoming, head, (size_t)head->bytes, &data)) {
        incoming->signal = NULL;
        incoming->bytes = 0;
        data = net->scratch;
    }
    incoming->next = net->tagged;
    net->tagged = incoming;
    incoming_begun(incoming);
    ucs_status_ptr_t request = net->ucx->tag_recv_nbx(net->worker, data,
        (size_t)incoming->bytes, head->number, UINT64_MAX, &how);
    if (!UCS_PTR_IS_PTR(request)) {
        incoming_ended(incoming);
        unlink_tagged(net, incoming);
        recv_give(net, incoming);
        uli_ucx_lose(
            net, peer, net->ucx->status_string(UCS_PTR_RAW_STATUS(request)));
    } else if (net->tagged == incoming) { /* not ended already */
        incoming->request = request;
    }
}

/* ---- PUT ----------------------------------------------------------------- */

void
uli_ucx_receive_placed(
    struct uli_ucx_peer *peer, const struct uli_ucx_head *head)
{
    _Atomic uint64_t *signal;
    void *data;
    if (peer->net->may_put && head->bytes > 0 &&
        uli_ucx_find(peer, head, (size_t)head->bytes, &data, &signal))
        uli_ucx_land(peer, signal, head->signal, true);
    else
        uli_ucx_refuse_put(peer, head, (size_t)head->bytes);
}

/* ---- the end ------------------------------------------------------------- */

void
uli_ucx_recv_drop(struct uli_net *net, const struct uli_ucx_peer *peer)
{
    /* A cancelled receive ends, and leaves the list, at once or in a later
     * step. */
    struct uli_ucx_incoming *i = net->tagged;
    while (i) {
        void *request = peer && i->peer != peer ? NULL : i->request;
        i->request = request ? NULL : i->request;
        if (request)
            net->ucx->request_cancel(net->worker, request);
        i = request ? net->tagged : i->next;
    }
}
