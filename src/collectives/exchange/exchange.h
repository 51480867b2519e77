/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine of every exchange: for each pair of ranks, lists of boxes that
 * move one way and the other, the pair flags by which the two tell each other
 * how far they are, and the state machine of one call. Plans and alltoall fill
 * the lists; the engine does not know what they mean.
 *
 * Flags of a pair, all written by one side and read by the other:
 *   READY(n)     my tensors of call n may be touched; my record says where
 *   DONE(n)      I moved my last byte of call n with you and read your record
 *   EAGER(n)     both in one: my record is in eager slot n mod 2, and all
 *                bytes that I have for you, none if I refuse the call, follow
 *                the record there
 *   FILLED(k)    chunk k of the stream to you is in its place of your ring
 *   CONSUMED(k)  I have taken the first k chunks of yours out of my ring
 *   WAITS        my call stands still: I wait for that rank (exchange_waits.c)
 *
 * Each is stored with release after what it announces and loaded with acquire
 * before that is touched; streaming stores are fenced by the copy.
 *
 * Why nothing is touched early. A rank posts READY(n) when its caller has
 * given it the tensors of call n, and ends call n only after DONE(n) or
 * EAGER(n) from every peer that it shares bytes with. Eager slot n mod 2, which
 * holds the record, is written again for n + 2, after DONE(n + 1) has come
 * from that peer, which it posts only when it has left call n.
 *
 * Strides belong to a call, and differ by right: each end walks its own tensor
 * by its own. Who touches a peer's tensor itself (STORE, LOAD, READ, loaded
 * sums) needs the peer's too: they stand behind the record of READY, in the
 * place of an eager slot's bytes, where they are not those of creation. What
 * is packed travels in an order that no call changes, so the records of eager
 * slots and of remote pairs have none.
 *
 * A remote pair (remote.h) has the same pair flags, but only STREAM moves its
 * bytes. What would be written at the peer is written into staging memory
 * here, a bounce buffer of the peer's pair flags, eager slots and ring, and
 * goes there by a put whose signal is the flag (exchange_post.c). A chunk or
 * eager slot of the bounce buffer is free when that of the peer is, for the
 * peer has read it. Rings, of either end, are of a call (exchange_rings.c).
 *
 * Puts overtake one another, so a signal proves what came in its own put and
 * no more. Therefore READY and EAGER have a flag for each of the two eager
 * slots and FILLED one for each chunk: the flag for eager slot n mod 2 or chunk
 * k is n or k + 1 only when that one is here. DONE and CONSUMED announce
 * nothing but themselves; that they count is enough.
 *
 * A peer that has destroyed its plan or its communicator posts nothing more
 * and is not waited for: before it came to call n, it counts as one that
 * refuses it; in the middle of it, it has failed and fails everybody. Marks of
 * leaving are read before the pair flags, so that what it posted last is seen;
 * at a remote pair `closed` may overtake that, so it comes with the values at
 * which the other pair flags have stopped, and counts when they are there.
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
    /* Bytes moved between two looks at deadline and failure. */
    ULI_SPAN_BYTES = 4 << 20,
    ULI_STREAM_ALIGN = 16, /* items begin at multiples of it in a stream */
};

/* Where a tensor lies: in a window of its owner, or at an address that means
 * something to its owner (and to process_vm_readv) only. */
#define ULI_NO_WINDOW UINT32_MAX
struct uli_address {
    uint32_t window;
    int64_t offset;
};

/* A ring of one call: where it lies in the windows of the receiver, or, of a
 * bounce buffer, how much of it there is at most. chunks = 0: none. */
struct uli_ring_offer {
    uint32_t window;
    int32_t chunks;
    int64_t offset, chunk_bytes;
};

/* What a rank says about its call n to one peer, in eager slot n mod 2. */
struct uli_record {
    int32_t status;    /* SUCCESS, or why the rank refuses the call */
    int32_t direction; /* of a plan's call; of an alltoall its kind */
    uint64_t hash;     /* of the document tables */
    int32_t can_read;  /* I can read your ordinary memory, and will */
    int32_t strided;   /* READY: struct uli_call_strides' `at` follows */
    int64_t send_bytes, receive_bytes; /* alltoall: me -> you, you -> me */
    /* Of plans: your ring here; mine for you, at a remote pair. */
    struct uli_ring_offer ring, bounce;
    union {
        struct {
            struct uli_address src[ULI_TENSORS], dst[ULI_TENSORS];
        };
        char reason[ULI_REFUSAL_BYTES]; /* of a refusal: the rank's text */
    };
};

