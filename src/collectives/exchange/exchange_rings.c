/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the rings of a call lie: in a ring set that the call leases from the
 * communicator (ring_pool.h says why that is safe), or in the small rings of
 * its plan. Each is one block, with the same parts:
 *
 *   staging of the schedule       schedule_bytes
 *   rings of peers of this node   [local][2 chunks]
 *   rings of remote peers         [net][net_chunks]
 *   bounce buffers of their rings [bounces][net_chunks]
 *   scratch of sums               [3]
 *
 * The receiver decides: its READY(n) says where the ring for the peer lies and
 * how many chunks of how many bytes it has, and the sender uses that. At a
 * remote pair the sender has a bounce buffer, which may have other sizes; the
 * sender's own READY(n) gives them, and both ends take the smaller number of
 * chunks and the smaller chunk. FILLED and CONSUMED go on counting over calls.
 * Chunk k is in place k mod chunks, and the number of chunks may change between
 * calls. This cannot mislead: all chunks of earlier calls have lower numbers,
 * so the flag of a place is above k only once chunk k is there.
 */
#include "collectives/exchange/exchange.h"

#include "base/size.h"
#include "comm/remote/remote.h"

enum { MOST_CHUNK_BYTES = 64 << 20 };

static int64_t
local_ring_bytes(const struct uli_ring_sizes *sizes)
{
    return ULI_LOCAL_CHUNKS * sizes->chunk_bytes;
}

static int64_t
net_ring_bytes(const struct uli_ring_sizes *sizes)
{
    return sizes->net_chunks * sizes->net_chunk_bytes;
}

static int64_t
net_rings_at(
    const struct uli_ring_plan *plan, const struct uli_ring_sizes *sizes)
{
    return sizes->schedule_bytes + plan->local * local_ring_bytes(sizes);
}

static int64_t
bounces_at(const struct uli_ring_plan *plan, const struct uli_ring_sizes *sizes)
{
    return net_rings_at(plan, sizes) + plan->net * net_ring_bytes(sizes);
}

static int64_t
scratch_at(const struct uli_ring_plan *plan, const struct uli_ring_sizes *sizes)
{
    return bounces_at(plan, sizes) + plan->bounces * net_ring_bytes(sizes);
}

int64_t
uli_rings_bytes(
    const struct uli_ring_plan *plan, const struct uli_ring_sizes *sizes)
{
    return scratch_at(plan, sizes) + ULI_SUM_SCRATCHES * sizes->sum_bytes;
}

/* ---- a call begins and ends ---------------------------------------------- */

static void
rings_use(struct uli_exchange *exchange, const struct uli_ring_sizes *sizes,
    const struct uli_arena_block *block, char *memory, _Atomic int64_t *pending)
{
    char *scratch = memory + scratch_at(&exchange->rings, sizes);
    exchange->ring_sizes = sizes;
    exchange->ring_memory = memory;
    exchange->ring_window = block->window;
    exchange->ring_offset = block->offset + (memory - (char *)block->address);
    exchange->ring_pending = pending;
    exchange->acc = scratch;
    exchange->group_acc = scratch + sizes->sum_bytes;
    exchange->packed = scratch + 2 * sizes->sum_bytes;
    exchange->acc_elements = sizes->sum_bytes / 8;
}

void
uli_rings_begin(struct uli_exchange *exchange)
{
    const struct uli_ring_plan *plan = &exchange->rings;
    struct uli_ring_set *set = NULL;
    if (!plan->own.address)
        return;
    if (plan->full_bytes > 0 &&
        (exchange->work->streams || plan->full.schedule_bytes))
        set = uli_ring_set_lease(
            exchange->comm, exchange->plan_number, plan->full_bytes);
    exchange->ring_set = set;
    if (set)
        rings_use(exchange, &plan->full, &set->block, uli_ring_set_memory(set),
            uli_ring_set_pending(set));
    else
        rings_use(exchange, &plan->small, &plan->own, plan->own.address,
            exchange->pending);
}

void
uli_rings_end(struct uli_exchange *exchange)
{
    if (exchange->ring_set)
        uli_ring_set_give_back(exchange->ring_set);
    exchange->ring_set = NULL;
}

/* ---- the rings in READY -------------------------------------------------- */

static int64_t
ring_in_at(const struct uli_exchange *exchange, const struct uli_pair *pair)
{
    const struct uli_ring_sizes *sizes = exchange->ring_sizes;
    return pair->remote
               ? net_rings_at(&exchange->rings, sizes) +
                     pair->ring * net_ring_bytes(sizes)
               : sizes->schedule_bytes + pair->ring * local_ring_bytes(sizes);
}

