/* SPDX-License-Identifier: Apache-2.0
 *
 * The hierarchical schedule of a plan over several nodes. Moves within a node
 * belong to the engine (exchange.h). Moves that cross nodes go by the streams
 * of layout_hier.h, in chunks and in three phases that overlap:
 *
 *   gather   each rank packs its items (of sums: adds its share) into the
 *            chunk, in staging memory of the rank that serves the rail (its
 *            proxy), mapped by all ranks of the node
 *   wire     the proxy puts the whole chunk into staging memory of the rank
 *            with the rail's number on the other node
 *   spread   each reader there unpacks its items out of that memory, mapped
 *            again; what several ranks read was sent once
 *
 * Only its owner touches a tensor, so no rank needs the place of another's
 * tensor, and ordinary memory serves as well as windows.
 *
 * Staging belongs to a call, as rings do (exchange_rings.c): each rank leases
 * it, or takes the small staging of its plan, and gives its kind and place in
 * its record. A rail uses the smaller chunk of its two ends. A lease is over
 * when all ranks of the node have ended the call, because they read the
 * staging: each rank then decrements the count of readers. What others put into
 * the staging has arrived by then, since the readers have taken it.
 *
 * Words. A count within call n is stored as n * 2^32 + count, so a word never
 * falls and no call reads another call's count. Chunk c uses place c mod K of
 * the staging, K = ULI_HIER_CHUNKS.
 *   filled[i]  local rank i has put its part into so many chunks
 *   sent       so many chunks have left the staging here
 *   arrived[k] place k holds the chunk before this number (one word per
 *              place, because signals overtake one another)
 *   taken[i]   local rank i needs no byte of so many chunks any more
 *   credit     so many chunks have been taken by all ranks at the other end
 * A share in a chunk is complete before the next share begins: a sharer waits
 * for `filled` of the sharer before it in rank order, which is the order of
 * sums.
 *
 * A call. Each rank posts a record (status, direction, hash of the tables) in
 * the mailbox of its node. The rank that finds all records posted sends them to
 * each other node in one put. Bytes cross nodes only when the records of all
 * ranks have arrived and agree; otherwise nothing crosses at any rank, and each
 * rank reports the lowest rank that differs. So a refusal refuses the call for
 * all ranks of the plan, also for ranks that share no byte with the refusing
 * one: stricter than the direct schedule, because rails pass through every
 * rank. Record n + 1 announces that its rank has left call n, so a call may
 * begin with empty places everywhere once all records have arrived.
 *
 * No deadlock. Let the items to a node be ordered: copies, then sums in the
 * order that all streams share. Consider the first item that is not wholly
 * taken. All earlier items of its stream have been taken, so its chunk has a
 * place. Its givers wait for readers only until a place is free, and for one
 * another only in rank order; so the item arrives. Its reader has nothing
 * earlier to do: copies do not wait for sums, and among sums this is the first.
 * A giver held up by one stream fills another, and the proxy never waits: it
 * only polls.
 */
#ifndef ULI_COLLECTIVES_HIER_HIER_H
#define ULI_COLLECTIVES_HIER_HIER_H

#include "collectives/exchange/exchange_schedule.h"
#include "collectives/hier/layout_hier.h"
#include "topology/model/schedule_hier.h"
#include "transport/net.h"

enum {
    ULI_HIER_TAG_BITS = 32,
    ULI_HIER_ACC_BYTES = 64 << 10, /* of one step's scratch, at most */
};

/* ---- tables of one direction --------------------------------------------- */

/* A rectangle in a tensor of this rank. */
struct uli_hier_area {
    int64_t batches, rows, heads;
    struct uli_place place;
};

/* An item that this rank puts into a stream. */
struct uli_hier_give {
    int64_t at, bytes; /* in the stream */
    int32_t tensor;
    struct uli_hier_area area;
    int32_t before;    /* local rank whose share is added before; -1: none */
    int32_t acc_bytes; /* bytes of an accumulator, for a share; 0: a copy */
    struct uli_box box;
};
/* An item that this rank takes out of a stream; those of sums are taken by
 * uli_hier_sums. */
struct uli_hier_take {
    int64_t at, bytes;
    int32_t tensor;
    bool sum;
    struct uli_hier_area area; /* of copies only, as is the box */
    struct uli_box box;
};
struct uli_hier_stream {
    int64_t bytes;
    struct uli_hier_give *gives;
    struct uli_hier_take *takes;
    int64_t ngives, ntakes, give_room, take_room;
};

