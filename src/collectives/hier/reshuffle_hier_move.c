/* SPDX-License-Identifier: Apache-2.0
 *
 * Chunks of the hierarchical schedule: gathered, put, spread; see hier.h. Each
 * function does what can be done without waiting.
 */
#include <string.h>
#include "base/dtype.h"
#include "base/size.h"
#include "collectives/hier/hier.h"
#include "collectives/plan/plan.h"
#include "comm/remote/remote.h"

static char *
place_of(const struct uli_hier *h, const struct uli_hier_lane *lane, int64_t at)
{
    return lane->staging +
           at / h->chunk_bytes % ULI_HIER_CHUNKS * h->chunk_bytes +
           at % h->chunk_bytes;
}

static void
hier_ring_doorbell(const struct uli_hier *h, int32_t rank)
{
    if (rank != h->comm->rank)
        uli_doorbell_ring(h->comm->peers[rank].control);
}

int64_t
uli_hier_least(const struct uli_hier *h, const struct uli_hier_word *words)
{
    uint64_t low = UINT64_MAX;
    for (int32_t i = 0; i < h->size; i++) {
        uint64_t value =
            atomic_load_explicit(&words[i].value, memory_order_acquire);
        low = value < low ? value : low;
    }
    uint64_t base = uli_hier_tag(h, 0);
    return low > base ? (int64_t)(low - base) : 0;
}

/* ---- gather -------------------------------------------------------------- */

static void
post_filled(struct uli_hier *h, struct uli_hier_lane *lane, int64_t count)
{
    if (count <= lane->filled_n)
        return;
    lane->filled_n = count;
    atomic_store_explicit(&lane->filled[h->local].value, uli_hier_tag(h, count),
        memory_order_release);
    /* Sharers and readers wait for it too where there are sums. */
    if (h->now->nsums || lane->kind == ULI_HIER_OWN)
        uli_hier_ring_node(h);
    else
        hier_ring_doorbell(h, lane->carrier);
}

bool
uli_hier_has_room(
    const struct uli_hier *h, const struct uli_hier_lane *lane, int64_t c)
{
    if (c < ULI_HIER_CHUNKS)
        return true;
    if (lane->kind == ULI_HIER_OWN)
        return uli_hier_least(h, lane->taken) > c - ULI_HIER_CHUNKS;
    return uli_hier_reached(
        h, &lane->words->sent.value, c - ULI_HIER_CHUNKS + 1);
}

/* May the next bytes of the give go into chunk c? */
static bool
may_give(const struct uli_hier *h, const struct uli_hier_lane *lane,
    const struct uli_hier_give *give, int64_t c)
{
    return uli_hier_has_room(h, lane, c) &&
           (give->before < 0 ||
               uli_hier_reached(h, &lane->filled[give->before].value, c + 1));
}

/* Adds elements to the accumulators at `to`, or begins them. */
static int64_t
add_share(struct uli_hier *h, struct uli_hier_lane *lane,
    const struct uli_hier_give *give, char *to, int64_t room)
{
    const struct uli_shape_tensor *t =
        &uli_layout_shape(h->layout)->tensors[give->tensor];
    int32_t partial =
        uli_plan_dtype(t, uli_plan_side(h->exchange->operation, true));
    int64_t elem = uli_dtype_size(partial);
    int64_t elements = uli_min(room / give->acc_bytes, ULI_HIER_ACC_BYTES / 8);
    struct uli_box part;
    const struct uli_box *piece;
    struct uli_box_span span;
    int64_t bytes = uli_box_cut(&give->box, &lane->give_run, &lane->give_in_run,
        elements * elem, &part, &piece, &span);
    uli_box_pack(piece, span, h->packed, h->exchange->src[give->tensor]);
    uli_sum_accumulate(
        t->dtype, partial, to, h->packed, bytes / elem, give->before < 0);
    return bytes / elem * give->acc_bytes;
}

static int64_t
hier_pack(struct uli_hier *h, struct uli_hier_lane *lane,
    const struct uli_hier_give *give, char *to, int64_t room)
{
    struct uli_box part;
    const struct uli_box *piece;
    struct uli_box_span span;
    int64_t bytes = uli_box_cut(&give->box, &lane->give_run, &lane->give_in_run,
        uli_min(room, ULI_SPAN_BYTES), &part, &piece, &span);
    uli_box_pack(piece, span, to, h->exchange->src[give->tensor]);
    return bytes;
}

