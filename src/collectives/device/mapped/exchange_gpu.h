/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange on device memory: the tables that the host makes, and the words
 * through which ranks show each other their progress. Plain C and CUDA C++.
 *
 * One call. Every rank launches the same kernel on a stream of its own. The
 * kernel writes its record at each peer, and READY(n) after the record. It
 * pushes each copy to its place in the peer's tensor once the peer's READY(n)
 * is there, and pulls the shares of its sums once the READY(n) of their owners
 * are there. When all its blocks have ended their part, it posts DONE(n) to
 * each peer. It ends with the last DONE(n) of the peers. n is read from device
 * memory and advanced there, so that a captured launch can be replayed.
 *
 * Small calls. Where the bytes of every pair fit a slot, shares are packed into
 * slot n mod 2 at the peer, DONE(n) follows, and the receiver copies them out.
 * READY is not awaited: a peer posts DONE(n - 1) in its call n - 1, when it has
 * emptied the slot of n - 2.
 *
 * Failure. A rank that waits for the last DONE(n) fails by its deadline or by
 * poison, and its caller may then write to tensors from which peers still load
 * shares. So the rank stores given_up at its peers before its kernel ends. A
 * reader looks for given_up after its last load and before it posts DONE(n). A
 * rank from which the reader has loaded needs this DONE(n) to end call n in
 * order.
 *
 * Order of memory. Every word for a peer is stored with release at system
 * scope, by one thread. This thread has met the writers of what the word
 * announces at a barrier of its warp or block, or through a counter with
 * acquire and release at device scope. The reader loads the word with acquire
 * at system scope before it touches what the word announces. Record n mod 2 is
 * written again for call n + 2, after DONE(n + 1) of its reader.
 */
#ifndef ULI_COLLECTIVES_DEVICE_MAPPED_EXCHANGE_GPU_H
#define ULI_COLLECTIVES_DEVICE_MAPPED_EXCHANGE_GPU_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ULI_GPU_TENSORS = 8,
    ULI_GPU_RECORD_WORDS = 3 + 4 * ULI_GPU_TENSORS,
    ULI_GPU_LINE = 128,
    ULI_GPU_SLOT_ALIGN = 16, /* bytes: shares begin at multiples in a slot */
    ULI_GPU_TILE_MIN = 512,  /* bytes: 16 per lane */
    ULI_GPU_TILE_MAX = 32768,
};

/* ---- words --------------------------------------------------------------- */

/* A record is an array of words, so that a warp writes it in two steps:
 *   [0] -status | direction << 32   [1] hash of the document tables
 *   [2] one bit per tensor: 1 = it has the strides of creation; if a bit is 0,
 *   the record's struct uli_gpu_strides is valid
 *   [3 + 2 t], [4 + 2 t]  window and offset of src[t]; of dst[t] 16 later
 * A tensor without elements has the window ULI_GPU_NO_WINDOW. */
enum {
    ULI_GPU_RECORD_CALL,
    ULI_GPU_RECORD_HASH,
    ULI_GPU_RECORD_USUAL,
    ULI_GPU_RECORD_SRC,
    ULI_GPU_RECORD_DST = ULI_GPU_RECORD_SRC + 2 * ULI_GPU_TENSORS
};
#define ULI_GPU_NO_WINDOW UINT64_MAX
#define ULI_GPU_USUAL_ALL UINT64_MAX
#define ULI_GPU_USUAL_BIT(tensor, dst)                                         \
    ((tensor) + ((dst) ? ULI_GPU_TENSORS : 0))

/* Strides {batch, row, head} of a rank's tensors, in bytes: [0] of sources, [1]
 * of destinations. */
struct uli_gpu_strides {
    int64_t at[2][ULI_GPU_TENSORS][3];
};

/* What one peer writes into this rank's memory. */
struct uli_gpu_flags {
    uint64_t ready, done;
    uint64_t gone; /* the first call after the peer has destroyed its plan;
                    * 0 = none. ready and done then have their largest
                    * values */
    uint64_t filled, consumed; /* by copy engines (engine_gpu.h) */
    uint64_t given_up; /* a call that the peer gave up, by a failure, after its
                        * own DONE; 0 = none */
    uint64_t pad[ULI_GPU_LINE / 8 - 6];
    uint64_t records[2][ULI_GPU_RECORD_WORDS];
    struct uli_gpu_strides strides[2]; /* of records with a bit of 0 in [2] */
};

