/* SPDX-License-Identifier: Apache-2.0
 *
 * All to all. A communicator has one channel for it, made by one agreement at
 * the first use: pair flags and rings for every pair. Nothing about the
 * messages is declared in advance, so the record of each call gives the place
 * of each message, and the verbs follow from the two records of a pair. A
 * destination in a window is stored into; a source in a window is loaded from;
 * a long message is read through the kernel where that permits it; all others
 * go by the ring. To other nodes everything goes by the ring; every ring has
 * the same number of chunks, and copies go out of a bounce buffer.
 *
 * Cost: one copy per byte (two by the ring), four doorbells per pair.
 *
 * A call takes no agreement, but has its number among the collective calls. A
 * call that has waited for a while checks whether a rank is in another call
 * instead, and then joins that call's agreement with its own name: all ranks
 * get the same error.
 */
#include "collectives/channel/alltoall.h"

#include <stdio.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/channel/alltoall_channel.h"

enum {
    MIN_READ_BYTES = 4096, /* shorter messages do not pay a system call */
    KIND_EVEN = 100,
    KIND_UNEVEN = 101,
    /* How long a waiting call waits before it checks for ranks in other calls;
     * doubled after each check. */
    FIRST_LOOK_NS = 500 * 1000,
    MOST_LOOK_NS = 50 * 1000 * 1000,
};

/* ---- messages ------------------------------------------------------------ */

int64_t
uli_alltoall_sends(const struct uli_alltoall_args *args, int32_t p)
{
    return args->src_bytes[args->even ? 0 : p];
}

int64_t
uli_alltoall_receives(const struct uli_alltoall_args *args, int32_t p)
{
    return args->even ? args->src_bytes[0] : args->dst_bytes[p];
}

int64_t
uli_alltoall_src_at(const struct uli_alltoall_args *args, int32_t p)
{
    return args->even ? p * args->src_bytes[0] : args->src_offsets[p];
}

int64_t
uli_alltoall_dst_at(const struct uli_alltoall_args *args, int32_t p)
{
    return args->even ? p * args->src_bytes[0] : args->dst_offsets[p];
}

static bool
ranges_are_apart(const char *a, int64_t a_bytes, const char *b, int64_t b_bytes)
{
    return !a_bytes || !b_bytes || a + a_bytes <= b || b + b_bytes <= a;
}

static ulyx_status_t
check_overlap(const ulyx_comm_t *comm, const struct uli_alltoall_args *args)
{
    for (int32_t i = 0; i < comm->nranks; i++) {
        const char *dst = args->dst + uli_alltoall_dst_at(args, i);
        int64_t bytes = uli_alltoall_receives(args, i);
        for (int32_t j = 0; bytes && j < comm->nranks; j++) {
            if (!ranges_are_apart(dst, bytes,
                    args->src + uli_alltoall_src_at(args, j),
                    uli_alltoall_sends(args, j)))
                return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                    "the message from rank %d overlaps the message for rank %d",
                    i, j);
            if (j > i && !ranges_are_apart(dst, bytes,
                             args->dst + uli_alltoall_dst_at(args, j),
                             uli_alltoall_receives(args, j)))
                return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                    "the messages from ranks %d and %d overlap", i, j);
        }
    }
    return ULYX_SUCCESS;
}

/* ---- hooks of the engine ------------------------------------------------- */

static struct uli_address
range_locate(const ulyx_comm_t *comm, const char *pointer, int64_t bytes)
{
    struct uli_address at = {ULI_NO_WINDOW, (int64_t)(uintptr_t)pointer};
    if (bytes && !uli_window_find(comm, pointer, bytes, &at.window, &at.offset))
        at.window = ULI_NO_WINDOW;
    return at;
}

static void
fill_record(
    struct uli_exchange *exchange, int32_t p, struct uli_record *record_p)
{
    struct uli_channel *channel = (struct uli_channel *)exchange;
    const struct uli_alltoall_args *args = channel->args;
    record_p->send_bytes = channel->send[p];
    record_p->receive_bytes = channel->receive[p];
    record_p->src[0] = range_locate(exchange->comm,
        args->src + uli_alltoall_src_at(args, p), channel->send[p]);
    record_p->dst[0] = range_locate(exchange->comm,
        args->dst + uli_alltoall_dst_at(args, p), channel->receive[p]);
}