bool
uli_hier_gather(struct uli_hier *h, struct uli_hier_lane *lane)
{
    const struct uli_hier_stream *stream = lane->stream;
    bool advanced = false;
    while (lane->give < stream->ngives) {
        const struct uli_hier_give *give = &stream->gives[lane->give];
        int64_t at = give->at + lane->given, c = at / h->chunk_bytes;
        post_filled(h, lane, c);
        if (!may_give(h, lane, give, c))
            return advanced;
        int64_t room =
            uli_min(give->bytes - lane->given, (c + 1) * h->chunk_bytes - at);
        char *to = place_of(h, lane, at);
        int64_t bytes = give->acc_bytes ? add_share(h, lane, give, to, room)
                                        : hier_pack(h, lane, give, to, room);
        lane->given += bytes;
        advanced = true;
        if (lane->given == give->bytes) {
            lane->give++;
            lane->given = lane->give_run = lane->give_in_run = 0;
        }
        if (!uli_exchange_check(h->exchange, bytes))
            return true;
    }
    advanced |= lane->filled_n < stream->chunks;
    post_filled(h, lane, stream->chunks);
    return advanced;
}

/* ---- wire ---------------------------------------------------------------- */

static int64_t
word_offset(const struct uli_hier_lane *lane, const void *word)
{
    return lane->far_words.offset +
           ((const char *)word - (const char *)lane->words);
}

static void
put_chunk(struct uli_hier *h, struct uli_hier_lane *lane, int64_t c)
{
    int64_t at = c * h->chunk_bytes, k = c % ULI_HIER_CHUNKS;
    struct uli_net_put put = {.data = place_of(h, lane, at),
        .bytes = uli_min(h->chunk_bytes, lane->stream->bytes - at),
        .window = lane->far_words.window,
        .offset =
            lane->far_words.offset + lane->far_staging + k * h->chunk_bytes,
        .signal_window = lane->far_words.window,
        .signal_offset = word_offset(lane, &lane->words->arrived[k]),
        .signal = uli_hier_tag(h, c + 1),
        .pending = &lane->words->pending[k]};
    uli_remote_put(h->comm, lane->far, &put);
    h->exchange->wire_bytes += put.bytes;
}

/* Chunks that are whole and have a place at the other end. */
static bool
send_chunks(struct uli_hier *h, struct uli_hier_lane *lane)
{
    int64_t chunks = lane->stream->chunks, before = lane->put_n;
    int64_t whole = lane->put_n < chunks ? uli_hier_least(h, lane->filled) : 0;
    while (lane->put_n < uli_min(whole, chunks) &&
           (lane->put_n < ULI_HIER_CHUNKS ||
               uli_hier_reached(h, &lane->words->credit.value,
                   lane->put_n - ULI_HIER_CHUNKS + 1)))
        put_chunk(h, lane, lane->put_n++);
    int64_t sent = lane->sent_n;
    while (sent < lane->put_n &&
           atomic_load_explicit(&lane->words->pending[sent % ULI_HIER_CHUNKS],
               memory_order_acquire) == 0)
        sent++;
    if (sent > lane->sent_n) {
        lane->sent_n = sent;
        atomic_store_explicit(&lane->words->sent.value, uli_hier_tag(h, sent),
            memory_order_release);
        if (lane->sent_n < chunks)
            uli_hier_ring_node(h);
        return true;
    }
    return lane->put_n > before;
}

/* Tells the node of chunks that have come, and the other end of places that
 * are free again, as far as it needs them. */
static bool
pass_on(struct uli_hier *h, struct uli_hier_lane *lane)
{
    int64_t chunks = lane->stream->chunks, seen = lane->seen_n;
    while (lane->seen_n < chunks &&
           uli_hier_reached(h,
               &lane->words->arrived[lane->seen_n % ULI_HIER_CHUNKS],
               lane->seen_n + 1))
        lane->seen_n++;
    if (lane->seen_n > seen)
        uli_hier_ring_node(h);
    int64_t wanted = chunks - ULI_HIER_CHUNKS;
    if (lane->credited_n >= wanted)
        return lane->seen_n > seen;
    int64_t credit = uli_min(uli_hier_least(h, lane->taken), wanted);
    if (credit <= lane->credited_n)
        return lane->seen_n > seen;
    lane->credited_n = credit;
    struct uli_net_put put = {.signal_window = lane->far_words.window,
        .signal_offset = word_offset(lane, &lane->words->credit),
        .signal = uli_hier_tag(h, credit)};
    uli_remote_put(h->comm, lane->far, &put);
    return true;
}

