/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses, endpoints and the loss of peers; see net.h. An address is a token,
 * the place of the keepalive socket (keepalive.c), the host's addresses
 * (gate.c), then UCX's own bytes. A sender that has the token received the
 * address from the bootstrap, which authenticates; messages without the token
 * are dropped.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/status.h"
#include "transport/ucx/net.h"

struct header {
    uint64_t magic, token;
    union uli_ucx_place place;
    uint32_t naddresses, reserved;
    struct in6_addr addresses[ULI_UCX_ADDRESSES]; /* only naddresses are sent */
};
static const uint64_t magic = 0x32786375786c75ULL; /* "ulxucx2" */

static size_t
header_bytes(const struct header *header)
{
    return offsetof(struct header, addresses) +
           header->naddresses * sizeof(header->addresses[0]);
}

ulyx_status_t
uli_ucx_address(struct uli_net *net, void *address_p, size_t *bytes_p)
{
    struct header header = {
        .magic = magic, .token = net->token, .place = net->place};
    size_t bytes = header_bytes(&header) + net->address_bytes;
    if (bytes < ULI_NET_ADDRESS_BYTES) {
        size_t room = (ULI_NET_ADDRESS_BYTES - bytes) / sizeof(struct in6_addr);
        header.naddresses =
            (uint32_t)uli_ucx_gate_addresses(net, header.addresses,
                room < ULI_UCX_ADDRESSES ? room : ULI_UCX_ADDRESSES);
        bytes = header_bytes(&header) + net->address_bytes;
    }
    if (bytes > ULI_NET_ADDRESS_BYTES)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "ucx: the address has %zu bytes, more than %d: name fewer devices "
            "(ULYX_NET_DEVICES=%s)",
            bytes, ULI_NET_ADDRESS_BYTES, net->devices);
    memcpy(address_p, &header, header_bytes(&header));
    memcpy((char *)address_p + header_bytes(&header), net->address,
        net->address_bytes);
    *bytes_p = bytes;
    return ULYX_SUCCESS;
}

static bool
read_header(struct header *header_p, const void *address, size_t bytes)
{
    const size_t least = offsetof(struct header, addresses);
    memset(header_p, 0, sizeof(*header_p));
    if (bytes <= least || bytes > ULI_NET_ADDRESS_BYTES)
        return false;
    memcpy(header_p, address, least);
    sa_family_t family = header_p->place.any.sa_family;
    if (header_p->magic != magic || header_p->naddresses > ULI_UCX_ADDRESSES ||
        (family != 0 && family != AF_INET && family != AF_INET6) ||
        bytes <= header_bytes(header_p))
        return false;
    memcpy(header_p, address, header_bytes(header_p));
    return true;
}

ulyx_status_t
uli_ucx_connect(
    struct uli_net *net, int32_t rank, const void *address, size_t bytes)
{
    struct header header;
    if (!read_header(&header, address, bytes))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "ucx: the address, of %zu bytes, is not valid", bytes);
    size_t own = header_bytes(&header);
    void *copy = malloc(bytes - own);
    if (!copy)
        return uli_error(ULYX_ERR_NO_MEMORY, "ucx: no memory for an address");
    memcpy(copy, (const char *)address + own, bytes - own);
    uli_ucx_enter(net);
    struct uli_ucx_peer *peer = &net->peers[rank];
    ulyx_status_t status = ULYX_SUCCESS;
    bool first = !peer->address;
    if (first)
        status = uli_ucx_gate_admit(net, header.addresses, header.naddresses);
    if (first && status == ULYX_SUCCESS) {
        peer->address = copy;
        peer->token = header.token;
        peer->place = header.place;
        if (peer->needs_ep)
            uli_ucx_due(net, peer);
    }
    uli_ucx_leave(net);
    if (!first || status != ULYX_SUCCESS)
        free(copy);
    return status;
}

/* ---- endpoints ----------------------------------------------------------- */

void
uli_ucx_break(struct uli_ucx_peer *peer, ucs_status_t cause)
{
    peer->broken = true;
    peer->cause = cause;
    uli_ucx_due(peer->net, peer);
}