/* Begins an eager slot; its bytes follow, as many as the pair has. */
struct uli_eager_slot {
    _Alignas(ULI_LINE) struct uli_record record;
};

/* Strides {batch, row, head} of a rank's tensors in a call, and the bytes of
 * each from its base to its end; by ulyx_side_t. */
struct uli_call_strides {
    bool given; /* else those of creation, and the rest means nothing */
    int64_t at[2][ULI_TENSORS][3];
    int64_t bytes[2][ULI_TENSORS];
};
enum { ULI_STRIDES_BYTES = 2 * ULI_TENSORS * 3 * sizeof(int64_t) };
/* Where a record's strides are. */
static inline void *
uli_record_strides(const struct uli_record *record)
{
    return (struct uli_eager_slot *)(uintptr_t)record + 1;
}

/* Flags by index: two for READY and EAGER, by call, one for each chunk. */
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

/* What one peer writes into my memory. */
struct uli_pair_flags {
    _Alignas(ULI_LINE) _Atomic uint64_t at[ULI_FLAGS];
    /* It has posted its last, with `last`: how it has left, enum uli_left, or
     * the poison (control.h) that its communicator tells, which may take longer
     * to come. */
    _Atomic uint64_t closed;
    uint64_t last[ULI_FLAGS];
    /* With `last`: control->late of the peer, or the record of an abort. */
    struct uli_late late;
};

/* How an item moves. NONE: the other side moves it. */
enum uli_verb {
    ULI_VERB_NONE,
    ULI_VERB_STORE,  /* source stores into the destination's window */
    ULI_VERB_LOAD,   /* destination loads from the source's window */
    ULI_VERB_STREAM, /* packed through a slot or ring of the destination */
    ULI_VERB_READ,   /* destination reads ordinary memory where it can (its
                      * record says so), else as STREAM */
};

/* One rectangle with one peer. Of a sum only the source's share counts: its
 * runs in loop order are what travels. */
struct uli_item {
    struct uli_box box;
    int32_t tensor;
    int32_t verb;
    int64_t sum; /* index of the sum it belongs to, or -1 */
};

struct uli_items {
    struct uli_item *at;
    int64_t count, capacity;
    bool streams, reads; /* any STREAM, any READ among them */
};

/* A source of a sum. */
struct uli_sum_source {
    int32_t rank;
    bool stream;  /* else loaded: own memory or a window */
    int64_t item; /* of its stream: index in the pair's inbound items */
};

struct uli_sum_item {
    struct uli_sum sum; /* its arrays are in the same allocation */
    int32_t tensor;
    bool loads_only;
    struct uli_sum_source *sources;
};

/* Zeros and the own share. */
struct uli_local {
    struct uli_box box;
    int32_t tensor;
    bool zero;
};

/* Everything that one direction moves at this rank. */
struct uli_pair_work {
    struct uli_items in, out; /* from and to the peer, in plan order */
    bool slot;                /* all of it goes through the eager slots */
    bool loaded;              /* the peer is a loaded source of sums */
    bool stale;               /* boxes are of other strides than the call's */
    int64_t last_sum;         /* last sum that the peer is a source of, or -1 */
};
struct uli_work {
    struct uli_pair_work *pairs; /* [nranks] */
    struct uli_sum_item *sums;
    int64_t nsums;
    struct uli_local *locals;
    int64_t nlocals;
    int64_t copied_bytes; /* stored at peers and at itself, in all */
    bool remote_shares;   /* remote peers get shares of sums */
    bool stale_sums;      /* as `stale` of pairs */
    bool streams;         /* anything goes through a ring here */
    bool staged_sums;     /* some sums are not of loads only */
};

/* How a call's memory for rings is cut (exchange_rings.c). */
enum {
    ULI_LOCAL_CHUNKS = 2,
    ULI_SUM_SCRATCHES = 3,
    ULI_SMALL_CHUNK_BYTES = 4096 /* of what is not leased, at most */
};
struct uli_ring_sizes {
    int64_t schedule_bytes;  /* staging of the schedule */
    int64_t chunk_bytes;     /* of rings of peers of this node */
    int64_t net_chunk_bytes; /* of those of remote peers, and of their bounce */
    int32_t net_chunks;      /* buffers */
    int64_t sum_bytes;       /* of a scratch of sums; 0: there are none */
};
/* What a plan has of rings, whatever the call. */
struct uli_ring_plan {
    bool shared; /* READY says where rings lie; else they are pairs' for good */
    int32_t local, net, bounces; /* how many */
    struct uli_ring_sizes full, small;
    int64_t full_bytes;         /* to be leased; 0: `small` is as large */
    struct uli_arena_block own; /* of `small`; address NULL: nothing streams */
};