/* A node's share in a sum of this rank; a sum has them in node order. */
struct uli_hier_part {
    int32_t rail;
    int64_t take;
    int64_t unit; /* bytes of an element in the stream */
    bool acc;     /* accumulators, else one rank's partials */
};
struct uli_hier_sum {
    int32_t tensor;
    int64_t elements;
    struct uli_hier_area area;
    struct uli_box box; /* of the destination; its source side is dense */
    int64_t first_part;
    int32_t nparts;
};

struct uli_hier_work {
    struct uli_hier_stream *streams; /* [nrails] */
    struct uli_hier_sum *sums;
    struct uli_hier_part *parts;
    int64_t nsums, nparts;
    struct uli_hier_bytes node; /* that leave this node */
    int64_t carried_bytes;      /* of items and padding, that this rank puts */
};

/* ---- rails --------------------------------------------------------------- */

enum uli_hier_kind {
    ULI_HIER_OUT, /* to another node */
    ULI_HIER_IN,  /* from another node */
    ULI_HIER_OWN, /* this node's shares in sums of its own ranks: no wire */
};

/* The words of a rail, in the block of its proxy; one line each, but `arrived`
 * and `pending` share lines. */
struct uli_hier_flag {
    _Alignas(ULI_LINE) _Atomic uint64_t value;
};
struct uli_hier_flags {
    struct uli_hier_flag sent, credit;
    _Alignas(ULI_LINE) _Atomic uint64_t arrived[ULI_HIER_CHUNKS];
    _Alignas(ULI_LINE) _Atomic int64_t pending[ULI_HIER_CHUNKS];
    _Alignas(ULI_LINE) struct uli_hier_flag counts[]; /* filled, taken */
};

struct uli_hier_rail {
    enum uli_hier_kind kind;
    int32_t node, index; /* the other node; number of the rail */
    int32_t proxy;       /* rank of this node */
    int32_t far;         /* the proxy of the other node */
    struct uli_hier_flags *words;
    struct uli_hier_flag *filled, *taken; /* [ranks of this node] */
    int32_t place, far_place;     /* index among those of proxy, of far */
    struct uli_address far_flags; /* of the rail, in far's block */

    /* of the call in flight: the place of its staging, and counts of chunks */
    const struct uli_hier_stream *stream;
    char *staging;
    struct uli_address far_staging;
    int64_t chunk_bytes, chunks;
    int64_t filled_n, put_n, sent_n, seen_n, credited_n, taken_n;
    int64_t give, given; /* index of the item, and bytes done of it */
    int64_t give_run, give_in_run;
    int64_t take, took;
    int64_t take_run, take_in_run;
};

/* ---- the mailbox of a node, in the block of its first rank --------------- */

enum { ULI_HIER_GONE = 1 }; /* status of a rank that has destroyed its plan */
/* Small, so that one put copies the records of a node at once. */
struct uli_hier_record {
    int8_t status;
    uint8_t direction;
    uint16_t leased : 1, window : 15; /* of this rank's staging; 0: small */
    uint32_t line;                    /* its first byte, in ULI_LINE */
    uint64_t hash;
};
_Static_assert(sizeof(struct uli_hier_record) * ULI_HIER_NODE_RANKS <=
                   ULI_NET_INLINE_BYTES,
    "the records of a node are copied by their put");
_Static_assert(ULI_WINDOW_CHUNK *ULI_WINDOW_CHUNKS <= 1 << 15,
    "numbers of windows fit into a record");
/* Greater values: the poison of the rank's communicator (control.h). */
enum { ULI_HIER_OPEN, ULI_HIER_CLOSED, ULI_HIER_CLOSED_FAILED };
/* Written by one local rank. */
struct uli_hier_slot {
    _Alignas(ULI_LINE) _Atomic uint64_t posted; /* call of its record */
    _Atomic uint64_t completed;                 /* call left in order */
    _Atomic uint64_t closed;                    /* ULI_HIER_OPEN, ... */
    _Atomic uint64_t released;                  /* reads the mailbox no more */
    struct uli_hier_record records[2];
    char reasons[2][ULI_REFUSAL_BYTES]; /* the texts of refusals */
};
_Static_assert(
    sizeof(((struct uli_hier_slot *)0)->reasons[0]) <= ULI_NET_INLINE_BYTES,
    "a reason is copied by its put");
