/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives on device memory that ranks cannot map: the communicator's batch
 * (comm/messages/batch.h) moves the messages straight from src to dst,
 * whichever transport carries them; only shares of sums are received in memory
 * of the channel. Nothing is packed.
 *
 * A batch needs the same sizes at both ends, and a stream cannot detect that
 * sizes differ. So the hosts agree on every call before they enqueue any of it:
 * a call returns when all ranks have made the call. No rank waits for a stream.
 * A difference is an error of the call itself, and the communicator stays
 * usable. The ranks agree on a captured call when they capture it.
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

/* What a rank gives to the agreement on a call, as words. bytes: of an
 * alltoallv only, [nranks] to each rank, then [nranks] from each rank. */
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
    int32_t blocks;         /* the most of a launch that adds */
    unsigned char *memory;  /* on the device: the state, then shares */
    unsigned char *arrived; /* [nranks][share_bytes] in `memory`: shares of
                             * sums */
    int64_t share_bytes;    /* equal on all ranks; a multiple of ULI_GPU_LINE */
    struct uli_gpu_report *report, *device_report; /* pinned */
    void *ended; /* event after the last enqueued call, if there was one */
    _Atomic bool enqueued, busy;

    /* Of the present call. */
    struct uli_messages_terms *mine;
    int64_t *all; /* [nranks][terms_words] */
    int64_t terms_words;
    ulyx_status_t *outcomes;         /* [nranks] */
    struct uli_batch_message *batch; /* [2 * nranks] */
    int32_t nbatch;
    void *stream;
    bool capturing;
};

/* What rank p has given to the last agreement. */
static inline const struct uli_messages_terms *
uli_channel_messages_terms(const struct uli_channel_messages *channel, int32_t p)
{
    return (const void *)(channel->all + p * channel->terms_words);
}

/* ---- life (channel_messages.c) ------------------------------------------- */

/* Makes the channel if there is none yet, which is collective and blocks; then
 * takes the channel for one call, after which the caller gives it back.
 * outcome: of the checks of this rank's arguments, with its text set. Where
 * this call makes the channel, an error as outcome is returned once it has been
 * sent to the other ranks; otherwise uli_channel_messages_agree sends it.
 * Errors: UNSUPPORTED (no kernels, no batch transport), BUSY (another thread's
 * call), INVALID_ARGUMENT (the first call of all in a capture), MISMATCH (of
 * settings), PEER_REFUSED, NO_MEMORY, the communicator's. */
ulyx_status_t uli_channel_messages_take(ulyx_comm_t *comm,
    ulyx_status_t outcome, void *stream,
    struct uli_channel_messages **channel_p);
void uli_channel_messages_give(struct uli_channel_messages *channel);

/* ---- calls (channel_messages_call.c) ------------------------------------- */

/* Gathers channel->mine of all ranks (filled in unless outcome is an error),
 * and so waits until all ranks have made the call. outcome: as above. Errors,
 * after which nothing has moved and the batch is not taken: this rank's
 * outcome; PEER_REFUSED; MISMATCH (the calls differ, or a value that must be
 * equal on all ranks); the communicator's. On SUCCESS the batch is taken. */
ulyx_status_t uli_channel_messages_agree(
    struct uli_channel_messages *channel, ulyx_status_t outcome);
/* Checks that bytes [begin, end) from `pointer` on are memory of the channel's
 * device. Errors: INVALID_ARGUMENT, with the name. */
ulyx_status_t uli_channel_messages_check(
    const struct uli_channel_messages *channel, const char *name,
    const void *pointer, int64_t begin, int64_t end);

/* Steps of an agreed call, in order: begin; add and send, copy, sum as often as
 * the call needs; end, which gives the batch back and is called after a failure
 * too. status: of the steps; an error fails the communicator, because other
 * ranks wait for the messages that were not sent. */
ulyx_status_t uli_channel_messages_begin(struct uli_channel_messages *channel);
/* Adds a message to the next send; a message of 0 bytes is left out. */
void uli_channel_messages_add(struct uli_channel_messages *channel, int32_t p,
    bool send, const void *data, int64_t bytes);
ulyx_status_t uli_channel_messages_send(struct uli_channel_messages *channel);
ulyx_status_t uli_channel_messages_end(
    struct uli_channel_messages *channel, ulyx_status_t status);

/* ---- collectives (alltoall_messages.c, reduce_messages.c) ---------------- */

/* Entries of this data path's uli_collective_ops. */
ulyx_status_t uli_alltoall_messages(ulyx_comm_t *comm,
    const struct uli_alltoall_args *args, ulyx_status_t outcome);
ulyx_status_t uli_reduce_messages(ulyx_comm_t *comm,
    const struct uli_reduce_args *args, ulyx_status_t outcome);

#endif