/* Position in the stream of items that go through a slot or ring. */
struct uli_stream {
    int64_t item; /* index, == count at the end */
    int64_t left; /* bytes of the item that have not passed */
    int64_t at;   /* byte within the chunk */
    char *chunk;  /* being filled or emptied; NULL = none */
    int64_t run;  /* next run of the item's box, and byte within it */
    int64_t in_run;
};

/* Position in the items that are moved without a stream. */
struct uli_cursor {
    int64_t item, run, in_run;
};

struct uli_pair {
    /* for the life of the exchange */
    bool shares;
    bool remote;
    bool can_read;                /* this rank can read the peer's memory */
    struct uli_pair_flags *mine;  /* here, written by the peer */
    struct uli_pair_flags *yours; /* at the peer, or the bounce buffer of it */
    char *eager_in, *eager_out;   /* two each */
    int64_t slot_in_bytes, slot_out_bytes; /* behind their records */
    int32_t ring, bounce; /* of plans: number among those of the kind, or -1 */
    /* Remote: where the pair flags and eager slots that the bounce buffer
     * stands for lie at the peer. */
    struct uli_address flags_at, eager_at;
    int64_t slot_at_bytes;                /* of the eager slots at eager_at */
    const int64_t *src_bytes, *dst_bytes; /* [tensors] extents at the peer, of
                                           * the operation in flight */
    const struct uli_tr_ops *reader;
    uint64_t produced, consumed; /* by this rank */

    /* of the call in flight; of the exchange's life where rings are not
     * shared */
    char *ring_in, *ring_out;
    int32_t chunks_in, chunks_out; /* of the rings */
    int64_t chunk_in_bytes, chunk_out_bytes;
    struct uli_address ring_at; /* remote: that of ring_out at the peer */

    /* of the call in flight */
    bool seen;   /* the peer's record was read */
    bool gone;   /* the peer has destroyed its plan: it posts nothing */
    bool skip;   /* nothing moves with this peer */
    bool posted; /* DONE(n) */
    bool ended;  /* posted, and the peer's DONE(n) is here */
    bool named;  /* scratch of uli_exchange_awaited */
    bool peer_reads;
    ulyx_status_t outcome; /* why skip */
    ulyx_status_t peer_status;
    const char *peer_reason; /* of a refusal, in its record; or NULL */
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
    const char *what;     /* its name: "reshuffle" */
    uint64_t plan_number; /* of the collective call that made it */
    uint64_t fingerprint; /* of what its ranks have agreed on; 0: none */
    struct uli_pair *pairs;
    const struct uli_schedule_ops *schedule;
    void *schedule_state; /* of a schedule that carries moves, or NULL */
    /* Remote peers that streams without shares of sums go to at one time; 0 =
     * any number. */
    int64_t peer_limit;
    struct uli_ring_plan rings;
    _Atomic int64_t
        *pending;      /* puts under way out of the bounce buffers, or NULL */
    _Atomic bool busy; /* the ticket */
    uint64_t call;     /* n of the call in flight or the last */
    /* Fills what the record to peer p has beyond the common fields. */
    void (*record)(
        struct uli_exchange *exchange, int32_t p, struct uli_record *record_p);
    /* Looks at a peer's record that is OK and of the same direction; false =
     * ranks disagree. May set verbs, and end the operation, in failure. */
    bool (*accept)(struct uli_exchange *exchange, int32_t p,
        const struct uli_record *record);
    /* Makes work->stale_sums true to the call; false: records of their sources
     * are not here yet. */
    bool (*refresh_sums)(struct uli_exchange *exchange);
    /* Reports why nothing moved with rank p: sets the last error. */
    ulyx_status_t (*report)(struct uli_exchange *exchange, int32_t p);

    /* of the call in flight */
    const struct uli_work *work;
    int32_t direction; /* as in a record */
    uint64_t hash;
    bool opened; /* READY and slots posted */
    char *src[ULI_TENSORS], *dst[ULI_TENSORS];
    struct uli_address src_at[ULI_TENSORS], dst_at[ULI_TENSORS];
    struct uli_ring_set *ring_set; /* leased, or NULL */
    const struct uli_ring_sizes *ring_sizes;
    char *ring_memory; /* and where it lies in a window of this rank */
    uint32_t ring_window;
    int64_t ring_offset;
    _Atomic int64_t *ring_pending; /* puts under way out of it */
    int64_t sending;               /* streams counted against peer_limit */
    int64_t wire_bytes;            /* of tensors, put to other nodes */
    int64_t unchecked_bytes;   /* moved since the last look at the deadline */
    int64_t still_ns, tell_ns; /* exchange_waits.c: how long, until when */
    int64_t stall_ns;          /* when it says that it stands still */
    int32_t told;              /* the rank told by WAITS; -1: none */
    uint64_t tells;            /* of the exchange: WAITS so far */
    int64_t sum, sum_run, sum_in_run;
    int64_t local, local_run, local_in_run;
    bool stream_always, stream_never; /* ULYX_STREAM_STORES */

