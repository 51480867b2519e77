/* SPDX-License-Identifier: Apache-2.0
 *
 * All to all. A communicator has one channel for it, made at the first use
 * with one agreement: words and rings for every pair. Here nothing is
 * declared in advance, so the record of each call says what each piece lies
 * in, and verbs follow from the two records of a pair: a destination in a
 * window is stored into, a source in a window loaded from, long pieces read
 * through the kernel where it permits, the rest goes by the ring.
 *
 * Cost: one copy a byte (two by the ring), four doorbells a pair.
 */
#include "collectives/alltoall.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/exchange.h"
#include "collectives/plan.h"

enum {
    CHUNK_BYTES = 256 << 10,
    MIN_READ_BYTES = 4096, /* shorter pieces are not worth a system call */
    OPERATION_EVEN = 100,
    OPERATION_UNEVEN = 101,
};

/* What a rank tells the others about its channel. */
struct info {
    struct uli_address words, rings;
    int64_t chunk_bytes;
    uint64_t probe;
};

struct channel {
    struct uli_exchange exchange; /* first */
    struct uli_arena_piece words, rings;
    struct uli_work work;
    struct uli_item *items;  /* [2 * nranks]: in, then out */
    struct uli_local local;  /* the own piece */
    int64_t *send, *receive; /* [nranks] bytes, of the call in flight */
    int64_t *peer_send, *peer_receive; /* as the peers see them */
    const struct uli_alltoall_args *args;
    struct info *infos;
};

/* ---- pieces -------------------------------------------------------------- */

static int64_t
send_bytes(const struct uli_alltoall_args *args, int32_t p)
{
    return args->src_bytes[args->even ? 0 : p];
}

static int64_t
receive_bytes(const struct uli_alltoall_args *args, int32_t p)
{
    return args->even ? args->src_bytes[0] : args->dst_bytes[p];
}

static int64_t
src_offset(const struct uli_alltoall_args *args, int32_t p)
{
    return args->even ? p * args->src_bytes[0] : args->src_offsets[p];
}

static int64_t
dst_offset(const struct uli_alltoall_args *args, int32_t p)
{
    return args->even ? p * args->src_bytes[0] : args->dst_offsets[p];
}

static bool
apart(const char *a, int64_t a_bytes, const char *b, int64_t b_bytes)
{
    return !a_bytes || !b_bytes || a + a_bytes <= b || b + b_bytes <= a;
}

static ulyx_status_t
check_overlap(const ulyx_comm_t *comm, const struct uli_alltoall_args *args)
{
    for (int32_t i = 0; i < comm->nranks; i++) {
        const char *dst = args->dst + dst_offset(args, i);
        int64_t bytes = receive_bytes(args, i);
        for (int32_t j = 0; bytes && j < comm->nranks; j++) {
            if (!apart(dst, bytes, args->src + src_offset(args, j),
                    send_bytes(args, j)))
                return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                    "the piece from rank %d overlaps the piece for rank %d", i,
                    j);
            if (j > i && !apart(dst, bytes, args->dst + dst_offset(args, j),
                             receive_bytes(args, j)))
                return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                    "the pieces from ranks %d and %d overlap", i, j);
        }
    }
    return ULYX_SUCCESS;
}

/* ---- hooks of the engine ------------------------------------------------- */

static struct uli_address
locate(const ulyx_comm_t *comm, const char *pointer, int64_t bytes)
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
    struct channel *channel = (struct channel *)exchange;
    const struct uli_alltoall_args *args = channel->args;
    record_p->send_bytes = channel->send[p];
    record_p->receive_bytes = channel->receive[p];
    record_p->src[0] = locate(
        exchange->comm, args->src + src_offset(args, p), channel->send[p]);
    record_p->dst[0] = locate(
        exchange->comm, args->dst + dst_offset(args, p), channel->receive[p]);
}

/* A contiguous piece; the far side's base is the piece itself. */
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
choose(bool mine, uint32_t src_window, uint32_t dst_window, int64_t bytes)
{
    if (dst_window != ULI_NO_WINDOW)
        return mine ? ULI_VERB_NONE : ULI_VERB_STORE;
    if (src_window != ULI_NO_WINDOW)
        return mine ? ULI_VERB_LOAD : ULI_VERB_NONE;
    return bytes >= MIN_READ_BYTES ? ULI_VERB_READ : ULI_VERB_STREAM;
}

