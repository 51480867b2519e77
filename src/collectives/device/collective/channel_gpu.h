/* SPDX-License-Identifier: Apache-2.0
 *
 * The channel of a communicator's collectives on device memory. It is made at
 * the first use, with one agreement: words, receive buffers and everything else
 * that calls need exist from then on. A call is enqueued on the caller's stream
 * and returns. An error that the call then finds is returned by the next call,
 * or fails the communicator, as for plans (plan_gpu.h). collective_gpu.h has
 * the protocol.
 */
#ifndef ULI_COLLECTIVES_DEVICE_COLLECTIVE_CHANNEL_GPU_H
#define ULI_COLLECTIVES_DEVICE_COLLECTIVE_CHANNEL_GPU_H

#include "collectives/device/collective/collective_gpu.h"
#include "comm/comm.h"
#include "comm/device/residency.h"
#include "device/device.h"

/* Places within a rank's block, for given numbers of queues and chunks. */
struct uli_channel_places {
    int64_t words, state, peers, recv_buffers, queue_flags, counts, chunks, bytes;
};

struct uli_channel_gpu {
    ulyx_comm_t *comm;
    const struct uli_device_ops *ops;
    int32_t device;
    struct uli_arena_block block;
    struct uli_collective_report *report; /* pinned */
    int32_t blocks;                       /* the most of a launch that moves
                                           * bytes */
    struct uli_residency room; /* without a claim: three launches per call */
    struct uli_collective_args args; /* equal in all calls; without what a call
                                      * moves */
    void *own_stream;                /* for refusals and for the end */
    void *ended;                     /* event after the last call, if there was
                                      * one */
    _Atomic bool enqueued, busy;
    bool detour; /* the last call was enqueued on own_stream */
    uint64_t outcome_seen;
};

/* One call. It reads bytes [src_begin, src_end) from src on and writes bytes
 * [dst_begin, dst_end) from dst on. moved_bytes and landed_bytes give the
 * number of blocks. */
struct uli_channel_call {
    const void *src;
    void *dst;
    int64_t src_begin, src_end, dst_begin, dst_end;
    int64_t moved_bytes;  /* which this rank reads and writes */
    int64_t landed_bytes; /* the most by the receive buffer of one pair, one
                           * way */
    int (*launch)(const struct uli_collective_args *args, int32_t blocks,
        int32_t threads, void *stream);
};

/* ---- life (channel_gpu.c) ------------------------------------------------ */

/* Makes the channel if there is none yet, which is collective and blocks; then
 * takes the channel for one call. outcome: of the checks of this rank's
 * arguments, with its text set; an error is returned once it has been sent to
 * the other ranks. stream: of the call. Errors: UNSUPPORTED (no kernels, memory
 * not mapped, too many ranks), BUSY (another thread's call), INVALID_ARGUMENT
 * (first call of all in a capture), PEER_REFUSED, NO_MEMORY, the
 * communicator's. */
ulyx_status_t uli_channel_gpu_take(ulyx_comm_t *comm, ulyx_status_t outcome,
    void *stream, struct uli_channel_gpu **channel_p);

/* ---- calls (channel_gpu_call.c) ------------------------------------------ */

/* Enqueues the call, whose args are complete except for windows and places, and
 * gives the channel back. May return the error of an earlier call, although
 * this call is enqueued. Allocates nothing, takes no lock. */
ulyx_status_t uli_channel_gpu_run(struct uli_channel_gpu *channel,
    const struct uli_channel_call *call, struct uli_collective_args *args,
    void *stream);
/* Posts the refusal of a call from the channel's own stream and gives the
 * channel back. Returns status, whose text is the thread's last error.
 */
ulyx_status_t uli_channel_gpu_refuse(
    struct uli_channel_gpu *channel, ulyx_status_t status, void *stream);

/* ---- what the device has noted (channel_gpu_error.c) --------------------- */

/* Fails the communicator if a call has failed. Any thread. */
void uli_channel_gpu_look(struct uli_channel_gpu *channel);
/* The error that `word` stands for, which is returned once; SUCCESS: none.
 * word: the report's outcome, read before. */
ulyx_status_t uli_channel_gpu_outcome(
    struct uli_channel_gpu *channel, uint64_t word);
/* Whether enqueued calls have not ended. A graph counts while it runs. Never
 * waits. */
bool uli_channel_gpu_in_flight(const struct uli_channel_gpu *channel);

#endif
