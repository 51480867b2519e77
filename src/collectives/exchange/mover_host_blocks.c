/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan's arena blocks: memory that peers write, and memory from which bytes
 * are put to remote peers. They are taken before the agreement, when nothing is
 * known about the peers' tensors, so for every peer that may need them.
 *
 *   pair flags      [nranks] uli_pair_flags, then two eager slots per rank
 *   rings           small ones of all kinds (exchange_rings.c), for calls
 *                   that lease none; the sizes that a call leases are set here
 *                   too
 *   bounce buffers  a line with the count of puts that read from here, then
 *                   per remote rank: uli_pair_flags, two eager slots
 */
#include "base/size.h"
#include "collectives/exchange/mover_host.h"
#include "comm/remote/remote.h"

enum {
    MIN_CHUNK_BYTES = 256,
    MIN_NET_CHUNKS = 2,
    SUM_BYTES = 256 << 10,
    /* A short stream is divided too, so that packing, wire and unpacking
     * overlap, but not into parts that cost less than a message does. */
    NET_PARTS = 4,
    MIN_NET_PART_BYTES = 64 << 10,
    FLIGHTS = 64, /* all bytes in flight, as a multiple of those to one rank */
};

static bool
peer_is_remote(const ulyx_plan_t *plan, int32_t p)
{
    return p != plan->comm->rank && uli_comm_is_remote(plan->comm, p);
}

static struct uli_plan_blocks *
blocks_of(const ulyx_plan_t *plan)
{
    return &uli_host_of(plan)->blocks;
}

static struct uli_pair_flags *
flags_of(const struct uli_arena_block *pair_flags, int32_t p)
{
    return (struct uli_pair_flags *)pair_flags->address + p;
}

/* ---- sizes --------------------------------------------------------------- */

static int64_t
whole_lines(int64_t bytes)
{
    return uli_max(bytes / ULI_LINE * ULI_LINE, ULI_LINE);
}

/* bytes / part, rounded up. */
static int64_t
parts_of(int64_t bytes, int64_t part)
{
    return bytes / part + (bytes % part != 0);
}

/* Chunks of equal length, so that no short message trails: over TCP the kernel
 * holds a short last segment back while others are in flight, and the call
 * waits for that segment (perf/PERFORMANCE.md). For the same reason
 * ULYX_NET_CHUNK and its headers are less than a packet of 64 KiB. */
static int64_t
even_chunk(int64_t stream_bytes, int64_t most)
{
    /* Where no bound is known, as with documents, stream_bytes is INT64_MAX. */
    int64_t chunks = uli_max(parts_of(stream_bytes, most), 1);
    return uli_min(
        most, uli_round_up(parts_of(stream_bytes, chunks), ULI_LINE));
}

/* The most bytes of one ring's stream, by kind of peer (local, net), and the
 * number of bounce buffers. */
struct demand {
    int64_t local, net, bounces;
};

static void
look_at_demand(const ulyx_plan_t *plan, struct demand *demand)
{
    int64_t bytes;
    for (int32_t p = 0; p < plan->comm->nranks; p++) {
        bool far = peer_is_remote(plan, p);
        if (p == plan->comm->rank)
            continue;
        if (uli_plan_may_stream(plan, p, &bytes)) {
            int64_t *most = far ? &demand->net : &demand->local;
            *most = uli_max(*most, bytes);
        }
        if (far && uli_plan_may_send(plan, p, &bytes))
            demand->net = uli_max(demand->net, bytes);
        demand->bounces += far && uli_plan_shares(plan, p);
    }
}

static void
size_chunks(ulyx_plan_t *plan, const struct demand *demand, int64_t in_flight)
{
    const struct uli_settings *settings = &plan->comm->settings;
    struct uli_ring_sizes *full = &plan->exchange.rings.full;
    int64_t half = uli_max(in_flight / 2, MIN_CHUNK_BYTES);
    int64_t flight = in_flight ? in_flight : settings->net_flight_bytes;
    int64_t local = settings->ring_chunk_bytes;
    int64_t net = settings->net_chunk_bytes;
    if (in_flight) {
        local = uli_min(local, half);
        net = uli_min(net, half);
    }
    if (demand->local && demand->local < local)
        local = uli_round_up(demand->local, ULI_LINE);
    if (demand->net / NET_PARTS < net)
        net =
            uli_min(net, uli_max(demand->net / NET_PARTS, MIN_NET_PART_BYTES));
    if (demand->bounces > FLIGHTS)
        flight = flight * FLIGHTS / demand->bounces;
    net = uli_min(net, uli_max(flight / MIN_NET_CHUNKS, MIN_CHUNK_BYTES));
    full->chunk_bytes = whole_lines(local);
    full->net_chunk_bytes = whole_lines(even_chunk(demand->net, net));
    int64_t chunks = uli_min(ULI_MOST_CHUNKS,
        uli_max(flight / full->net_chunk_bytes, MIN_NET_CHUNKS));
    /* No more chunks than the longest stream has. */
    if (demand->net / full->net_chunk_bytes + 1 < chunks)
        chunks =
            uli_max(demand->net / full->net_chunk_bytes + 1, MIN_NET_CHUNKS);
    full->net_chunks = (int32_t)chunks;
}