static bool
accept(
    struct uli_exchange *exchange, int32_t p, const struct uli_record *record)
{
    struct channel *channel = (struct channel *)exchange;
    struct uli_pair *pair = &exchange->pairs[p];
    struct uli_pair_work *work = &channel->work.pairs[p];
    const struct uli_record *mine = &pair->yours->records[exchange->call & 1];
    int64_t send = channel->send[p], receive = channel->receive[p];
    channel->peer_send[p] = record->send_bytes;
    channel->peer_receive[p] = record->receive_bytes;
    if (record->receive_bytes != send || record->send_bytes != receive)
        return false;
    set_item(&work->in, receive, dst_offset(channel->args, p), false,
        choose(true, record->src[0].window, mine->dst[0].window, receive));
    set_item(&work->out, send, src_offset(channel->args, p), true,
        choose(false, mine->src[0].window, record->dst[0].window, send));
    return true;
}

static const char *
call_name(int32_t operation)
{
    return operation == OPERATION_EVEN ? "alltoall" : "alltoallv";
}

static ulyx_status_t
report(struct uli_exchange *exchange, int32_t p)
{
    struct channel *channel = (struct channel *)exchange;
    const struct uli_pair *pair = &exchange->pairs[p];
    unsigned long long call = exchange->call;
    if (pair->verdict == ULYX_ERR_PEER_REFUSED)
        return uli_error(pair->verdict,
            "alltoall, call %llu: rank %d refused: "
            "%s",
            call, p, uli_status_text(pair->peer_status));
    if (pair->peer_operation != exchange->operation)
        return uli_error(ULYX_ERR_MISMATCH,
            "alltoall, call %llu: rank %d calls %s, rank %d %s", call, p,
            call_name(pair->peer_operation), exchange->rank,
            call_name(exchange->operation));
    return uli_error(ULYX_ERR_MISMATCH,
        "alltoall, call %llu: rank %d sends %lld bytes to rank %d, which "
        "expects %lld; it expects %lld of the %lld that rank %d sends",
        call, p, (long long)channel->peer_send[p], exchange->rank,
        (long long)channel->receive[p], (long long)channel->peer_receive[p],
        (long long)channel->send[p], exchange->rank);
}

/* ---- the channel --------------------------------------------------------- */

static void
free_channel(struct channel *channel)
{
    uli_op_destroy(&channel->exchange.op);
    free(channel->exchange.pairs);
    free(channel->work.pairs);
    free(channel->items);
    free(channel->send);
    free(channel->infos);
    free(channel);
}

static void
destroy(ulyx_comm_t *comm)
{
    if (comm->alltoall)
        free_channel(comm->alltoall);
    comm->alltoall = NULL;
}

static bool
allocate(struct channel *channel, int32_t nranks)
{
    size_t n = (size_t)nranks;
    channel->exchange.pairs = calloc(n, sizeof(*channel->exchange.pairs));
    channel->work.pairs = calloc(n, sizeof(*channel->work.pairs));
    channel->items = calloc(2 * n, sizeof(*channel->items));
    channel->send = calloc(4 * n, sizeof(*channel->send));
    channel->infos = calloc(n, sizeof(*channel->infos));
    if (!channel->exchange.pairs || !channel->work.pairs || !channel->items ||
        !channel->send || !channel->infos)
        return false;
    channel->receive = channel->send + n;
    channel->peer_send = channel->send + 2 * n;
    channel->peer_receive = channel->send + 3 * n;
    channel->work.locals = &channel->local;
    for (int32_t p = 0; p < nranks; p++) {
        channel->work.pairs[p].last_sum = -1;
        channel->work.pairs[p].in.at = &channel->items[p];
        channel->work.pairs[p].out.at = &channel->items[nranks + p];
    }
    return true;
}

