/* SPDX-License-Identifier: Apache-2.0
 *
 * The channel of a communicator's collectives on device memory. It is made at
 * the first use, with one agreement: words, receive buffers and all else that
 * calls need lie ready from then on. A call is enqueued on the caller's stream
 * and returns; what a call finds comes back by the next one, and what is final
 * by the communicator, as of plans (plan_gpu.h). collective_gpu.h has the
 * protocol.
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
    int32_t blocks;                       /* most of a launch that moves */
    struct uli_residency room; /* without a claim: three launches per call */
    struct uli_collective_args args; /* of every call, but what it moves */
    void *own_stream;                /* of refusals and of the end */
    void *ended;                     /* event after the last call, if any was */
    _Atomic bool enqueued, busy;
    bool detour; /* the last call was enqueued on own_stream */
    uint64_t outcome_seen;
};

/* One call: the memory that it reads and writes, in bytes from the pointers'
 * first to their last; what its blocks come to. */
struct uli_channel_call {
    const void *src;
    void *dst;
    int64_t src_begin, src_end, dst_begin, dst_end;
    int64_t moved_bytes;  /* that this rank reads and writes */
    int64_t landed_bytes; /* at most, of one pair and way */
    int (*launch)(const struct uli_collective_args *args, int32_t blocks,
        int32_t threads, void *stream);
};

/* ---- life (channel_gpu.c) ------------------------------------------------ */

/* Collective and blocking when there is no channel yet; then takes it for one
 * call. outcome: what this rank thinks of its call, with its text set: it is
 * returned, after the others have received it. stream: of the call. Errors:
 * UNSUPPORTED (no kernels, memory not mapped, too many ranks), BUSY (another
 * thread's call), INVALID_ARGUMENT (first call of all in a capture),
 * PEER_REFUSED, NO_MEMORY, the communicator's. */
ulyx_status_t uli_channel_gpu_take(ulyx_comm_t *comm, ulyx_status_t outcome,
    void *stream, struct uli_channel_gpu **channel_p);

/* ---- calls (channel_gpu_call.c) ------------------------------------------ */

/* Enqueues the call whose args are complete but for windows and places; gives
 * the channel back. The error of an earlier call may come, while this one is
 * enqueued all the same. Allocates nothing, takes no lock. */
ulyx_status_t uli_channel_gpu_run(struct uli_channel_gpu *channel,
    const struct uli_channel_call *call, struct uli_collective_args *args,
    void *stream);
/* Posts the refusal of a call (status, whose text is the thread's last error)
 * from a stream of the channel's own, gives the channel back, returns status.
 */
ulyx_status_t uli_channel_gpu_refuse(
    struct uli_channel_gpu *channel, ulyx_status_t status, void *stream);

/* ---- what the device has noted (channel_gpu_error.c) --------------------- */

/* Fails the communicator if a call has failed. Any thread. */
void uli_channel_gpu_look(struct uli_channel_gpu *channel);
/* The error that the report's outcome, a word read before, stands for, once;
 * SUCCESS if there is none. */
ulyx_status_t uli_channel_gpu_outcome(
    struct uli_channel_gpu *channel, uint64_t word);
/* Have enqueued calls not ended? Graphs count while they run. Never waits. */
bool uli_channel_gpu_in_flight(const struct uli_channel_gpu *channel);

#endif
