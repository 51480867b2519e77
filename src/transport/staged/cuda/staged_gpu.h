/* SPDX-License-Identifier: Apache-2.0
 *
 * Staging through pinned host memory, shared by the kernel and the host. Plain
 * C and CUDA C++. staged.h has the overview.
 *
 * A pair of ranks is joined by queues, each with a ring of slots per way. One
 * warp at a time serves a queue, and queues are independent of each other, so a
 * message is cut into as many parts as there are queues, and each part into
 * chunks. Chunk n of a queue and way, counted from 1 for the batch's life:
 *
 *   out  waits for consumed >= n - SLOTS, copies to slot (n - 1) mod SLOTS,
 *        stores filled[slot] = n, size of the whole message
 *   in   waits for filled[slot] of n, compares the size with its own, copies
 *        out, stores consumed = n
 *
 * n is kept and advanced on the device, so a captured launch can be replayed. A
 * rank stores its flags at the peer where the peer's memory is mapped here;
 * else in memory of its own, from which the relay puts flags and chunks to the
 * peer (relay.c). The kernel is the same in both cases.
 *
 * Order of memory. After the barrier of its warp, one thread stores a flag with
 * release at system scope; one thread loads a flag with acquire at system scope
 * before the warp's other threads continue. A slot is written again only when
 * the peer's flag shows that it has emptied the slot.
 *
 * No deadlock. A warp gives its parts turns and never waits for a single one;
 * and either all blocks of a launch are on the device together (batch.h,
 * claim), or the launch has one block.
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
    ULI_STAGED_MESSAGES = 128, /* of a launch, as kernel arguments */
    ULI_STAGED_THREADS = 256,
    ULI_STAGED_PARTS = 64, /* of a warp, at most: one bit each */
    ULI_STAGED_SIZE_BITS = 24,
    ULI_STAGED_PART_MIN = 16384, /* bytes: a smaller message takes fewer queues */
    ULI_STAGED_ALIGN = 128,      /* parts begin at multiples of this */
};

/* The flags that one side of a queue writes. */
struct uli_staged_flags {
    uint64_t filled[ULI_STAGED_SLOTS]; /* n << SIZE_BITS | size, folded */
    uint64_t bytes[ULI_STAGED_SLOTS];  /* of the chunk, for the relay */
    uint64_t consumed;
    uint64_t pad[ULI_STAGED_LINE / 8 - 2 * ULI_STAGED_SLOTS - 1];
};

/* n and the size of a message in SIZE_BITS bits: the size itself where it
 * fits. */
#define ULI_STAGED_FILLED(n, size)                                             \
    ((uint64_t)(n) << ULI_STAGED_SIZE_BITS |                                   \
        (((uint64_t)(size) ^ (uint64_t)(size) >> ULI_STAGED_SIZE_BITS) &       \
            ((UINT64_C(1) << ULI_STAGED_SIZE_BITS) - 1)))

/* In device memory. Addresses are those of the device. */
struct uli_staged_queue {
    unsigned char *out;      /* [SLOTS][chunk], read by the peer */
    const unsigned char *in; /* [SLOTS][chunk], written by the peer */
    struct uli_staged_flags *posted;
    const struct uli_staged_flags *polled;
    uint64_t sent, taken;  /* n of the last chunk each way */
    int64_t out_at, in_at; /* bytes of the run's part that are done */
};

/* In device memory, zeroed at creation. */
struct uli_staged_state {
    uint64_t run;    /* number of the last run that ended */
    uint64_t failed; /* the first cause; afterwards nothing moves */
    uint32_t blocks; /* blocks of the run that have ended */
};

/* In pinned host memory. */
struct uli_staged_report {
    uint64_t begun, ended; /* numbers of runs */
    uint64_t failed;       /* copy of state->failed */
    uint64_t abort;        /* written by the host: 1 = stop */
};

/* A cause: phase | index of the peer << 8 | low bits of the run << 32; 0 =
 * none. */
enum uli_staged_phase {
    ULI_STAGED_LATE_OUT = 1, /* the peer empties no slot */
    ULI_STAGED_LATE_IN,      /* the peer fills no slot */
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
    const uint64_t *poison; /* not 0: stop */
    int64_t chunk_bytes;
    uint64_t timeout_ns;
    int32_t nqueues, nmessages;
    struct uli_staged_message messages[ULI_STAGED_MESSAGES];
};

/* One step of a stream: sends and receives all messages, by blocks * THREADS /
 * 32 warps, each with at most ULI_STAGED_PARTS of the nmessages * nqueues
 * parts. Returns a cudaError_t. Allocates nothing; may be captured. */
int uli_staged_launch(
    const struct uli_staged_args *args, int32_t blocks, void *stream);
/* Loads the kernel on the current device. Gives the device's number of
 * multiprocessors and how many blocks of the kernel one of them holds. Returns
 * a cudaError_t. */
int uli_staged_prepare(int32_t *multiprocessors_p, int32_t *per_sm_p);

#ifdef __cplusplus
}
#endif
#endif
