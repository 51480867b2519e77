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
place_of(const struct uli_hier_rail *rail, int64_t at)
{
    return rail->staging +
           at / rail->chunk_bytes % ULI_HIER_CHUNKS * rail->chunk_bytes +
           at % rail->chunk_bytes;
}

static void
hier_ring_doorbell(const struct uli_hier *h, int32_t rank)
{
    if (rank != h->comm->rank)
        uli_doorbell_ring(h->comm->peers[rank].control);
}

int64_t
uli_hier_least(const struct uli_hier *h, const struct uli_hier_flag *words)
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
post_filled(struct uli_hier *h, struct uli_hier_rail *rail, int64_t count)
{
    if (count <= rail->filled_n)
        return;
    rail->filled_n = count;
    atomic_store_explicit(&rail->filled[h->local].value, uli_hier_tag(h, count),
        memory_order_release);
    /* Where there are sums, sharers and readers wait for `filled` too. */
    if (h->now->nsums || rail->kind == ULI_HIER_OWN)
        uli_hier_ring_node(h);
    else
        hier_ring_doorbell(h, rail->proxy);
}

bool
uli_hier_has_room(
    const struct uli_hier *h, const struct uli_hier_rail *rail, int64_t c)
{
    if (c < ULI_HIER_CHUNKS)
        return true;
    if (rail->kind == ULI_HIER_OWN)
        return uli_hier_least(h, rail->taken) > c - ULI_HIER_CHUNKS;
    return uli_hier_reached(
        h, &rail->words->sent.value, c - ULI_HIER_CHUNKS + 1);
}

/* May the next bytes of the give go into chunk c? */
static bool
may_give(const struct uli_hier *h, const struct uli_hier_rail *rail,
    const struct uli_hier_give *give, int64_t c)
{
    return uli_hier_has_room(h, rail, c) &&
           (give->before < 0 ||
               uli_hier_reached(h, &rail->filled[give->before].value, c + 1));
}

/* Adds elements to the accumulators at `to`; the first share sets them. Returns
 * the bytes of accumulators. */
static int64_t
add_share(struct uli_hier *h, struct uli_hier_rail *rail,
    const struct uli_hier_give *give, char *to, int64_t room)
{
    const struct uli_shape_tensor *t =
        &uli_layout_shape(h->layout)->tensors[give->tensor];
    int32_t partial =
        uli_plan_dtype(t, uli_plan_side(h->exchange->direction, true));
    int64_t elem = uli_dtype_size(partial);
    int64_t elements = uli_min(room / give->acc_bytes, uli_hier_step(h));
    struct uli_box part;
    const struct uli_box *box;
    struct uli_box_span span;
    int64_t bytes = uli_box_cut(&give->box, &rail->give_run, &rail->give_in_run,
        elements * elem, &part, &box, &span);
    const struct uli_copy_way way = uli_exchange_packing(h->exchange, box);
    uli_box_pack(
        box, span, h->exchange->packed, h->exchange->src[give->tensor], &way);
    uli_sum_accumulate(t->dtype, partial, to, h->exchange->packed, bytes / elem,
        give->before < 0);
    return bytes / elem * give->acc_bytes;
}

static int64_t
hier_pack(struct uli_hier *h, struct uli_hier_rail *rail,
    const struct uli_hier_give *give, char *to, int64_t room)
{
    struct uli_box part;
    const struct uli_box *box;
    struct uli_box_span span;
    int64_t bytes = uli_box_cut(&give->box, &rail->give_run, &rail->give_in_run,
        uli_min(room, ULI_SPAN_BYTES), &part, &box, &span);
    const struct uli_copy_way way = uli_exchange_packing(h->exchange, box);
    uli_box_pack(box, span, to, h->exchange->src[give->tensor], &way);
    return bytes;
}

bool
uli_hier_gather(struct uli_hier *h, struct uli_hier_rail *rail)
{
    const struct uli_hier_stream *stream = rail->stream;
    bool advanced = false;
    while (rail->give < stream->ngives) {
        const struct uli_hier_give *give = &stream->gives[rail->give];
        int64_t at = give->at + rail->given, c = at / rail->chunk_bytes;
        post_filled(h, rail, c);
        if (!may_give(h, rail, give, c))
            return advanced;
        int64_t room = uli_min(
            give->bytes - rail->given, (c + 1) * rail->chunk_bytes - at);
        char *to = place_of(rail, at);
        int64_t bytes = give->acc_bytes ? add_share(h, rail, give, to, room)
                                        : hier_pack(h, rail, give, to, room);
        rail->given += bytes;
        advanced = true;
        if (rail->given == give->bytes) {
            rail->give++;
            rail->given = rail->give_run = rail->give_in_run = 0;
        }
        if (!uli_exchange_check(h->exchange, bytes))
            return true;
    }
    advanced |= rail->filled_n < rail->chunks;
    post_filled(h, rail, rail->chunks);
    return advanced;
}

