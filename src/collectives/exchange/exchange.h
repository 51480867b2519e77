/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine of every exchange: for each pair of ranks, the lists of boxes that
 * move in each direction, the pair flags by which the two ranks announce their
 * progress to each other, and the state machine of one call. Plans and alltoall
 * fill the lists; the engine does not depend on what they mean.
 *
 * Flags of a pair. One side ("I") writes them, the other side ("you") reads
 * them:
 *   READY(n)     my tensors of call n may be touched; my record says where
 *   DONE(n)      I have moved my last byte of call n with you and read your
 *                record
 *   EAGER(n)     both in one: my record is in eager slot n mod 2, and all
 *                bytes that I have for you follow the record there, none if
 *                I refuse the call
 *   FILLED(k)    chunk k of the stream to you is in its place of your ring
 *   CONSUMED(k)  I have taken the first k chunks of your stream out of my
 *                ring
 *   WAITS        my call stands still and waits for that rank
 *                (exchange_waits.c)
 *
 * A flag is stored with release after what it announces has been written, and
 * loaded with acquire before that is touched; the copy fences its streaming
 * stores.
 *
 * Why nothing is touched early. A rank posts READY(n) when its caller has given
 * it the tensors of call n, and ends call n only after DONE(n) or EAGER(n) from
 * every peer that it shares bytes with. Eager slot n mod 2, which holds the
 * record, is written again for call n + 2. The writer does so only after
 * DONE(n + 1) of the peer has arrived, and the peer posts DONE(n + 1) only
 * after it has left call n.
 *
 * Strides belong to a call and may differ between ranks: each rank walks its
 * own tensors by its own strides. A rank that touches a peer's tensor itself
 * (STORE, LOAD, READ, loaded sums) needs the peer's strides too. Where they are
 * not those of creation, they stand behind the record of READY, in the place of
 * an eager slot's bytes. Packed bytes travel in an order that no call changes,
 * so the records of eager slots and of remote pairs carry no strides.
 *
 * A remote pair (remote.h) has the same pair flags, but only STREAM moves its
 * bytes. What would be written at the peer is written into a bounce buffer
 * here, which has the form of the peer's pair flags, eager slots and ring. A
 * put sends it to the peer, with the flag as its signal (exchange_post.c). A
 * chunk or eager slot of the bounce buffer is free when the peer's is free, for
 * the peer has read it then. The rings of both ends belong to a call
 * (exchange_rings.c).
 *
 * Puts overtake one another, so a signal proves the arrival of its own put
 * only. Therefore READY and EAGER have one flag per eager slot, two each, and
 * FILLED has one per chunk: the flag of eager slot n mod 2 is n, or that of
 * chunk k is k + 1, only when that slot or chunk has arrived. DONE and CONSUMED
 * announce nothing but themselves, so one growing count is enough.
 *
 * A peer that has destroyed its plan or its communicator posts nothing more,
 * and no rank waits for it. If it left before call n, it counts as a rank that
 * refuses call n; if it left during call n, it has failed, and so does the
 * call at every rank. `closed` is read before the pair flags, so that the last
 * posts are not missed. At a remote pair `closed` may overtake those posts: it
 * arrives with the final values of the other pair flags, and counts when they
 * have those values.
 */
#ifndef ULI_COLLECTIVES_EXCHANGE_EXCHANGE_H
#define ULI_COLLECTIVES_EXCHANGE_EXCHANGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "collectives/kernels/copy_choice.h"
#include "collectives/exchange/request.h"
#include "collectives/exchange/ring_pool.h"
#include "collectives/layout/layout.h"
#include "comm/comm.h"
#include "ulyx/reshuffle.h"

enum {
    /* Bytes moved between two checks of deadline and failure. */
    ULI_SPAN_BYTES = 4 << 20,
    /* Bytes that a rank stores to, or loads from, one peer before it goes on to
     * the next peer and to its own share. These move the same tokens in turn,
     * so the pages and lines of a token that one peer's heads share with
     * another's are read while they are near. */
    ULI_TURN_BYTES = 256 << 10,
    ULI_STREAM_ALIGN = 16, /* items begin at multiples of it in a stream */
};