static ulyx_status_t
prepare(ulyx_comm_t *comm, struct channel *channel, struct info *info)
{
    int64_t words = comm->nranks * (int64_t)sizeof(struct uli_words);
    info->chunk_bytes = uli_min(comm->settings.ring_chunk_bytes, CHUNK_BYTES) /
                        ULI_LINE * ULI_LINE;
    if (!allocate(channel, comm->nranks))
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for alltoall");
    for (int32_t p = 0; p < comm->nranks; p++)
        if (p != comm->rank && !comm->peers[p].map)
            return uli_error(ULYX_ERR_UNSUPPORTED,
                "alltoall: rank %d is on another node", p);
    ULI_TRY(uli_arena_alloc(comm, words, &channel->words));
    ULI_TRY(uli_arena_alloc(
        comm, comm->nranks * 2 * info->chunk_bytes, &channel->rings));
    info->words.window = channel->words.window;
    info->words.offset = channel->words.offset;
    info->rings.window = channel->rings.window;
    info->rings.offset = channel->rings.offset;
    info->probe = (uint64_t)(uintptr_t)&uli_tr_probe_word;
    return ULYX_SUCCESS;
}

static ulyx_status_t
connect(ulyx_comm_t *comm, struct channel *channel, int32_t p)
{
    struct uli_pair *pair = &channel->exchange.pairs[p];
    const struct info *mine = &channel->infos[comm->rank];
    const struct info *peer = &channel->infos[p];
    struct uli_words *yours = uli_window_address(comm, p, peer->words.window,
        peer->words.offset, comm->nranks * (int64_t)sizeof(*yours));
    char *rings = uli_window_address(comm, p, peer->rings.window,
        peer->rings.offset, comm->nranks * 2 * peer->chunk_bytes);
    if (!yours || !rings)
        return uli_comm_fail(comm, ULYX_ERR_INTERNAL, p,
            "alltoall: the arena of rank %d is not mapped here", p);
    pair->shares = true;
    pair->mine = (struct uli_words *)channel->words.address + p;
    pair->yours = yours + comm->rank;
    pair->chunk_in_bytes = mine->chunk_bytes;
    pair->chunk_out_bytes = peer->chunk_bytes;
    pair->ring_in = (char *)channel->rings.address + p * 2 * mine->chunk_bytes;
    pair->ring_out = rings + comm->rank * 2 * peer->chunk_bytes;
    pair->src_bytes = &channel->receive[p];
    pair->dst_bytes = &channel->send[p];
    pair->reader = uli_reader_of(comm, p, peer->probe);
    pair->can_read = pair->reader != NULL;
    return ULYX_SUCCESS;
}

/* The round of the first use. Every rank's failure is everybody's. */
static ulyx_status_t
agree(ulyx_comm_t *comm, struct channel *channel, ulyx_status_t verdict,
    const struct info *info, uli_deadline_t deadline)
{
    char text[256];
    bool refuses = verdict != ULYX_SUCCESS;
    ulyx_status_t *verdicts = calloc((size_t)comm->nranks, sizeof(*verdicts));
    int64_t *bytes = calloc((size_t)comm->nranks, sizeof(*bytes));
    if (!refuses && (!verdicts || !bytes)) {
        verdict = uli_error(ULYX_ERR_NO_MEMORY, "no memory for alltoall");
        refuses = true;
    }
    snprintf(text, sizeof(text), "%s", uli_error_text());
    ulyx_status_t status =
        refuses ? uli_agree_gather(comm, ULI_CALL_ALLTOALL_SETUP, verdict, NULL,
                      0, 0, NULL, NULL, NULL, deadline)
                : uli_agree_gather(comm, ULI_CALL_ALLTOALL_SETUP, ULYX_SUCCESS,
                      info, sizeof(*info), sizeof(*info), channel->infos, bytes,
                      verdicts, deadline);
    for (int32_t p = 0; status == ULYX_SUCCESS && !refuses && p < comm->nranks;
         p++)
        if (verdicts[p] != ULYX_SUCCESS)
            status = uli_error(verdicts[p] == ULYX_ERR_NO_MEMORY
                                   ? ULYX_ERR_NO_MEMORY
                                   : ULYX_ERR_PEER_REFUSED,
                "alltoall: rank %d refused: %s", p,
                uli_status_text(verdicts[p]));
    free(verdicts);
    free(bytes);
    if (refuses && status == ULYX_SUCCESS)
        return uli_error_pass(verdict, text);
    return status;
}

