/* SPDX-License-Identifier: Apache-2.0
 *
 * Making and ending the channel of a communicator's collectives on device
 * memory. Each rank gives its number of queues and its chunk size to the
 * agreement, and lays out its block by these. Calls use the smallest of all
 * ranks.
 *
 * The end. A peer may post into the words of a rank that has left. These words
 * lie in an arena of the communicator, which outlives the communicator where
 * peers may still touch it. The peer's call finds that this rank takes no part.
 */
#include "collectives/device/collective/channel_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/device/calls_gpu.h"
#include "collectives/device/mapped/plan_gpu.h"
#include "comm/device/gpu.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"

enum {
    QUEUES_A_BLOCK = ULI_COLLECTIVE_THREADS / 32,
    LEAST_CHUNK_BYTES = ULI_GPU_LINE, /* 16 elements of 8 bytes */
    MOST_CHUNK_BYTES = 65536,
};

/* What a rank gives to the agreement. */
struct info {
    uint32_t window;
    int32_t queues;
    int64_t offset, chunk_bytes;
};

static struct uli_channel_places
places_of(int64_t nranks, int64_t queues, int64_t chunk_bytes)
{
    const int64_t sizes[] = {nranks * (int64_t)sizeof(struct uli_gpu_flags),
        (int64_t)sizeof(struct uli_gpu_state),
        nranks * (int64_t)sizeof(struct uli_gpu_peer),
        nranks * (int64_t)sizeof(struct uli_recv_buffer),
        nranks * queues * (int64_t)sizeof(struct uli_recv_flags),
        nranks * queues * (int64_t)sizeof(struct uli_recv_counts),
        nranks * queues * ULI_RECV_SLOTS * chunk_bytes};
    struct uli_channel_places places;
    int64_t *at[] = {&places.words, &places.state, &places.peers,
        &places.recv_buffers, &places.queue_flags, &places.counts,
        &places.chunks};
    int64_t end = 0;
    for (int i = 0; i < 7; i++) {
        *at[i] = end;
        end = uli_round_up(end + sizes[i], ULI_GPU_LINE);
    }
    places.bytes = end;
    return places;
}

/* ---- before the agreement ------------------------------------------------ */

static ulyx_status_t
check_possible(ulyx_comm_t *comm)
{
    ULI_TRY(uli_gpu_check_mapped(comm, "collectives: "));
    if (!uli_device_kernels_built())
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "collectives on device memory: ulyx was built without CUDA");
    if (comm->nranks > ULI_COLLECTIVE_RANKS)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "collectives on device memory take at most %d ranks, %.63s has %d",
            ULI_COLLECTIVE_RANKS, comm->name, comm->nranks);
    return ULYX_SUCCESS;
}

static ulyx_status_t
load_kernels(int32_t device, struct uli_residency *room)
{
    int32_t moves = 0, adds = 0;
    ULI_TRY(uli_cuda_enter(device));
    ulyx_status_t status =
        uli_cuda_status(uli_gpu_multiprocessors(&room->multiprocessors),
            "cudaDeviceGetAttribute");
    if (status == ULYX_SUCCESS)
        status = uli_cuda_status(
            uli_alltoall_prepare(&moves), "loading the kernels of collectives");
    if (status == ULYX_SUCCESS)
        status = uli_cuda_status(
            uli_allreduce_prepare(&adds), "loading the kernels of collectives");
    room->per_sm = (int32_t)uli_min(moves, adds);
    return uli_cuda_leave(status);
}

static ulyx_status_t
choose_queues(struct uli_channel_gpu *channel)
{
    struct uli_residency *room = &channel->room;
    int64_t recv_buffer = channel->comm->settings.gpu_recv_buffer_bytes;
    ULI_TRY(load_kernels(channel->device, room));
    channel->blocks =
        uli_residency_sms(channel->comm, 0, room->multiprocessors);
    uli_residency_choose(channel->comm, channel->blocks, 1, room);
    int64_t queues =
        room->claimed ? room->claimed * (int64_t)QUEUES_A_BLOCK : 1;
    int64_t chunk = recv_buffer / ULI_RECV_SLOTS / queues;
    chunk = uli_max(uli_min(chunk, MOST_CHUNK_BYTES), LEAST_CHUNK_BYTES);
    channel->args.queues = (int32_t)queues;
    channel->args.chunk_bytes = chunk / ULI_GPU_LINE * ULI_GPU_LINE;
    return ULYX_SUCCESS;
}