static void
endpoint_failed(void *argument, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    uli_ucx_break(argument, status);
}

ulyx_status_t
uli_ucx_reach(struct uli_net *net, struct uli_ucx_peer *peer)
{
    if (peer->ep)
        return ULYX_SUCCESS;
    if (!peer->address)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "ucx: the address of rank %d is not known", peer->rank);
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = peer->address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = endpoint_failed, .arg = peer},
    };
    ucs_status_t status = net->ucx->ep_create(net->worker, &params, &peer->ep);
    if (status == UCS_OK)
        return ULYX_SUCCESS;
    peer->ep = NULL;
    return uli_error(ULYX_ERR_SYSTEM,
        "ucx: rank %d cannot be reached over %s: %s", peer->rank, net->devices,
        net->ucx->status_string(status));
}

static void
endpoint_closed(void *request, ucs_status_t status, void *argument)
{
    struct uli_net *net = argument;
    (void)status;
    net->flying--;
    net->ucx->request_free(request);
}

void
uli_ucx_drop(struct uli_net *net, struct uli_ucx_peer *peer)
{
    ucp_request_param_t how = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
        .cb.send = endpoint_closed,
        .user_data = net,
    };
    if (!peer->ep)
        return;
    ucp_ep_h ep = peer->ep;
    peer->ep = NULL;
    if (UCS_PTR_IS_PTR(net->ucx->ep_close_nbx(ep, &how)))
        net->flying++;
    uli_ucx_watch_end(net, peer);
}

/* ---- loss ---------------------------------------------------------------- */

void
uli_ucx_due(struct uli_net *net, struct uli_ucx_peer *peer)
{
    if (peer->due)
        return;
    peer->due = true;
    peer->due_next = net->due;
    net->due = peer;
}

void
uli_ucx_lose(struct uli_net *net, struct uli_ucx_peer *peer, const char *how)
{
    if (atomic_exchange(&peer->lost, true))
        return;
    if (peer->bye_received || net->leaving)
        return;
    net->happened = true;
    net->hooks.lost(net->hooks.context, peer->rank, how);
}

void
uli_ucx_refuse(struct uli_net *net, struct uli_ucx_peer *peer, const char *how)
{
    if (atomic_load(&peer->lost))
        return;
    peer->refusal_due = true;
    uli_ucx_due(net, peer);
    uli_ucx_lose(net, peer, how);
}

static void
do_due(struct uli_net *net, struct uli_ucx_peer *peer)
{
    char how[160];
    if (peer->broken) {
        snprintf(how, sizeof(how), "the connection has failed: %s",
            net->ucx->status_string(peer->cause));
        uli_ucx_lose(net, peer, how);
        uli_ucx_drop(net, peer);
        uli_ucx_recv_drop(net, peer);
        uli_ucx_forget(peer);
        return;
    }
    if (peer->needs_ep && !peer->ep && peer->address &&
        uli_ucx_reach(net, peer) != ULYX_SUCCESS) {
        uli_ucx_lose(net, peer, uli_error_text());
        return;
    }
    if (peer->refusal_due && peer->ep) {
        peer->refusal_due = false;
        uli_ucx_send_head(net, peer, ULI_UCX_REFUSAL, 0, 0);
    }
    if (peer->answer_due && peer->ep) {
        peer->answer_due = false;
        uli_ucx_send_head(net, peer, ULI_UCX_BYE_ANSWER, 0, 0);
    }
    if (peer->ep && !peer->lost && !peer->bye_received) {
        uli_ucx_do_keys(net, peer);
        uli_ucx_do_verb(net, peer);
    }
}

/* do_due may put peers on the list again: the next step works on these. */
void
uli_ucx_do_due(struct uli_net *net)
{
    struct uli_ucx_peer *list = net->due;
    net->due = NULL;
    while (list) {
        struct uli_ucx_peer *peer = list;
        list = peer->due_next;
        peer->due = false;
        do_due(net, peer);
    }
}
