/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between remote peers. Each message is checked first: a message of
 * another communicator, of an impossible length or of an unknown kind is
 * dropped and changes nothing.
 *
 * Poison goes to the remote ranks at distance 1, 2, 4, ... on both sides, and
 * each rank that receives it passes it on once: 2 log2 P messages per rank at
 * most, and several paths, so that a dead rank does not stop it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/size.h"
#include "comm/agreement/abort_record.h"
#include "comm/remote/remote_internal.h"

/* A peer that cannot be reached may have left in good order, and its message
 * about that may be on its way. */
#define DOUBT_S 0.1

/* In the outbox. */
struct outgoing {
    struct uli_list node; /* first: free_outbox frees by this address */
    int32_t peer;
    size_t bytes;
    _Alignas(8) unsigned char message[];
};

/* ---- sending ------------------------------------------------------------- */

ulyx_status_t
uli_remote_dropped(ulyx_comm_t *comm, int32_t peer, ulyx_status_t status)
{
    struct uli_remote *remote = comm->remote;
    struct uli_remote_peer *state = &remote->peers[peer];
    int64_t none = 0;
    if (status == ULYX_ERR_NO_MEMORY)
        return uli_comm_fail(comm, status, -1, "sending to rank %d: %s",
            uli_comm_number(comm, peer), uli_error_text());
    if (status == ULYX_ERR_RANK_LOST)
        return ULYX_SUCCESS;
    if (atomic_compare_exchange_strong(
            &state->doubted_until_ns, &none, uli_deadline_in(DOUBT_S)))
        atomic_fetch_add(&remote->ndoubted, 1);
    return ULYX_SUCCESS;
}

/* Reports peers dead that could not be reached and whose leaving has not
 * arrived by now. */
static void
settle_doubts(ulyx_comm_t *comm)
{
    struct uli_remote *remote = comm->remote;
    for (int32_t p = 0; p < comm->nranks; p++) {
        _Atomic int64_t *until = &remote->peers[p].doubted_until_ns;
        int64_t seen = atomic_load(until);
        if (seen <= 0 || !uli_deadline_over(seen) ||
            !atomic_compare_exchange_strong(until, &seen, -1))
            continue;
        atomic_fetch_sub(&remote->ndoubted, 1);
        uli_comm_rank_died(comm, p, "cannot be reached over the network");
    }
}