/* The most bytes of an eager slot after its record: received bytes, or, at
 * remote peers, sent bytes. With document tables an update may change all
 * volumes. A READY from a peer of this node has the peer's strides in the
 * slot's place. */
static int64_t
slot_bytes(const ulyx_plan_t *plan, bool in)
{
    int64_t most = in ? ULI_STRIDES_BYTES : 0;
    if (uli_layout_has_tables(plan->layout))
        return uli_max(plan->slot_limit, most);
    for (int direction = 0; direction < ULYX_DIRECTIONS; direction++)
        for (int32_t p = 0;
             plan->directions >> direction & 1 && p < plan->comm->nranks; p++) {
            const struct uli_plan_room *room = &plan->room[direction];
            const struct uli_volume *volume = in ? &room->in[p] : &room->out[p];
            if (p != plan->comm->rank && (in || peer_is_remote(plan, p)) &&
                uli_plan_slot(plan, direction, p))
                most = uli_max(most, volume->copies + volume->sums);
        }
    return uli_round_up(most, ULI_LINE);
}

/* ---- before the agreement ------------------------------------------------ */

/* Numbers the rings and bounce buffers within their kinds. Rings of full size
 * are leased by calls; the small ones belong to the plan. */
static ulyx_status_t
take_rings(ulyx_plan_t *plan)
{
    struct uli_ring_plan *rings = &plan->exchange.rings;
    int64_t bytes;
    for (int32_t p = 0; p < plan->comm->nranks; p++) {
        struct uli_pair *pair = &plan->exchange.pairs[p];
        bool far = peer_is_remote(plan, p);
        pair->ring = pair->bounce = -1;
        if (p == plan->comm->rank)
            continue;
        if (uli_plan_may_stream(plan, p, &bytes))
            pair->ring = far ? rings->net++ : rings->local++;
        if (far && uli_plan_may_send(plan, p, &bytes))
            pair->bounce = rings->bounces++;
    }
    rings->shared = true;
    bool sums = plan->exchange.sum_offsets || rings->full.schedule_bytes;
    rings->full.sum_bytes = sums ? SUM_BYTES : 0;
    rings->small.chunk_bytes =
        uli_min(rings->full.chunk_bytes, ULI_SMALL_CHUNK_BYTES);
    rings->small.net_chunk_bytes =
        uli_min(rings->full.net_chunk_bytes, ULI_SMALL_CHUNK_BYTES);
    rings->small.net_chunks = MIN_NET_CHUNKS;
    rings->small.sum_bytes =
        uli_min(rings->full.sum_bytes, ULI_SMALL_CHUNK_BYTES);
    rings->full_bytes = uli_rings_bytes(rings, &rings->full);
    bytes = uli_rings_bytes(rings, &rings->small);
    if (rings->full_bytes == bytes)
        rings->full_bytes = 0;
    if (!bytes)
        return ULYX_SUCCESS;
    ULI_TRY(uli_arena_alloc(plan->comm, bytes, &blocks_of(plan)->rings));
    rings->own = blocks_of(plan)->rings;
    return ULYX_SUCCESS;
}

