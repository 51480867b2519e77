/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange by messages on device memory, for ranks that cannot map each other's
 * memory: what a peer needs is gathered into messages, batches of sends and
 * receives carry them, and other launches unpack them. All are steps of the
 * caller's stream, or of one beside it. Plain C and CUDA C++.
 *
 * Streams. For each destination rank the moves of a direction are laid one
 * after another, each at the first place (a multiple of 16) that is free in the
 * streams of all its sources: so a share of a sum lies at the same place in
 * every sharer's stream, and copies fill theirs without gaps. Round k carries
 * the window [k chunk, (k + 1) chunk) of all streams, gaps left out: a sum
 * finds all its shares in one round, in the tree order of the plan, and memory
 * does not grow with the tensors.
 *
 *   pack    of each stream to a peer the window, into the message; in round 0
 *           this rank's own share and zeros to their place, and in front of
 *           the message the words that the direct exchange stores at the peer:
 *           READY(n) and the record
 *   batch   message p to p, message of p from p
 *   unpack  of each stream of a peer the window, where its record agrees; in
 *           the last round n is advanced
 *
 * Message p of round k lies in slot k mod 2 of p: pack(k + 1) and unpack(k - 1)
 * run beside batch(k). The tables are those of a small call (exchange_table.h);
 * an offset in a slot is one in the pair's messages of all rounds, without the
 * gaps. So a round has a table of peers of its own, whose slots begin as many
 * bytes before the message as the rounds before have carried.
 */
#ifndef ULI_COLLECTIVES_DEVICE_MESSAGES_MESSAGES_GPU_H
#define ULI_COLLECTIVES_DEVICE_MESSAGES_MESSAGES_GPU_H

#include "collectives/device/mapped/exchange_gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the words at the front of round 0's messages. */
enum {
    ULI_MESSAGE_HEAD = (sizeof(struct uli_gpu_flags) + ULI_GPU_LINE - 1) /
                      ULI_GPU_LINE * ULI_GPU_LINE
};

/* Items of one stream, by their places (first_tile of each), as numbers in
 * order[first .. first + count). A sum is in the stream of the first peer of
 * which it has a share; this rank's own list has the items that need no
 * message.
 */
struct uli_messages_list {
    int64_t end; /* of the stream */
    int32_t first, count;
};

enum uli_messages_step {
    ULI_MESSAGES_OPEN = 1,  /* pack of round 0 */
    ULI_MESSAGES_CLOSE = 2, /* unpack of the last */
};

/* Why a peer refuses a call, in mapped host memory: the words that a refused
 * call has in its record in place of tensors. cause: the outcome that the text
 * belongs to; 0 while it is written. */
enum { ULI_MESSAGES_REASON_WORDS = ULI_GPU_RECORD_WORDS - ULI_GPU_RECORD_SRC };
struct uli_messages_reason {
    uint64_t cause, text[ULI_MESSAGES_REASON_WORDS];
};

struct uli_messages_args {
    /* peers: of the round; yours, mine: in the messages of round 0. slots = 1,
     * slot_bytes = 0 (the peers have the slot), head = NULL; tiles and steps
     * are not looked at. report: begun as the call begins, ended as it ends. */
    struct uli_gpu_args call;
    const struct uli_messages_list *lists; /* [nranks], of pack or of unpack */
    const int32_t *order;
    const uint64_t *hash; /* of the document tables as the device has them:
                           * another than the record's, and the call, which is
                           * an older capture's, moves nothing */
    int64_t begin, end;   /* the window */
    int64_t tile_bytes;
    int64_t tiles;     /* of a window; 0 = the call is refused */
    int64_t own_tiles; /* of this rank's list, all of it; 0 = not in this
                        * round */
    int32_t steps;
    struct uli_messages_reason *reason;
};

/* Each returns a cudaError_t, allocates nothing and may be captured. blocks:
 * any number, for no block waits for another. */
int uli_messages_pack_launch(const struct uli_messages_args *args, int32_t blocks,
    int32_t threads, void *stream);
int uli_messages_unpack_launch(const struct uli_messages_args *args, int32_t blocks,
    int32_t threads, void *stream);
/* Loads the kernels on the current device. returns a cudaError_t. */
int uli_messages_prepare(void);

#ifdef __cplusplus
}
#endif
#endif
