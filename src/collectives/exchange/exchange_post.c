/* SPDX-License-Identifier: Apache-2.0
 *
 * How a rank tells a peer something: a store into the peer's words and its
 * doorbell, or, to another node, one put that carries what the word announces
 * and the word as its signal.
 */
#include "collectives/exchange/exchange.h"

#include <string.h>
#include "comm/remote/remote.h"

/* What goes before a word into the memory of a remote peer. */
struct parcel {
    const void *data;
    int64_t bytes;
    struct uli_address to;
};

static void
post_at(struct uli_exchange *exchange, int32_t p, _Atomic uint64_t *word,
    uint64_t value, const struct parcel *parcel)
{
    struct uli_pair *pair = &exchange->pairs[p];
    atomic_store_explicit(word, value, memory_order_release);
    if (!pair->remote) {
        uli_doorbell_ring(exchange->comm->peers[p].control);
        return;
    }
    /* Whoever has left needs nothing more, and cannot be reached. */
    if (atomic_load(&exchange->comm->control->left[p]))
        return;
    struct uli_net_put put = {.signal_window = pair->words_at.window,
        .signal_offset =
            pair->words_at.offset + ((char *)word - (char *)pair->yours),
        .signal = value,
        .pending = exchange->pending};
    if (parcel) {
        put.data = parcel->data;
        put.bytes = parcel->bytes;
        put.window = parcel->to.window;
        put.offset = parcel->to.offset;
    }
    (void)uli_remote_put(exchange->comm, p, &put);
}

static void
pair_post(struct uli_exchange *exchange, int32_t p, int word, uint64_t value,
    const struct parcel *parcel)
{
    post_at(exchange, p, &exchange->pairs[p].yours->at[word], value, parcel);
}

/* The letter of this call, as a parcel of its record and bytes of its slot. */
static struct parcel
pair_eager(struct uli_exchange *exchange, int32_t p, int64_t bytes)
{
    struct uli_pair *pair = &exchange->pairs[p];
    char *at =
        (char *)uli_letter_of(exchange, pair->letters_out, exchange->call);
    struct parcel parcel = {
        at, (int64_t)sizeof(struct uli_letter) + bytes, pair->letters_at};
    parcel.to.offset += at - pair->letters_out;
    return parcel;
}

void
uli_post_ready(struct uli_exchange *exchange, int32_t p)
{
    struct parcel parcel = pair_eager(exchange, p, 0);
    pair_post(exchange, p, ULI_READY + (int)(exchange->call & 1),
        exchange->call, &parcel);
}

void
uli_post_letter(struct uli_exchange *exchange, int32_t p, int64_t bytes)
{
    struct parcel parcel = pair_eager(exchange, p, bytes);
    pair_post(exchange, p, ULI_LETTER + (int)(exchange->call & 1),
        exchange->call, &parcel);
}

void
uli_post_done(struct uli_exchange *exchange, int32_t p)
{
    pair_post(exchange, p, ULI_DONE, exchange->call, NULL);
}

void
uli_post_filled(struct uli_exchange *exchange, int32_t p, int64_t bytes)
{
    struct uli_pair *pair = &exchange->pairs[p];
    int chunk = (int)(pair->produced % (uint64_t)pair->chunks_out);
    struct parcel parcel = {pair->out.chunk, bytes, pair->ring_at};
    parcel.to.offset += pair->out.chunk - pair->ring_out;
    pair_post(exchange, p, ULI_FILLED + chunk, ++pair->produced, &parcel);
}

void
uli_post_consumed(struct uli_exchange *exchange, int32_t p)
{
    pair_post(exchange, p, ULI_CONSUMED, ++exchange->pairs[p].consumed, NULL);
}

void
uli_post_waits(struct uli_exchange *exchange, int32_t p, uint64_t value)
{
    pair_post(exchange, p, ULI_WAITS, value, NULL);
}

/* ---- the end ------------------------------------------------------------- */

void
uli_post_closed(struct uli_exchange *exchange, int32_t p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    struct uli_words *yours = pair->yours;
    for (int i = 0; i < ULI_WORDS; i++)
        yours->last[i] = uli_word(yours, i);
    yours->late = exchange->comm->control->late;
    struct parcel parcel = {yours->last,
        (int64_t)(sizeof(yours->last) + sizeof(yours->late)), pair->words_at};
    parcel.to.offset += (char *)yours->last - (char *)yours;
    uint64_t poison = uli_remote_poison(exchange->comm);
    post_at(exchange, p, &yours->closed, poison ? poison : 1, &parcel);
}

bool
uli_words_final(const struct uli_words *words)
{
    if (!atomic_load_explicit(&words->closed, memory_order_acquire))
        return false;
    for (int i = 0; i < ULI_WORDS; i++)
        if (uli_word(words, i) != words->last[i])
            return false;
    return true;
}
