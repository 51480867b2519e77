/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange by messages on device memory, for ranks that cannot map each other's
 * memory: what a peer needs is gathered into messages, batches of sends and
 * receives carry them, and other launches unpack them. All are steps of the
 * caller's stream, or of one beside it. Plain C and CUDA C++.
 *
 * Streams. All that one rank sends another in a direction is a stream. The
 * moves to a destination rank get their places one after another, each the
 * first place (a multiple of 16) that is free in the streams of all its
 * sources. So a share of a sum lies at the same place in every sharer's stream,
 * and streams of copies have no gaps. Round k carries the window [k * chunk, (k
 * + 1) * chunk) of all streams, without the gaps. So the shares of an element
 * of a sum arrive in one round and are added in the plan's order, and memory
 * does not grow with the tensors.
 *
 *   pack    copies the window of each stream to a peer into the message. In
 *           round 0 it also moves this rank's own share and zeros to their
 *           place, and writes in front of the message the words that the
 *           direct exchange stores at the peer: READY(n) and the record
 *   batch   sends the message for p to p, and receives the message of p
 *   unpack  moves the window of each stream from a peer out of the message,
 *           where the peer's record agrees; advances n in the last round
 *
 * Message p of round k lies in slot k mod 2 of p, so pack(k + 1) and unpack(k -
 * 1) run beside batch(k). The tables are those of a small call
 * (exchange_table.h). An offset in a slot counts the bytes of the pair's
 * messages over all rounds, without the gaps. So each round has a table of
 * peers of its own, in which a slot begins before the message, by the bytes
 * that the earlier rounds have carried.
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

/* The items of one stream in the order of their places (first_tile):
 * order[first .. first + count) has their numbers. A sum is listed in the
 * stream of the first peer that has a share of it. This rank's own list has the
 * items that need no message.
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
    /* peers: of the round, with yours and mine in the messages of round 0.
     * slots = 1, slot_bytes = 0 (peers has the slot), head = NULL; tiles and
     * steps are not read. report: gets `begun` when the call begins, `ended`
     * when it ends. */
    struct uli_gpu_args call;
    const struct uli_messages_list *lists; /* [nranks], of pack or of unpack */
    const int32_t *order;
    const uint64_t *hash; /* of the document tables that the device has; if the
                           * record has another hash, the call was captured
                           * before an update and moves nothing */
    int64_t begin, end;   /* the window */
    int64_t tile_bytes;
    int64_t tiles;     /* of a window; 0: the call is refused */
    int64_t own_tiles; /* of this rank's whole list; 0 = not in this round */
    int32_t steps;
    struct uli_messages_reason *reason;
};

/* Each returns a cudaError_t, allocates nothing and may be captured. blocks:
 * any number, for no block waits for another. */
int uli_messages_pack_launch(const struct uli_messages_args *args, int32_t blocks,
    int32_t threads, void *stream);
int uli_messages_unpack_launch(const struct uli_messages_args *args, int32_t blocks,
    int32_t threads, void *stream);
/* Loads the kernels on the current device. Returns a cudaError_t. */
int uli_messages_prepare(void);

#ifdef __cplusplus
}
#endif
#endif