/* Where a tensor lies: in a window of its owner, or at an address that is valid
 * only in its owner's process (and for process_vm_readv). */
#define ULI_NO_WINDOW UINT32_MAX
struct uli_address {
    uint32_t window;
    int64_t offset;
};

/* A ring of one call: where it lies in the windows of the receiver; for a
 * bounce buffer, its greatest size only. chunks = 0: none. */
struct uli_ring_offer {
    uint32_t window;
    int32_t chunks;
    int64_t offset, chunk_bytes;
};

/* What a rank sends to one peer about its call n, in eager slot n mod 2. "I" is
 * the sender, "you" the receiver. */
struct uli_record {
    int32_t status;    /* SUCCESS, or why the rank refuses the call */
    int32_t direction; /* of a plan's call; of an alltoall, its kind */
    uint64_t hash;     /* of the document tables */
    int32_t can_read;  /* I can read your ordinary memory, and will */
    int32_t strided;   /* READY: `at` of struct uli_call_strides follows */
    int64_t send_bytes, receive_bytes; /* alltoall: me -> you, you -> me */
    /* Plans: the ring here for your stream; at a remote pair, my bounce buffer
     * for my stream to you. */
    struct uli_ring_offer ring, bounce;
    union {
        struct {
            struct uli_address src[ULI_TENSORS], dst[ULI_TENSORS];
        };
        char reason[ULI_REFUSAL_BYTES]; /* of a refusal: its text */
    };
};

/* READY(n) or EAGER(n) with all that its record says, in one line: a flag and a
 * record apart are two transfers between cores, one after the other, and the
 * lines of a longer record are fetched by the reader's speculative loads while
 * they are being written. For pairs of one node whose bytes are stored or go by
 * slots, in calls with the strides of creation. */
enum { ULI_SHORT_TENSORS = 3 };
struct uli_short_record {
    _Alignas(ULI_LINE) _Atomic uint64_t flag; /* n << 1 | is it EAGER;
                                               * released last */
    uint64_t hash;
    int32_t direction;
    uint32_t window[ULI_SHORT_TENSORS]; /* READY: of dst; its offset */
    int64_t offset[ULI_SHORT_TENSORS];
};
_Static_assert(sizeof(struct uli_short_record) == ULI_LINE, "one line");

/* The head of an eager slot; the bytes of the slot follow, as many as the
 * pair's slots have. */
struct uli_eager_slot {
    _Alignas(ULI_LINE) struct uli_record record;
};

/* Strides in bytes of a rank's tensors in a call: at[ulyx_side_t][tensor]
 * {batch, row, head}; bytes[ulyx_side_t][tensor] from a tensor's base to its
 * end. */
struct uli_call_strides {
    bool given; /* else the strides of creation hold, and the rest is unset */
    int64_t at[2][ULI_TENSORS][3];
    int64_t bytes[2][ULI_TENSORS];
};
enum { ULI_STRIDES_BYTES = 2 * ULI_TENSORS * 3 * sizeof(int64_t) };
/* Where the strides that follow a record are. */
static inline void *
uli_record_strides(const struct uli_record *record)
{
    return (struct uli_eager_slot *)(uintptr_t)record + 1;
}

/* Indices of the pair flags: READY and EAGER have two each, by n mod 2; FILLED
 * has one per chunk. */
enum uli_flag {
    ULI_READY,
    ULI_EAGER = ULI_READY + 2,
    ULI_DONE = ULI_EAGER + 2,
    ULI_CONSUMED,
    ULI_WAITS,
    ULI_FILLED,
    ULI_MOST_CHUNKS = 16,
    ULI_FLAGS = ULI_FILLED + ULI_MOST_CHUNKS
};

/* What one peer writes into this rank's memory. */
struct uli_pair_flags {
    _Alignas(ULI_LINE) _Atomic uint64_t at[ULI_FLAGS];
    /* Nonzero: the peer has made its last post. How it has left (enum
     * uli_left), or the poison (control.h) of its communicator, which may take
     * longer to arrive by itself. Written together with `last`. */
    _Atomic uint64_t closed;
    uint64_t last[ULI_FLAGS];
    /* Written with `last`: control->late of the peer, or the record of an
     * abort. */
    struct uli_late late;
    /* Of call n at n mod 2. At a remote pair unused. */
    struct uli_short_record brief[2];
};