    /* Scratch for sums: of the call in flight, in its memory for rings; */
    char *acc, *group_acc, *packed;
    int64_t acc_elements;
    /* for the life of a plan that has any. */
    int64_t *sum_offsets;   /* [nranks] */
    const void **sum_bases; /* [nranks] */
};

/* ---- one call (exchange.c) ----------------------------------------------- */

/* Takes the ticket: ERR_BUSY when a call is in flight. */
ulyx_status_t uli_exchange_take(struct uli_exchange *exchange);
/* With the ticket: starts call n + 1. src, dst, *_at, work, direction and
 * hash are set. Nothing can fail; the operation may already have ended. */
void uli_exchange_start(struct uli_exchange *exchange, uli_deadline_t deadline);
/* Why peer p refused the call, in its words where its record has come.
 * returns text_p. */
const char *uli_exchange_reason(const struct uli_exchange *exchange, int32_t p,
    char text_p[ULI_REFUSAL_TEXT_BYTES]);

/* With the ticket: tells all peers that this rank refuses call n + 1, gives
 * the ticket back. The caller's error text is kept.
 * returns status; or the communicator's failure. */
ulyx_status_t uli_exchange_refuse(struct uli_exchange *exchange,
    ulyx_status_t status, uli_deadline_t deadline);

/* Once, over zeros; pairs, ntensors and the hooks are the caller's. */
void uli_exchange_init(
    struct uli_exchange *exchange, ulyx_comm_t *comm, enum uli_call kind);

/* ---- posts (exchange_post.c) --------------------------------------------- */

/* Bytes of an eager slot with slot_bytes behind its record. */
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
/* A rank's block of pair flags and, behind them, eager slots, for nranks peers:
 * its size, and where those of one peer lie in it. */
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
/* Eager slot n mod 2 of the two from the peer; of those to it. */
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
/* Has the peer posted EAGER(n); DONE(n) or that; READY(n) or that? */
static inline bool
uli_flags_eager(const struct uli_pair_flags *pair_flags, uint64_t call)
{
    return uli_flag(pair_flags, ULI_EAGER + (int)(call & 1)) >= call;
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
           uli_flags_eager(pair_flags, call);
}
/* Closed, and all that was posted before has come. */
bool uli_flags_final(const struct uli_pair_flags *pair_flags);

/* Each tells peer p, after what it announces has been written. A put that
 * fails has failed the communicator, which the next check sees. */
void uli_post_ready(struct uli_exchange *exchange, int32_t p);
void uli_post_done(struct uli_exchange *exchange, int32_t p);
/* The record and `bytes` of the slot. */
void uli_post_eager(struct uli_exchange *exchange, int32_t p, int64_t bytes);
/* `bytes` of the chunk that was filled are the next of the stream. */
void uli_post_filled(struct uli_exchange *exchange, int32_t p, int64_t bytes);
void uli_post_consumed(struct uli_exchange *exchange, int32_t p);
void uli_post_waits(struct uli_exchange *exchange, int32_t p, uint64_t value);
void uli_post_closed(struct uli_exchange *exchange, int32_t p);

/* ---- rings of a call (exchange_rings.c) ---------------------------------- */

/* Bytes of memory that is cut so. */
int64_t uli_rings_bytes(
    const struct uli_ring_plan *plan, const struct uli_ring_sizes *sizes);
/* A call begins: leases memory, or takes the plan's own; `work` is set. */
void uli_rings_begin(struct uli_exchange *exchange);
/* It has ended in order: nobody writes into its rings any more. */
void uli_rings_end(struct uli_exchange *exchange);
/* What the record to peer p says of rings. */
void uli_rings_offer(
    struct uli_exchange *exchange, int32_t p, struct uli_record *record);
/* Takes what the peer's record says of rings. Errors: INTERNAL (it makes no
 * sense), which has failed the communicator. */
ulyx_status_t uli_rings_accept(
    struct uli_exchange *exchange, int32_t p, const struct uli_record *record);

/* ---- moving, each false when it has to wait or is finished --------------- */

