/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows and remote peers. A peer records the number and size of a window and
 * answers; the owner waits for all answers at once. Each call has a number of
 * its own, so an answer that arrives after its call has given up is dropped.
 *
 * Taking back: a peer that has answered puts nothing into the window any more.
 * After a failure a peer answers OK only when it has no operation in flight and
 * all its puts have landed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/record/stand.h"
#include "comm/remote/remote_internal.h"
#include "comm/memory/windows.h"

enum { TEXT_BYTES = 200 };

/* On the caller's stack, linked in remote->calls. */
struct call {
    struct uli_list node;
    ulyx_comm_t *comm;
    struct uli_stand stand;
    uint64_t token;
    bool *waits; /* [nranks], under lock */
    _Atomic int32_t count;
    ulyx_status_t status; /* of the first bad answer, under lock */
    int32_t bad;
    char text[TEXT_BYTES];
};

/* ---- hooks --------------------------------------------------------------- */

static const char in_use[] = "an operation is in flight";

static bool
is_in_use(ulyx_comm_t *comm, int32_t from)
{
    return atomic_load(&comm->nops) != 0 ||
           !comm->remote->ops->settled(comm->net, from);
}

/* Checks for operations before the window is removed, because an operation in
 * flight must still find the window, and afterwards, because an operation may
 * have begun. */
static ulyx_status_t
remote_windows_retire(ulyx_comm_t *comm, int32_t from, uint32_t window)
{
    if (is_in_use(comm, from))
        return uli_error_pass(ULYX_ERR_BUSY, in_use);
    int64_t bytes = uli_window_unnote(comm, from, window);
    if (!is_in_use(comm, from))
        return ULYX_SUCCESS;
    if (bytes > 0)
        uli_window_note(comm, from, window, bytes);
    return uli_error_pass(ULYX_ERR_BUSY, in_use);
}

static ulyx_status_t
carry_out(ulyx_comm_t *comm, int32_t from, const struct uli_message *message)
{
    if (message->window == 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "the control segment of rank %d is not given or taken back", from);
    switch (message->head.kind) {
    case ULI_MESSAGE_WINDOW:
        return uli_window_note(comm, from, message->window, message->bytes);
    case ULI_MESSAGE_WITHDRAW:
        uli_window_unnote(comm, from, message->window);
        return ULYX_SUCCESS;
    default:
        return remote_windows_retire(comm, from, message->window);
    }
}

void
uli_remote_window_request(
    ulyx_comm_t *comm, int32_t from, const struct uli_message *message)
{
    struct uli_message ack = {.head.kind = ULI_MESSAGE_ACK,
        .value = message->value,
        .status = carry_out(comm, from, message)};
    const char *text = ack.status == ULYX_SUCCESS ? "" : uli_error_text();
    uli_remote_post(comm, from, &ack, text, strnlen(text, TEXT_BYTES - 1));
}

void
uli_remote_window_answer(
    ulyx_comm_t *comm, int32_t from, const struct uli_message *message)
{
    struct uli_remote *remote = comm->remote;
    pthread_mutex_lock(&remote->lock);
    for (struct uli_list *n = remote->calls.next; n != &remote->calls;
         n = n->next) {
        struct call *call = ULI_CONTAINER_OF(n, struct call, node);
        if (call->token != message->value || !call->waits[from])
            continue;
        call->waits[from] = false;
        if (message->status != ULYX_SUCCESS && call->status == ULYX_SUCCESS) {
            call->status = message->status;
            call->bad = from;
            snprintf(call->text, sizeof(call->text), "%.*s",
                (int)message->head.count, (const char *)message->more);
        }
        atomic_fetch_sub(&call->count, 1);
    }
    pthread_mutex_unlock(&remote->lock);
    uli_doorbell_ring(comm->control);
}

/* ---- calls --------------------------------------------------------------- */

static ulyx_status_t
remote_windows_begin(ulyx_comm_t *comm, struct call *call)
{
    struct uli_remote *remote = comm->remote;
    memset(call, 0, sizeof(*call));
    call->comm = comm;
    call->stand = (struct uli_stand){.comm = comm, .rank = -1};
    call->waits = calloc((size_t)comm->nranks, sizeof(*call->waits));
    if (!call->waits)
        return uli_error(
            ULYX_ERR_NO_MEMORY, "no memory to await %d ranks", comm->nranks);
    uli_list_init(&call->node);
    pthread_mutex_lock(&remote->lock);
    call->token = ++remote->last_call;
    uli_list_append(&remote->calls, &call->node);
    pthread_mutex_unlock(&remote->lock);
    return ULYX_SUCCESS;
}

static void
call_end(struct call *call)
{
    struct uli_remote *remote = call->comm->remote;
    pthread_mutex_lock(&remote->lock);
    uli_list_remove(&call->node);
    pthread_mutex_unlock(&remote->lock);
    free(call->waits);
}

static bool
is_gone(ulyx_comm_t *comm, int32_t p)
{
    return atomic_load(&comm->peers[p].dead) ||
           atomic_load(&comm->control->left[p]);
}

