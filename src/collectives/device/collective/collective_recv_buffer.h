/* SPDX-License-Identifier: Apache-2.0
 *
 * Chunks through the receive buffer of a pair, by the warp of one queue. Device
 * code of the collectives' kernels; collective_gpu.h has the protocol.
 *
 * Order of memory. The warp that fills a chunk meets at a barrier, after which
 * one thread releases `filled`. The warp that empties the chunk first acquires
 * `filled`; after a barrier one thread releases `emptied`. The filling warp
 * acquires `emptied` before it fills the chunk again.
 */
#ifndef ULI_COLLECTIVES_DEVICE_COLLECTIVE_COLLECTIVE_RECV_BUFFER_H
#define ULI_COLLECTIVES_DEVICE_COLLECTIVE_COLLECTIVE_RECV_BUFFER_H

#include "collectives/device/collective/collective_flags.h"

/* One queue of a pair, as its warp sees it. */
struct queue {
    const struct uli_recv_buffer *recv_buffer;
    int32_t number;
    uint64_t sent, received; /* chunks since the communicator's first */
};

static __device__ struct queue
queue_of(const uli_collective_args &a, int32_t p, int32_t number)
{
    const struct uli_recv_buffer *recv_buffer = &a.recv_buffers[p];
    const struct uli_recv_counts *counts = &recv_buffer->counts[number];
    struct queue queue = {recv_buffer, number, counts->sent, counts->received};
    return queue;
}

/* Stores the counts for the next call. */
static __device__ void
queue_keeps(const struct queue &queue)
{
    __syncwarp();
    if (threadIdx.x % WARP == 0) {
        queue.recv_buffer->counts[queue.number].sent = queue.sent;
        queue.recv_buffer->counts[queue.number].received = queue.received;
    }
    __syncwarp();
}

/* queue_out: where to put the next chunk for the peer. queue_in: where the next
 * chunk from the peer lies. */
static __device__ unsigned char *
queue_out(const struct queue &queue)
{
    int64_t slot = queue.number * ULI_RECV_SLOTS + (int64_t)(queue.sent & 1);
    return queue.recv_buffer->out + slot * queue.recv_buffer->out_stride;
}

static __device__ const unsigned char *
queue_in(const struct queue &queue)
{
    int64_t slot =
        queue.number * ULI_RECV_SLOTS + (int64_t)(queue.received & 1);
    return queue.recv_buffer->in + slot * queue.recv_buffer->in_stride;
}

/* queue_has_room: whether the next chunk may be put. queue_has_chunk: whether
 * the next chunk from the peer is here. */
static __device__ bool
queue_has_room(const struct queue &queue)
{
    uint64_t emptied =
        ptx_ld_acquire_sys_u64(&queue.recv_buffer->mine[queue.number].emptied);
    return queue.sent < emptied + ULI_RECV_SLOTS;
}

static __device__ bool
queue_has_chunk(const struct queue &queue)
{
    uint64_t filled =
        ptx_ld_acquire_sys_u64(&queue.recv_buffer->mine[queue.number].filled);
    return queue.received < filled;
}

/* Announces to the peer that the whole warp has put the next chunk, or has
 * taken the next chunk out. */
static __device__ void
queue_has_put(struct queue &queue)
{
    queue.sent++;
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        ptx_st_release_sys_u64(
            &queue.recv_buffer->yours[queue.number].filled, queue.sent);
}

static __device__ void
queue_has_taken(struct queue &queue)
{
    queue.received++;
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        ptx_st_release_sys_u64(
            &queue.recv_buffer->yours[queue.number].emptied, queue.received);
}

/* One thread, after `polls` polls in vain: whether to poll again. */
static __device__ bool
may_wait(const struct call &c, int polls, int32_t peer)
{
    if (call_stopped(c))
        return false;
    if (ptx_globaltimer_ns() - c.start_ns > c.args->timeout_ns) {
        call_fail(c, (uint64_t)-ULYX_ERR_TIMEOUT, ULI_GPU_AWAITS_DONE, peer);
        return false;
    }
    if (polls > EAGER_POLLS)
        ptx_nanosleep(POLL_SLEEP_NS);
    return true;
}

#endif
