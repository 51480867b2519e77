/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange on device memory: the tables that the host makes and the words
 * by which ranks tell each other how far they are. Plain C and CUDA C++.
 *
 * One call. Every rank launches the same kernel on a stream of its own. It
 * writes its record at each peer and READY(n) after it; pushes each copy to
 * its place in the peer's tensor once that peer's READY(n) is there; pulls
 * the shares of its sums once their owners' READY(n) are; when all its blocks
 * have ended their part, posts DONE(n) to each peer; and ends with the last
 * DONE(n) of the others. n is read from device memory and advanced there, so
 * that a captured launch can be replayed.
 *
 * Small calls. Where all pairs' bytes fit their slots, shares are packed into
 * slot n mod 2 at the peer, DONE(n) follows, and the receiver copies out.
 * READY is not awaited: a peer posts DONE(n - 1) when it is in call n - 1, so
 * it has emptied the slot of n - 2.
 *
 * Failure. A rank that waits for the last DONE(n) fails by its deadline or by
 * poison, and its caller may write over the tensors that peers still load
 * shares from. So it says that it has given up before its kernel ends, and a
 * reader looks for that after its last load, before it says DONE(n): without
 * that the call of no rank that it has read from can have ended well.
 *
 * Order of memory. Every word is stored with release at system scope by one
 * thread that meets the writers of what it announces at a barrier of its warp
 * or block, or through a counter with acquire and release at device scope;
 * and loaded with acquire at system scope before that is touched. Record
 * n mod 2 is written again for n + 2, after DONE(n + 1) of its reader.
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
    ULI_GPU_RECORD_WORDS = 2 + 4 * ULI_GPU_TENSORS,
    ULI_GPU_LINE = 128,
    ULI_GPU_SLOT_ALIGN = 16, /* shares begin at multiples of it in a slot */
    ULI_GPU_TILE_MIN = 512,  /* bytes: 16 a lane */
    ULI_GPU_TILE_MAX = 32768,
};

/* ---- words --------------------------------------------------------------- */

/* A record is an array of words, so that a warp writes it in two steps:
 *   [0] -status | direction << 32   [1] hash of the document tables
 *   [2 + 2 t], [3 + 2 t]  window and offset of src[t]; of dst[t] 16 later
 * A tensor without elements has the window ULI_GPU_NO_WINDOW. */
enum {
    ULI_GPU_RECORD_CALL,
    ULI_GPU_RECORD_HASH,
    ULI_GPU_RECORD_SRC,
    ULI_GPU_RECORD_DST = ULI_GPU_RECORD_SRC + 2 * ULI_GPU_TENSORS
};
#define ULI_GPU_NO_WINDOW UINT64_MAX

/* What one peer writes into this rank's memory. */
struct uli_gpu_flags {
    uint64_t ready, done;
    uint64_t gone; /* the first call that the peer takes no part in, as it has
                    * destroyed its plan; 0 = none. ready and done are at their
                    * end then */
    uint64_t filled, consumed; /* by copy engines (engine_gpu.h) */
    uint64_t given_up; /* a call that the peer has left by a failure, after its
                        * DONE; 0 = none */
    uint64_t pad[ULI_GPU_LINE / 8 - 6];
    uint64_t records[2][ULI_GPU_RECORD_WORDS];
};

/* Why a call ended badly: -status | phase << 8 | peer << 16 | low bits of n
 * << 32. Zero is none. Instead of a status: of DISAGREES the direction that
 * the peer executes and ULI_GPU_OTHER_OPERATION, or 0 where the tables differ;
 * of REFUSED ULI_GPU_HAS_LEFT, the peer has destroyed its plan. */
enum { ULI_GPU_OTHER_OPERATION = 0x80, ULI_GPU_HAS_LEFT = 0xFF };
enum uli_gpu_phase {
    ULI_GPU_AWAITS_READY = 1,
    ULI_GPU_AWAITS_DONE,
    ULI_GPU_REFUSED,   /* the peer refuses the call: status is its own */
    ULI_GPU_DISAGREES, /* direction or document tables */
    ULI_GPU_LOST,      /* a window that this rank does not know */
    ULI_GPU_STALE,     /* captured before an update that it cannot obey */
    ULI_GPU_GIVEN_UP,  /* the peer has left it by a failure, after its DONE */
};
#define ULI_GPU_CAUSE(status, phase, peer, n)                                  \
    ((uint64_t)(status) | (uint64_t)(phase) << 8 | (uint64_t)(peer) << 16 |    \
        ((uint64_t)(n)&0xFFFFFFFFu) << 32)

/* A rank's own, zeroed at creation. */
struct uli_gpu_state {
    uint64_t call;    /* n of the last call that ended */
    uint64_t failed;  /* first cause; nothing runs any more */
    uint64_t outcome; /* first call that moved nothing with some peer, until
                       * the report has it, or without one the host */
    uint32_t blocks;  /* of the call in flight that have ended their part */
    uint64_t entered; /* calls by copy engines, failed ones too */
};