/* How an item moves. NONE: the other rank moves it. */
enum uli_verb {
    ULI_VERB_NONE,
    ULI_VERB_STORE,  /* source stores into the destination's window */
    ULI_VERB_LOAD,   /* destination loads from the source's window */
    ULI_VERB_STREAM, /* packed through a slot or ring of the destination */
    ULI_VERB_READ,   /* destination reads ordinary memory if it can (its record
                      * says so), else as STREAM */
};

/* One rectangle of bytes exchanged with one peer. In an item of a sum only the
 * source side of the box counts: its runs travel in loop order. */
struct uli_item {
    struct uli_box box;
    int32_t tensor;
    int32_t verb;
    int64_t sum; /* index of the sum that the item belongs to, or -1 */
};

struct uli_items {
    struct uli_item *at;
    int64_t count, capacity;
    bool streams, reads; /* are any STREAM, any READ among them */
};

/* A source of a sum. */
struct uli_sum_source {
    int32_t rank;
    bool stream;  /* else loaded: own memory or a window */
    int64_t item; /* index of its stream's item in the pair's inbound items */
};

struct uli_sum_item {
    struct uli_sum sum; /* its arrays are in the same allocation */
    int32_t tensor;
    bool loads_only;
    struct uli_sum_source *sources;
};

/* A box to fill with zeros, or the rank's own share. */
struct uli_local {
    struct uli_box box;
    int32_t tensor;
    bool zero;
};

/* Everything that one direction moves at this rank. */
struct uli_pair_work {
    struct uli_items in, out; /* from and to the peer, in plan order */
    bool slot;                /* all bytes go through the eager slots */
    bool brief;               /* READY or EAGER is a short record */
    bool stores;              /* each rank only stores at the other */
    bool taken;               /* the peer loads from this rank */
    bool loaded;              /* the peer is a loaded source of sums */
    bool stale;               /* the boxes have other strides than the call */
    int64_t last_sum;         /* last sum with the peer as a source, or -1 */
};
struct uli_work {
    struct uli_pair_work *pairs; /* [nranks] */
    struct uli_sum_item *sums;
    int64_t nsums;
    struct uli_local *locals;
    int64_t nlocals;
    int64_t copied_bytes; /* stored at peers and at this rank, in all */
    bool remote_shares;   /* remote peers get shares of sums */
    bool small;           /* all bytes together are those of a small call */
    bool fans;            /* boxes of several ranks read the same rows */
    bool stale_sums;      /* as `stale` of pairs */
    bool streams;         /* any bytes go through a ring here */
    bool staged_sums;     /* some sums have sources that are not loaded */
};

/* How the memory for the rings of a call is divided (exchange_rings.c). */
enum {
    ULI_LOCAL_CHUNKS = 2,
    ULI_SUM_SCRATCHES = 3,
    ULI_SMALL_CHUNK_BYTES = 4096 /* most bytes of a chunk that is not leased */
};
struct uli_ring_sizes {
    int64_t schedule_bytes;  /* staging of the schedule */
    int64_t chunk_bytes;     /* of rings between peers of this node */
    int64_t net_chunk_bytes; /* of rings and bounce buffers of remote peers */
    int32_t net_chunks;      /* number of chunks of each of these */
    int64_t sum_bytes;       /* of one scratch of sums; 0: there are none */
};
/* What all calls of a plan have in common about their rings. */
struct uli_ring_plan {
    bool shared; /* READY gives their place; else fixed per pair */
    int32_t local, net, bounces; /* number of rings, bounce buffers */
    struct uli_ring_sizes full, small;
    int64_t full_bytes;         /* bytes to lease; 0: `small` is as large */
    struct uli_arena_block own; /* of size `small`; address NULL: no streams */
};

