/* SPDX-License-Identifier: Apache-2.0
 *
 * How a rank posts to a peer: a store into the peer's pair flags and its
 * doorbell; or, to another node, one put that carries the announced bytes and
 * has the flag as its signal.
 */
#include "collectives/exchange/exchange.h"

#include <string.h>
#include "comm/agreement/abort_record.h"
#include "comm/remote/remote.h"

/* Bytes that go before a flag into the memory of a remote peer. pending: counts
 * the puts that still read from `data`. */
struct parcel {
    const void *data;
    int64_t bytes;
    struct uli_address to;
    _Atomic int64_t *pending;
};

static void
post_at(struct uli_exchange *exchange, int32_t p, _Atomic uint64_t *flag,
    uint64_t value, const struct parcel *parcel)
{
    struct uli_pair *pair = &exchange->pairs[p];
    atomic_store_explicit(flag, value, memory_order_release);
    if (!pair->remote && exchange->holds) {
        pair->unrung = exchange->unrung = true;
        return;
    }
    if (!pair->remote) {
        atomic_thread_fence(memory_order_seq_cst);
        uli_doorbell_wake(exchange->comm->peers[p].control);
        return;
    }
    /* A rank that has left needs no further post, and cannot be reached. */
    if (atomic_load(&exchange->comm->control->left[p]))
        return;
    struct uli_net_put put = {.signal_window = pair->flags_at.window,
        .signal_offset =
            pair->flags_at.offset + ((char *)flag - (char *)pair->yours),
        .signal = value};
    if (parcel) {
        put.pending = parcel->pending;
        put.data = parcel->data;
        put.bytes = parcel->bytes;
        put.window = parcel->to.window;
        put.offset = parcel->to.offset;
    }
    (void)uli_remote_put(exchange->comm, p, &put);
}

static void
pair_post(struct uli_exchange *exchange, int32_t p, int flag, uint64_t value,
    const struct parcel *parcel)
{
    post_at(exchange, p, &exchange->pairs[p].yours->at[flag], value, parcel);
}

/* The eager slot of this call as a parcel: its record and `bytes` of its slot.
 */
static struct parcel
pair_eager_slot(struct uli_exchange *exchange, int32_t p, int64_t bytes)
{
    struct uli_pair *pair = &exchange->pairs[p];
    void *at = uli_eager_out(pair, exchange->call);
    struct parcel parcel = {at, (int64_t)sizeof(struct uli_eager_slot) + bytes,
        pair->eager_at, exchange->pending};
    parcel.to.offset += (int64_t)(exchange->call & 1) *
                        uli_eager_slot_bytes(pair->slot_at_bytes);
    return parcel;
}

void
uli_post_ready(struct uli_exchange *exchange, int32_t p)
{
    struct parcel parcel = pair_eager_slot(exchange, p, 0);
    pair_post(exchange, p, ULI_READY + (int)(exchange->call & 1),
        exchange->call, &parcel);
}

void
uli_post_eager(struct uli_exchange *exchange, int32_t p, int64_t bytes)
{
    struct parcel parcel = pair_eager_slot(exchange, p, bytes);
    pair_post(exchange, p, ULI_EAGER + (int)(exchange->call & 1),
        exchange->call, &parcel);
}

void
uli_post_brief(struct uli_exchange *exchange, int32_t p, bool eager)
{
    struct uli_pair *pair = &exchange->pairs[p];
    struct uli_short_record *brief = &pair->yours->brief[exchange->call & 1];
    brief->hash = exchange->hash;
    brief->direction = exchange->direction;
    for (int32_t t = 0; !eager && t < exchange->ntensors; t++) {
        brief->window[t] = exchange->dst_at[t].window;
        brief->offset[t] = exchange->dst_at[t].offset;
    }
    post_at(exchange, p, &brief->flag, exchange->call << 1 | eager, NULL);
}

/* One fence for all posts: each flag is stored before the peer's `sleeping` is
 * read. By now most of the stores have left this core, so the fence waits less
 * than one after each post would. */
void
uli_post_wakes(struct uli_exchange *exchange)
{
    if (!exchange->unrung)
        return;
    exchange->unrung = false;
    atomic_thread_fence(memory_order_seq_cst);
    for (int32_t p = 0; p < exchange->nranks; p++) {
        if (!exchange->pairs[p].unrung)
            continue;
        exchange->pairs[p].unrung = false;
        uli_doorbell_wake(exchange->comm->peers[p].control);
    }
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
    struct parcel parcel = {
        pair->out.chunk, bytes, pair->ring_at, exchange->ring_pending};
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

/* The last record for the peers: that of an abort, which is sent with the
 * poison; else the ranks that this rank has waited for. */
static struct uli_late
closing_late(ulyx_comm_t *comm, uint64_t poison)
{
    const struct uli_late *noted = uli_comm_noted_late(comm, comm->rank);
    struct uli_late late;
    if (uli_poison_status(poison) == ULYX_ERR_ABORTED &&
        uli_abort_read(comm, &late))
        return late;
    return noted ? *noted : uli_late_none(ULI_LATE_MOVE);
}

void
uli_post_closed(struct uli_exchange *exchange, int32_t p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    struct uli_pair_flags *yours = pair->yours;
    uint64_t poison = uli_remote_poison(exchange->comm);
    for (int i = 0; i < ULI_FLAGS; i++)
        yours->last[i] = uli_flag(yours, i);
    yours->late = closing_late(exchange->comm, poison);
    struct parcel parcel = {yours->last,
        (int64_t)(sizeof(yours->last) + sizeof(yours->late)), pair->flags_at,
        exchange->pending};
    parcel.to.offset += (char *)yours->last - (char *)yours;
    bool exits = atomic_load(&exchange->comm->leaves) == ULI_LEFT_BY_EXIT;
    uint64_t how = exits ? ULI_LEFT_BY_EXIT : ULI_LEFT_BY_DESTROY;
    post_at(exchange, p, &yours->closed, poison ? poison : how, &parcel);
}

bool
uli_flags_final(const struct uli_pair_flags *pair_flags)
{
    if (!atomic_load_explicit(&pair_flags->closed, memory_order_acquire))
        return false;
    for (int i = 0; i < ULI_FLAGS; i++)
        if (uli_flag(pair_flags, i) != pair_flags->last[i])
            return false;
    return true;
}
