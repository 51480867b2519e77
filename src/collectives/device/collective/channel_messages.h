/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives on device memory that ranks cannot map: the communicator's batch
 * (comm/messages/batch.h) moves the messages straight from src to dst, whatever
 * carries it; shares of sums wait in memory of the channel. Nothing is packed.
 *
 * A batch needs the same sizes at both ends, and a stream cannot detect that
 * sizes differ. So the hosts agree on every call before they enqueue any of it:
 * a call returns when all ranks have made the call. No rank waits for a stream.
 * A difference is an error of the call itself, and the communicator stays
 * usable. A captured call is agreed on by its capture.
 *
 * All ranks count the same enqueued calls: the device notes begin and end of
 * each call, and the watch over the batch (uli_batch_look) checks the deadline
 * and names the rank that has not come.
 */
#ifndef ULI_COLLECTIVES_DEVICE_COLLECTIVE_CHANNEL_MESSAGES_H
#define ULI_COLLECTIVES_DEVICE_COLLECTIVE_CHANNEL_MESSAGES_H

#include "collectives/channel/collective.h"
#include "collectives/device/collective/collective_gpu.h"
#include "collectives/device/collective/collective_messages_gpu.h"
#include "comm/messages/batch.h"
#include "device/device.h"

/* What a rank says of its call, as words: those of struct uli_messages_terms;
 * of an alltoallv also the bytes to each rank, then from each, [nranks]. */
struct uli_messages_terms {
    int64_t operation; /* enum uli_collective */
    int64_t count;     /* of an alltoall: bytes of a message; else as
                        * uli_reduce_args has it */
    int64_t dtype, root;
    int64_t bytes[];
};

struct uli_channel_messages {
    ulyx_comm_t *comm;
    const struct uli_device_ops *ops;
    int32_t device;
    bool shares_device; /* with another rank of this process */
    struct uli_batch_watch watch;
    struct uli_batch_place *progress; /* [nranks] */
    bool *shares;                     /* [nranks] */
    bool watched;
    int32_t blocks;         /* of a launch that adds, at most */
    unsigned char *memory;  /* on the device: the state, then shares */
    unsigned char *arrived; /* [nranks][share_bytes] in it: shares of sums */
    int64_t share_bytes;    /* equal on all ranks; a multiple of ULI_GPU_LINE */
    struct uli_gpu_report *report, *device_report; /* pinned */
    void *ended; /* event after the last call enqueued, if any was */
    _Atomic bool enqueued, busy;

    /* Of the call at hand. */
    struct uli_messages_terms *mine;
    int64_t *all; /* [nranks][terms_words] */
    int64_t terms_words;
    ulyx_status_t *outcomes;         /* [nranks] */
    struct uli_batch_message *batch; /* [2 * nranks] */
    int32_t nbatch;
    void *stream;
    bool capturing;
};

/* What rank p has said of the call that was agreed on. */
static inline const struct uli_messages_terms *
uli_channel_messages_terms(const struct uli_channel_messages *channel, int32_t p)
{
    return (const void *)(channel->all + p * channel->terms_words);
}

/* ---- life (channel_messages.c) ------------------------------------------- */

/* Collective and blocking when there is no channel yet; then takes it for one
 * call, which must be given back. outcome: of this rank's arguments, with its
 * text set. Where the channel is made, an error of it is returned once the other
 * ranks have received it; with a channel it is for agree.
 * Errors: UNSUPPORTED (no kernels, no batch transport), BUSY (another thread's
 * call), INVALID_ARGUMENT (the first call of all in a capture), MISMATCH (of
 * settings), PEER_REFUSED, NO_MEMORY, the communicator's. */
ulyx_status_t uli_channel_messages_take(ulyx_comm_t *comm,
    ulyx_status_t outcome, void *stream,
    struct uli_channel_messages **channel_p);
void uli_channel_messages_give(struct uli_channel_messages *channel);

/* ---- calls (channel_messages_call.c) ------------------------------------- */

/* Gathers channel->mine, filled in unless outcome is an error, of all ranks:
 * waits until they have made the call. outcome: as above. Errors, before
 * anything has moved and with the batch not taken: this rank's outcome;
 * PEER_REFUSED; MISMATCH, of calls, and of what all ranks must have alike; the
 * communicator's. On SUCCESS the batch is taken. */
ulyx_status_t uli_channel_messages_agree(
    struct uli_channel_messages *channel, ulyx_status_t outcome);
/* Device memory of the channel's device? [begin, end) in bytes from pointer.
 * INVALID_ARGUMENT, with the name. */
ulyx_status_t uli_channel_messages_check(
    const struct uli_channel_messages *channel, const char *name,
    const void *pointer, int64_t begin, int64_t end);

/* Steps of an agreed call, in order: begin; add and send, copy, sum as often as
 * the call needs; end, which also gives the batch back and is called after any
 * failure. Other ranks wait for messages that were not sent, so an error of
 * status fails the communicator. */
ulyx_status_t uli_channel_messages_begin(struct uli_channel_messages *channel);
/* One more message of the next send; of 0 bytes: none. */
void uli_channel_messages_add(struct uli_channel_messages *channel, int32_t p,
    bool send, const void *data, int64_t bytes);
ulyx_status_t uli_channel_messages_send(struct uli_channel_messages *channel);
ulyx_status_t uli_channel_messages_end(
    struct uli_channel_messages *channel, ulyx_status_t status);

/* ---- collectives (alltoall_messages.c, reduce_messages.c) ---------------- */

/* Of the uli_collective_ops of this data path. */
ulyx_status_t uli_alltoall_messages(ulyx_comm_t *comm,
    const struct uli_alltoall_args *args, ulyx_status_t outcome);
ulyx_status_t uli_reduce_messages(ulyx_comm_t *comm,
    const struct uli_reduce_args *args, ulyx_status_t outcome);

#endif