/* Position in the stream of items that go through a slot or ring. */
struct uli_stream {
    int64_t item; /* index, == count at the end */
    int64_t left; /* bytes of the item that have not passed yet */
    int64_t at;   /* byte within the chunk */
    char *chunk;  /* being filled or emptied; NULL = none */
    int64_t run;  /* next run of the item's box, and byte in it */
    int64_t in_run;
};

/* Position in the items that are moved without a stream. */
struct uli_cursor {
    int64_t item, run, in_run;
};
/* Goes on to the next item after the last of `runs` runs. */
static inline void
uli_cursor_pass(struct uli_cursor *cursor, int64_t runs)
{
    if (cursor->run == runs)
        *cursor = (struct uli_cursor){cursor->item + 1, 0, 0};
}

struct uli_pair {
    /* for the life of the exchange */
    bool shares;
    bool remote;
    bool can_read;                /* this rank can read the peer's memory */
    struct uli_pair_flags *mine;  /* here, written by the peer */
    struct uli_pair_flags *yours; /* at the peer, or their bounce buffer */
    char *eager_in, *eager_out;   /* two slots each */
    int64_t slot_in_bytes, slot_out_bytes; /* bytes after a slot's record */
    int32_t ring, bounce; /* plans: index among the rings, bounce buffers of a
                           * kind, or -1 */
    /* Remote pairs: where the peer's pair flags and eager slots lie, to which
     * the bounce buffer is put. */
    struct uli_address flags_at, eager_at;
    int64_t slot_at_bytes;                /* of the eager slots at eager_at */
    const int64_t *src_bytes, *dst_bytes; /* [tensors] bytes of the peer's
                                           * tensors, in the operation in
                                           * flight */
    const struct uli_tr_ops *reader;
    uint64_t produced, consumed; /* chunks, by this rank */

    /* of the call in flight; of the whole life of the exchange where rings are
     * not shared */
    char *ring_in, *ring_out;
    int32_t chunks_in, chunks_out; /* of each ring */
    int64_t chunk_in_bytes, chunk_out_bytes;
    struct uli_address ring_at; /* remote: where ring_out lies at the peer */

    /* of the call in flight */
    bool seen;   /* the peer's record was read */
    bool gone;   /* the peer has destroyed its plan and posts nothing */
    bool skip;   /* nothing moves with this peer */
    bool posted; /* this rank has posted DONE(n) */
    bool unrung; /* a post to the peer may not have woken the peer yet */
    bool ended;  /* posted, and the peer's DONE(n) has arrived */
    bool named;  /* scratch of uli_exchange_awaited */
    bool peer_reads;
    ulyx_status_t outcome; /* why skip */
    ulyx_status_t peer_status;
    const char *peer_reason; /* the text in a refusal's record, or NULL */
    int32_t peer_direction;
    struct uli_stream in, out;
    struct uli_cursor stores, loads;
    struct uli_address src[ULI_TENSORS], dst[ULI_TENSORS];
    char *src_at[ULI_TENSORS], *dst_at[ULI_TENSORS]; /* windows mapped here */
};

struct uli_schedule_ops; /* exchange_schedule.h */

struct uli_exchange {
    struct ulyx_request request; /* first */
    ulyx_comm_t *comm;
    int32_t rank, nranks, ntensors;
    enum uli_call call_kind;
    const char *what;     /* the name of the call: "reshuffle" */
    uint64_t plan_number; /* of the collective call that made the exchange */
    uint64_t fingerprint; /* of what its ranks have agreed on; 0: none */
    struct uli_pair *pairs;
    const struct uli_schedule_ops *schedule;
    void *schedule_state; /* of a schedule that carries moves, or NULL */
    /* Streams without shares of sums are sent to at most so many remote peers
     * at one time; 0: no limit. */
    int64_t peer_limit;
    struct uli_ring_plan rings;
    _Atomic int64_t
        *pending;      /* puts in flight from the bounce buffers, or NULL */
    _Atomic bool busy; /* a call holds the exchange */
    uint64_t call;     /* n of the call in flight, or of the last */
    /* Fills the fields of the record to peer p beyond the common ones. */
    void (*record)(
        struct uli_exchange *exchange, int32_t p, struct uli_record *record_p);
    /* Checks a peer's record that is OK and has the direction of this call;
     * false: the ranks disagree. May set verbs, and may end the operation with
     * a failure. */
    bool (*accept)(struct uli_exchange *exchange, int32_t p,
        const struct uli_record *record);
    /* Rebuilds the sums for the strides of this call where work->stale_sums;
     * false: records of their sources are missing yet. */
    bool (*refresh_sums)(struct uli_exchange *exchange);
    /* The error of a call in which nothing moved with rank p; sets the last
     * error. */
    ulyx_status_t (*report)(struct uli_exchange *exchange, int32_t p);

