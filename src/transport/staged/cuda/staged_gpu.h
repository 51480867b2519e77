/* SPDX-License-Identifier: Apache-2.0
 *
 * Staging through pinned host memory, as the kernel and the host see it. Plain
 * C and CUDA C++. staged.h has the whole picture.
 *
 * A pair of ranks is joined by queues, each way of each a ring of slots. A
 * queue is one warp's at a time and knows nothing of the others, so a message is
 * cut in as many parts as there are queues, and each part in chunks. Chunk n of
 * a queue and way, counted from 1 for the batch's life:
 *
 *   out  waits for consumed >= n - SLOTS, copies to slot (n - 1) mod SLOTS,
 *        stores filled[slot] = n, size of the whole message
 *   in   waits for filled[slot] of n, compares the size with its own, copies
 *        out, stores consumed = n
 *
 * n is kept on the device and advanced there, so a captured launch can be
 * replayed. Who tells stores in its own words: those lie at the peer where its
 * memory is mapped here, else on this rank, from where the relay puts what they
 * announce to the peer (relay.c). The kernel does not know which.
 *
 * Order of memory. A word is stored with release at system scope by a queue
 * of the warp that meets the others at its barrier, and loaded with acquire at
 * system scope before the others go on. A slot is written again only when the
 * peer has said that it has emptied it.
 *
 * No cycle. A warp takes its parts in turn and never waits for one of them
 * alone; all blocks of a launch are on the device together (batch.h, claim), or
 * it has one.
 */
#ifndef ULI_TRANSPORT_STAGED_CUDA_STAGED_GPU_H
#define ULI_TRANSPORT_STAGED_CUDA_STAGED_GPU_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ULI_STAGED_LINE = 128,
    ULI_STAGED_SLOTS = 4,
    ULI_STAGED_MESSAGES = 128, /* of a run: they are the launch's arguments */
    ULI_STAGED_THREADS = 256,
    ULI_STAGED_PARTS = 64, /* of a warp, at most: a bit each */
    ULI_STAGED_SIZE_BITS = 24,
    ULI_STAGED_PART_MIN = 16384, /* bytes: a smaller message takes fewer queues */
    ULI_STAGED_ALIGN = 128,      /* where parts begin */
};

/* What one side of a queue tells. */
struct uli_staged_flags {
    uint64_t filled[ULI_STAGED_SLOTS]; /* n << SIZE_BITS | size, folded */
    uint64_t bytes[ULI_STAGED_SLOTS];  /* of the chunk, for the relay */
    uint64_t consumed;
    uint64_t pad[ULI_STAGED_LINE / 8 - 2 * ULI_STAGED_SLOTS - 1];
};

/* The size of a message in so many bits: itself where it fits. */
#define ULI_STAGED_FILLED(n, size)                                             \
    ((uint64_t)(n) << ULI_STAGED_SIZE_BITS |                                   \
        (((uint64_t)(size) ^ (uint64_t)(size) >> ULI_STAGED_SIZE_BITS) &       \
            ((UINT64_C(1) << ULI_STAGED_SIZE_BITS) - 1)))

/* On the device. Addresses are the device's. */
struct uli_staged_queue {
    unsigned char *out;      /* [SLOTS][chunk], for the peer */
    const unsigned char *in; /* [SLOTS][chunk], of the peer */
    struct uli_staged_flags *told;
    const struct uli_staged_flags *heard;
    uint64_t sent, taken;  /* n of the last chunk each way */
    int64_t out_at, in_at; /* bytes of the run's part that are done */
};

/* On the device, zeroed at creation. */
struct uli_staged_state {
    uint64_t run;    /* number of the last run that ended */
    uint64_t failed; /* first cause; nothing moves any more */
    uint32_t blocks; /* of the run that have ended */
};

/* In pinned host memory. */
struct uli_staged_report {
    uint64_t begun, ended; /* numbers of runs */
    uint64_t failed;       /* as of the state */
    uint64_t abort;        /* by the host: leave */
};

/* Why: phase | index of the peer << 8 | low bits of the run << 32; 0 = none. */
enum uli_staged_phase {
    ULI_STAGED_LATE_OUT = 1, /* the peer empties no slot */
    ULI_STAGED_LATE_IN,      /* the peer fills none */
    ULI_STAGED_OTHER_SIZE,   /* the peer sends a message of another size */
    ULI_STAGED_STOPPED,      /* by abort or poison */
};
#define ULI_STAGED_CAUSE(phase, peer, run)                                     \
    ((uint64_t)(phase) | (uint64_t)(peer) << 8 |                               \
        ((uint64_t)(run)&0xFFFFFFFFu) << 32)

struct uli_staged_message {
    unsigned char *data;
    int64_t bytes;
    int32_t peer; /* index: the row of queues */
    int32_t send;
};

struct uli_staged_args {
    struct uli_staged_queue *queues; /* [peers][nqueues] */
    struct uli_staged_state *state;
    struct uli_staged_report *report;
    const uint64_t *poison; /* not 0: leave */
    int64_t chunk_bytes;
    uint64_t timeout_ns;
    int32_t nqueues, nmessages;
    struct uli_staged_message messages[ULI_STAGED_MESSAGES];
};

/* One step of a stream: sends and receives all messages. blocks * THREADS / 32
 * warps, each with at most ULI_STAGED_PARTS of the nmessages * nqueues parts.
 * returns a cudaError_t. Allocates nothing; may be captured. */
int uli_staged_launch(
    const struct uli_staged_args *args, int32_t blocks, void *stream);
/* Loads the kernel on the current device, and says how many multiprocessors
 * that has and how many blocks one of them holds. returns a cudaError_t. */
int uli_staged_prepare(int32_t *multiprocessors_p, int32_t *per_sm_p);

#ifdef __cplusplus
}
#endif
#endif