static ulyx_status_t
set_up(ulyx_comm_t *comm, ulyx_status_t verdict, uli_deadline_t deadline)
{
    struct info info;
    struct channel *channel = calloc(1, sizeof(*channel));
    memset(&info, 0, sizeof(info));
    if (channel)
        uli_exchange_init(&channel->exchange, comm, "alltoall");
    if (verdict == ULYX_SUCCESS)
        verdict = channel
                      ? prepare(comm, channel, &info)
                      : uli_error(ULYX_ERR_NO_MEMORY, "no memory for alltoall");
    ulyx_status_t status = agree(comm, channel, verdict, &info, deadline);
    for (int32_t p = 0; status == ULYX_SUCCESS && p < comm->nranks; p++)
        if (p != comm->rank)
            status = connect(comm, channel, p);
    if (status == ULYX_SUCCESS) {
        channel->exchange.ntensors = 1;
        channel->exchange.record = fill_record;
        channel->exchange.accept = accept;
        channel->exchange.report = report;
        comm->alltoall = channel;
        comm->alltoall_destroy = destroy;
        return ULYX_SUCCESS;
    }
    if (channel) {
        if (channel->words.address)
            uli_arena_free(comm, &channel->words);
        if (channel->rings.address)
            uli_arena_free(comm, &channel->rings);
        free_channel(channel);
    }
    return status;
}

/* ---- a call -------------------------------------------------------------- */

static void
set_call(struct channel *channel, const struct uli_alltoall_args *args)
{
    struct uli_exchange *exchange = &channel->exchange;
    int32_t me = exchange->rank;
    channel->args = args;
    exchange->work = &channel->work;
    exchange->src[0] = (char *)(uintptr_t)args->src;
    exchange->dst[0] = args->dst;
    for (int32_t p = 0; p < exchange->nranks; p++) {
        channel->send[p] = send_bytes(args, p);
        channel->receive[p] = receive_bytes(args, p);
        channel->work.pairs[p].in.count = channel->work.pairs[p].out.count = 0;
    }
    struct uli_box *box = &channel->local.box;
    for (int d = 0; d < 3; d++)
        box->extent[d] = 1;
    box->run_bytes = channel->send[me];
    box->src_offset = src_offset(args, me);
    box->dst_offset = dst_offset(args, me);
    channel->work.nlocals = channel->send[me] > 0;
    channel->work.copied_bytes = 0;
    for (int32_t p = 0; p < exchange->nranks; p++)
        channel->work.copied_bytes += channel->send[p];
}

static ulyx_status_t
check_args(const ulyx_comm_t *comm, const struct uli_alltoall_args *args)
{
    int32_t me = comm->rank;
    if (send_bytes(args, me) != receive_bytes(args, me))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "rank %d sends itself %lld bytes and expects %lld", me,
            (long long)send_bytes(args, me),
            (long long)receive_bytes(args, me));
    return check_overlap(comm, args);
}

ulyx_status_t
uli_alltoall(ulyx_comm_t *comm, const struct uli_alltoall_args *args,
    ulyx_status_t verdict)
{
    uli_deadline_t deadline = uli_deadline_in(comm->timeout_s);
    ULI_TRY(uli_comm_check(comm));
    if (verdict == ULYX_SUCCESS)
        verdict = check_args(comm, args);
    if (!comm->alltoall)
        ULI_TRY(set_up(comm, verdict, deadline));
    struct channel *channel = comm->alltoall;
    struct uli_exchange *exchange = &channel->exchange;
    ULI_TRY(uli_exchange_take(exchange));
    exchange->operation =
        args && args->even ? OPERATION_EVEN : OPERATION_UNEVEN;
    if (verdict != ULYX_SUCCESS)
        return uli_exchange_refuse(exchange, verdict, deadline);
    set_call(channel, args);
    uli_exchange_start(exchange, deadline);
    return uli_op_wait(&exchange->op);
}