    /* of the call in flight */
    const struct uli_work *work;
    int32_t direction; /* as in a record */
    uint64_t hash;
    bool opened;  /* READY and slots are posted */
    bool fans;    /* boxes are fanned out: there are such, and enough bytes */
    bool patient; /* nothing is moved yet; the next pass awaits the peers */
    bool strided; /* this rank's strides are not those of creation */
    bool holds;   /* posts leave the wakes to the end of the pass */
    bool unrung;  /* some pair is */
    char *src[ULI_TENSORS], *dst[ULI_TENSORS];
    struct uli_address src_at[ULI_TENSORS], dst_at[ULI_TENSORS];
    struct uli_ring_set *ring_set; /* leased, or NULL */
    const struct uli_ring_sizes *ring_sizes;
    char *ring_memory; /* its place in a window of this rank follows */
    uint32_t ring_window;
    int64_t ring_offset;
    _Atomic int64_t *ring_pending; /* puts in flight from that memory */
    int64_t sending;               /* streams counted against peer_limit */
    int64_t wire_bytes;            /* bytes of tensors put to other nodes */
    int64_t unchecked_bytes; /* moved since the last check of the deadline */
    int64_t still_ns, announce_ns; /* exchange_waits.c: how long a call may
                                    * stand still, and when it announces next */
    int64_t stall_ns;              /* when the call logs that it stands still */
    int32_t announced;             /* the rank announced by WAITS; -1: none */
    uint64_t announcements;        /* number of WAITS posted by the exchange */
    int64_t sum, sum_run, sum_in_run;
    struct uli_cursor local; /* in work->locals */
    bool turned; /* in this pass, some pair's turn may have ended before its
                  * items */
    struct uli_copy_call copies;      /* of the call in flight */
    bool stream_always, stream_never; /* ULYX_STREAM_STORES */

    /* Scratch of sums. Of the call in flight, in its memory for rings: */
    char *acc, *group_acc, *packed;
    int64_t acc_elements;
    /* and for the life of a plan that has sums: */
    int64_t *sum_offsets;   /* [nranks] */
    const void **sum_bases; /* [nranks] */
};

/* The rank k places after this one, 0 <= k < nranks. */
static inline int32_t
uli_exchange_peer(const struct uli_exchange *exchange, int32_t k)
{
    int32_t p = exchange->rank + k;
    return p < exchange->nranks ? p : p - exchange->nranks;
}

/* ---- one call (exchange.c) ----------------------------------------------- */

/* Takes the exchange for a call. ERR_BUSY: a call is in flight. */
ulyx_status_t uli_exchange_take(struct uli_exchange *exchange);
/* Holding the exchange: starts call n + 1. src, dst, *_at, work, direction and
 * hash are set. awaited: the caller waits for the call next. Unless this thread
 * or the library's has other work meanwhile, nothing moves before that. Cannot
 * fail; on return the operation may have ended already. */
void uli_exchange_start(struct uli_exchange *exchange, int64_t now_ns,
    uli_deadline_t deadline, bool awaited);
/* Why peer p refused the call, in the text of p's record where that has
 * arrived.
 * Returns text_p. */
const char *uli_exchange_reason(const struct uli_exchange *exchange, int32_t p,
    char text_p[ULI_REFUSAL_TEXT_BYTES]);

/* Holding the exchange: announces to all peers that this rank refuses call
 * n + 1, then gives the exchange back. The caller's error text is kept.
 * Returns status; or the communicator's failure. */