/* Written by puts from one other node: its records of call n, at n mod 2. Where
 * some of them refuse, the reason of the lowest such rank arrives by a put of
 * its own, before or after the records. */
struct uli_hier_message {
    _Alignas(ULI_LINE) _Atomic uint64_t call[2];
    _Atomic uint64_t final;        /* 1: its ranks have closed */
    uint64_t last;                 /* their last call, then */
    _Atomic uint64_t reason_in[2]; /* the reason for this call has arrived */
    char reasons[2][ULI_REFUSAL_BYTES];
    _Alignas(ULI_LINE) struct uli_hier_record records[];
};
struct uli_hier_mailbox {
    _Alignas(ULI_LINE) _Atomic uint64_t sent; /* call of the records */
    _Atomic uint64_t final;
    _Alignas(ULI_LINE) struct uli_hier_slot slots[];
};

/* ---- the state ----------------------------------------------------------- */

struct uli_hier {
    ulyx_comm_t *comm;
    struct uli_exchange *exchange;
    const struct uli_layout *layout;
    struct uli_hier_nodes nodes;
    int32_t node, local, size; /* of this rank; number of ranks of its node */
    int64_t chunk_bytes;       /* equal on all ranks */
    int64_t small_bytes;       /* a chunk of staging that is not leased; equal
                                * on all ranks */
    struct uli_arena_block block;
    struct uli_hier_mailbox *mailbox;
    struct uli_hier_message **mails; /* [nnodes], NULL for this node */
    struct uli_address
        *messages_there; /* [nnodes]: the message of this node, at node n */
    struct uli_hier_rail *rails;
    int32_t nrails;
    int32_t *out_first; /* [nnodes]: rail 0 to node n */
    int32_t *in_first;  /* [nnodes]: rail 0 from node n, or OWN rails */
    struct uli_hier_work work[ULYX_DIRECTIONS];
    bool broken; /* an update found no memory for its tables */
    int64_t fixed_bytes, table_bytes; /* held beside the block */

    /* of the call in flight */
    const struct uli_hier_work *now;
    bool posted, agreed, ended;
    bool lacks_reason; /* of a refusal, when all records had arrived */
    int32_t wrong;     /* lowest rank that differs or refuses; -1: none */
    int32_t nmails;
    int64_t sum, sum_done, sum_run, sum_in_run;
};

/* The state of an exchange with this schedule; else NULL. */
static inline struct uli_hier *
uli_hier_of(const struct uli_exchange *exchange)
{
    return exchange->schedule == &uli_schedule_hier ? exchange->schedule_state
                                                    : NULL;
}

/* ---- one call (reshuffle_hier.c) ----------------------------------------- */

/* With exchange->call, direction and hash set. */
void uli_hier_start(struct uli_hier *hier);
/* True when anything advanced. May end the exchange's operation with a
 * failure. */
bool uli_hier_progress(struct uli_hier *hier);
/* The status of a call that has ended; its error names the lowest rank that
 * differs or refuses. */
ulyx_status_t uli_hier_result(struct uli_hier *hier);

/* ---- records (reshuffle_hier_records.c) ---------------------------------- */

/* Have all ranks posted the call before exchange->call, or left? */
bool uli_hier_may_post(const struct uli_hier *hier);
/* Posts that this rank refuses the call; only when may_post. */
void uli_hier_refuse(struct uli_hier *hier, ulyx_status_t status);
/* The plan ends at this rank. */
void uli_hier_close(struct uli_hier *hier);
/* After close: may the block be used again? Not called again once true. */
bool uli_hier_idle(struct uli_hier *hier);

enum uli_hier_presence { ULI_HIER_ABSENT, ULI_HIER_POSTED, ULI_HIER_LEFT };
/* Whether rank p's record of the call has arrived (POSTED), may still arrive
 * (ABSENT), or never will (LEFT). */
enum uli_hier_presence uli_hier_presence(
    const struct uli_hier *hier, int32_t p, uint64_t call);
bool uli_hier_all_present(const struct uli_hier *hier, uint64_t call);
/* Rank p's record of the present call, which is POSTED or LEFT. */
struct uli_hier_record uli_hier_record_of(
    const struct uli_hier *hier, int32_t p);
