/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of a collective on device memory: its memory is checked and found in
 * windows, then the call is enqueued. Refusals, streams and captures are
 * handled as for plans (plan_gpu_call.c).
 */
#include <stdio.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/device/calls_gpu.h"
#include "collectives/device/collective/channel_gpu.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"

enum {
    WARP_THREADS = 32,
    /* Without a claim, one warp alone does calls of at most this many bytes. */
    ONE_WARP_BYTES = 65536,
};

/* ---- memory -------------------------------------------------------------- */

/* Finds window and offset of `pointer`, of which bytes [begin, end) are
 * used. */
static ulyx_status_t
channel_gpu_locate(const struct uli_channel_gpu *channel, const char *name,
    const void *pointer, int64_t begin, int64_t end, uint64_t *words)
{
    const char *first = (const char *)pointer + begin;
    uint32_t window;
    int64_t offset;
    words[0] = ULI_GPU_NO_WINDOW;
    words[1] = 0;
    if (begin >= end)
        return ULYX_SUCCESS;
    if (!uli_window_find(channel->comm, first, end - begin, &window, &offset))
        return uli_gpu_check_memory(
            channel->ops, channel->device, name, first, end - begin);
    words[0] = window;
    words[1] = (uint64_t)(offset - begin);
    return ULYX_SUCCESS;
}

/* ---- enqueueing ---------------------------------------------------------- */

static ulyx_status_t
channel_gpu_launch(const struct uli_channel_gpu *channel,
    const struct uli_channel_call *call, struct uli_collective_args *args,
    int32_t steps, int32_t blocks, int32_t threads, void *stream)
{
    args->base.steps = steps;
    ULI_TRY(uli_cuda_enter(channel->device));
    return uli_cuda_leave(uli_cuda_status(
        call->launch(args, blocks, threads, stream), "launch of a collective"));
}

static int64_t
blocks_for(int64_t bytes, int64_t each)
{
    return bytes / each + (bytes % each > 0);
}

/* The blocks of a launch: enough warps for one tile each, and for one queue
 * each where chunks go by queues. */
static int32_t
blocks_of(const struct uli_channel_gpu *channel,
    const struct uli_channel_call *call, const struct uli_collective_args *args)
{
    int64_t warps = ULI_COLLECTIVE_THREADS / WARP_THREADS;
    int64_t tiles = blocks_for(call->moved_bytes, ULI_COLLECTIVE_TILE);
    int64_t chunks = blocks_for(call->landed_bytes, args->chunk_bytes);
    int64_t most = uli_max(tiles, uli_min(chunks, args->queues));
    return (int32_t)uli_max(uli_min(blocks_for(most, warps), channel->blocks), 1);
}

/* *begun_p: peers have been notified of the call. The first launch may fail
 * because of the stream; the call is then refused at the peers. */
static ulyx_status_t
channel_gpu_enqueue(const struct uli_channel_gpu *channel,
    const struct uli_channel_call *call, struct uli_collective_args *args,
    void *stream, bool *begun_p)
{
    int32_t blocks = blocks_of(channel, call, args);
    *begun_p = false;
    if (channel->room.claimed)
        return channel_gpu_launch(channel, call, args, ULI_GPU_ALL, blocks,
            ULI_COLLECTIVE_THREADS, stream);
    if (call->moved_bytes <= ONE_WARP_BYTES)
        return channel_gpu_launch(
            channel, call, args, ULI_GPU_ALL, 1, WARP_THREADS, stream);
    ULI_TRY(channel_gpu_launch(channel, call, args, ULI_GPU_OPEN, 1, WARP_THREADS, stream));
    *begun_p = true;
    ULI_TRY(channel_gpu_launch(channel, call, args, ULI_GPU_MOVE, blocks,
        ULI_COLLECTIVE_THREADS, stream));
    return channel_gpu_launch(channel, call, args, ULI_GPU_CLOSE, 1, WARP_THREADS, stream);
}

/* Fails the communicator for a call that is enqueued in part. */
static ulyx_status_t
channel_fail(struct uli_channel_gpu *channel, ulyx_status_t status)
{
    return uli_comm_fail(channel->comm, status, channel->comm->rank,
        "collectives: %s", uli_error_text());
}

