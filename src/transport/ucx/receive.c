/* SPDX-License-Identifier: Apache-2.0
 *
 * What arrives; see net.h. Nothing of a header is believed: the token tells
 * that the sender was given our address, the hook tells whether the memory is
 * ours to be written. A peer that names other memory is lost: its put would
 * be missed for ever.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/status.h"
#include "transport/ucx/net.h"

/* A rendezvous that is on its way in. */
struct incoming {
    struct uli_net *net;
    struct uli_ucx_peer *peer;
    _Atomic uint64_t *signal;
    uint64_t value;
};

/* ---- puts ---------------------------------------------------------------- */

/* The only writers of these words are this net's steps, one at a time. */
static void
store_signal(_Atomic uint64_t *word, uint64_t value)
{
    if (atomic_load_explicit(word, memory_order_relaxed) < value)
        atomic_store_explicit(word, value, memory_order_release);
}

static void
refuse(struct uli_ucx_peer *peer, const struct uli_ucx_head *head, size_t bytes)
{
    char how[160];
    snprintf(how, sizeof(how),
        "it put %zu bytes to (%u, %lld), signal at (%u, %lld): not windows "
        "of this rank",
        bytes, head->window, (long long)head->offset, head->signal_window,
        (long long)head->signal_offset);
    uli_ucx_refuse(peer->net, peer, how);
}

/* Where data and signal of a put go; false: not ours. */
static bool
find(struct uli_net *net, const struct uli_ucx_head *head, size_t bytes,
    void **data_p, _Atomic uint64_t **signal_p)
{
    void *context = net->hooks.context;
    void *signal = net->hooks.target(
        context, head->signal_window, head->signal_offset, sizeof(uint64_t));
    *data_p = bytes ? net->hooks.target(
                          context, head->window, head->offset, (int64_t)bytes)
                    : NULL;
    *signal_p = signal;
    return signal && (uintptr_t)signal % sizeof(uint64_t) == 0 &&
           (*data_p || !bytes);
}

static void
landed(void *request, ucs_status_t status, size_t bytes, void *argument)
{
    struct incoming *incoming = argument;
    struct uli_net *net = incoming->net;
    (void)bytes;
    net->flying--;
    incoming->peer->flying--;
    incoming->peer->moved = true;
    incoming->peer->unheard = false;
    net->ucx->request_free(request);
    if (status == UCS_OK) {
        store_signal(incoming->signal, incoming->value);
        net->happened = true;
    }
    free(incoming);
}

static ucs_status_t
receive_rendezvous(struct uli_ucx_peer *peer, const struct uli_ucx_head *head,
    void *descriptor, size_t bytes)
{
    struct uli_net *net = peer->net;
    struct incoming *incoming = malloc(sizeof(*incoming));
    void *data;
    ucp_request_param_t how = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
            UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv_am = landed,
        .user_data = incoming,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    if (!incoming) {
        uli_ucx_refuse(net, peer, "no memory to receive its put");
        return UCS_OK;
    }
    *incoming = (struct incoming){.net = net, .peer = peer};
    incoming->value = head->signal;
    if (!find(net, head, bytes, &data, &incoming->signal)) {
        free(incoming);
        refuse(peer, head, bytes);
        return UCS_OK;
    }
    ucs_status_ptr_t request =
        net->ucx->am_recv_data_nbx(net->worker, descriptor, data, bytes, &how);
    if (UCS_PTR_IS_PTR(request)) {
        net->flying++;
        peer->flying++;
        return UCS_INPROGRESS;
    }
    free(incoming);
    uli_ucx_lose(
        net, peer, net->ucx->status_string(UCS_PTR_RAW_STATUS(request)));
    return UCS_OK;
}

static void
receive_eager(struct uli_ucx_peer *peer, const struct uli_ucx_head *head,
    const void *data, size_t bytes)
{
    _Atomic uint64_t *signal;
    void *target;
    if (!find(peer->net, head, bytes, &target, &signal)) {
        refuse(peer, head, bytes);
        return;
    }
    if (bytes)
        memcpy(target, data, bytes);
    store_signal(signal, head->signal);
    peer->eager_landed++;
}

/* ---- messages ------------------------------------------------------------ */