/* Offsets in the bounce buffers, in rank order. */
static ulyx_status_t
take_bounces(ulyx_plan_t *plan)
{
    int64_t bytes = ULI_LINE;
    plan->bounce_slot_bytes = slot_bytes(plan, false);
    int64_t each = uli_flags_block_of(1, plan->bounce_slot_bytes, 0).bytes;
    for (int32_t p = 0; p < plan->comm->nranks; p++) {
        plan->bounce_at[p] = bytes;
        if (peer_is_remote(plan, p) && uli_plan_shares(plan, p))
            bytes += each;
    }
    if (bytes == ULI_LINE)
        return ULYX_SUCCESS;
    ULI_TRY(uli_arena_alloc(plan->comm, bytes, &blocks_of(plan)->bounces));
    plan->exchange.pending = blocks_of(plan)->bounces.address;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_plan_take_blocks(ulyx_plan_t *plan, int64_t bytes_in_flight)
{
    struct demand demand = {0, 0, 0};
    plan->info.slot_bytes = slot_bytes(plan, true);
    ULI_TRY(uli_arena_alloc(plan->comm,
        uli_flags_block_of(plan->comm->nranks, plan->info.slot_bytes, 0).bytes,
        &blocks_of(plan)->pair_flags));
    plan->info.pair_flags.window = blocks_of(plan)->pair_flags.window;
    plan->info.pair_flags.offset = blocks_of(plan)->pair_flags.offset;
    look_at_demand(plan, &demand);
    size_chunks(plan, &demand, bytes_in_flight);
    ULI_TRY(take_rings(plan));
    return take_bounces(plan);
}

/* ---- after the agreement ------------------------------------------------- */

static ulyx_status_t
not_mapped(const ulyx_plan_t *plan, int32_t p)
{
    return uli_comm_fail(plan->comm, ULYX_ERR_INTERNAL, p,
        "plan create: the arena of rank %d is not mapped here", p);
}

/* Peer p's pair flags and eager slots for this rank, mapped here. */
static ulyx_status_t
connect_mapped(
    ulyx_plan_t *plan, int32_t p, const struct uli_flags_block *there)
{
    struct uli_pair *pair = &plan->exchange.pairs[p];
    const struct uli_rank_info *peer = &plan->ranks[p];
    char *theirs = uli_window_address(plan->comm, p, peer->pair_flags.window,
        peer->pair_flags.offset, there->bytes);
    if (!theirs)
        return not_mapped(plan, p);
    pair->yours = (struct uli_pair_flags *)(theirs + there->flags);
    pair->eager_out = theirs + there->eager;
    pair->slot_out_bytes = peer->slot_bytes;
    pair->reader = uli_reader_of(plan->comm, p, peer->probe);
    pair->can_read = pair->reader && plan->info.cma_min_row > 0;
    return ULYX_SUCCESS;
}

static struct uli_address
address_behind(struct uli_address address, int64_t bytes)
{
    address.offset += bytes;
    return address;
}

/* Sets the bounce buffer for peer p's pair flags and eager slots, and their
 * place in p's memory. */
static ulyx_status_t
connect_remote(
    ulyx_plan_t *plan, int32_t p, const struct uli_flags_block *there)
{
    struct uli_pair *pair = &plan->exchange.pairs[p];
    const struct uli_rank_info *peer = &plan->ranks[p];
    char *bounce =
        (char *)blocks_of(plan)->bounces.address + plan->bounce_at[p];
    if (!uli_remote_window_holds(plan->comm, p, peer->pair_flags.window,
            peer->pair_flags.offset, there->bytes))
        return not_mapped(plan, p);
    pair->remote = true;
    pair->yours = (struct uli_pair_flags *)bounce;
    pair->eager_out = bounce + sizeof(struct uli_pair_flags);
    pair->slot_out_bytes = plan->bounce_slot_bytes;
    pair->slot_at_bytes = peer->slot_bytes;
    pair->flags_at = address_behind(peer->pair_flags, there->flags);
    pair->eager_at = address_behind(peer->pair_flags, there->eager);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_plan_connect(ulyx_plan_t *plan, int32_t p)
{
    struct uli_pair *pair = &plan->exchange.pairs[p];
    int64_t slot = plan->info.slot_bytes;
    struct uli_flags_block here =
        uli_flags_block_of(plan->comm->nranks, slot, p);
    struct uli_flags_block there = uli_flags_block_of(
        plan->comm->nranks, plan->ranks[p].slot_bytes, plan->comm->rank);
    pair->shares = true;
    pair->mine = flags_of(&blocks_of(plan)->pair_flags, p);
    pair->slot_in_bytes = slot;
    pair->eager_in = (char *)blocks_of(plan)->pair_flags.address + here.eager;
    return peer_is_remote(plan, p) ? connect_remote(plan, p, &there)
                                   : connect_mapped(plan, p, &there);
}

/* With document tables an update may make streams where there are none now. */
ulyx_status_t
uli_plan_settle_rings(ulyx_plan_t *plan)
{
    struct uli_plan_blocks *blocks = blocks_of(plan);
    struct uli_ring_plan *rings = &plan->exchange.rings;
    bool streams =
        uli_layout_has_tables(plan->layout) || rings->full.schedule_bytes > 0;
    bool sums = streams;
    for (int direction = 0; direction < ULYX_DIRECTIONS; direction++) {
        streams |= plan->work[direction].streams;
        sums |= plan->work[direction].staged_sums;
    }
    if (!blocks->rings.address)
        return ULYX_SUCCESS;
    if (!streams && !sums) {
        uli_arena_free(plan->comm, &blocks->rings);
        blocks->rings.address = rings->own.address = NULL;
        return ULYX_SUCCESS;
    }
    if (!streams || !rings->full_bytes)
        return ULYX_SUCCESS;
    return uli_ring_pool_join(
        plan->comm, &uli_host_of(plan)->ring_use, rings->full_bytes);
}

/* ---- the end ------------------------------------------------------------- */

void
uli_plan_free_blocks(ulyx_comm_t *comm, const struct uli_plan_blocks *blocks)
{
    const struct uli_arena_block *all[] = {
        &blocks->pair_flags, &blocks->rings, &blocks->bounces};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i]->address)
            uli_arena_free(comm, all[i]);
}

bool
uli_plan_closed_by(const struct uli_plan_blocks *blocks, int32_t p)
{
    return uli_flags_final(flags_of(&blocks->pair_flags, p));
}

bool
uli_plan_blocks_idle(const struct uli_plan_blocks *blocks)
{
    const _Atomic int64_t *pending = blocks->bounces.address;
    return !pending || atomic_load(pending) == 0;
}