static ulyx_status_t
mark_end(struct uli_channel_gpu *channel, void *stream)
{
    ULI_TRY(
        channel->ops->event_record(channel->device, channel->ended, stream));
    atomic_store(&channel->enqueued, true);
    return ULYX_SUCCESS;
}

/* ---- refusals ------------------------------------------------------------ */

static ulyx_status_t
post_refusal(struct uli_channel_gpu *channel, ulyx_status_t status)
{
    struct uli_collective_args args = channel->args;
    const struct uli_channel_call call = {.launch = uli_alltoall_launch};
    memset(args.base.record, 0, sizeof(args.base.record));
    args.base.record[ULI_COLLECTIVE_CALL] = (uint64_t)-status;
    args.queues = 0;
    if (atomic_load(&channel->enqueued))
        ULI_TRY(channel->ops->event_order(
            channel->device, channel->ended, channel->own_stream));
    ULI_TRY(channel_gpu_launch(channel, &call, &args, ULI_GPU_OPEN | ULI_GPU_CLOSE, 1,
        WARP_THREADS, channel->own_stream));
    channel->detour = true;
    return mark_end(channel, channel->own_stream);
}

/* Posts the refusal. Returns status, whose text is the thread's last error. */
static ulyx_status_t
channel_refuse(struct uli_channel_gpu *channel, ulyx_status_t status)
{
    char text[256];
    snprintf(text, sizeof(text), "%s", uli_error_text());
    ulyx_status_t posted = post_refusal(channel, status);
    if (posted != ULYX_SUCCESS)
        return channel_fail(channel, posted);
    return uli_error_pass(status, text);
}

ulyx_status_t
uli_channel_gpu_refuse(
    struct uli_channel_gpu *channel, ulyx_status_t status, void *stream)
{
    char text[256];
    bool capturing = false;
    snprintf(text, sizeof(text), "%s", uli_error_text());
    if (channel->ops->stream_capturing(channel->device, stream, &capturing) !=
        ULYX_SUCCESS)
        capturing = false; /* no such stream: the call takes no place in it */
    uli_error_pass(status, text);
    if (!capturing)
        status = channel_refuse(channel, status);
    atomic_store(&channel->busy, false);
    return status;
}

/* ---- a call -------------------------------------------------------------- */

static ulyx_status_t
place_call(struct uli_channel_gpu *channel, const struct uli_channel_call *call,
    struct uli_collective_args *args, void *stream, bool *capturing_p)
{
    ULI_TRY(uli_gpu_check_stream(channel->ops, channel->device,
        channel->room.shares_device, stream, capturing_p));
    ULI_TRY(channel_gpu_locate(channel, "src", call->src, call->src_begin, call->src_end,
        &args->base.record[ULI_COLLECTIVE_SRC]));
    ULI_TRY(channel_gpu_locate(channel, "dst", call->dst, call->dst_begin, call->dst_end,
        &args->base.record[ULI_COLLECTIVE_DST]));
    args->src = call->src;
    args->dst = call->dst;
    return uli_gpu_end_detour(channel->ops, channel->device, channel->ended,
        stream, *capturing_p, &channel->detour);
}

static ulyx_status_t
channel_gpu_start(struct uli_channel_gpu *channel, const struct uli_channel_call *call,
    struct uli_collective_args *args, void *stream)
{
    bool capturing = false, begun;
    ulyx_status_t status = place_call(channel, call, args, stream, &capturing);
    if (status != ULYX_SUCCESS)
        return capturing ? status : channel_refuse(channel, status);
    status = channel_gpu_enqueue(channel, call, args, stream, &begun);
    if (status != ULYX_SUCCESS && !begun && !capturing)
        return channel_refuse(channel, status);
    if (status != ULYX_SUCCESS)
        return begun ? channel_fail(channel, status) : status;
    return capturing ? ULYX_SUCCESS : mark_end(channel, stream);
}

ulyx_status_t
uli_channel_gpu_run(struct uli_channel_gpu *channel,
    const struct uli_channel_call *call, struct uli_collective_args *args,
    void *stream)
{
    /* read first: this call may end before the outcome is looked at */
    uint64_t word = uli_gpu_noted(&channel->report->base.outcome);
    ulyx_status_t status = channel_gpu_start(channel, call, args, stream);
    if (status == ULYX_SUCCESS)
        status = uli_channel_gpu_outcome(channel, word);
    atomic_store(&channel->busy, false);
    return status;
}
