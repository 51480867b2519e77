/* SPDX-License-Identifier: Apache-2.0
 *
 * See op.h.
 */
#include "transport/ucx/op.h"

#include <stdlib.h>
#include <string.h>
#include "base/status.h"

/* ---- the lists ----------------------------------------------------------- */

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

struct uli_ucx_op *
uli_ucx_op_take(struct uli_net *net, struct uli_ucx_peer *peer,
    enum uli_ucx_kind kind, bool large)
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
    op->by_verb = false;
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
                ULYX_ERR_NO_MEMORY, "ucx: no memory for %d operations", count);
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

/* ---- their end ----------------------------------------------------------- */

/* The data may be overwritten. */
static void
op_release(struct uli_ucx_op *op)
{
    if (op->by_verb)
        atomic_fetch_sub_explicit(
            &op->peer->unsettled, 1, memory_order_release);
    if (op->pending) {
        atomic_fetch_sub_explicit(op->pending, 1, memory_order_release);
        op->net->happened = true;
    }
    op->by_verb = false;
    op->pending = NULL;
}

void
uli_ucx_op_end(struct uli_ucx_op *op)
{
    op_release(op);
    uli_list_remove(&op->node);
    op_give(op);
}

void
uli_ucx_op_landed(struct uli_ucx_op *op)
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