/* The pair's ring and bounce buffer of this end, in this call's memory. */
static void
pair_use_own(const struct uli_exchange *exchange, struct uli_pair *pair)
{
    const struct uli_ring_sizes *sizes = exchange->ring_sizes;
    if (pair->ring >= 0)
        pair->ring_in = exchange->ring_memory + ring_in_at(exchange, pair);
    pair->chunks_in = pair->remote ? sizes->net_chunks : ULI_LOCAL_CHUNKS;
    pair->chunk_in_bytes =
        pair->remote ? sizes->net_chunk_bytes : sizes->chunk_bytes;
    if (pair->bounce < 0)
        return;
    pair->ring_out = exchange->ring_memory +
                     bounces_at(&exchange->rings, sizes) +
                     pair->bounce * net_ring_bytes(sizes);
    pair->chunks_out = sizes->net_chunks;
    pair->chunk_out_bytes = sizes->net_chunk_bytes;
}

void
uli_rings_offer(
    struct uli_exchange *exchange, int32_t p, struct uli_record *record)
{
    struct uli_pair *pair = &exchange->pairs[p];
    record->ring = record->bounce = (struct uli_ring_offer){0};
    if (!exchange->rings.own.address)
        return;
    pair_use_own(exchange, pair);
    if (pair->ring >= 0)
        record->ring = (struct uli_ring_offer){.window = exchange->ring_window,
            .chunks = pair->chunks_in,
            .offset = exchange->ring_offset + ring_in_at(exchange, pair),
            .chunk_bytes = pair->chunk_in_bytes};
    if (pair->bounce >= 0)
        record->bounce = (struct uli_ring_offer){
            .chunks = pair->chunks_out, .chunk_bytes = pair->chunk_out_bytes};
}

/* ---- the rings in the peer's READY --------------------------------------- */

static bool
offer_makes_sense(const struct uli_ring_offer *offer)
{
    return offer->chunks > 0 && offer->chunks <= ULI_MOST_CHUNKS &&
           offer->chunk_bytes > 0 && offer->chunk_bytes <= MOST_CHUNK_BYTES &&
           offer->chunk_bytes % ULI_LINE == 0;
}

static void
take_smaller(
    int32_t *chunks, int64_t *chunk_bytes, const struct uli_ring_offer *offer)
{
    *chunks = *chunks < offer->chunks ? *chunks : offer->chunks;
    *chunk_bytes = uli_min(*chunk_bytes, offer->chunk_bytes);
}

/* The ring at the peer; false: there is none, or it is not within the peer's
 * windows. */
static bool
pair_take_ring(const struct uli_exchange *exchange, int32_t p,
    struct uli_pair *pair, const struct uli_ring_offer *ring)
{
    int64_t bytes = ring->chunks * ring->chunk_bytes;
    if (!offer_makes_sense(ring))
        return false;
    if (pair->remote) {
        pair->ring_at = (struct uli_address){ring->window, ring->offset};
        take_smaller(&pair->chunks_out, &pair->chunk_out_bytes, ring);
        return pair->bounce >= 0 && uli_remote_window_holds(exchange->comm, p,
                                        ring->window, ring->offset, bytes);
    }
    pair->chunks_out = ring->chunks;
    pair->chunk_out_bytes = ring->chunk_bytes;
    pair->ring_out = uli_window_address(
        exchange->comm, p, ring->window, ring->offset, bytes);
    return pair->ring_out != NULL;
}

/* Copies each offer before checking it, because the peer could change it. */
ulyx_status_t
uli_rings_accept(
    struct uli_exchange *exchange, int32_t p, const struct uli_record *record)
{
    struct uli_pair *pair = &exchange->pairs[p];
    const struct uli_pair_work *work = &exchange->work->pairs[p];
    bool good = true;
    if (!exchange->rings.shared)
        return ULYX_SUCCESS;
    const struct uli_ring_offer ring = record->ring, bounce = record->bounce;
    if (work->out.streams || (work->out.reads && !pair->peer_reads))
        good = pair_take_ring(exchange, p, pair, &ring);
    if (good && pair->remote && work->in.streams) {
        good = offer_makes_sense(&bounce);
        take_smaller(&pair->chunks_in, &pair->chunk_in_bytes, &bounce);
    }
    if (good)
        return ULYX_SUCCESS;
    return uli_comm_fail(exchange->comm, ULYX_ERR_INTERNAL, p,
        "rank %d: its ring of %d chunks of %lld bytes at byte %lld of its "
        "window %u, from %d of %lld, cannot be used here",
        p, ring.chunks, (long long)ring.chunk_bytes, (long long)ring.offset,
        ring.window, bounce.chunks, (long long)bounce.chunk_bytes);
}
