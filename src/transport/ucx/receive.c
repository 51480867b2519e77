/* SPDX-License-Identifier: Apache-2.0
 *
 * Arriving messages; see net.h. Every field of a header is checked: the token
 * proves that the sender has this rank's address, and the hook checks that the
 * memory belongs to a window of this rank. A peer that names other memory is
 * lost, because its put would never arrive.
 */
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/status.h"
#include "transport/ucx/net.h"
#include "transport/ucx/order.h"

/* ---- puts ---------------------------------------------------------------- */

static void
receive_eager(struct uli_ucx_peer *peer, const struct uli_ucx_head *head,
    const void *data, size_t bytes)
{
    _Atomic uint64_t *signal;
    void *target;
    if (!uli_ucx_find(peer, head, bytes, &target, &signal)) {
        uli_ucx_refuse_put(peer, head, bytes);
        return;
    }
    if (bytes)
        memcpy(target, data, bytes);
    uli_ucx_land(peer, signal, head->signal, true);
}

/* ---- messages ------------------------------------------------------------ */

static void
peer_keep(struct uli_ucx_peer *peer, const struct uli_ucx_head *head,
    const void *data, size_t bytes)
{
    struct uli_ucx_early **at = &peer->early;
    struct uli_ucx_early *early = malloc(sizeof(*early) + bytes);
    if (!early) {
        uli_ucx_refuse(
            peer->net, peer, "this rank has no memory to receive its message");
        return;
    }
    early->head = *head;
    early->bytes = bytes;
    if (bytes)
        memcpy(early->data, data, bytes);
    while (*at && (*at)->head.number < head->number)
        at = &(*at)->next;
    early->next = *at;
    *at = early;
}

static void
peer_deliver(struct uli_ucx_peer *peer, const struct uli_ucx_head *head,
    const void *data, size_t bytes)
{
    struct uli_net *net = peer->net;
    peer->next++;
    if (peer->lost || net->closing)
        return;
    if (head->kind == ULI_UCX_KEY)
        uli_ucx_key_came(peer, head, data, bytes);
    else if (head->kind == ULI_UCX_KEY_GONE)
        uli_ucx_key_gone(peer, head->window);
    else
        net->hooks.message(net->hooks.context, peer->rank, data, bytes);
}

static bool
has_turn(const struct uli_ucx_peer *peer, uint64_t number, uint64_t before)
{
    return number == peer->next && peer->eager_landed >= before;
}

void
uli_ucx_take_turns(struct uli_ucx_peer *peer)
{
    struct uli_ucx_early *early;
    while ((early = peer->early) &&
           has_turn(peer, early->head.number, early->head.eager_before)) {
        peer->early = early->next;
        peer_deliver(peer, &early->head, early->data, early->bytes);
        free(early);
    }
    if (peer->last_word && has_turn(peer, peer->last, peer->last_before)) {
        peer->last_word = false;
        peer->bye_received = true;
        peer->answer_due = true;
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
    case ULI_UCX_KEY:
    case ULI_UCX_KEY_GONE:
        if (has_turn(peer, head->number, head->eager_before))
            peer_deliver(peer, head, data, bytes);
        else
            peer_keep(peer, head, data, bytes);
        break;
    case ULI_UCX_BYE:
        peer->last_word = true;
        peer->last = head->number;
        peer->last_before = head->eager_before;
        break;
    case ULI_UCX_BYE_ANSWER:
        peer->answered = true;
        break;
    case ULI_UCX_PUT_PLACED:
        uli_ucx_receive_placed(peer, head);
        break;
    case ULI_UCX_PUT_TAGGED:
        uli_ucx_receive_tagged(peer, head);
        break;
    case ULI_UCX_KEY_REQUEST:
        uli_ucx_key_requested(peer, head->window);
        break;
    case ULI_UCX_PROBED:
    case ULI_UCX_VERB_PREFERENCE:
    case ULI_UCX_VERB:
    case ULI_UCX_VERB_AGREED:
        uli_ucx_verb_receive(peer, head);
        break;
    case ULI_UCX_REFUSAL:
        uli_ucx_lose(
            peer->net, peer, "it refused a message of this rank as invalid");
        break;
    default:
        uli_ucx_refuse(
            peer->net, peer, "it sent a message that is not of this protocol");
    }
}

static ucs_status_t
message_arrived(void *argument, const void *header, size_t header_bytes,
    void *data, size_t bytes, const ucp_am_recv_param_t *about)
{
    struct uli_net *net = argument;
    struct uli_ucx_head head;
    ucs_status_t status = UCS_OK;
    if (header_bytes != sizeof(head))
        return UCS_OK;
    memcpy(&head, header, sizeof(head)); /* not aligned in the packet */
    if (head.token != net->token || head.from < 0 || head.from >= net->nranks ||
        head.from == net->rank)
        return UCS_OK;
    struct uli_ucx_peer *peer = &net->peers[head.from];
    uli_ucx_after(net->token);
    if (atomic_load_explicit(&peer->lost, memory_order_relaxed))
        return UCS_OK;
    peer->moved = true;
    peer->silent = false;
    if (!peer->ep && !peer->needs_ep) {
        peer->needs_ep = true; /* to notice the peer's death, and to answer */
        uli_ucx_due(net, peer);
    }
    bool rendezvous = about->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
    if (rendezvous && head.kind != ULI_UCX_PUT)
        uli_ucx_refuse(
            net, peer, "it sent a message that is not of this protocol");
    else if (rendezvous)
        status = uli_ucx_receive_rendezvous(peer, &head, data, bytes);
    else if (head.kind == ULI_UCX_PUT)
        receive_eager(peer, &head, data, bytes);
    else
        receive_other(peer, &head, data, bytes);
    uli_ucx_take_turns(peer);
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
        .cb = message_arrived,
        .arg = net,
    };
    ucs_status_t status =
        net->ucx->worker_set_am_recv_handler(net->worker, &handler);
    if (status != UCS_OK)
        return uli_ucx_error(net, status, "ucp_worker_set_am_recv_handler");
    return ULYX_SUCCESS;
}