ulyx_status_t uli_exchange_refuse(struct uli_exchange *exchange,
    ulyx_status_t status, uli_deadline_t deadline);

/* Once, over a zeroed exchange; the caller sets pairs, ntensors and the
 * hooks. */
void uli_exchange_init(
    struct uli_exchange *exchange, ulyx_comm_t *comm, enum uli_call kind);

/* ---- posts (exchange_post.c) --------------------------------------------- */

/* Bytes of an eager slot with slot_bytes after its record. */
static inline int64_t
uli_eager_slot_bytes(int64_t slot_bytes)
{
    return (int64_t)sizeof(struct uli_eager_slot) + slot_bytes;
}
/* Bytes of the two eager slots of a pair. */
static inline int64_t
uli_eager_bytes(int64_t slot_bytes)
{
    return 2 * uli_eager_slot_bytes(slot_bytes);
}
/* A rank's block of pair flags and, after them, eager slots, for nranks peers:
 * its size, and the byte offsets of one peer's flags and eager slots in it. */
struct uli_flags_block {
    int64_t bytes, flags, eager;
};
static inline struct uli_flags_block
uli_flags_block_of(int64_t nranks, int64_t slot_bytes, int32_t peer)
{
    int64_t flags = (int64_t)sizeof(struct uli_pair_flags);
    int64_t eager = uli_eager_bytes(slot_bytes);
    return (struct uli_flags_block){
        nranks * (flags + eager), peer * flags, nranks * flags + peer * eager};
}
/* Eager slot n mod 2 of the two that the peer writes; of the two to the
 * peer. */
static inline struct uli_eager_slot *
uli_eager_in(const struct uli_pair *pair, uint64_t call)
{
    return (
        struct uli_eager_slot *)(pair->eager_in +
                                 (int64_t)(call & 1) *
                                     uli_eager_slot_bytes(pair->slot_in_bytes));
}
static inline struct uli_eager_slot *
uli_eager_out(const struct uli_pair *pair, uint64_t call)
{
    return (struct uli_eager_slot *)(pair->eager_out +
                                     (int64_t)(call & 1) *
                                         uli_eager_slot_bytes(
                                             pair->slot_out_bytes));
}

static inline uint64_t
uli_flag(const struct uli_pair_flags *pair_flags, int flag)
{
    return atomic_load_explicit(&pair_flags->at[flag], memory_order_acquire);
}
static inline uint64_t
uli_brief_flag(const struct uli_pair_flags *pair_flags, uint64_t call)
{
    return atomic_load_explicit(
        &pair_flags->brief[call & 1].flag, memory_order_acquire);
}
/* Is READY(n) or EAGER(n) here as a short record? */
static inline bool
uli_flags_brief(const struct uli_pair_flags *pair_flags, uint64_t call)
{
    return uli_brief_flag(pair_flags, call) >> 1 >= call;
}
/* Has the peer posted EAGER(n); DONE(n) or EAGER(n); READY(n) or EAGER(n)? */
static inline bool
uli_flags_eager(const struct uli_pair_flags *pair_flags, uint64_t call)
{
    uint64_t brief = uli_brief_flag(pair_flags, call);
    return uli_flag(pair_flags, ULI_EAGER + (int)(call & 1)) >= call ||
           (brief >> 1 >= call && (brief & 1) != 0);
}
static inline bool
uli_flags_done(const struct uli_pair_flags *pair_flags, uint64_t call)
{
    return uli_flag(pair_flags, ULI_DONE) >= call ||
           uli_flags_eager(pair_flags, call);
}
static inline bool
uli_flags_ready(const struct uli_pair_flags *pair_flags, uint64_t call)
{
    return uli_flag(pair_flags, ULI_READY + (int)(call & 1)) >= call ||
           uli_flags_brief(pair_flags, call) ||
           uli_flags_eager(pair_flags, call);
}
/* Closed, and all earlier posts of the peer have arrived. */
bool uli_flags_final(const struct uli_pair_flags *pair_flags);