/* ---- wire ---------------------------------------------------------------- */

static int64_t
flag_offset(const struct uli_hier_rail *rail, const void *word)
{
    return rail->far_flags.offset +
           ((const char *)word - (const char *)rail->words);
}

static void
put_chunk(struct uli_hier *h, struct uli_hier_rail *rail, int64_t c)
{
    int64_t at = c * rail->chunk_bytes, k = c % ULI_HIER_CHUNKS;
    struct uli_net_put put = {.data = place_of(rail, at),
        .bytes = uli_min(rail->chunk_bytes, rail->stream->bytes - at),
        .window = rail->far_staging.window,
        .offset = rail->far_staging.offset + k * rail->chunk_bytes,
        .signal_window = rail->far_flags.window,
        .signal_offset = flag_offset(rail, &rail->words->arrived[k]),
        .signal = uli_hier_tag(h, c + 1),
        .pending = &rail->words->pending[k]};
    uli_remote_put(h->comm, rail->far, &put);
    h->exchange->wire_bytes += put.bytes;
}

/* Puts chunks that are complete and have a place at the other end. */
static bool
send_chunks(struct uli_hier *h, struct uli_hier_rail *rail)
{
    int64_t chunks = rail->chunks, before = rail->put_n;
    int64_t whole = rail->put_n < chunks ? uli_hier_least(h, rail->filled) : 0;
    while (rail->put_n < uli_min(whole, chunks) &&
           (rail->put_n < ULI_HIER_CHUNKS ||
               uli_hier_reached(h, &rail->words->credit.value,
                   rail->put_n - ULI_HIER_CHUNKS + 1)))
        put_chunk(h, rail, rail->put_n++);
    int64_t sent = rail->sent_n;
    while (sent < rail->put_n &&
           atomic_load_explicit(&rail->words->pending[sent % ULI_HIER_CHUNKS],
               memory_order_acquire) == 0)
        sent++;
    if (sent > rail->sent_n) {
        rail->sent_n = sent;
        atomic_store_explicit(&rail->words->sent.value, uli_hier_tag(h, sent),
            memory_order_release);
        if (rail->sent_n < chunks)
            uli_hier_ring_node(h);
        return true;
    }
    return rail->put_n > before;
}

/* Notifies the node of chunks that have arrived, and the other end of free
 * places, as far as the other end has chunks for them. */
static bool
pass_on(struct uli_hier *h, struct uli_hier_rail *rail)
{
    int64_t chunks = rail->chunks, seen = rail->seen_n;
    while (rail->seen_n < chunks &&
           uli_hier_reached(h,
               &rail->words->arrived[rail->seen_n % ULI_HIER_CHUNKS],
               rail->seen_n + 1))
        rail->seen_n++;
    if (rail->seen_n > seen)
        uli_hier_ring_node(h);
    int64_t needed = chunks - ULI_HIER_CHUNKS;
    if (rail->credited_n >= needed)
        return rail->seen_n > seen;
    int64_t credit = uli_min(uli_hier_least(h, rail->taken), needed);
    if (credit <= rail->credited_n)
        return rail->seen_n > seen;
    rail->credited_n = credit;
    struct uli_net_put put = {.signal_window = rail->far_flags.window,
        .signal_offset = flag_offset(rail, &rail->words->credit),
        .signal = uli_hier_tag(h, credit)};
    uli_remote_put(h->comm, rail->far, &put);
    return true;
}

bool
uli_hier_wire(struct uli_hier *h, struct uli_hier_rail *rail)
{
    return rail->kind == ULI_HIER_OUT ? send_chunks(h, rail) : pass_on(h, rail);
}

/* ---- spread -------------------------------------------------------------- */