bool
uli_hier_wire(struct uli_hier *h, struct uli_hier_lane *lane)
{
    return lane->kind == ULI_HIER_OUT ? send_chunks(h, lane) : pass_on(h, lane);
}

/* ---- spread -------------------------------------------------------------- */

static void
post_taken(struct uli_hier *h, struct uli_hier_lane *lane)
{
    const struct uli_hier_stream *stream = lane->stream;
    int64_t count = stream->chunks;
    if (lane->take < stream->ntakes)
        count = (stream->takes[lane->take].at + lane->took) / h->chunk_bytes;
    if (count <= lane->taken_n)
        return;
    lane->taken_n = count;
    atomic_store_explicit(&lane->taken[h->local].value, uli_hier_tag(h, count),
        memory_order_release);
    if (lane->kind == ULI_HIER_OWN)
        uli_hier_ring_node(h);
    else
        hier_ring_doorbell(h, lane->carrier);
}

bool
uli_hier_has_come(
    const struct uli_hier *h, const struct uli_hier_lane *lane, int64_t c)
{
    return lane->kind == ULI_HIER_OWN
               ? uli_hier_least(h, lane->filled) > c
               : uli_hier_reached(
                     h, &lane->words->arrived[c % ULI_HIER_CHUNKS], c + 1);
}

int64_t
uli_hier_here(const struct uli_hier *h, const struct uli_hier_lane *lane,
    int64_t at, const char **bytes_p)
{
    int64_t c = at / h->chunk_bytes;
    *bytes_p = place_of(h, lane, at);
    return uli_hier_has_come(h, lane, c) ? (c + 1) * h->chunk_bytes - at : 0;
}

void
uli_hier_took(struct uli_hier *h, struct uli_hier_lane *lane, int64_t bytes)
{
    lane->took += bytes;
    if (lane->took == lane->stream->takes[lane->take].bytes) {
        lane->take++;
        lane->took = lane->take_run = lane->take_in_run = 0;
    }
    post_taken(h, lane);
}

static int64_t
hier_unpack(struct uli_hier *h, struct uli_hier_lane *lane,
    const struct uli_hier_take *take, const char *from, int64_t room)
{
    bool streams = uli_exchange_streams(h->exchange, &take->box);
    struct uli_box part;
    const struct uli_box *piece;
    struct uli_box_span span;
    int64_t bytes = uli_box_cut(&take->box, &lane->take_run, &lane->take_in_run,
        uli_min(room, ULI_SPAN_BYTES), &part, &piece, &span);
    uli_box_unpack(piece, span, h->exchange->dst[take->tensor], from, streams);
    return bytes;
}

bool
uli_hier_spread(struct uli_hier *h, struct uli_hier_lane *lane)
{
    const struct uli_hier_stream *stream = lane->stream;
    bool advanced = false;
    while (lane->take < stream->ntakes && !stream->takes[lane->take].sum) {
        const struct uli_hier_take *take = &stream->takes[lane->take];
        const char *from;
        int64_t here = uli_hier_here(h, lane, take->at + lane->took, &from);
        if (!here)
            return advanced;
        int64_t bytes = hier_unpack(
            h, lane, take, from, uli_min(here, take->bytes - lane->took));
        uli_hier_took(h, lane, bytes);
        advanced = true;
        if (!uli_exchange_check(h->exchange, bytes))
            return true;
    }
    return advanced;
}

/* ---- beginning and end --------------------------------------------------- */

void
uli_hier_lane_start(struct uli_hier *h, struct uli_hier_lane *lane)
{
    lane->stream = &h->now->streams[lane - h->lanes];
    lane->filled_n = lane->put_n = lane->sent_n = lane->seen_n = 0;
    lane->credited_n = lane->taken_n = 0;
    lane->give = lane->given = lane->give_run = lane->give_in_run = 0;
    lane->take = lane->took = lane->take_run = lane->take_in_run = 0;
    if (lane->kind != ULI_HIER_OUT)
        post_taken(h, lane);
}

bool
uli_hier_lane_ended(const struct uli_hier *h, const struct uli_hier_lane *lane)
{
    const struct uli_hier_stream *stream = lane->stream;
    if (lane->kind != ULI_HIER_IN && lane->filled_n < stream->chunks)
        return false;
    if (lane->kind != ULI_HIER_OUT && lane->taken_n < stream->chunks)
        return false;
    if (lane->kind == ULI_HIER_OWN || lane->carrier != h->comm->rank)
        return true;
    return lane->kind == ULI_HIER_OUT
               ? lane->sent_n == stream->chunks
               : lane->credited_n >= stream->chunks - ULI_HIER_CHUNKS;
}