/* Each posts one flag to peer p, after what the flag announces has been
 * written. A put that fails has failed the communicator; the next check finds
 * the failure. While exchange->holds, the wake of a sleeping peer is left to
 * uli_post_wakes. */
void uli_post_ready(struct uli_exchange *exchange, int32_t p);
void uli_post_done(struct uli_exchange *exchange, int32_t p);
/* The record and the first `bytes` of the slot. */
void uli_post_eager(struct uli_exchange *exchange, int32_t p, int64_t bytes);
/* READY, or EAGER after its slot's bytes, as a short record. */
void uli_post_brief(struct uli_exchange *exchange, int32_t p, bool eager);
/* Wakes the peers to which posts were made, where they sleep. */
void uli_post_wakes(struct uli_exchange *exchange);
/* The next chunk of the stream has been filled with `bytes`. */
void uli_post_filled(struct uli_exchange *exchange, int32_t p, int64_t bytes);
void uli_post_consumed(struct uli_exchange *exchange, int32_t p);
void uli_post_waits(struct uli_exchange *exchange, int32_t p, uint64_t value);
void uli_post_closed(struct uli_exchange *exchange, int32_t p);

/* ---- rings of a call (exchange_rings.c) ---------------------------------- */

/* Bytes of memory for all rings of these sizes. */
int64_t uli_rings_bytes(
    const struct uli_ring_plan *plan, const struct uli_ring_sizes *sizes);
/* At the start of a call, with `work` set: leases memory, or takes the plan's
 * own. */
void uli_rings_begin(struct uli_exchange *exchange);
/* At the end of a call that has ended in order: no peer writes into its rings
 * any more. */
void uli_rings_end(struct uli_exchange *exchange);
/* Sets the fields of the record to peer p that describe rings. */
void uli_rings_offer(
    struct uli_exchange *exchange, int32_t p, struct uli_record *record);
/* Takes the rings that the peer's record describes. Errors: INTERNAL, the rings
 * are not valid; this has failed the communicator. */
ulyx_status_t uli_rings_accept(
    struct uli_exchange *exchange, int32_t p, const struct uli_record *record);

/* ---- moving; each returns false when it has to wait or is finished ------- */

/* True while the call may continue. Checks failure and deadline every
 * ULI_SPAN_BYTES, and ends the operation after either. */
bool uli_exchange_check(struct uli_exchange *exchange, int64_t bytes_moved);
bool uli_exchange_expired(struct uli_exchange *exchange);
/* Fails the communicator with TIMEOUT, naming the ranks that the call waits
 * for. */
ulyx_status_t uli_exchange_time_out(struct uli_exchange *exchange);

/* At the start of a call. uli_exchange_waits: after each pass over all pairs;
 * moved: anything has moved. */
void uli_exchange_waits_start(
    struct uli_exchange *exchange, int64_t now_ns, uli_deadline_t deadline);
void uli_exchange_waits(struct uli_exchange *exchange, bool moved);
/* Notes in the flight recorder what the call still waits for. */
void uli_exchange_note(struct uli_exchange *exchange);
/* The ranks that the call waits for, without those that have announced that
 * they only wait for others. */
struct uli_late uli_exchange_awaited(struct uli_exchange *exchange);

/* Has the peer destroyed its communicator (left); its communicator or its plan
 * (gone)? To be read before its pair flags. */
bool uli_exchange_left(const struct uli_exchange *exchange, int32_t p);
bool uli_exchange_gone(const struct uli_exchange *exchange, int32_t p);
/* Did p leave a call because p's deadline was over? Every rank that waits for p
 * then fails by what p has waited for: *late_p, which may be NULL. Only once p
 * has closed or left. */
bool uli_exchange_timed_out(
    const struct uli_exchange *exchange, int32_t p, struct uli_late *late_p);
/* Ends the operation by the cause that a peer announced before it left; false:
 * none was announced. */
bool uli_exchange_comm_failed(struct uli_exchange *exchange);
/* Ends the operation because a peer has left during the call.
 * Returns true. */
bool uli_exchange_fail_left(struct uli_exchange *exchange, int32_t p);
/* Were the tensors of rank p still valid when this rank read the last of them?
 * False: p has failed meanwhile, so the bytes read may be wrong, and the
 * operation has ended by that cause. */
