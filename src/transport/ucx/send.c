/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends of puts and messages; see net.h. UCX reads header and data until its
 * call ends. So an op (one send) holds the header, and a copy of a message or
 * of a put of at most ULI_NET_INLINE_BYTES, until all calls of UCX for the send
 * have ended. The data of a longer put stays with the caller, who waits for
 * `pending`. Ops come from lists that grow to the most sends ever in flight at
 * one time, and are freed by close. All functions run under the net's lock.
 */
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "transport/ucx/net.h"
#include "transport/ucx/order.h"

/* A put or message that UCX has not completed. */
struct uli_ucx_op {
    struct uli_ucx_op *next; /* in a free list or the list net->ready */
    struct uli_list node;    /* in peer->sends, from send to end */
    struct uli_net *net;
    struct uli_ucx_peer *peer;
    struct uli_ucx_head head; /* UCX reads the header until all calls end */
    _Atomic int64_t *pending; /* the caller's count of puts, or NULL */
    enum uli_ucx_verb verb;
    int calls;    /* calls of UCX that have not ended, and 1 within send_op() */
    int flying;   /* calls that are counted in peer->flying and net->flying */
    bool counted; /* a put that is counted in peer->unsettled */
    bool large;   /* copy has room for a message */
    unsigned char copy[];
};

#ifdef __SANITIZE_THREAD__
_Atomic uint64_t uli_ucx_orders[ULI_UCX_ORDERS];
#endif

/* ---- ops ----------------------------------------------------------------- */

static struct uli_ucx_op *
new_op(struct uli_net *net, bool large)
{
    struct uli_ucx_op *op = malloc(
        sizeof(*op) + (large ? ULI_NET_MESSAGE_BYTES : ULI_NET_INLINE_BYTES));
    if (op) {
        op->net = net;
        op->large = large;
        uli_list_init(&op->node);
    }
    return op;
}

/* Takes an op for a send to the peer, with the verb AM, and with sender and
 * kind in the header. large: with room for a message. NULL: NO_MEMORY is
 * set. */
static struct uli_ucx_op *
op_take(struct uli_net *net, struct uli_ucx_peer *peer, enum uli_ucx_kind kind,
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
    op->verb = ULI_UCX_BY_AM;
    op->counted = false;
    op->flying = 0;
    return op;
}

static void
op_give(struct uli_ucx_op *op)
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
                ULYX_ERR_NO_MEMORY, "ucx: no memory for %d sends", count);
        op_give(op);
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
    for (int32_t p = 0; p < net->nranks; p++) /* UCX never ended these */
        while (!uli_list_empty(&net->peers[p].sends)) {
            struct uli_list *first = net->peers[p].sends.next;
            uli_list_remove(first);
            free(ULI_CONTAINER_OF(first, struct uli_ucx_op, node));
        }
    free_list(net->free_small);
    free_list(net->free_large);
    net->free_small = net->free_large = NULL;
}

/* ---- the end of ops ------------------------------------------------------ */

/* Gives the data back to the caller, who may overwrite it. */
static void
op_release(struct uli_ucx_op *op)
{
    if (op->counted)
        atomic_fetch_sub_explicit(
            &op->peer->unsettled, 1, memory_order_release);
    if (op->pending) {
        atomic_fetch_sub_explicit(op->pending, 1, memory_order_release);
        op->net->happened = true;
    }
    op->counted = false;
    op->pending = NULL;
}

/* All calls have ended. A failed call counts as ended; the endpoint's error
 * handler reports the peer. */
static void
op_end(struct uli_ucx_op *op)
{
    op_release(op);
    uli_list_remove(&op->node);
    op_give(op);
}

/* A call of UCX that is counted in `flying` has ended. */
static void
op_landed(struct uli_ucx_op *op)
{
    op->peer->moved = true;
    if (op->flying == 0) /* abandoned before */
        return;
    op->flying--;
    op->net->flying--;
    op->peer->flying--;
}