static ulyx_status_t
take_memory(struct uli_channel_gpu *channel)
{
    ulyx_comm_t *comm = channel->comm;
    struct uli_collective_args *args = &channel->args;
    struct uli_channel_places places =
        places_of(comm->nranks, args->queues, args->chunk_bytes);
    void *pinned, *there;
    ULI_TRY(uli_gpu_host_alloc(
        comm, (int64_t)sizeof(*channel->report), &pinned, &there));
    memset(pinned, 0, sizeof(*channel->report));
    channel->report = pinned;
    args->report = there;
    args->base.report = there;
    ULI_TRY(channel->ops->event_create(channel->device, &channel->ended));
    ULI_TRY(channel->ops->stream_create(channel->device, &channel->own_stream));
    return uli_gpu_arena_alloc(comm, places.bytes, &channel->block);
}

static ulyx_status_t
channel_gpu_prepare(ulyx_comm_t *comm, struct uli_channel_gpu **channel_p)
{
    struct uli_channel_gpu *channel = calloc(1, sizeof(*channel));
    if (!channel)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for collectives");
    *channel_p = channel;
    channel->comm = comm;
    channel->ops = comm->gpu->ops;
    channel->device = comm->gpu->device;
    ULI_TRY(choose_queues(channel));
    return take_memory(channel);
}

/* ---- after it ------------------------------------------------------------ */

/* Finds the words and the receive buffer of p, which lie in p's block where p's
 * own numbers place them. */
static ulyx_status_t
channel_gpu_meet(struct uli_channel_gpu *channel, const struct info *infos,
    int32_t p, struct uli_gpu_peer *peer, struct uli_recv_buffer *recv_buffer)
{
    ulyx_comm_t *comm = channel->comm;
    int32_t me = comm->rank;
    const struct info *info = &infos[p], *own = &infos[me];
    struct uli_channel_places here =
        places_of(comm->nranks, own->queues, own->chunk_bytes);
    struct uli_channel_places there =
        places_of(comm->nranks, info->queues, info->chunk_bytes);
    unsigned char *mine = channel->block.address;
    unsigned char *theirs =
        uli_window_address(comm, p, info->window, info->offset, there.bytes);
    if (!theirs)
        return uli_error(ULYX_ERR_INTERNAL,
            "the receive buffers of rank %d are not mapped here", p);
    peer->mine = (struct uli_gpu_flags *)(void *)(mine + here.words) + p;
    peer->yours = (struct uli_gpu_flags *)(void *)(theirs + there.words) + me;
    peer->windows = uli_gpu_windows(comm, p, &peer->nwindows);
    peer->shares = 1;
    recv_buffer->mine =
        (struct uli_recv_flags *)(void *)(mine + here.queue_flags) +
        p * (int64_t)own->queues;
    recv_buffer->yours =
        (struct uli_recv_flags *)(void *)(theirs + there.queue_flags) +
        me * (int64_t)info->queues;
    recv_buffer->counts =
        (struct uli_recv_counts *)(void *)(mine + here.counts) +
        p * (int64_t)own->queues;
    recv_buffer->in_stride = own->chunk_bytes;
    recv_buffer->out_stride = info->chunk_bytes;
    recv_buffer->in = mine + here.chunks +
                      p * own->queues * ULI_RECV_SLOTS * own->chunk_bytes;
    recv_buffer->out = theirs + there.chunks +
                       me * info->queues * ULI_RECV_SLOTS * info->chunk_bytes;
    return ULYX_SUCCESS;
}