/* A contiguous message. near: the offset of the message in this rank's tensor.
 * At the peer the base address is that of the message. */
static void
set_item(struct uli_items *items, int64_t bytes, int64_t near, bool out,
    int32_t verb)
{
    struct uli_item *item = items->at;
    memset(item, 0, sizeof(*item));
    for (int d = 0; d < 3; d++)
        item->box.extent[d] = 1;
    item->box.run_bytes = bytes;
    *(out ? &item->box.src_offset : &item->box.dst_offset) = near;
    item->sum = -1;
    item->verb = verb;
    items->count = bytes > 0 && verb != ULI_VERB_NONE;
}

static int32_t
verb_choose(bool remote, bool mine, uint32_t src_window, uint32_t dst_window,
    int64_t bytes)
{
    if (remote)
        return ULI_VERB_STREAM;
    if (dst_window != ULI_NO_WINDOW)
        return mine ? ULI_VERB_NONE : ULI_VERB_STORE;
    if (src_window != ULI_NO_WINDOW)
        return mine ? ULI_VERB_LOAD : ULI_VERB_NONE;
    return bytes >= MIN_READ_BYTES ? ULI_VERB_READ : ULI_VERB_STREAM;
}

static bool
record_accept(
    struct uli_exchange *exchange, int32_t p, const struct uli_record *record)
{
    struct uli_channel *channel = (struct uli_channel *)exchange;
    struct uli_pair *pair = &exchange->pairs[p];
    struct uli_pair_work *work = &channel->work.pairs[p];
    const struct uli_record *mine =
        &uli_eager_out(pair, exchange->call)->record;
    int64_t send = channel->send[p], receive = channel->receive[p];
    channel->peer_send[p] = record->send_bytes;
    channel->peer_receive[p] = record->receive_bytes;
    if (record->receive_bytes != send || record->send_bytes != receive)
        return false;
    set_item(&work->in, receive, uli_alltoall_dst_at(channel->args, p), false,
        verb_choose(pair->remote, true, record->src[0].window,
            mine->dst[0].window, receive));
    set_item(&work->out, send, uli_alltoall_src_at(channel->args, p), true,
        verb_choose(pair->remote, false, mine->src[0].window,
            record->dst[0].window, send));
    return true;
}

static const char *
call_name(int32_t kind)
{
    return kind == KIND_EVEN ? "alltoall" : "alltoallv";
}

static ulyx_status_t
late_report(struct uli_exchange *exchange, int32_t p)
{
    struct uli_channel *channel = (struct uli_channel *)exchange;
    const struct uli_pair *pair = &exchange->pairs[p];
    unsigned long long call = exchange->call;
    char reason[ULI_REFUSAL_TEXT_BYTES];
    if (pair->outcome == ULYX_ERR_PEER_REFUSED)
        return uli_error(pair->outcome,
            "alltoall, call %llu: rank %d refused: "
            "%s",
            call, p, uli_exchange_reason(exchange, p, reason));
    if (pair->peer_direction != exchange->direction)
        return uli_error(ULYX_ERR_MISMATCH,
            "alltoall, call %llu: rank %d calls %s, rank %d %s", call, p,
            call_name(pair->peer_direction), exchange->rank,
            call_name(exchange->direction));
    return uli_error(ULYX_ERR_MISMATCH,
        "alltoall, call %llu: rank %d sends %lld bytes to rank %d, which "
        "expects %lld; rank %d expects %lld of the %lld bytes that rank %d "
        "sends",
        call, p, (long long)channel->peer_send[p], exchange->rank,
        (long long)channel->receive[p], p, (long long)channel->peer_receive[p],
        (long long)channel->send[p], exchange->rank);
}

static const struct uli_channel_hooks hooks = {
    fill_record, record_accept, late_report};

/* ---- a call -------------------------------------------------------------- */

