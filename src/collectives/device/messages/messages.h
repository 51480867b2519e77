/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange by messages of one plan at one rank, on the host's side: messages,
 * tables and words on the device, and what one call enqueues. messages_gpu.h has
 * the scheme. Memory on the device: two slots per peer and direction, of a
 * chunk at the most, whatever the tensors' size; one, where no direction takes
 * more than one round.
 *
 * One thread at a time. Calls of all exchanges by messages over one batch come in
 * the same order on all ranks, as those of NCCL itself must.
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
    const int32_t *nodes;          /* [nranks]: groups of the order of sums */
    uli_strides_t *const *strides; /* [nranks] -> [tensors]; these and nodes
                                    * outlive it if documents can change */
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

/* Allocates and fills everything. Local: no rank is waited for.
 * Errors: NO_MEMORY, the device's; nothing is left then. */
ulyx_status_t uli_messages_create(
    const struct uli_messages_params *params, struct uli_messages **messages_p);
/* No call of it is under way on any stream. NULL is fine. */
void uli_messages_destroy(struct uli_messages *messages);

/* Before a call. Errors: BUSY, while another stream captures one of several
 * rounds; nothing is enqueued then, nor sent to peers. */
ulyx_status_t uli_messages_check(
    const struct uli_messages *messages, ulyx_direction_t direction, void *stream);
/* One call: src and dst hold the tensors' pointers on this device. */
struct uli_messages_call {
    ulyx_direction_t direction;
    const void *const *src; /* these two: not of a refused call */
    void *const *dst;
    ulyx_status_t refusal; /* not SUCCESS: this rank refuses, moves nothing, */
    const char *reason;    /* and its peers learn why */
    uint64_t user_hash;    /* is compared as the tables' is; 0 = none */
    void *stream;
    uli_deadline_t deadline;
};

/* Enqueues a call. The stream may be captured.
 * Allocates nothing; the host waits for nothing, but at the first call of the
 * plan and pair for the peer to come (uli_messages_connect avoids it).
 * Errors: those of uli_batch_ops.run and of a launch; the batch is of no more
 * use then. */
ulyx_status_t uli_messages_execute(
    struct uli_messages *messages, const struct uli_messages_call *call);

/* An event that an update has to wait for first: the tables of the last but one
 * have left for the device. */
void *uli_messages_buffer_event(const struct uli_messages *messages);
/* The layout's documents have changed: calls enqueued from here on are of the
 * new tables, which the device gets in the order of the stream. Calls that were
 * captured before move nothing from there on, and say so.
 * Errors: INTERNAL, the device's. */
ulyx_status_t uli_messages_update(struct uli_messages *messages, void *stream);

/* Collective: a first message a pair, so that connections are made now. */
ulyx_status_t uli_messages_connect(
    struct uli_messages *messages, void *stream, uli_deadline_t deadline);

/* What the device has noted of calls; for the watch over deadlines. */
struct uli_gpu_report *uli_messages_report(struct uli_messages *messages);
/* The text of a peer's refusal, which the report's outcome `cause` is; not
 * always ended by a zero. False: it is gone already. */
bool uli_messages_reason(const struct uli_messages *messages, uint64_t cause,
    char text_p[ULI_REFUSAL_BYTES]);
/* [nranks]: does this rank exchange messages with it? The exchange's own. */
const bool *uli_messages_shares(const struct uli_messages *messages);
/* Rounds of a direction, by the present tables. */
int32_t uli_messages_rounds(
    const struct uli_messages *messages, ulyx_direction_t direction);
/* Bytes on the device and of pinned memory. */
int64_t uli_messages_bytes(const struct uli_messages *messages);

#endif
