/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams: items are packed one after another into chunks in the destination's
 * arena, and unpacked there. There are two chunks per pair and direction, so
 * that one is filled while the other is emptied; a byte is copied twice, and
 * the memory does not grow with the exchange. Each call decides the place and
 * size of the chunks (exchange_rings.c). A remote pair has more chunks, because
 * the wire lies between filling and emptying. A pairwise exchange sends to at
 * most peer_limit remote peers at a time, in its own order, and the next stream
 * begins when one has ended. Streams that carry shares of sums are exempt: a
 * sum waits for all its sharers, so two ranks that held their shares back could
 * wait for each other. Copies wait for no rank, so a rank that is sent only
 * copies always ends.
 *
 * An eager slot is the same stream in one chunk: all bytes fit, the chunk is
 * complete when EAGER(n) has arrived, and it is written again only two calls
 * later.
 *
 * Both ends walk the same items in the same order with the same box, so a
 * stream has no headers. Items begin at multiples of 16 bytes, and chunks are
 * multiples of 64, so no element of a sum is divided.
 */
#include "base/size.h"
#include "collectives/exchange/exchange.h"

/* Does the item go through the stream? reader: the destination of its direction
 * can read the source's memory. */
static bool
item_streams(const struct uli_item *item, bool reader)
{
    return item->verb == ULI_VERB_STREAM ||
           (item->verb == ULI_VERB_READ && !reader);
}

/* Advances to the next item that goes through the stream. */
static void
find_item(const struct uli_items *items, struct uli_stream *stream, bool reader)
{
    while (stream->item < items->count &&
           !item_streams(&items->at[stream->item], reader))
        stream->item++;
    stream->run = stream->in_run = 0;
    stream->left = stream->item < items->count
                       ? uli_box_bytes(&items->at[stream->item].box)
                       : 0;
    stream->at = uli_round_up(stream->at, ULI_STREAM_ALIGN);
}

static void
next_item(const struct uli_items *items, struct uli_stream *stream, bool reader)
{
    stream->item++;
    find_item(items, stream, reader);
}

/* Streams start when it is known which ranks can read: at once for slots, where
 * only STREAM exists, else with the peer's record. */
void
uli_ring_begin(struct uli_exchange *exchange, int32_t p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    pair->in.item = pair->out.item = -1;
    if (!exchange->work->pairs[p].slot)
        return;
    pair->out.chunk = (char *)(uli_eager_out(pair, exchange->call) + 1);
    pair->in.chunk = (char *)(uli_eager_in(pair, exchange->call) + 1);
    next_item(&exchange->work->pairs[p].out, &pair->out, false);
    next_item(&exchange->work->pairs[p].in, &pair->in, false);
}

/* ---- sending ------------------------------------------------------------- */

static void
ring_publish(struct uli_exchange *exchange, int32_t p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    uli_post_filled(exchange, p, pair->out.at);
    pair->out.chunk = NULL;
    pair->out.at = 0;
}

/* Is the stream to p among those that peer_limit counts? */
static bool
ring_counted(const struct uli_exchange *exchange, int32_t p)
{
    return exchange->peer_limit > 0 && exchange->pairs[p].remote &&
           !exchange->work->remote_shares && !exchange->work->pairs[p].slot;
}

/* Finds the first item; false while the number of peers sent to is at its
 * limit. */
static bool
begin_sending(struct uli_exchange *exchange, int32_t p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    const struct uli_items *items = &exchange->work->pairs[p].out;
    if (pair->out.item >= 0)
        return true;
    if (ring_counted(exchange, p) && items->count > 0) {
        if (exchange->sending >= exchange->peer_limit)
            return false;
        exchange->sending++;
    }
    next_item(items, &pair->out, pair->peer_reads);
    return true;
}

/* Takes a chunk to fill; false while all are full. */
static bool
have_room(struct uli_exchange *exchange, int32_t p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    if (pair->out.chunk)
        return true;
    uint64_t taken = uli_flag(pair->mine, ULI_CONSUMED);
    uint64_t chunks = (uint64_t)pair->chunks_out;
    if (pair->produced - taken >= chunks)
        return false;
    pair->out.chunk = pair->ring_out + (int64_t)(pair->produced % chunks) *
                                           pair->chunk_out_bytes;
    pair->out.at = 0;
    return true;
}

/* Packs into the chunk until it is full or the item has ended. */
static bool
pack_item(struct uli_exchange *exchange, int32_t p, int64_t chunk_bytes)
{
    struct uli_pair *pair = &exchange->pairs[p];
    struct uli_stream *out = &pair->out;
    const struct uli_item *item = &exchange->work->pairs[p].out.at[out->item];
    const struct uli_copy_way way = uli_exchange_packing(exchange, &item->box);
    struct uli_box part;
    const struct uli_box *box;
    struct uli_box_span span;
    int64_t bytes = 0;
    while (out->left > 0 &&
           (bytes = uli_box_cut(&item->box, &out->run, &out->in_run,
                uli_min(chunk_bytes - out->at, ULI_SPAN_BYTES), &part, &box,
                &span)) > 0) {
        uli_box_pack(
            box, span, out->chunk + out->at, exchange->src[item->tensor], &way);
        out->at += bytes;
        out->left -= bytes;
        exchange->wire_bytes += pair->remote ? bytes : 0;
        if (!uli_exchange_check(exchange, bytes))
            return false;
    }
    return true;
}