static void
set_call(struct uli_channel *channel, const struct uli_alltoall_args *args)
{
    struct uli_exchange *exchange = &channel->exchange;
    int32_t me = exchange->rank;
    channel->args = args;
    exchange->work = &channel->work;
    exchange->src[0] = (char *)(uintptr_t)args->src;
    exchange->dst[0] = args->dst;
    for (int32_t p = 0; p < exchange->nranks; p++) {
        channel->send[p] = uli_alltoall_sends(args, p);
        channel->receive[p] = uli_alltoall_receives(args, p);
        channel->work.pairs[p].in.count = channel->work.pairs[p].out.count = 0;
    }
    struct uli_box *box = &channel->local.box;
    for (int d = 0; d < 3; d++)
        box->extent[d] = 1;
    box->run_bytes = channel->send[me];
    box->src_offset = uli_alltoall_src_at(args, me);
    box->dst_offset = uli_alltoall_dst_at(args, me);
    channel->work.nlocals = channel->send[me] > 0;
    channel->work.copied_bytes = 0;
    for (int32_t p = 0; p < exchange->nranks; p++)
        channel->work.copied_bytes += channel->send[p];
    channel->work.small = channel->work.copied_bytes < ULI_COPY_MEDIUM_BYTES;
}

ulyx_status_t
uli_alltoall_check(
    const ulyx_comm_t *comm, const struct uli_alltoall_args *args)
{
    int32_t me = comm->rank;
    if (uli_alltoall_sends(args, me) != uli_alltoall_receives(args, me))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "rank %d sends itself %lld bytes and expects %lld", me,
            (long long)uli_alltoall_sends(args, me),
            (long long)uli_alltoall_receives(args, me));
    return check_overlap(comm, args);
}

static bool
has_ended(void *context)
{
    const struct ulyx_request *request = context;
    return atomic_load_explicit(&request->status, memory_order_acquire) !=
           ULYX_IN_PROGRESS;
}

/* Joins the agreement that other ranks have started in another call. The
 * agreement shows them this call, which they then refuse; the error is the
 * agreement's. */
static ulyx_status_t
join_other_call(struct uli_exchange *exchange, uint64_t number)
{
    char text[256];
    uli_request_leave(&exchange->request);
    ulyx_status_t status = uli_agree_join(
        exchange->comm, ULI_CALL_ALLTOALL, number, exchange->request.deadline);
    snprintf(text, sizeof(text), "%s", uli_error_text());
    ulyx_status_t ended = uli_request_wait(&exchange->request);
    return status == ULYX_ERR_MISMATCH && !atomic_load(&exchange->comm->failed)
               ? uli_error_pass(status, text)
               : ended;
}

static ulyx_status_t
await_call(struct uli_exchange *exchange, uint64_t number)
{
    struct ulyx_request *request = &exchange->request;
    int64_t look = FIRST_LOOK_NS;
    while (!has_ended(request)) {
        uli_deadline_t slice =
            uli_min(uli_clock_ns() + look, request->deadline);
        uli_request_drive_until(exchange->comm, has_ended, request, slice);
        if (has_ended(request) || uli_deadline_over(request->deadline) ||
            atomic_load(&exchange->comm->failed))
            break;
        if (uli_agree_passed(exchange->comm, number))
            return join_other_call(exchange, number);
        look = uli_min(2 * look, MOST_LOOK_NS);
    }
    return uli_request_wait(request);
}

ulyx_status_t
uli_alltoall_host(ulyx_comm_t *comm, const struct uli_alltoall_args *args,
    ulyx_status_t outcome)
{
    uli_deadline_t deadline = uli_comm_step_deadline(comm);
    ULI_TRY(uli_comm_check(comm));
    if (outcome == ULYX_SUCCESS)
        outcome = uli_alltoall_check(comm, args);
    if (!comm->alltoall)
        ULI_TRY(uli_channel_set_up(comm, &hooks, outcome, deadline));
    struct uli_channel *channel = comm->alltoall;
    struct uli_exchange *exchange = &channel->exchange;
    ULI_TRY(uli_exchange_take(exchange));
    uint64_t number = uli_agree_number(comm);
    exchange->direction = args && args->even ? KIND_EVEN : KIND_UNEVEN;
    if (outcome != ULYX_SUCCESS)
        return uli_exchange_refuse(exchange, outcome, deadline);
    set_call(channel, args);
    uli_exchange_start(exchange, uli_clock_ns(), deadline, true);
    return await_call(exchange, number);
}
