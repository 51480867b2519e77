/* SPDX-License-Identifier: Apache-2.0
 *
 * Puts and messages on their way out; see net.h. UCX reads header and data
 * until it says that it has done, so both live in an operation of ours: taken
 * from a list that grows to the most that were ever on their way, never
 * beyond, and never gives back before close.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/status.h"
#include "transport/ucx/net.h"

/* ---- operations ---------------------------------------------------------- */

static struct uli_ucx_op *
new_op(struct uli_net *net, bool large)
{
    struct uli_ucx_op *op = malloc(
        sizeof(*op) + (large ? ULI_NET_MESSAGE_BYTES : ULI_NET_INLINE_BYTES));
    if (op) {
        op->net = net;
        op->large = large;
    }
    return op;
}

static struct uli_ucx_op *
take(struct uli_net *net, struct uli_ucx_peer *peer, enum uli_ucx_kind kind,
    bool large)
{
    struct uli_ucx_op **list = large ? &net->free_large : &net->free_small;
    struct uli_ucx_op *op = *list;
    if (op)
        *list = op->next;
    else
        op = new_op(net, large);
    if (!op) {
        (void)uli_error(ULYX_ERR_NO_MEMORY, "ucx: no memory to send with");
        return NULL;
    }
    memset(&op->head, 0, sizeof(op->head));
    op->head.token = peer->token;
    op->head.from = net->rank;
    op->head.kind = kind;
    op->peer = peer;
    op->pending = NULL;
    op->rendezvous = false;
    return op;
}

static void
give(struct uli_ucx_op *op)
{
    struct uli_ucx_op **list =
        op->large ? &op->net->free_large : &op->net->free_small;
    op->next = *list;
    *list = op;
}

ulyx_status_t
uli_ucx_ops_prepare(struct uli_net *net, int count)
{
    for (int i = 0; i < count; i++) {
        struct uli_ucx_op *op = new_op(net, false);
        if (!op)
            return uli_error(
                ULYX_ERR_NO_MEMORY, "ucx: no memory for %d operations", count);
        give(op);
    }
    return ULYX_SUCCESS;
}

static void
free_list(struct uli_ucx_op *list)
{
    while (list) {
        struct uli_ucx_op *next = list->next;
        free(list);
        list = next;
    }
}

void
uli_ucx_ops_free(struct uli_net *net)
{
    free_list(net->free_small);
    free_list(net->free_large);
    net->free_small = net->free_large = NULL;
}

/* ---- sending ------------------------------------------------------------- */

/* The data may be overwritten. A failed operation has ended as well: the
 * endpoint's error handler tells of the peer. */
static void
finish(struct uli_ucx_op *op)
{
    if (op->rendezvous)
        atomic_fetch_sub_explicit(
            &op->peer->unsettled, 1, memory_order_release);
    if (op->pending) {
        atomic_fetch_sub_explicit(op->pending, 1, memory_order_release);
        op->net->happened = true;
    }
    give(op);
}

static void
sent(void *request, ucs_status_t status, void *argument)
{
    struct uli_ucx_op *op = argument;
    (void)status;
    op->net->flying--;
    op->peer->flying--;
    op->peer->moved = true;
    op->net->ucx->request_free(request);
    finish(op);
}

static ulyx_status_t
send_op(struct uli_ucx_op *op, const void *data, size_t bytes)
{
    struct uli_net *net = op->net;
    ucp_request_param_t how = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.send = sent,
        .user_data = op,
        .flags =
            op->rendezvous ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    op->peer->unheard = true;
    ucs_status_ptr_t request = net->ucx->am_send_nbx(op->peer->ep, ULI_UCX_AM,
        &op->head, sizeof(op->head), data, bytes, &how);
    if (UCS_PTR_IS_PTR(request)) {
        net->flying++;
        op->peer->flying++;
        return ULYX_SUCCESS;
    }
    struct uli_ucx_peer *peer = op->peer;
    finish(op);
    if (!UCS_PTR_IS_ERR(request))
        return ULYX_SUCCESS;
    if (UCS_PTR_STATUS(request) == UCS_ERR_NO_MEMORY)
        return uli_ucx_error(net, UCS_ERR_NO_MEMORY, "send", peer->rank);
    peer->broken = true;
    peer->cause = UCS_PTR_STATUS(request);
    uli_ucx_due(net, peer);
    return ULYX_ERR_RANK_LOST;
}