/* What the host reads of it: in mapped host memory, stored by the device. */
struct uli_gpu_report {
    uint64_t begun, ended;  /* n of the last call that has */
    uint64_t call;          /* packed: record [0] of the last that has begun */
    uint64_t failed;        /* as of the state */
    uint64_t outcome;       /* of the last call that has one; the state's is
                             * cleared */
    uint64_t entered, left; /* calls by copy engines that streams have reached,
                             * and gone past */
};

/* One peer, as this rank reaches it. */
struct uli_gpu_peer {
    struct uli_gpu_flags *mine;    /* here, written by the peer */
    struct uli_gpu_flags *yours;   /* at the peer, written by this rank */
    unsigned char *slot_in;        /* here, two slots filled by the peer */
    unsigned char *slot_out;       /* at the peer, two filled by this rank */
    unsigned char *const *windows; /* [nwindows] of the peer, mapped here */
    uint64_t nwindows;
    uint64_t shares; /* any byte in any direction, either way */
};

/* ---- tables -------------------------------------------------------------- */

enum uli_gpu_kind { ULI_GPU_COPY, ULI_GPU_ZERO, ULI_GPU_SUM };

/* A rectangle: extent[0] x [1] x [2] runs, its tiles from first_tile on
 * (packed: its bytes in its stream). Run and tiles count bytes in copies and
 * zeros, elements in sums. */
struct uli_gpu_item {
    int64_t first_tile;
    int64_t extent[3], run;
    int64_t dst_offset, dst_stride[3];
    int64_t src_offset, src_stride[3]; /* of a copy */
    uint64_t align; /* copies, zeros: or of run and strides; sums: or of the
                     * run and of strides / element bytes */
    int64_t first_source;
    int32_t nsources;
    int32_t kind, tensor;
    int32_t dst_rank, src_rank;
    int32_t dst_slot, src_slot; /* 0 = tensor, 1 = the slot of that rank */
    int32_t dtype, partial_dtype;
};

/* One share of a sum. */
struct uli_gpu_source {
    int64_t offset, stride[3];
    int32_t rank, group, slot, pad;
};

/* All that one direction moves at this rank. Items [0, nfirst) come before
 * DONE; the others, which empty slots, after the peers' DONE. */
struct uli_gpu_table {
    struct uli_gpu_item *items;
    struct uli_gpu_source *sources;
    int64_t nitems, nfirst, nsources; /* items below 2^31 */
    int64_t ntiles, nfirst_tiles;     /* all, and of items [0, nfirst) */
    int64_t tile_bytes;
    bool slots; /* a small call */
    bool sums;  /* has any */
};

/* What an update of the document tables changes, on the device, so that
 * captured launches obey it. */
struct uli_gpu_head {
    int64_t nitems, nfirst, ntiles, nfirst_tiles, tile_bytes;
    uint64_t hash; /* of the document tables */
};

/* ---- launch -------------------------------------------------------------- */

enum uli_gpu_step {
    ULI_GPU_OPEN = 1, /* post READY; alone: and wait for the others' */
    ULI_GPU_MOVE = 2,
    ULI_GPU_CLOSE = 4, /* post DONE, wait for the others', advance n */
    ULI_GPU_ALL = 7,
    ULI_GPU_LEAVE = 8, /* alone, after the last call: tell all peers */
};

struct uli_gpu_args {
    const struct uli_gpu_item *items; /* on the device, as all below */
    const struct uli_gpu_source *sources;
    int64_t nitems, nfirst, ntiles, nfirst_tiles, tile_bytes;
    const struct uli_gpu_head *head; /* goes before these five and the record's
                                      * hash; or NULL */
    struct uli_gpu_state *state;
    struct uli_gpu_report *report;    /* or NULL */
    const struct uli_gpu_peer *peers; /* [nranks] */
    int32_t rank, nranks;
    const uint64_t *poison; /* not 0 there: leave. Mapped host memory, written
                             * by the communicator's failure; or NULL */
    uint64_t timeout_ns;    /* of each kernel, from its start */
    int64_t slot_bytes;
    uint64_t user_hash; /* goes into the record's hash: what layers above compare */
    int32_t steps;
    int32_t slots; /* a small call: one block, all steps */
    int32_t sums;
    unsigned char *src[ULI_GPU_TENSORS], *dst[ULI_GPU_TENSORS];
    uint64_t record[ULI_GPU_RECORD_WORDS]; /* what peers are told */
};

/* Enqueues steps of one call on a stream (a cudaStream_t). With all steps and
 * more than one block a kernel spins while others must run: blocks of all
 * ranks of the device fit together, or the steps are enqueued one by one.
 * OPEN, CLOSE or LEAVE alone is one block. threads: a multiple of 32, at most
 * 256.
 * returns a cudaError_t. Allocates nothing; may be captured. */
int uli_gpu_exchange_launch(const struct uli_gpu_args *args, int32_t blocks,
    int32_t threads, void *stream);
/* Loads all kernels on the current device, and says how many blocks of
 * `threads` threads a multiprocessor holds of those with or without sums, of
 * the kernel that takes more room. returns a cudaError_t. */
int uli_gpu_exchange_prepare(
    int32_t threads, bool sums, int32_t *blocks_per_sm_p);
/* Of the current device. returns a cudaError_t. */
int uli_gpu_multiprocessors(int32_t *count_p);

#ifdef __cplusplus
}
#endif
#endif
