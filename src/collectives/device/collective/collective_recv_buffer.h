/* SPDX-License-Identifier: Apache-2.0
 *
 * Chunks through the receive buffer of a pair, by the warp of one lane. Device
 * code of the collectives' kernels; collective_gpu.h has the protocol.
 *
 * Order: whoever fills a chunk meets at a warp barrier the thread that releases
 * `filled`; who empties it acquires that word, and releases `emptied` after
 * another barrier, which is acquired before the chunk is filled again.
 */
#ifndef ULI_COLLECTIVES_DEVICE_COLLECTIVE_COLLECTIVE_RECV_BUFFER_H
#define ULI_COLLECTIVES_DEVICE_COLLECTIVE_COLLECTIVE_RECV_BUFFER_H

#include "collectives/device/collective/collective_words.h"

/* One lane of a pair, as its warp sees it. */
struct lane {
    const struct uli_recv_buffer *recv_buffer;
    int32_t number;
    uint64_t sent, received; /* chunks since the communicator's first */
};

static __device__ struct lane
lane_of(const uli_collective_args &a, int32_t p, int32_t number)
{
    const struct uli_recv_buffer *recv_buffer = &a.recv_buffers[p];
    const struct uli_recv_counts *counts = &recv_buffer->counts[number];
    struct lane lane = {recv_buffer, number, counts->sent, counts->received};
    return lane;
}

/* For the next call. */
static __device__ void
lane_keeps(const struct lane &lane)
{
    __syncwarp();
    if (threadIdx.x % WARP == 0) {
        lane.recv_buffer->counts[lane.number].sent = lane.sent;
        lane.recv_buffer->counts[lane.number].received = lane.received;
    }
    __syncwarp();
}

/* Where the next chunk is to be put, and where the next one is. */
static __device__ unsigned char *
lane_out(const struct lane &lane)
{
    int64_t slot = lane.number * ULI_RECV_SLOTS + (int64_t)(lane.sent & 1);
    return lane.recv_buffer->out + slot * lane.recv_buffer->out_stride;
}

static __device__ const unsigned char *
lane_in(const struct lane &lane)
{
    int64_t slot =
        lane.number * ULI_RECV_SLOTS + (int64_t)(lane.received & 1);
    return lane.recv_buffer->in + slot * lane.recv_buffer->in_stride;
}

/* What the words have to reach before the next chunk may be put, and before
 * the next one is here. */
static __device__ bool
lane_has_room(const struct lane &lane)
{
    uint64_t emptied =
        ptx_ld_acquire_sys_u64(&lane.recv_buffer->mine[lane.number].emptied);
    return lane.sent < emptied + ULI_RECV_SLOTS;
}

static __device__ bool
lane_has_chunk(const struct lane &lane)
{
    uint64_t filled =
        ptx_ld_acquire_sys_u64(&lane.recv_buffer->mine[lane.number].filled);
    return lane.received < filled;
}

/* The whole warp has put the next chunk, or taken it out. */
static __device__ void
lane_has_put(struct lane &lane)
{
    lane.sent++;
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        ptx_st_release_sys_u64(
            &lane.recv_buffer->yours[lane.number].filled, lane.sent);
}

static __device__ void
lane_has_taken(struct lane &lane)
{
    lane.received++;
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        ptx_st_release_sys_u64(
            &lane.recv_buffer->yours[lane.number].emptied, lane.received);
}

/* One thread that has found nothing to do so many times: may it look again? */
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