ulyx_status_t
uli_remote_send(
    ulyx_comm_t *comm, int32_t peer, const void *message, size_t bytes)
{
    struct uli_remote *remote = comm->remote;
    atomic_store(&remote->peers[peer].contacted, true);
    atomic_fetch_add_explicit(&remote->nmessages, 1, memory_order_relaxed);
    ulyx_status_t status =
        remote->ops->message(comm->net, peer, message, bytes);
    if (status != ULYX_SUCCESS)
        return uli_remote_dropped(comm, peer, status);
    if (!atomic_exchange(&remote->active, 1))
        remote->ops->wake(comm->net);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_remote_send_message(ulyx_comm_t *comm, int32_t peer,
    struct uli_message *message, const void *more, size_t count)
{
    _Alignas(8) unsigned char bytes[ULI_NET_MESSAGE_BYTES];
    message->head.token = comm->remote->token;
    message->head.count = (uint32_t)count;
    memcpy(bytes, message, sizeof(*message));
    if (count)
        memcpy(bytes + sizeof(*message), more, count);
    return uli_remote_send(comm, peer, bytes, sizeof(*message) + count);
}

void
uli_remote_post(ulyx_comm_t *comm, int32_t peer, struct uli_message *message,
    const void *more, size_t count)
{
    struct uli_remote *remote = comm->remote;
    size_t bytes = sizeof(*message) + count;
    struct outgoing *out = malloc(sizeof(*out) + bytes);
    if (!out) {
        /* The peer would wait for the answer until its deadline. */
        (void)uli_comm_fail(comm, ULYX_ERR_NO_MEMORY, -1,
            "no memory to answer rank %d", uli_comm_number(comm, peer));
        return;
    }
    message->head.token = remote->token;
    message->head.count = (uint32_t)count;
    out->peer = peer;
    out->bytes = bytes;
    memcpy(out->message, message, sizeof(*message));
    if (count)
        memcpy(out->message + sizeof(*message), more, count);
    uli_list_init(&out->node);
    pthread_mutex_lock(&remote->lock);
    uli_list_append(&remote->outbox, &out->node);
    atomic_fetch_add(&remote->noutbox, 1);
    pthread_mutex_unlock(&remote->lock);
}

/* The record that goes with the poison: the calls that differ, or the rank for
 * which an aborting rank waited. */
union poison_cause {
    struct uli_differ differ;
    struct uli_late abort;
};

static size_t
poison_find_cause(
    ulyx_comm_t *comm, uint64_t poison, union poison_cause *cause_p)
{
    if (uli_poison_status(poison) == ULYX_ERR_ABORTED)
        return uli_abort_read(comm, &cause_p->abort) ? sizeof(cause_p->abort)
                                                     : 0;
    return uli_differ_read(comm, &cause_p->differ) ? sizeof(cause_p->differ)
                                                   : 0;
}

static void
poison_send(ulyx_comm_t *comm, uint64_t poison)
{
    union poison_cause cause;
    size_t bytes = poison_find_cause(comm, poison, &cause);
    for (int32_t d = 1; d < comm->nranks; d *= 2) {
        int32_t sides[2] = {(comm->rank + d) % comm->nranks,
            (comm->rank - d + comm->nranks) % comm->nranks};
        for (int i = 0; i < (sides[0] == sides[1] ? 1 : 2); i++) {
            struct uli_message message = {
                .head.kind = ULI_MESSAGE_POISON, .value = poison};
            if (uli_comm_is_remote(comm, sides[i]) &&
                !atomic_load(&comm->peers[sides[i]].dead))
                uli_remote_send_message(
                    comm, sides[i], &message, &cause, bytes);
        }
    }
}

void
uli_remote_send_poison(ulyx_comm_t *comm, uint64_t poison)
{
    uint64_t none = 0;
    if (comm->net &&
        atomic_compare_exchange_strong(&comm->remote->poison, &none, poison))
        comm->remote->ops->wake(comm->net);
}

void
uli_remote_send_left(ulyx_comm_t *comm, int32_t peer)
{
    uint64_t poison = uli_remote_poison(comm);
    struct uli_message left = {.head.kind = ULI_MESSAGE_LEFT,
        .value = comm->agree_round,
        .status = atomic_load(&comm->leaves),
        .bytes = (int64_t)poison};
    union poison_cause cause;
    size_t bytes = poison ? poison_find_cause(comm, poison, &cause) : 0;
    uli_remote_send_message(comm, peer, &left, &cause, bytes);
}

uint64_t
uli_remote_poison(const ulyx_comm_t *comm)
{
    return comm->net ? atomic_load(&comm->remote->poison) : 0;
}

static struct outgoing *
take_outgoing(struct uli_remote *remote)
{
    struct outgoing *out = NULL;
    pthread_mutex_lock(&remote->lock);
    if (!uli_list_empty(&remote->outbox)) {
        out = ULI_CONTAINER_OF(remote->outbox.next, struct outgoing, node);
        uli_list_remove(&out->node);
        atomic_fetch_sub(&remote->noutbox, 1);
    }
    pthread_mutex_unlock(&remote->lock);
    return out;
}

void
uli_remote_flush(ulyx_comm_t *comm)
{
    struct uli_remote *remote = comm->remote;
    struct outgoing *out;
    if (atomic_load_explicit(&remote->ndoubted, memory_order_relaxed))
        settle_doubts(comm);
    uint64_t poison =
        atomic_load_explicit(&remote->poison, memory_order_acquire);
    if (poison && !atomic_load(&remote->poison_sent) &&
        !atomic_exchange(&remote->poison_sent, true))
        poison_send(comm, poison);
    while (atomic_load_explicit(&remote->noutbox, memory_order_acquire) &&
           (out = take_outgoing(remote))) {
        uli_remote_send(comm, out->peer, out->message, out->bytes);
        free(out);
    }
}

void
uli_remote_refuse(ulyx_comm_t *comm, int32_t peer, uint64_t round)
{
    struct uli_message message = {
        .head.kind = ULI_MESSAGE_REFUSE, .value = round};
    (void)uli_remote_send_message(comm, peer, &message, NULL, 0);
}

bool
uli_remote_refused(const ulyx_comm_t *comm, int32_t peer, uint64_t round)
{
    return atomic_load(&comm->remote->peers[peer].refused) == round;
}

/* ---- receiving ----------------------------------------------------------- */

static void
take_shrink(ulyx_comm_t *comm, int32_t from, const struct uli_message *message)
{
    struct uli_control *replica = comm->peers[from].control;
    struct uli_agree_post *post = &replica->shrink[message->value & 1];
    if (message->head.count > sizeof(post->payload))
        return;
    post->call = ULI_CALL_SHRINK;
    post->status = message->status;
    post->total_bytes = (uint64_t)message->bytes;
    post->bytes = message->head.count;
    memcpy(post->payload, message->more, message->head.count);
    atomic_store_explicit(&post->round, message->value, memory_order_release);
}

/* Takes the poison from this message too, because another thread of the leaving
 * rank may still be sending its poison message. */
static void
take_left(ulyx_comm_t *comm, int32_t from, const struct uli_message *message)
{
    if (message->bytes)
        uli_comm_receive_poison(
            comm, (uint64_t)message->bytes, message->more, message->head.count);
    atomic_store(&comm->remote->peers[from].left_round, message->value);
    atomic_store(&comm->control->left[from], message->status == ULI_LEFT_BY_EXIT
                                                 ? ULI_LEFT_BY_EXIT
                                                 : ULI_LEFT_BY_DESTROY);
}

static void
take_guard(ulyx_comm_t *comm, int32_t from, uint64_t requested)
{
    struct uli_message back = {.head.kind = ULI_MESSAGE_GUARD};
    if (requested)
        uli_remote_post(comm, from, &back, NULL, 0);
    else
        atomic_store(&comm->remote->guarded, true);
}

static void
carry_out(ulyx_comm_t *comm, int32_t from, const struct uli_message *message,
    size_t bytes)
{
    switch ((enum uli_message_kind)message->head.kind) {
    case ULI_MESSAGE_QUERY:
        uli_nodes_answer(comm, from, message->value);
        break;
    case ULI_MESSAGE_HERE:
        uli_nodes_here(comm, from, message, bytes);
        break;
    case ULI_MESSAGE_REFUSE:
        atomic_store(&comm->remote->peers[from].refused, message->value);
        uli_doorbell_ring(comm->control);
        break;
    case ULI_MESSAGE_SHRINK:
        take_shrink(comm, from, message);
        break;
    case ULI_MESSAGE_COME:
    case ULI_MESSAGE_BALLOT:
    case ULI_MESSAGE_VOTES:
    case ULI_MESSAGE_DECISION:
        uli_survivors_receive(comm, from, message);
        break;
    case ULI_MESSAGE_LOOK:
        uli_differ_answer(comm, from, message);
        break;
    case ULI_MESSAGE_STANDS:
        uli_differ_receive_answer(comm, from, message);
        break;
    case ULI_MESSAGE_POISON:
        uli_comm_receive_poison(
            comm, message->value, message->more, message->head.count);
        break;
    case ULI_MESSAGE_LEFT:
        take_left(comm, from, message);
        break;
    case ULI_MESSAGE_WINDOW:
    case ULI_MESSAGE_WITHDRAW:
    case ULI_MESSAGE_RETIRE:
        uli_remote_window_request(comm, from, message);
        break;
    case ULI_MESSAGE_ACK:
        uli_remote_window_answer(comm, from, message);
        break;
    case ULI_MESSAGE_GUARD:
        take_guard(comm, from, message->value);
        break;
    case ULI_MESSAGE_POSTS:
        break;
    }
}

void
uli_remote_receive(
    void *context, int32_t from, const void *message, size_t bytes)
{
    ulyx_comm_t *comm = context;
    _Alignas(8) unsigned char copy[ULI_NET_MESSAGE_BYTES];
    const struct uli_message_head *head = (const void *)copy;
    bool whole = bytes >= sizeof(*head) && bytes <= sizeof(copy);
    if (whole)
        memcpy(copy, message, bytes); /* message may be unaligned */
    if (!whole || from < 0 || from >= comm->nranks || from == comm->rank ||
        !uli_comm_is_remote(comm, from) || head->token != comm->remote->token) {
        ULI_INFO(ULI_LOG_FAULT, comm->rank,
            "a stray message of %zu bytes from rank %d was dropped", bytes,
            from);
        return;
    }
    atomic_store(&comm->remote->peers[from].contacted, true);
    if (head->kind == ULI_MESSAGE_POSTS)
        uli_nodes_receive(comm, copy, bytes);
    else if (bytes == sizeof(struct uli_message) + head->count)
        carry_out(comm, from, (const void *)copy, bytes);
}