void
uli_ucx_abandon_sends(struct uli_ucx_peer *peer)
{
    for (struct uli_list *n = peer->sends.next; n != &peer->sends;
         n = n->next) {
        struct uli_ucx_op *op = ULI_CONTAINER_OF(n, struct uli_ucx_op, node);
        op_release(op);
        peer->net->flying -= op->flying;
        peer->flying -= op->flying;
        op->flying = 0;
    }
}

/* ---- sending ------------------------------------------------------------- */

/* A call of UCX, or send_op() itself, has ended. */
static void
end_call(struct uli_ucx_op *op)
{
    if (--op->calls == 0)
        op_end(op);
}

static void
send_completed(void *request, ucs_status_t status, void *argument)
{
    struct uli_ucx_op *op = argument;
    (void)status;
    op_landed(op);
    op->net->ucx->request_free(request);
    end_call(op);
}

/* Counts a call of UCX that is in flight. Returns the call's status. */
static ucs_status_t
count_call(struct uli_ucx_op *op, ucs_status_ptr_t request)
{
    if (!UCS_PTR_IS_PTR(request))
        return UCS_PTR_RAW_STATUS(request);
    op->calls++;
    op->flying++;
    op->net->flying++;
    op->peer->flying++;
    return UCS_OK;
}

static ucp_request_param_t
op_parameters(struct uli_ucx_op *op)
{
    return (ucp_request_param_t){
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.send = send_completed,
        .user_data = op,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
}

static ucs_status_t
send_head(struct uli_ucx_op *op, const void *data, size_t bytes, uint32_t flag)
{
    ucp_request_param_t how = op_parameters(op);
    uli_ucx_before(op->peer->token);
    how.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = flag;
    return count_call(op, op->net->ucx->am_send_nbx(op->peer->ep, ULI_UCX_AM,
                              &op->head, sizeof(op->head), data, bytes, &how));
}

/* The data has landed at the target. uli_ucx_do_ready() sends the header after
 * the callback. */
static void
flush_completed(void *request, ucs_status_t status, void *argument)
{
    struct uli_ucx_op *op = argument;
    struct uli_net *net = op->net;
    op_landed(op);
    net->ucx->request_free(request);
    if (status != UCS_OK) {
        end_call(op);
        return;
    }
    op->next = net->ready;
    net->ready = op;
}

void
uli_ucx_do_ready(struct uli_net *net)
{
    while (net->ready) {
        struct uli_ucx_op *op = net->ready;
        struct uli_ucx_peer *peer = op->peer;
        net->ready = op->next;
        ucs_status_t status =
            peer->ep && !peer->broken
                ? send_head(op, NULL, 0, UCP_AM_SEND_FLAG_EAGER)
                : UCS_OK;
        if (status != UCS_OK)
            uli_ucx_break(peer, status);
        end_call(op);
    }
}

static ucs_status_t
send_by_put(struct uli_ucx_op *op, const void *data, size_t bytes)
{
    struct uli_net *net = op->net;
    struct uli_ucx_peer *peer = op->peer;
    ucp_request_param_t how = op_parameters(op);
    uint64_t to;
    bool refused;
    ucp_rkey_h key = uli_ucx_key(
        peer, op->head.window, op->head.offset, (int64_t)bytes, &to, &refused);
    if (!key)
        return UCS_ERR_NO_ELEM;
    ucs_status_t status =
        count_call(op, net->ucx->put_nbx(peer->ep, data, bytes, to, key, &how));
    if (status == UCS_ERR_UNSUPPORTED || status == UCS_ERR_UNREACHABLE) {
        uli_ucx_key_refuse(peer, op->head.window);
        return UCS_ERR_NO_ELEM;
    }
    op->head.kind = ULI_UCX_PUT_PLACED;
    peer->placed++;
    ucs_status_ptr_t flush = NULL;
    if (status == UCS_OK && !net->unflushed) {
        how = op_parameters(op);
        how.op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        how.cb.send = flush_completed;
        flush = net->ucx->ep_flush_nbx(peer->ep, &how);
        status = count_call(op, flush);
    }
    return status != UCS_OK || UCS_PTR_IS_PTR(flush)
               ? status
               : send_head(op, NULL, 0, UCP_AM_SEND_FLAG_EAGER);
}

static ucs_status_t
send_by_tag(struct uli_ucx_op *op, const void *data, size_t bytes)
{
    struct uli_net *net = op->net;
    ucp_request_param_t how = op_parameters(op);
    op->head.number = net->next_tag++;
    op->head.kind = ULI_UCX_PUT_TAGGED;
    ucs_status_t status = send_head(op, NULL, 0, UCP_AM_SEND_FLAG_EAGER);
    if (status != UCS_OK)
        return status;
    return count_call(op, net->ucx->tag_send_nbx(op->peer->ep, data, bytes,
                              op->head.number, &how));
}

/* Sends the data by the op's verb; by AM where a key is missing. */
static ucs_status_t
send_by_verb(struct uli_ucx_op *op, const void *data, size_t bytes)
{
    ucs_status_t status = UCS_ERR_NO_ELEM;
    op->head.bytes = (int64_t)bytes;
    op->peer->eager_sent++;
    if (op->verb == ULI_UCX_BY_PUT)
        status = send_by_put(op, data, bytes);
    else if (op->verb == ULI_UCX_BY_TAG)
        status = send_by_tag(op, data, bytes);
    if (status != UCS_ERR_NO_ELEM)
        return status;
    op->peer->eager_sent--;
    return send_head(op, data, bytes, UCP_AM_SEND_FLAG_RNDV);
}

static ulyx_status_t
send_op(struct uli_ucx_op *op, const void *data, size_t bytes)
{
    struct uli_net *net = op->net;
    struct uli_ucx_peer *peer = op->peer;
    peer->silent = true;
    uli_ucx_watch(net, peer);
    uli_list_append(&peer->sends, &op->node);
    op->calls = 1;
    ucs_status_t status =
        op->counted ? send_by_verb(op, data, bytes)
                    : send_head(op, data, bytes, UCP_AM_SEND_FLAG_EAGER);
    end_call(op);
    if (status == UCS_OK)
        return ULYX_SUCCESS;
    if (status == UCS_ERR_NO_MEMORY)
        return uli_ucx_error(net, UCS_ERR_NO_MEMORY, "send");
    uli_ucx_break(peer, status);
    return ULYX_ERR_RANK_LOST;
}

/* ---- puts and messages --------------------------------------------------- */

static void
op_choose(struct uli_ucx_op *op, int64_t bytes)
{
    struct uli_net *net = op->net;
    struct uli_ucx_peer *peer = op->peer;
    if (bytes > net->verb_bytes)
        op->verb = uli_ucx_verb(net, peer);
    op->counted = bytes > net->eager_bytes || op->verb != ULI_UCX_BY_AM;
    if (op->counted)
        atomic_fetch_add_explicit(&peer->unsettled, 1, memory_order_relaxed);
    else
        peer->eager_sent++;
}

static ulyx_status_t
put_now(struct uli_net *net, struct uli_ucx_peer *peer,
    const struct uli_net_put *put)
{
    ULI_TRY(uli_ucx_reach(net, peer));
    struct uli_ucx_op *op = op_take(net, peer, ULI_UCX_PUT, false);
    if (!op)
        return ULYX_ERR_NO_MEMORY;
    const void *data = put->data;
    op->head.window = put->window;
    op->head.offset = put->offset;
    op->head.signal_window = put->signal_window;
    op->head.signal_offset = put->signal_offset;
    op->head.signal = put->signal;
    op_choose(op, put->bytes);
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

ulyx_status_t
uli_ucx_probe(
    struct uli_net *net, struct uli_ucx_peer *peer, enum uli_ucx_verb verb)
{
    ULI_TRY(uli_ucx_reach(net, peer));
    struct uli_ucx_op *op = op_take(net, peer, ULI_UCX_PUT, false);
    if (!op)
        return ULYX_ERR_NO_MEMORY;
    op->head.window = op->head.signal_window = ULI_UCX_SCRATCH;
    op->verb = verb;
    op->counted = true;
    atomic_fetch_add_explicit(&peer->unsettled, 1, memory_order_relaxed);
    return send_op(op, net->scratch, ULI_UCX_SCRATCH_BYTES);
}

static ulyx_status_t
send_numbered(struct uli_ucx_op *op, const void *data, size_t bytes)
{
    op->head.number = op->peer->sent++;
    op->head.eager_before = op->peer->eager_sent;
    if (bytes)
        memcpy(op->copy, data, bytes);
    return send_op(op, op->copy, bytes);
}

static ulyx_status_t
message_now(struct uli_net *net, struct uli_ucx_peer *peer, const void *message,
    size_t bytes)
{
    ULI_TRY(uli_ucx_reach(net, peer));
    struct uli_ucx_op *op =
        op_take(net, peer, ULI_UCX_MESSAGE, bytes > ULI_NET_INLINE_BYTES);
    if (!op)
        return ULYX_ERR_NO_MEMORY;
    return send_numbered(op, message, bytes);
}

ulyx_status_t
uli_ucx_send_key(struct uli_net *net, struct uli_ucx_peer *peer,
    const struct uli_ucx_head *head, const void *data, size_t bytes)
{
    struct uli_ucx_op *op =
        op_take(net, peer, (enum uli_ucx_kind)head->kind, false);
    if (!op)
        return ULYX_ERR_NO_MEMORY;
    op->head.window = head->window;
    op->head.offset = head->offset;
    op->head.signal = head->signal;
    op->head.signal_window = head->signal_window;
    return send_numbered(op, data, bytes);
}

ulyx_status_t
uli_ucx_send_head(struct uli_net *net, struct uli_ucx_peer *peer,
    enum uli_ucx_kind kind, uint32_t window, uint64_t value)
{
    struct uli_ucx_op *op = op_take(net, peer, kind, false);
    if (!op)
        return ULYX_ERR_NO_MEMORY;
    op->head.window = window;
    op->head.signal = value;
    op->head.number = peer->sent;
    op->head.eager_before = peer->eager_sent;
    return send_op(op, op->copy, 0);
}

/* ---- put and message ----------------------------------------------------- */

static ulyx_status_t
peer_check(const struct uli_ucx_peer *peer)
{
    if (atomic_load_explicit(&peer->lost, memory_order_relaxed) ||
        peer->broken || peer->bye_received)
        return uli_error_pass(ULYX_ERR_RANK_LOST, "ucx: the rank is gone");
    return ULYX_SUCCESS;
}

/* Unlocks the net. Wakes a thread that sleeps in a wait if the worker still has
 * work. */
static void
send_leave(struct uli_net *net)
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
    ulyx_status_t status = peer_check(peer);
    if (status == ULYX_SUCCESS)
        status = put_now(net, peer, put);
    send_leave(net);
    return status;
}

ulyx_status_t
uli_ucx_message(
    struct uli_net *net, int32_t rank, const void *message, size_t bytes)
{
    struct uli_ucx_peer *peer = &net->peers[rank];
    if (bytes > ULI_NET_MESSAGE_BYTES)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "ucx: a message has %zu bytes, more than %d", bytes,
            ULI_NET_MESSAGE_BYTES);
    uli_ucx_enter(net);
    ulyx_status_t status = peer_check(peer);
    if (status == ULYX_SUCCESS)
        status = message_now(net, peer, message, bytes);
    send_leave(net);
    return status;
}