bool
uli_ring_send(struct uli_exchange *exchange, int32_t p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    const struct uli_items *items = &exchange->work->pairs[p].out;
    bool slot = exchange->work->pairs[p].slot, advanced = false;
    int64_t chunk_bytes = slot ? pair->slot_out_bytes : pair->chunk_out_bytes;
    if (!begin_sending(exchange, p))
        return false;
    while (pair->out.item < items->count) {
        if (!slot && !have_room(exchange, p))
            return advanced;
        advanced = true;
        if (!pack_item(exchange, p, chunk_bytes))
            return true;
        if (pair->out.left == 0)
            next_item(items, &pair->out, pair->peer_reads);
        if (!slot &&
            (pair->out.at >= chunk_bytes || pair->out.item == items->count))
            ring_publish(exchange, p);
        if (pair->out.item == items->count && ring_counted(exchange, p))
            exchange->sending--;
    }
    return advanced;
}

bool
uli_ring_sent(const struct uli_exchange *exchange, int32_t p)
{
    return exchange->pairs[p].out.item == exchange->work->pairs[p].out.count;
}

/* ---- receiving ----------------------------------------------------------- */

static bool
have_chunk(struct uli_exchange *exchange, int32_t p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    if (exchange->work->pairs[p].slot)
        return uli_flags_eager(pair->mine, exchange->call);
    if (pair->in.chunk)
        return true;
    int chunk = (int)(pair->consumed % (uint64_t)pair->chunks_in);
    if (uli_flag(pair->mine, ULI_FILLED + chunk) <= pair->consumed)
        return false;
    pair->in.chunk = pair->ring_in + chunk * pair->chunk_in_bytes;
    pair->in.at = 0;
    return true;
}

/* The chunk is empty: the peer may fill it again. */
static void
give_chunk_back(struct uli_exchange *exchange, int32_t p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    uli_post_consumed(exchange, p);
    pair->in.chunk = NULL;
    pair->in.at = 0;
}

static int64_t
chunk_in_bytes(const struct uli_exchange *exchange, int32_t p)
{
    return exchange->work->pairs[p].slot ? exchange->pairs[p].slot_in_bytes
                                         : exchange->pairs[p].chunk_in_bytes;
}

const char *
uli_ring_peek(struct uli_exchange *exchange, int32_t p, int64_t *bytes_p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    const struct uli_items *items = &exchange->work->pairs[p].in;
    if (pair->in.item < 0)
        next_item(items, &pair->in, pair->can_read);
    if (pair->in.item == items->count || !have_chunk(exchange, p))
        return NULL;
    *bytes_p =
        uli_min(pair->in.left, chunk_in_bytes(exchange, p) - pair->in.at);
    return pair->in.chunk + pair->in.at;
}

void
uli_ring_take(struct uli_exchange *exchange, int32_t p, int64_t bytes)
{
    struct uli_pair *pair = &exchange->pairs[p];
    const struct uli_items *items = &exchange->work->pairs[p].in;
    pair->in.at += bytes;
    pair->in.left -= bytes;
    if (pair->in.left == 0)
        next_item(items, &pair->in, pair->can_read);
    if (!exchange->work->pairs[p].slot &&
        (pair->in.at >= pair->chunk_in_bytes || pair->in.item == items->count))
        give_chunk_back(exchange, p);
}

static bool
unpack_item(struct uli_exchange *exchange, int32_t p,
    const struct uli_item *item, const char *chunk, int64_t available)
{
    struct uli_stream *in = &exchange->pairs[p].in;
    const struct uli_copy_way way = uli_exchange_way(exchange, &item->box);
    struct uli_box part;
    const struct uli_box *box;
    struct uli_box_span span;
    int64_t bytes, done = 0;
    while ((bytes = uli_box_cut(&item->box, &in->run, &in->in_run,
                available - done, &part, &box, &span)) > 0) {
        uli_box_unpack(
            box, span, exchange->dst[item->tensor], chunk + done, &way);
        done += bytes;
    }
    uli_ring_take(exchange, p, done);
    return uli_exchange_check(exchange, done);
}

/* Unpacks copies up to the next share of a sum; shares are taken by the
 * sums. */
bool
uli_ring_receive(struct uli_exchange *exchange, int32_t p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    const struct uli_items *items = &exchange->work->pairs[p].in;
    bool advanced = false;
    int64_t available;
    const char *chunk;
    while ((chunk = uli_ring_peek(exchange, p, &available))) {
        const struct uli_item *item = &items->at[pair->in.item];
        if (item->sum >= 0)
            return advanced;
        advanced = true;
        if (!unpack_item(exchange, p, item, chunk, available))
            return true;
    }
    return advanced;
}

bool
uli_ring_received(const struct uli_exchange *exchange, int32_t p)
{
    return exchange->pairs[p].in.item == exchange->work->pairs[p].in.count;
}
