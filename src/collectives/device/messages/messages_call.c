/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of an exchange by messages: what is enqueued on the caller's stream
 * and, if the call takes several rounds, on the inner stream. With two slots
 * the order is
 *
 *   caller's  pack 0  pack 1  unpack 0  pack 2  unpack 1 ... unpack K - 1
 *   inner     batch 0 after pack 0, batch 1 after pack 1 and batch 0, ...
 *
 * and unpack k waits for batch k. So pack k + 2 comes after batch k, which has
 * read the outgoing slot. Batch k + 2 waits for pack k + 2, and so comes after
 * unpack k, which has emptied the incoming slot. Events fork the inner stream
 * from the caller's stream and join it again, so a capture of the caller's
 * stream includes both.
 */
#include "collectives/device/messages/messages_private.h"

#include <stdio.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/device/calls_gpu.h"

struct call {
    struct uli_messages *messages;
    const struct uli_messages_table *table;
    struct uli_messages_args args; /* what does not change between rounds */
    bool refused;
    void *stream;
    uli_deadline_t deadline;
};

/* ---- arguments ----------------------------------------------------------- */

/* Writes the reason in place of the tensors, which the records of messages do
 * not name. */
static void
fill_reason(uint64_t *record, const char *reason)
{
    char text[ULI_MESSAGES_REASON_WORDS * sizeof(uint64_t)] = "";
    snprintf(text, ULI_REFUSAL_BYTES, "%s", reason);
    memcpy(record + ULI_GPU_RECORD_SRC, text, sizeof(text));
}

static void
fill_args(struct call *c, const struct uli_messages_call *asked)
{
    struct uli_messages *messages = c->messages;
    const struct uli_messages_table *table = c->table;
    struct uli_gpu_args *call = &c->args.call;
    int32_t ntensors = uli_layout_shape(messages->params.layout)->ntensors;
    c->refused = asked->refusal != ULYX_SUCCESS;
    *call = (struct uli_gpu_args){
        .items = (void *)(messages->tables + table->items_at),
        .sources = (void *)(messages->tables + table->sources_at),
        .state = (struct uli_gpu_state *)(void *)messages->memory,
        .rank = messages->params.rank,
        .nranks = messages->nranks,
        .poison = messages->params.poison,
        .slots = 1,
        .sums = table->table.sums,
        .user_hash = asked->user_hash,
        .report = messages->device_report};
    memset(call->record, 0xFF, sizeof(call->record));
    call->record[ULI_GPU_RECORD_CALL] = (uint64_t)(uint32_t)-asked->refusal |
                                        (uint64_t)asked->direction << 32;
    call->record[ULI_GPU_RECORD_HASH] = messages->hash;
    if (c->refused)
        fill_reason(call->record, asked->reason);
    for (int32_t t = 0; t < ntensors && !c->refused; t++) {
        call->src[t] = (unsigned char *)(uintptr_t)asked->src[t];
        call->dst[t] = asked->dst[t];
    }
    c->args.order = (void *)(messages->tables + table->order_at);
    c->args.hash = (void *)messages->tables;
    c->args.tile_bytes = table->tile_bytes;
    c->args.reason = messages->device_reason;
}

/* The arguments of one launch of round k. */
static struct uli_messages_args
args_of(const struct call *c, int32_t k, bool unpack)
{
    const struct uli_messages *messages = c->messages;
    const struct uli_messages_table *table = c->table;
    struct uli_messages_args args = c->args;
    bool last = k == table->rounds - 1;
    args.call.peers = (const struct uli_gpu_peer *)(void *)(messages->tables +
                                                            table->peers_at) +
                      (int64_t)k * messages->nranks;
    args.lists = (const struct uli_messages_list *)(void *)(messages->tables +
                                                          table->lists_at) +
                 (unpack ? messages->nranks : 0);
    args.begin = k * messages->params.chunk_bytes;
    args.end = args.begin + messages->params.chunk_bytes;
    if (!unpack && k == 0)
        args.steps = ULI_MESSAGES_OPEN;
    if (unpack && last)
        args.steps = ULI_MESSAGES_CLOSE;
    if (c->refused)
        return args;
    args.tiles = table->tiles;
    if (!unpack && k == 0)
        args.own_tiles = table->pack_own_tiles;
    if (unpack && last)
        args.own_tiles = table->unpack_own_tiles;
    return args;
}

/* ---- steps --------------------------------------------------------------- */

static ulyx_status_t
launch_check(int error, const char *what)
{
    if (!error)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_SYSTEM, "exchange by messages: launch of %s: error %d",
        what, error);
}

static ulyx_status_t
call_pack(const struct call *c, int32_t k)
{
    const struct uli_messages_params *own = &c->messages->params;
    struct uli_messages_args args = args_of(c, k, false);
    return launch_check(
        uli_messages_pack_launch(&args, own->blocks, own->threads, c->stream),
        "pack");
}