/* Why a call failed: -status | phase << 8 | peer << 16 | low bits of n << 32;
 * 0: no cause. Two phases have other values in place of -status. DISAGREES:
 * ULI_GPU_OTHER_OPERATION | the direction that the peer executes, or 0 where
 * the document tables differ. REFUSED: ULI_GPU_HAS_LEFT where the peer has
 * destroyed its plan. */
enum { ULI_GPU_OTHER_OPERATION = 0x80, ULI_GPU_HAS_LEFT = 0xFF };
enum uli_gpu_phase {
    ULI_GPU_AWAITS_READY = 1,
    ULI_GPU_AWAITS_DONE,
    ULI_GPU_REFUSED,   /* the peer refuses the call, with its status */
    ULI_GPU_DISAGREES, /* about the direction or the document tables */
    ULI_GPU_LOST,      /* a window that this rank does not know */
    ULI_GPU_STALE,     /* captured before an update that it cannot follow */
    ULI_GPU_GIVEN_UP,  /* the peer has failed the call after its DONE */
};
#define ULI_GPU_CAUSE(status, phase, peer, n)                                  \
    ((uint64_t)(status) | (uint64_t)(phase) << 8 | (uint64_t)(peer) << 16 |    \
        ((uint64_t)(n)&0xFFFFFFFFu) << 32)

/* A rank's own, zeroed at creation. */
struct uli_gpu_state {
    uint64_t call;    /* n of the last call that ended */
    uint64_t failed;  /* first cause; later calls end at once */
    uint64_t outcome; /* cause of the first call that moved nothing with some
                       * peer; cleared once it is in the report or, without a
                       * report, read by the host */
    uint32_t blocks;  /* of the current call that have ended their part */
    uint64_t entered; /* calls by copy engines, failed ones too */
};

/* What the host reads: in mapped host memory, stored by the device. */
struct uli_gpu_report {
    uint64_t begun, ended; /* n of the last call that has begun, ended */
    uint64_t call;         /* by messages: record [0] of the call that began
                            * last */
    uint64_t failed;       /* a copy of the state's */
    uint64_t outcome;      /* of the last call that had one */
    uint64_t entered, left; /* numbers of calls by copy engines that streams
                             * have entered, and that they have left */
};

/* One peer, as this rank reaches it. */
struct uli_gpu_peer {
    struct uli_gpu_flags *mine;    /* here, written by the peer */
    struct uli_gpu_flags *yours;   /* at the peer, written by this rank */
    unsigned char *slot_in;        /* here, two slots filled by the peer */
    unsigned char *slot_out;       /* at the peer, two filled by this rank */
    unsigned char *const *windows; /* [nwindows] of the peer, mapped here */
    uint64_t nwindows;
    uint64_t shares; /* bytes that any direction moves between the two, either
                      * way */
};

/* ---- tables -------------------------------------------------------------- */

enum uli_gpu_kind { ULI_GPU_COPY, ULI_GPU_ZERO, ULI_GPU_SUM };

/* A rectangle of extent[0] x extent[1] x extent[2] runs. first_tile is the
 * number of its first tile (by messages: where its bytes begin in its stream).
 * Runs and tiles count bytes in copies and zeros, elements in sums. */
struct uli_gpu_item {
    int64_t first_tile;
    int64_t extent[3], run;
    int64_t dst_offset, dst_stride[3];
    int64_t src_offset, src_stride[3]; /* of a copy */
    uint64_t align; /* copies, zeros: run | strides; sums: run | strides /
                     * element bytes */
    int64_t first_source;
    int32_t nsources;
    int32_t kind, tensor;
    int32_t dst_rank, src_rank;
    int32_t dst_slot, src_slot; /* 0 = tensor, 1 = the slot of that rank */
    int32_t dtype, partial_dtype;
    int32_t laid; /* by the strides of a call (exchange_laid.h); 0 in tables */
};

/* One share of a sum. */
struct uli_gpu_source {
    int64_t offset, stride[3];
    int32_t rank, group, slot, pad;
};