static void
keep(struct uli_ucx_peer *peer, const struct uli_ucx_head *head,
    const void *data, size_t bytes)
{
    struct uli_ucx_early **at = &peer->early;
    struct uli_ucx_early *early = malloc(sizeof(*early) + bytes);
    if (!early) {
        uli_ucx_refuse(peer->net, peer, "no memory to receive its message");
        return;
    }
    early->number = head->number;
    early->eager_before = head->eager_before;
    early->bytes = bytes;
    if (bytes)
        memcpy(early->data, data, bytes);
    while (*at && (*at)->number < early->number)
        at = &(*at)->next;
    early->next = *at;
    *at = early;
}

static void
deliver(struct uli_ucx_peer *peer, const void *data, size_t bytes)
{
    struct uli_net *net = peer->net;
    peer->next++;
    if (!peer->lost && !net->closing)
        net->hooks.message(net->hooks.context, peer->rank, data, bytes);
}

static bool
has_turn(const struct uli_ucx_peer *peer, uint64_t number, uint64_t before)
{
    return number == peer->next && peer->eager_landed >= before;
}

static void
deliver_early(struct uli_ucx_peer *peer)
{
    struct uli_ucx_early *early;
    while ((early = peer->early) &&
           has_turn(peer, early->number, early->eager_before)) {
        peer->early = early->next;
        deliver(peer, early->data, early->bytes);
        free(early);
    }
    if (peer->last_word && has_turn(peer, peer->last, peer->last_before)) {
        peer->last_word = false;
        peer->said_bye = true;
        peer->want_answer = true;
        uli_ucx_due(peer->net, peer);
    }
}

void
uli_ucx_forget(struct uli_ucx_peer *peer)
{
    while (peer->early) {
        struct uli_ucx_early *next = peer->early->next;
        free(peer->early);
        peer->early = next;
    }
}

/* ---- the handler --------------------------------------------------------- */

static void
receive_other(struct uli_ucx_peer *peer, const struct uli_ucx_head *head,
    const void *data, size_t bytes)
{
    switch (head->kind) {
    case ULI_UCX_MESSAGE:
        if (has_turn(peer, head->number, head->eager_before))
            deliver(peer, data, bytes);
        else
            keep(peer, head, data, bytes);
        break;
    case ULI_UCX_BYE:
        peer->last_word = true;
        peer->last = head->number;
        peer->last_before = head->eager_before;
        break;
    case ULI_UCX_BYE_ANSWER:
        peer->answered = true;
        break;
    case ULI_UCX_REFUSAL:
        uli_ucx_lose(peer->net, peer, "it has refused what this rank sent");
        break;
    default:
        uli_ucx_refuse(peer->net, peer, "it sent what is no message of ours");
    }
}

static ucs_status_t
arrived(void *argument, const void *header, size_t header_bytes, void *data,
    size_t bytes, const ucp_am_recv_param_t *about)
{
    struct uli_net *net = argument;
    struct uli_ucx_head head;
    ucs_status_t status = UCS_OK;
    if (header_bytes != sizeof(head))
        return UCS_OK;
    memcpy(&head, header, sizeof(head)); /* not aligned in the packet */
    if (head.token != net->token || head.from < 0 || head.from >= net->nranks)
        return UCS_OK;
    struct uli_ucx_peer *peer = &net->peers[head.from];
    if (atomic_load_explicit(&peer->lost, memory_order_relaxed))
        return UCS_OK;
    peer->moved = true;
    peer->unheard = false;
    if (!peer->ep && !peer->want_ep) {
        peer->want_ep = true; /* to notice its death, and to answer it */
        uli_ucx_due(net, peer);
    }
    bool rendezvous = about->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
    if (rendezvous && head.kind != ULI_UCX_PUT)
        uli_ucx_refuse(net, peer, "it sent what is no message of ours");
    else if (rendezvous)
        status = receive_rendezvous(peer, &head, data, bytes);
    else if (head.kind == ULI_UCX_PUT)
        receive_eager(peer, &head, data, bytes);
    else
        receive_other(peer, &head, data, bytes);
    deliver_early(peer);
    net->happened = true;
    return status;
}

ulyx_status_t
uli_ucx_listen(struct uli_net *net)
{
    ucp_am_handler_param_t handler = {
        .field_mask =
            UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
            UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = ULI_UCX_AM,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = arrived,
        .arg = net,
    };
    ucs_status_t status =
        net->ucx->worker_set_am_recv_handler(net->worker, &handler);
    if (status != UCS_OK)
        return uli_ucx_error(net, status, "ucp_worker_set_am_recv_handler", -1);
    return ULYX_SUCCESS;
}