/* Why rank p, whose record refuses the present call, does so: from its record
 * in this node's mailbox, or from the message of its node; NULL: not arrived
 * yet. */
const char *uli_hier_reason(const struct uli_hier *hier, int32_t p);
void uli_hier_post(struct uli_hier *hier, ulyx_status_t status);
/* Sends the node's records of the next call if they are complete and no other
 * rank does so; true when it has sent them. */
bool uli_hier_try_send(struct uli_hier *hier);
/* A message rings the doorbell of the mailbox's owner, which rings the other
 * ranks of the node. */
bool uli_hier_pass_on_messages(struct uli_hier *hier);

/* Most elements of one step of sums, in the scratch of the exchange:
 * accumulators have 8 bytes each. */
static inline int64_t
uli_hier_step(const struct uli_hier *hier)
{
    int64_t room = hier->exchange->acc_elements;
    return room < ULI_HIER_ACC_BYTES / 8 ? room : ULI_HIER_ACC_BYTES / 8;
}

static inline struct uli_hier_slot *
uli_hier_slot_of(const struct uli_hier *hier, int32_t local)
{
    return &hier->mailbox->slots[local];
}

/* Does the call wait for rank p? Not where p only waits for others of this
 * node. */
bool uli_hier_missing(const struct uli_hier *hier, int32_t p);

/* ---- moving: chunks (reshuffle_hier_move.c), sums (..._sum.c) ------------ */

static inline uint64_t
uli_hier_tag(const struct uli_hier *hier, int64_t count)
{
    return (hier->exchange->call << ULI_HIER_TAG_BITS) + (uint64_t)count;
}
static inline bool
uli_hier_reached(
    const struct uli_hier *hier, const _Atomic uint64_t *word, int64_t count)
{
    return atomic_load_explicit(word, memory_order_acquire) >=
           uli_hier_tag(hier, count);
}

/* The least of a word over the ranks of the node, as a count of this call. */
int64_t uli_hier_least(
    const struct uli_hier *hier, const struct uli_hier_flag *words);
/* Does chunk c have a place in the staging here? */
bool uli_hier_has_room(
    const struct uli_hier *hier, const struct uli_hier_rail *rail, int64_t c);
/* Has chunk c arrived here, so that it may be taken? */
bool uli_hier_has_come(
    const struct uli_hier *hier, const struct uli_hier_rail *rail, int64_t c);
bool uli_hier_gather(struct uli_hier *hier, struct uli_hier_rail *rail);
bool uli_hier_wire(struct uli_hier *hier, struct uli_hier_rail *rail);
/* Unpacks copies, up to the next share of a sum. */
bool uli_hier_spread(struct uli_hier *hier, struct uli_hier_rail *rail);
/* Bytes of the stream from `at` on that lie adjacent here; 0: not arrived. */
int64_t uli_hier_here(const struct uli_hier *hier,
    const struct uli_hier_rail *rail, int64_t at, const char **bytes_p);
/* `bytes` of the present take were used. */
void uli_hier_took(
    struct uli_hier *hier, struct uli_hier_rail *rail, int64_t bytes);
/* Resets the rail's cursors; posts the chunks that this rank does not read. */
void uli_hier_rail_start(struct uli_hier *hier, struct uli_hier_rail *rail);
/* Sets the place of the rail's staging and its chunk size, by the records of
 * its two ends. Errors: INTERNAL (not in their windows), which has failed the
 * communicator. */
ulyx_status_t uli_hier_rail_stage(
    struct uli_hier *hier, struct uli_hier_rail *rail);
/* This rank has ended the call and reads the node's staging no more. Where the
 * records did not agree, no other rank reads, and this rank takes all readers
 * off its own staging. */
void uli_hier_leave_staging(struct uli_hier *hier);
bool uli_hier_rail_ended(
    const struct uli_hier *hier, const struct uli_hier_rail *rail);
void uli_hier_ring_node(const struct uli_hier *hier);
bool uli_hier_sums(struct uli_hier *hier);

/* ---- tables (plan_hier_build.c) ------------------------------------------ */

struct ulyx_plan;
/* This rank's strides of a direction have changed: rebuilds the boxes in
 * place. */
void uli_hier_lay(struct ulyx_plan *plan, ulyx_direction_t direction);

#endif