/* An item (rect) and a source (index) in the layout's indices {batch, row,
 * head}, to which a call's strides are applied. run: the item's run within one
 * head. dst, src and at: the first index in a tensor or, for a slot, the
 * strides within the slot. */
struct uli_gpu_rect {
    int64_t extent[3], run;
    int64_t dst[3], src[3];
};
struct uli_gpu_index {
    int64_t at[3];
};

/* All that one direction moves at this rank. Items [0, nfirst) are moved before
 * DONE; the other items empty slots, after the peers' DONE. */
struct uli_gpu_table {
    struct uli_gpu_item *items;
    struct uli_gpu_source *sources;
    struct uli_gpu_rect *rects;    /* [nitems]; NULL: calls give no strides */
    struct uli_gpu_index *indices; /* [nsources]; NULL where rects is */
    int64_t nitems, nfirst, nsources; /* items below 2^31 */
    int64_t ntiles, nfirst_tiles;     /* all, and of items [0, nfirst) */
    int64_t tile_bytes;
    bool slots; /* a small call */
    bool sums;  /* whether it has any */
};

/* What an update of the document tables changes. It lies on the device, so that
 * captured launches follow the update. */
struct uli_gpu_head {
    int64_t nitems, nfirst, ntiles, nfirst_tiles, tile_bytes;
    uint64_t hash; /* of the document tables */
};

/* ---- launch -------------------------------------------------------------- */

enum uli_gpu_step {
    ULI_GPU_OPEN = 1, /* post READY; alone: also wait for the peers' READY */
    ULI_GPU_MOVE = 2,
    ULI_GPU_CLOSE = 4, /* post DONE, wait for the peers' DONE, advance n */
    ULI_GPU_ALL = 7,
    ULI_GPU_LEAVE = 8, /* alone, after the last call: notify all peers */
};

struct uli_gpu_args {
    const struct uli_gpu_item *items; /* on the device, as all below */
    const struct uli_gpu_source *sources;
    /* These three only where calls may give strides. */
    const struct uli_gpu_rect *rects;
    const struct uli_gpu_index *indices;
    const struct uli_gpu_strides *usual; /* [nranks], of creation */
    int64_t nitems, nfirst, ntiles, nfirst_tiles, tile_bytes;
    const struct uli_gpu_head *head; /* replaces these five and the record's
                                      * hash; or NULL */
    struct uli_gpu_state *state;
    struct uli_gpu_report *report;    /* or NULL */
    const struct uli_gpu_peer *peers; /* [nranks] */
    int32_t rank, nranks;
    const uint64_t *poison; /* leave where it is not 0. Mapped host memory,
                             * stored when the communicator fails; or NULL */
    uint64_t timeout_ns;    /* of each kernel, from its start */
    int64_t slot_bytes;
    uint64_t
        user_hash; /* part of the record's hash: what layers above compare */
    int32_t steps;
    int32_t slots; /* a small call: one block, all steps */
    int32_t sums;
    unsigned char *src[ULI_GPU_TENSORS], *dst[ULI_GPU_TENSORS];
    uint64_t record[ULI_GPU_RECORD_WORDS]; /* what peers get */
    struct uli_gpu_strides strides; /* this rank's, where a bit of the record's
                                     * [2] is 0 */
};

/* Enqueues steps of one call on a stream (a cudaStream_t). In a launch with all
 * steps, blocks wait for blocks of other ranks. So either the blocks of all
 * ranks of a device fit on it at one time, or the steps are enqueued one by
 * one. OPEN, CLOSE or LEAVE alone is one block. threads: a multiple of 32, at
 * most 256. Returns a cudaError_t. Allocates nothing; may be captured. */
int uli_gpu_exchange_launch(const struct uli_gpu_args *args, int32_t blocks,
    int32_t threads, void *stream);
/* Loads all kernels on the current device. *blocks_per_sm_p: how many blocks of
 * `threads` threads one multiprocessor holds, of the kernel that takes the most
 * room among those with sums (sums) or those without. Returns a cudaError_t. */
int uli_gpu_exchange_prepare(
    int32_t threads, bool sums, int32_t *blocks_per_sm_p);
/* Multiprocessors of the current device. Returns a cudaError_t. */
int uli_gpu_multiprocessors(int32_t *count_p);

#ifdef __cplusplus
}
#endif
#endif