static ulyx_status_t
put_now(struct uli_net *net, struct uli_ucx_peer *peer,
    const struct uli_net_put *put)
{
    ULI_TRY(uli_ucx_reach(net, peer));
    struct uli_ucx_op *op = take(net, peer, ULI_UCX_PUT, false);
    if (!op)
        return ULYX_ERR_NO_MEMORY;
    const void *data = put->data;
    op->head.window = put->window;
    op->head.offset = put->offset;
    op->head.signal_window = put->signal_window;
    op->head.signal_offset = put->signal_offset;
    op->head.signal = put->signal;
    op->rendezvous = put->bytes > net->eager_bytes;
    if (op->rendezvous)
        atomic_fetch_add_explicit(&peer->unsettled, 1, memory_order_relaxed);
    else
        peer->eager_sent++;
    if (put->bytes <= ULI_NET_INLINE_BYTES) {
        if (put->bytes)
            memcpy(op->copy, data, (size_t)put->bytes);
        data = op->copy;
    } else if (put->pending) {
        op->pending = put->pending;
        atomic_fetch_add_explicit(put->pending, 1, memory_order_relaxed);
    }
    return send_op(op, data, (size_t)put->bytes);
}

static ulyx_status_t
message_now(struct uli_net *net, struct uli_ucx_peer *peer, const void *message,
    size_t bytes)
{
    ULI_TRY(uli_ucx_reach(net, peer));
    struct uli_ucx_op *op =
        take(net, peer, ULI_UCX_MESSAGE, bytes > ULI_NET_INLINE_BYTES);
    if (!op)
        return ULYX_ERR_NO_MEMORY;
    op->head.number = peer->sent++;
    op->head.eager_before = peer->eager_sent;
    if (bytes)
        memcpy(op->copy, message, bytes);
    return send_op(op, op->copy, bytes);
}

ulyx_status_t
uli_ucx_say(
    struct uli_net *net, struct uli_ucx_peer *peer, enum uli_ucx_kind kind)
{
    struct uli_ucx_op *op = take(net, peer, kind, false);
    if (!op)
        return ULYX_ERR_NO_MEMORY;
    op->head.number = peer->sent;
    op->head.eager_before = peer->eager_sent;
    return send_op(op, op->copy, 0);
}

/* ---- the slots ----------------------------------------------------------- */

static ulyx_status_t
check(const struct uli_net *net, const struct uli_ucx_peer *peer)
{
    if (atomic_load_explicit(&peer->lost, memory_order_relaxed) ||
        peer->broken || peer->said_bye)
        return uli_error_pass(ULYX_ERR_RANK_LOST, "ucx: the rank is lost");
    (void)net;
    return ULYX_SUCCESS;
}

/* Leaves the lock; wakes the sleeper when the worker has something to do. */
static void
leave(struct uli_net *net)
{
    bool unfinished = net->flying > 0 || net->due;
    uli_ucx_leave(net);
    if (unfinished && atomic_load(&net->sleeping))
        net->ops->net->wake(net);
}

ulyx_status_t
uli_ucx_put(struct uli_net *net, int32_t rank, const struct uli_net_put *put)
{
    struct uli_ucx_peer *peer = &net->peers[rank];
    uli_ucx_enter(net);
    ulyx_status_t status = check(net, peer);
    if (status == ULYX_SUCCESS)
        status = put_now(net, peer, put);
    leave(net);
    return status;
}

ulyx_status_t
uli_ucx_message(
    struct uli_net *net, int32_t rank, const void *message, size_t bytes)
{
    struct uli_ucx_peer *peer = &net->peers[rank];
    if (bytes > ULI_NET_MESSAGE_BYTES)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "ucx: a message of %zu bytes, more than %d", bytes,
            ULI_NET_MESSAGE_BYTES);
    uli_ucx_enter(net);
    ulyx_status_t status = check(net, peer);
    if (status == ULYX_SUCCESS)
        status = message_now(net, peer, message, bytes);
    leave(net);
    return status;
}