static void
post_taken(struct uli_hier *h, struct uli_hier_rail *rail)
{
    const struct uli_hier_stream *stream = rail->stream;
    int64_t count = rail->chunks;
    if (rail->take < stream->ntakes)
        count = (stream->takes[rail->take].at + rail->took) / rail->chunk_bytes;
    if (count <= rail->taken_n)
        return;
    rail->taken_n = count;
    atomic_store_explicit(&rail->taken[h->local].value, uli_hier_tag(h, count),
        memory_order_release);
    if (rail->kind == ULI_HIER_OWN)
        uli_hier_ring_node(h);
    else
        hier_ring_doorbell(h, rail->proxy);
}

bool
uli_hier_has_come(
    const struct uli_hier *h, const struct uli_hier_rail *rail, int64_t c)
{
    return rail->kind == ULI_HIER_OWN
               ? uli_hier_least(h, rail->filled) > c
               : uli_hier_reached(
                     h, &rail->words->arrived[c % ULI_HIER_CHUNKS], c + 1);
}

int64_t
uli_hier_here(const struct uli_hier *h, const struct uli_hier_rail *rail,
    int64_t at, const char **bytes_p)
{
    int64_t c = at / rail->chunk_bytes;
    *bytes_p = place_of(rail, at);
    return uli_hier_has_come(h, rail, c) ? (c + 1) * rail->chunk_bytes - at : 0;
}

void
uli_hier_took(struct uli_hier *h, struct uli_hier_rail *rail, int64_t bytes)
{
    rail->took += bytes;
    if (rail->took == rail->stream->takes[rail->take].bytes) {
        rail->take++;
        rail->took = rail->take_run = rail->take_in_run = 0;
    }
    post_taken(h, rail);
}

static int64_t
hier_unpack(struct uli_hier *h, struct uli_hier_rail *rail,
    const struct uli_hier_take *take, const char *from, int64_t room)
{
    const struct uli_copy_way way = uli_exchange_way(h->exchange, &take->box);
    struct uli_box part;
    const struct uli_box *box;
    struct uli_box_span span;
    int64_t bytes = uli_box_cut(&take->box, &rail->take_run, &rail->take_in_run,
        uli_min(room, ULI_SPAN_BYTES), &part, &box, &span);
    uli_box_unpack(box, span, h->exchange->dst[take->tensor], from, &way);
    return bytes;
}

bool
uli_hier_spread(struct uli_hier *h, struct uli_hier_rail *rail)
{
    const struct uli_hier_stream *stream = rail->stream;
    bool advanced = false;
    while (rail->take < stream->ntakes && !stream->takes[rail->take].sum) {
        const struct uli_hier_take *take = &stream->takes[rail->take];
        const char *from;
        int64_t here = uli_hier_here(h, rail, take->at + rail->took, &from);
        if (!here)
            return advanced;
        int64_t bytes = hier_unpack(
            h, rail, take, from, uli_min(here, take->bytes - rail->took));
        uli_hier_took(h, rail, bytes);
        advanced = true;
        if (!uli_exchange_check(h->exchange, bytes))
            return true;
    }
    return advanced;
}

/* ---- beginning and end --------------------------------------------------- */

void
uli_hier_rail_start(struct uli_hier *h, struct uli_hier_rail *rail)
{
    rail->stream = &h->now->streams[rail - h->rails];
    rail->chunks =
        (rail->stream->bytes + rail->chunk_bytes - 1) / rail->chunk_bytes;
    rail->filled_n = rail->put_n = rail->sent_n = rail->seen_n = 0;
    rail->credited_n = rail->taken_n = 0;
    rail->give = rail->given = rail->give_run = rail->give_in_run = 0;
    rail->take = rail->took = rail->take_run = rail->take_in_run = 0;
    if (rail->kind != ULI_HIER_OUT)
        post_taken(h, rail);
}

bool
uli_hier_rail_ended(const struct uli_hier *h, const struct uli_hier_rail *rail)
{
    if (rail->kind != ULI_HIER_IN && rail->filled_n < rail->chunks)
        return false;
    if (rail->kind != ULI_HIER_OUT && rail->taken_n < rail->chunks)
        return false;
    if (rail->kind == ULI_HIER_OWN || rail->proxy != h->comm->rank)
        return true;
    return rail->kind == ULI_HIER_OUT
               ? rail->sent_n == rail->chunks
               : rail->credited_n >= rail->chunks - ULI_HIER_CHUNKS;
}