/* True while the call may go on: looks at failure and deadline now and then,
 * and ends the operation when one of them says so. */
bool uli_exchange_check(struct uli_exchange *exchange, int64_t bytes_moved);
bool uli_exchange_expired(struct uli_exchange *exchange);
/* Fails the communicator by TIMEOUT, naming the peers awaited. */
ulyx_status_t uli_exchange_time_out(struct uli_exchange *exchange);

/* A call begins, at the time that is returned; after each look at all pairs:
 * has anything moved? */
int64_t uli_exchange_waits_start(
    struct uli_exchange *exchange, uli_deadline_t deadline);
void uli_exchange_waits(struct uli_exchange *exchange, bool moved);
/* What is missing of the call, for the flight recorder. */
void uli_exchange_note(struct uli_exchange *exchange);
/* Whom the call waits for, but for ranks that have told that they only wait
 * themselves. */
struct uli_late uli_exchange_awaited(struct uli_exchange *exchange);

/* Has the peer destroyed its communicator; or that, or its plan? To be read
 * before its pair flags. */
bool uli_exchange_left(const struct uli_exchange *exchange, int32_t p);
bool uli_exchange_gone(const struct uli_exchange *exchange, int32_t p);
/* Did p leave a call because its deadline was over? Whoever waits for p then
 * fails by what p has waited for, which *late_p says. To be asked once p has
 * closed or left. late_p may be NULL. */
bool uli_exchange_timed_out(
    const struct uli_exchange *exchange, int32_t p, struct uli_late *late_p);
/* Ends the operation by the cause that a peer which has gone has told; false:
 * it has told none. */
bool uli_exchange_fail_told(struct uli_exchange *exchange);
/* Ends the operation because a peer has left the call in its middle; true. */
bool uli_exchange_fail_left(struct uli_exchange *exchange, int32_t p);
/* Had the caller of rank p nothing given back when this rank read the last of
 * its tensors? False: p has failed meanwhile, what was read may be anything,
 * and the operation has ended by the cause. */
bool uli_exchange_sources_kept(struct uli_exchange *exchange, int32_t p);
/* The error where it had destroyed its plan before the call. */
ulyx_status_t uli_exchange_report_gone(
    const struct uli_exchange *exchange, int32_t p);

/* The next part of at most `room` bytes of a box at (run, in_run): whole
 * runs if one fits, else a part of one. *box_p is the box itself or `part`;
 * the position moves on; returns the part's bytes, 0 at the end. */
int64_t uli_box_cut(const struct uli_box *box, int64_t *run_p,
    int64_t *in_run_p, int64_t room, struct uli_box *part,
    const struct uli_box **box_p, struct uli_box_span *span_p);
/* The same, never more than the rest of one run, always in *part. */
int64_t uli_box_cut_run(const struct uli_box *box, int64_t *run_p,
    int64_t *in_run_p, int64_t room, struct uli_box *part);

bool uli_direct_store(struct uli_exchange *exchange, int32_t p);
bool uli_direct_load(struct uli_exchange *exchange, int32_t p);
bool uli_direct_local(struct uli_exchange *exchange);
bool uli_direct_stored(const struct uli_exchange *exchange, int32_t p);
bool uli_direct_loaded(const struct uli_exchange *exchange, int32_t p);

/* process_vm_readv, from uli_direct_load. */
bool uli_direct_read(struct uli_exchange *exchange, int32_t p,
    const struct uli_item *item, struct uli_cursor *cursor);

void uli_ring_begin(struct uli_exchange *exchange, int32_t p);
bool uli_ring_send(struct uli_exchange *exchange, int32_t p);
bool uli_ring_receive(struct uli_exchange *exchange, int32_t p);
bool uli_ring_sent(const struct uli_exchange *exchange, int32_t p);
bool uli_ring_received(const struct uli_exchange *exchange, int32_t p);
/* The next bytes of the item that the inbound stream is at; NULL when they
 * have not arrived. take: they were used. */
const char *uli_ring_peek(
    struct uli_exchange *exchange, int32_t p, int64_t *bytes_p);
void uli_ring_take(struct uli_exchange *exchange, int32_t p, int64_t bytes);

bool uli_sums_progress(struct uli_exchange *exchange);

/* How a box of the call in flight is copied; packed: into memory that is read
 * again at once, where nothing streams. */
struct uli_copy_way uli_exchange_way(
    const struct uli_exchange *exchange, const struct uli_box *box);
struct uli_copy_way uli_exchange_packing(
    const struct uli_exchange *exchange, const struct uli_box *box);

#endif