static ulyx_status_t
channel_gpu_upload(struct uli_channel_gpu *channel, const struct info *infos,
    const struct uli_channel_places *places)
{
    ulyx_comm_t *comm = channel->comm;
    char *base = channel->block.address;
    size_t n = (size_t)comm->nranks;
    struct uli_gpu_peer *peers = calloc(n, sizeof(*peers));
    struct uli_recv_buffer *recv_buffers = calloc(n, sizeof(*recv_buffers));
    ulyx_status_t status = ULYX_SUCCESS;
    if (!peers || !recv_buffers)
        status = uli_error(ULYX_ERR_NO_MEMORY, "no memory for collectives");
    for (int32_t p = 0; p < comm->nranks && status == ULYX_SUCCESS; p++)
        if (p != comm->rank)
            status = channel_gpu_meet(
                channel, infos, p, &peers[p], &recv_buffers[p]);
    if (status == ULYX_SUCCESS)
        status = uli_gpu_upload(
            comm, base + places->peers, peers, (int64_t)(n * sizeof(*peers)));
    if (status == ULYX_SUCCESS)
        status = uli_gpu_upload(comm, base + places->recv_buffers, recv_buffers,
            (int64_t)(n * sizeof(*recv_buffers)));
    free(peers);
    free(recv_buffers);
    return status;
}

static void
fill_args(
    struct uli_channel_gpu *channel, const struct uli_channel_places *places)
{
    ulyx_comm_t *comm = channel->comm;
    unsigned char *base = channel->block.address;
    struct uli_collective_args *args = &channel->args;
    args->recv_buffers = (void *)(base + places->recv_buffers);
    args->base.state = (void *)(base + places->state);
    args->base.peers = (void *)(base + places->peers);
    args->base.rank = comm->rank;
    args->base.nranks = comm->nranks;
    args->base.poison = uli_gpu_poison(comm);
    args->base.timeout_ns = (uint64_t)(comm->timeout_s * 1e9);
}

static ulyx_status_t
channel_gpu_complete(struct uli_channel_gpu *channel, const struct info *infos)
{
    ulyx_comm_t *comm = channel->comm;
    struct uli_channel_places places = places_of(
        comm->nranks, channel->args.queues, channel->args.chunk_bytes);
    ulyx_status_t status = channel_gpu_upload(channel, infos, &places);
    if (status != ULYX_SUCCESS)
        return uli_comm_fail(
            comm, status, comm->rank, "collectives: %s", uli_error_text());
    fill_args(channel, &places);
    for (int32_t p = 0; p < comm->nranks; p++) {
        channel->args.queues =
            (int32_t)uli_min(channel->args.queues, infos[p].queues);
        channel->args.chunk_bytes =
            uli_min(channel->args.chunk_bytes, infos[p].chunk_bytes);
    }
    return ULYX_SUCCESS;
}

/* ---- the end ------------------------------------------------------------- */

static void
free_channel(struct uli_channel_gpu *channel)
{
    if (!channel)
        return;
    if (channel->block.address)
        uli_gpu_arena_free(channel->comm, &channel->block);
    uli_residency_release(channel->device, &channel->room);
    if (channel->own_stream)
        (void)channel->ops->stream_destroy(
            channel->device, channel->own_stream);
    if (channel->ended)
        (void)channel->ops->event_destroy(channel->device, channel->ended);
    if (channel->report)
        (void)channel->ops->host_free(channel->device, channel->report);
    free(channel);
}

/* Enqueues a kernel that waits for no rank. */
static void
notify_peers(struct uli_channel_gpu *channel)
{
    struct uli_collective_args args = channel->args;
    uli_deadline_t deadline = uli_deadline_in(channel->comm->timeout_s);
    args.base.steps = ULI_GPU_LEAVE;
    if (uli_cuda_enter(channel->device) != ULYX_SUCCESS)
        return;
    ulyx_status_t status = uli_cuda_leave(
        uli_cuda_status(uli_alltoall_launch(&args, 1, 32, channel->own_stream),
            "launch of the end of collectives"));
    if (status == ULYX_SUCCESS)
        status = channel->ops->event_record(
            channel->device, channel->ended, channel->own_stream);
    if (status == ULYX_SUCCESS)
        (void)uli_gpu_await(
            channel->ops, channel->device, channel->ended, deadline);
}

static void
channel_gpu_destroy(ulyx_comm_t *comm)
{
    struct uli_channel_gpu *channel = comm->alltoall;
    comm->alltoall = NULL;
    if (!channel)
        return;
    uli_channel_gpu_look(channel);
    (void)uli_channel_gpu_outcome(channel, /* which logs it: no call will return
                                            * it */
        uli_gpu_noted(&channel->report->base.outcome));
    if (uli_comm_check(comm) == ULYX_SUCCESS)
        notify_peers(channel);
    pthread_mutex_lock(&comm->gpu->plans_lock);
    comm->gpu->channel = NULL;
    pthread_mutex_unlock(&comm->gpu->plans_lock);
    free_channel(channel);
}