bool uli_exchange_sources_kept(struct uli_exchange *exchange, int32_t p);
/* The error of a call before which p had destroyed its plan. */
ulyx_status_t uli_exchange_report_gone(
    const struct uli_exchange *exchange, int32_t p);

/* The next part of a box from (run, in_run), of at most `room` bytes: whole
 * runs if one fits, else a part of one run. *box_p is the box itself or `part`.
 * Advances (run, in_run).
 * Returns the bytes of the part; 0 at the end. */
int64_t uli_box_cut(const struct uli_box *box, int64_t *run_p,
    int64_t *in_run_p, int64_t room, struct uli_box *part,
    const struct uli_box **box_p, struct uli_box_span *span_p);
/* As above, but at most the rest of one run, always in *part. */
int64_t uli_box_cut_run(const struct uli_box *box, int64_t *run_p,
    int64_t *in_run_p, int64_t room, struct uli_box *part);

/* One turn: at most ULI_TURN_BYTES. A fan-out of uli_direct_store copies as
 * many for each of its boxes, and at least one run. uli_direct_store and
 * uli_direct_load set `turned` where more may be left. */
bool uli_direct_store(struct uli_exchange *exchange, int32_t p);
bool uli_direct_load(struct uli_exchange *exchange, int32_t p);
bool uli_direct_local(struct uli_exchange *exchange);
bool uli_direct_stored(const struct uli_exchange *exchange, int32_t p);
bool uli_direct_loaded(const struct uli_exchange *exchange, int32_t p);

/* Waits once for the peers, where the caller waits for this call alone and
 * spins: what is moved before all of them are ready is moved peer by peer, more
 * slowly. */
void uli_fan_await(struct uli_exchange *exchange);
/* In calls with `fans`. Called by uli_direct_store: copies the next rows to p
 * together with the boxes that stand at the same rows, or alone up to the next
 * box ahead. Returns true when this took p's turn; *advanced_p is set to true
 * when something was copied. False: nothing was done. */
bool uli_fan_turn(struct uli_exchange *exchange, int32_t p, bool *advanced_p);
/* Does the own share wait for a peer, whose box stands at the same rows or
 * before them? */
bool uli_fan_has_local(struct uli_exchange *exchange);

/* By process_vm_readv; called by uli_direct_load. */
bool uli_direct_read(struct uli_exchange *exchange, int32_t p,
    const struct uli_item *item, struct uli_cursor *cursor);

void uli_ring_begin(struct uli_exchange *exchange, int32_t p);
bool uli_ring_send(struct uli_exchange *exchange, int32_t p);
bool uli_ring_receive(struct uli_exchange *exchange, int32_t p);
bool uli_ring_sent(const struct uli_exchange *exchange, int32_t p);
bool uli_ring_received(const struct uli_exchange *exchange, int32_t p);
/* The next bytes of the item at which the inbound stream stands; NULL: they
 * have not arrived. uli_ring_take: `bytes` of them were used. */
const char *uli_ring_peek(
    struct uli_exchange *exchange, int32_t p, int64_t *bytes_p);
void uli_ring_take(struct uli_exchange *exchange, int32_t p, int64_t bytes);

bool uli_sums_progress(struct uli_exchange *exchange);

/* How a box of the call in flight is copied: alone; packed into memory that is
 * read again at once, so without streaming stores; or fanned out. */
static inline struct uli_copy_way
uli_exchange_way(const struct uli_exchange *exchange, const struct uli_box *box)
{
    return uli_copy_way_of(&exchange->copies, box);
}
static inline struct uli_copy_way
uli_exchange_packing(
    const struct uli_exchange *exchange, const struct uli_box *box)
{
    struct uli_copy_way way = uli_exchange_way(exchange, box);
    way.stream = false;
    return way;
}
static inline struct uli_copy_way
uli_exchange_fan(const struct uli_exchange *exchange, const struct uli_box *box)
{
    return uli_copy_way_from(&exchange->copies, box, ULI_ROWS_FANNED);
}

#endif