static ulyx_status_t
call_query(struct call *call, int32_t p, const struct uli_message *request)
{
    struct uli_remote *remote = call->comm->remote;
    struct uli_message message = *request;
    message.value = call->token;
    pthread_mutex_lock(&remote->lock);
    call->waits[p] = true;
    atomic_fetch_add(&call->count, 1);
    pthread_mutex_unlock(&remote->lock);
    return uli_remote_send_message(call->comm, p, &message, NULL, 0);
}

/* The first rank from p on that has not answered and is not gone; nranks: none.
 * Under the lock. */
static int32_t
next_awaited(const struct call *call, int32_t p)
{
    while (
        p < call->comm->nranks && (!call->waits[p] || is_gone(call->comm, p)))
        p++;
    return p;
}

static bool
all_answered(void *context)
{
    struct call *call = context;
    ulyx_comm_t *comm = call->comm;
    if (atomic_load(&call->count) == 0)
        return true;
    pthread_mutex_lock(&comm->remote->lock);
    int32_t p = next_awaited(call, 0);
    pthread_mutex_unlock(&comm->remote->lock);
    if (p == comm->nranks)
        return true;
    if (p != call->stand.rank)
        uli_stand_begin(&call->stand, p);
    uli_stand_look(&call->stand);
    return false;
}

static struct uli_late
call_late(const struct call *call, enum uli_late_phase phase)
{
    ulyx_comm_t *comm = call->comm;
    struct uli_late late = uli_late_none(phase);
    pthread_mutex_lock(&comm->remote->lock);
    for (int32_t p = next_awaited(call, 0); p < comm->nranks;
         p = next_awaited(call, p + 1))
        uli_late_add(&late, p);
    pthread_mutex_unlock(&comm->remote->lock);
    return late;
}

static ulyx_status_t
windows_request_all(ulyx_comm_t *comm, const struct uli_message *request,
    enum uli_late_phase phase, uint64_t recorded, uli_deadline_t deadline,
    struct uli_late *late_p)
{
    struct call call;
    if (!comm->net)
        return ULYX_SUCCESS;
    ULI_TRY(remote_windows_begin(comm, &call));
    call.stand.recorded = recorded;
    ulyx_status_t status = ULYX_SUCCESS;
    for (int32_t i = 1; i < comm->nranks && status == ULYX_SUCCESS; i++) {
        int32_t p = (comm->rank + i) % comm->nranks;
        if (uli_comm_is_remote(comm, p) && !is_gone(comm, p))
            status = call_query(&call, p, request);
    }
    if (status == ULYX_SUCCESS)
        status = uli_comm_wait(comm, all_answered, &call, deadline);
    *late_p = call_late(&call, phase);
    call_end(&call);
    if (status == ULYX_SUCCESS && call.status != ULYX_SUCCESS)
        status = uli_error(call.status, "rank %d: %s", call.bad, call.text);
    return status;
}

ulyx_status_t
uli_remote_windows_give(ulyx_comm_t *comm, uint32_t window, int64_t bytes,
    uint64_t recorded, uli_deadline_t deadline, struct uli_late *late_p)
{
    struct uli_message request = {
        .head.kind = ULI_MESSAGE_WINDOW, .bytes = bytes, .window = window};
    return windows_request_all(
        comm, &request, ULI_LATE_NOTE, recorded, deadline, late_p);
}

ulyx_status_t
uli_remote_windows_take(ulyx_comm_t *comm, uint32_t window, uint64_t recorded,
    uli_deadline_t deadline, struct uli_late *late_p)
{
    struct uli_message request = {
        .head.kind = ULI_MESSAGE_WITHDRAW, .window = window};
    return windows_request_all(
        comm, &request, ULI_LATE_LET_GO, recorded, deadline, late_p);
}

/* Whether the puts of a peer that is dead, or that puts nothing more, have
 * landed here. The communicator may know about the peer before the network
 * does. */
static bool
has_landed(ulyx_comm_t *comm, int32_t p)
{
    bool dead = atomic_load(&comm->peers[p].dead) &&
                !atomic_load(&comm->control->left[p]);
    return comm->remote->ops->landed(comm->net, p, dead);
}

/* Not uli_comm_wait: the communicator may have failed. */
bool
uli_remote_window_retire(
    ulyx_comm_t *comm, int32_t peer, uint32_t window, uli_deadline_t deadline)
{
    struct uli_message request = {
        .head.kind = ULI_MESSAGE_RETIRE, .window = window};
    struct call call;
    if (!comm->net)
        return true;
    if (is_gone(comm, peer))
        return has_landed(comm, peer);
    if (remote_windows_begin(comm, &call) != ULYX_SUCCESS)
        return false;
    call_query(&call, peer, &request);
    for (;;) {
        uint32_t seen = uli_doorbell_read(comm->control);
        uli_comm_progress(comm);
        if (all_answered(&call) || uli_deadline_over(deadline))
            break;
        uli_doorbell_sleep(
            comm->control, seen, deadline - uli_clock_ns(), NULL, NULL);
    }
    bool retired = all_answered(&call) && call.status == ULYX_SUCCESS;
    call_end(&call);
    return retired && has_landed(comm, peer);
}