static ulyx_status_t
call_unpack(const struct call *c, int32_t k)
{
    const struct uli_messages_params *own = &c->messages->params;
    struct uli_messages_args args = args_of(c, k, true);
    return launch_check(
        uli_messages_unpack_launch(&args, own->blocks, own->threads, c->stream),
        "unpack");
}

static int32_t
add_message(struct uli_messages *messages, int32_t count, int32_t p, int64_t k,
    bool send, int64_t bytes)
{
    int64_t head = k == 0 ? ULI_MESSAGE_HEAD : 0;
    if (head + bytes == 0)
        return count;
    messages->batch_messages[count] = (struct uli_batch_message){
        .data = uli_messages_message(messages, p, k, send) + ULI_MESSAGE_HEAD - head,
        .bytes = head + bytes,
        .peer = p,
        .send = send};
    return count + 1;
}

/* Lists the messages to and from every peer, from the next higher rank on.
 * table NULL: heads only. Returns the number of messages. */
static int32_t
list_messages(
    struct uli_messages *messages, const struct uli_messages_table *table, int64_t k)
{
    int32_t count = 0, n = messages->nranks;
    for (int32_t q = 1; q < n; q++) {
        int32_t p = (messages->params.rank + q) % n;
        int64_t at = k * n + p;
        if (!messages->shares[p])
            continue;
        count = add_message(messages, count, p, k, true,
            table ? table->sent[at + n] - table->sent[at] : 0);
        count = add_message(messages, count, p, k, false,
            table ? table->received[at + n] - table->received[at] : 0);
    }
    return count;
}

/* A rank that has nothing to send or receive in a round leaves the round
 * out. */
static ulyx_status_t
call_send(const struct call *c, int32_t k, void *stream)
{
    struct uli_messages *messages = c->messages;
    int32_t count = list_messages(messages, c->table, k);
    if (!count)
        return ULYX_SUCCESS;
    return messages->params.batch_ops->run(
        messages->params.batch, messages->batch_messages, count, stream, c->deadline);
}

/* ---- a call -------------------------------------------------------------- */

static ulyx_status_t
await_batch(const struct call *c, int32_t k)
{
    return ULI_MESSAGES_DEVICE(
        c->messages, event_order, c->messages->carried[k % 2], c->stream);
}

static ulyx_status_t
run_rounds(const struct call *c)
{
    struct uli_messages *messages = c->messages;
    int32_t rounds = c->table->rounds;
    for (int32_t k = 0; k < rounds; k++) {
        ULI_TRY(call_pack(c, k));
        ULI_TRY(ULI_MESSAGES_DEVICE(
            messages, event_record, messages->packed_event, c->stream));
        ULI_TRY(ULI_MESSAGES_DEVICE(
            messages, event_order, messages->packed_event, messages->inner));
        ULI_TRY(call_send(c, k, messages->inner));
        ULI_TRY(ULI_MESSAGES_DEVICE(
            messages, event_record, messages->carried[k % 2], messages->inner));
        if (k == 0)
            continue;
        ULI_TRY(await_batch(c, k - 1));
        ULI_TRY(call_unpack(c, k - 1));
    }
    ULI_TRY(await_batch(c, rounds - 1));
    return call_unpack(c, rounds - 1);
}

ulyx_status_t
uli_messages_check(
    const struct uli_messages *messages, ulyx_direction_t direction, void *stream)
{
    const struct uli_messages_params *own = &messages->params;
    return messages->ops[direction].rounds > 1
               ? uli_gpu_check_inner(
                     own->device_ops, own->device, messages->inner, stream)
               : ULYX_SUCCESS;
}

ulyx_status_t
uli_messages_execute(
    struct uli_messages *messages, const struct uli_messages_call *call)
{
    struct call c = {.messages = messages,
        .table = &messages->ops[call->direction],
        .stream = call->stream,
        .deadline = call->deadline};
    fill_args(&c, call);
    if (c.table->rounds > 1)
        return run_rounds(&c);
    ULI_TRY(call_pack(&c, 0));
    ULI_TRY(call_send(&c, 0, call->stream));
    return call_unpack(&c, 0);
}

ulyx_status_t
uli_messages_connect(
    struct uli_messages *messages, void *stream, uli_deadline_t deadline)
{
    const struct uli_messages_params *own = &messages->params;
    int32_t count = list_messages(messages, NULL, 0);
    if (!count)
        return ULYX_SUCCESS;
    ULI_TRY(own->batch_ops->run(
        own->batch, messages->batch_messages, count, stream, deadline));
    return ULI_MESSAGES_DEVICE(messages, stream_wait, stream);
}
