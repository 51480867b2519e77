/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange by messages of one plan at one rank, on the host's side:
 * messages, tables and words on the device, and what one call enqueues.
 * messages_gpu.h has the scheme. Memory on the device: per peer two slots for
 * outgoing and two for incoming messages, each of at most one chunk, whatever
 * the size of the tensors; one slot each where every direction takes one round.
 *
 * One thread at a time. All ranks make the calls of all exchanges by messages
 * over one batch in the same order, because NCCL requires one order of its own
 * calls.
 */
#ifndef ULI_COLLECTIVES_DEVICE_MESSAGES_MESSAGES_H
#define ULI_COLLECTIVES_DEVICE_MESSAGES_MESSAGES_H

#include "collectives/device/messages/messages_gpu.h"
#include "collectives/plan/plan.h"
#include "base/status.h"
#include "device/device.h"
#include "transport/transport.h"

struct uli_messages_params {
    const struct uli_layout *layout; /* outlives the exchange */
    uint64_t directions;             /* bits, of ulyx_direction_t */
    int32_t rank;
    const int32_t *nodes;          /* [nranks]: sums go node by node */
    uli_strides_t *const *strides; /* [nranks] -> [tensors]; these and nodes
                                    * outlive the exchange if documents can
                                    * change */
    const struct uli_device_ops *device_ops;
    int32_t device;
    int32_t blocks, threads; /* of each launch */
    int64_t chunk_bytes;     /* of a message: a multiple of ULI_GPU_LINE, equal
                              * on all ranks */
    const uint64_t *poison;  /* as uli_gpu_args has it */
    const struct uli_batch_ops *batch_ops;
    struct uli_batch *batch; /* the caller's */
};

struct uli_messages;

/* Allocates and fills everything. Waits for no rank. Errors: NO_MEMORY, the
 * device's; nothing is left then. */
ulyx_status_t uli_messages_create(
    const struct uli_messages_params *params, struct uli_messages **messages_p);
/* Called when no call of the exchange is in flight on any stream. NULL: does
 * nothing. */
void uli_messages_destroy(struct uli_messages *messages);

/* Called before a call. Errors: BUSY: another stream is capturing a call of
 * several rounds; then nothing is enqueued, and nothing is sent to peers. */
ulyx_status_t uli_messages_check(
    const struct uli_messages *messages, ulyx_direction_t direction, void *stream);
/* One call: src and dst hold the tensors' pointers on this device. */
struct uli_messages_call {
    ulyx_direction_t direction;
    const void *const *src; /* src, dst: not read for a refusal */
    void *const *dst;
    ulyx_status_t refusal; /* not SUCCESS: this rank refuses, moves nothing */
    const char *reason;    /* of a refusal, for the peers */
    uint64_t user_hash;    /* compared like the hash of the tables; 0 = none */
    void *stream;
    uli_deadline_t deadline;
};

/* Enqueues a call. The stream may be captured. Allocates nothing. The host
 * waits only at the first call of a pair, for the peer to come
 * (uli_messages_connect avoids that). Errors: those of uli_batch_ops.run and of
 * a launch; the batch cannot be used any more then. */
ulyx_status_t uli_messages_execute(
    struct uli_messages *messages, const struct uli_messages_call *call);

/* The event for which an update waits before it fills the next buffer: the
 * buffer's last copy to the device has ended. */
void *uli_messages_buffer_event(const struct uli_messages *messages);
/* Called when the layout's documents have changed. Calls enqueued from now on
 * use the new tables, which are copied to the device in stream order. After
 * that copy, calls that were captured earlier move nothing and report so.
 * Errors: INTERNAL, the device's. */
ulyx_status_t uli_messages_update(struct uli_messages *messages, void *stream);

/* Collective: sends a first message per pair, so that connections are made
 * now. */
ulyx_status_t uli_messages_connect(
    struct uli_messages *messages, void *stream, uli_deadline_t deadline);

/* What the device has stored about calls, for the watch over deadlines. */
struct uli_gpu_report *uli_messages_report(struct uli_messages *messages);
/* The text of a peer's refusal. cause: the report's outcome, which is that
 * refusal. The text may lack a terminating zero. False: the text has been
 * overwritten. */
bool uli_messages_reason(const struct uli_messages *messages, uint64_t cause,
    char text_p[ULI_REFUSAL_BYTES]);
/* [nranks]: whether this rank exchanges messages with rank p. The array belongs
 * to the exchange. */
const bool *uli_messages_shares(const struct uli_messages *messages);
/* Rounds of a direction, by the present tables. */
int32_t uli_messages_rounds(
    const struct uli_messages *messages, ulyx_direction_t direction);
/* Bytes on the device and of pinned memory. */
int64_t uli_messages_bytes(const struct uli_messages *messages);

#endif