/* ---- the first use ------------------------------------------------------- */

static ulyx_status_t
refused_by(ulyx_comm_t *comm, int32_t p, ulyx_status_t status)
{
    char reason[ULI_REFUSAL_TEXT_BYTES];
    return uli_error(uli_status_of_peer(status),
        "collectives: rank %d refused: %s", p,
        uli_agree_reason(comm, p, reason));
}

/* The agreement of the first use. A failure of one rank is an error of all. */
static ulyx_status_t
channel_gpu_agree(ulyx_comm_t *comm, ulyx_status_t outcome,
    const struct info *mine, struct info *infos)
{
    uli_deadline_t deadline = uli_comm_step_deadline(comm);
    ulyx_status_t outcomes[ULI_COLLECTIVE_RANKS];
    int64_t bytes[ULI_COLLECTIVE_RANKS];
    if (outcome != ULYX_SUCCESS)
        return uli_agree_refuse(comm, ULI_CALL_ALLTOALL_SETUP, outcome, deadline);
    ULI_TRY(uli_agree_gather(comm, &(struct uli_gather){.call = ULI_CALL_ALLTOALL_SETUP,
                                       .mine = mine,
                                       .bytes = sizeof(*mine),
                                       .max_bytes = sizeof(*mine),
                                       .all_p = infos,
                                       .bytes_p = bytes,
                                       .status_p = outcomes,
                                       .deadline = deadline}));
    for (int32_t p = 0; p < comm->nranks; p++)
        if (outcomes[p] != ULYX_SUCCESS)
            return refused_by(comm, p, outcomes[p]);
    return ULYX_SUCCESS;
}

static ulyx_status_t
set_up(ulyx_comm_t *comm, ulyx_status_t outcome, void *stream)
{
    struct uli_channel_gpu *channel = NULL;
    struct info mine, infos[ULI_COLLECTIVE_RANKS];
    memset(&mine, 0, sizeof(mine));
    if (outcome == ULYX_SUCCESS)
        outcome = uli_gpu_check_first(comm, "receive buffers", stream);
    if (outcome == ULYX_SUCCESS)
        outcome = channel_gpu_prepare(comm, &channel);
    if (outcome == ULYX_SUCCESS)
        mine = (struct info){channel->block.window, channel->args.queues,
            channel->block.offset, channel->args.chunk_bytes};
    ulyx_status_t status = channel_gpu_agree(comm, outcome, &mine, infos);
    if (status == ULYX_SUCCESS)
        status = channel_gpu_complete(channel, infos);
    if (status != ULYX_SUCCESS) {
        free_channel(channel);
        return status;
    }
    comm->alltoall = channel;
    comm->alltoall_destroy = channel_gpu_destroy;
    pthread_mutex_lock(&comm->gpu->plans_lock);
    comm->gpu->channel = channel;
    comm->gpu->calls = &uli_plans_gpu_calls;
    pthread_mutex_unlock(&comm->gpu->plans_lock);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_channel_gpu_take(ulyx_comm_t *comm, ulyx_status_t outcome, void *stream,
    struct uli_channel_gpu **channel_p)
{
    bool expected = false;
    ULI_TRY(uli_comm_check(comm));
    ULI_TRY(check_possible(comm)); /* the same on all ranks */
    if (!comm->alltoall)
        ULI_TRY(set_up(comm, outcome, stream));
    struct uli_channel_gpu *channel = comm->alltoall;
    if (!atomic_compare_exchange_strong(&channel->busy, &expected, true))
        return uli_error(ULYX_ERR_BUSY,
            "another thread calls a collective of %.63s", comm->name);
    uli_channel_gpu_look(channel);
    ulyx_status_t status = uli_comm_check(comm);
    if (status == ULYX_SUCCESS && outcome != ULYX_SUCCESS)
        return uli_channel_gpu_refuse(channel, outcome, stream);
    if (status != ULYX_SUCCESS)
        atomic_store(&channel->busy, false);
    else
        *channel_p = channel;
    return status;
}
