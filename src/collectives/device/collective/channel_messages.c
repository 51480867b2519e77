/* SPDX-License-Identifier: Apache-2.0
 *
 * Making and ending the channel of collectives by messages; see
 * channel_messages.h. The first use takes one agreement, in which each rank
 * gives its outcome and the place of its progress words; the gathers of the
 * communicator's batch, if no plan has made the batch yet; and one short
 * message per pair, so that no later call waits for a connection.
 */
#include "collectives/device/collective/channel_messages.h"

#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/device/calls_gpu.h"
#include "comm/device/gpu.h"
#include "comm/device/residency.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"

#define CHANNEL_DEVICE(channel, call, ...)                                     \
    ((channel)->ops->call((channel)->device, __VA_ARGS__))

/* What a rank gives to the agreement. */
struct info {
    struct uli_batch_place progress;
    int32_t
        transport; /* number of the requested one (comm/messages/batch.h); 0:
                    * any */
    int64_t share_bytes;
};

/* ---- before the agreement ------------------------------------------------ */

static bool
allocate_tables(struct uli_channel_messages *channel, size_t n)
{
    channel->terms_words =
        (int64_t)(sizeof(*channel->mine) / sizeof(int64_t) + 2 * n);
    size_t words = (size_t)channel->terms_words;
    channel->mine = calloc(words, sizeof(int64_t));
    channel->all = calloc(n * words, sizeof(int64_t));
    channel->outcomes = calloc(n, sizeof(*channel->outcomes));
    channel->batch = calloc(2 * n, sizeof(*channel->batch));
    channel->progress = calloc(n, sizeof(*channel->progress));
    channel->shares = calloc(n, sizeof(*channel->shares));
    return channel->mine && channel->all && channel->outcomes &&
           channel->batch && channel->progress && channel->shares;
}

static ulyx_status_t
load_kernels(struct uli_channel_messages *channel)
{
    int32_t multiprocessors = 0;
    ULI_TRY(uli_cuda_enter(channel->device));
    ulyx_status_t status = uli_cuda_status(
        uli_gpu_multiprocessors(&multiprocessors), "cudaDeviceGetAttribute");
    if (status == ULYX_SUCCESS)
        status = uli_cuda_status(uli_messages_collective_prepare(),
            "loading the kernels of collectives");
    channel->blocks = uli_residency_sms(channel->comm, 0, multiprocessors);
    return uli_cuda_leave(status);
}

static ulyx_status_t
take_memory(struct uli_channel_messages *channel)
{
    ulyx_comm_t *comm = channel->comm;
    void *pinned, *there, *memory;
    int64_t bytes = ULI_GPU_LINE + comm->nranks * channel->share_bytes;
    ULI_TRY(uli_gpu_host_alloc(
        comm, (int64_t)sizeof(*channel->report), &pinned, &there));
    memset(pinned, 0, sizeof(*channel->report));
    channel->report = pinned;
    channel->device_report = there;
    ULI_TRY(CHANNEL_DEVICE(channel, event_create, &channel->ended));
    ULI_TRY(CHANNEL_DEVICE(channel, alloc, bytes, &memory));
    channel->memory = memory;
    channel->arrived = channel->memory + ULI_GPU_LINE;
    ULI_TRY(uli_gpu_zero(comm, memory, ULI_GPU_LINE));
    return uli_arena_alloc(
        comm, ULI_BATCH_PROGRESS_BYTES, &channel->watch.block);
}

static ulyx_status_t
channel_prepare(ulyx_comm_t *comm, struct uli_channel_messages **channel_p)
{
    struct uli_channel_messages *channel = calloc(1, sizeof(*channel));
    struct uli_residency room = {.multiprocessors = 1, .per_sm = 1};
    if (!channel)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for collectives");
    *channel_p = channel;
    channel->comm = comm;
    channel->ops = comm->gpu->ops;
    channel->device = comm->gpu->device;
    uli_residency_choose(comm, 0, 0, &room); /* claims nothing */
    channel->shares_device = room.shares_device;
    channel->share_bytes =
        uli_max(comm->settings.gpu_recv_buffer_bytes / ULI_GPU_LINE, 1) *
        ULI_GPU_LINE;
    if (!uli_device_kernels_built())
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "collectives on device memory: ulyx was built without CUDA");
    if (!allocate_tables(channel, (size_t)comm->nranks))
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for collectives");
    ULI_TRY(load_kernels(channel));
    return take_memory(channel);
}

/* ---- the agreement ------------------------------------------------------- */

static ulyx_status_t
check_infos(
    struct uli_channel_messages *channel, const struct info *infos, int32_t p)
{
    char reason[ULI_REFUSAL_TEXT_BYTES];
    ulyx_status_t outcome = channel->outcomes[p];
    if (outcome != ULYX_SUCCESS)
        return uli_error(uli_status_of_peer(outcome),
            "collectives: rank %d refused: %s", p,
            uli_agree_reason(channel->comm, p, reason));
    if (infos[p].transport != infos[0].transport)
        return uli_error(ULYX_ERR_MISMATCH,
            "collectives: ULYX_ALGO names a way for device memory on rank %d "
            "and another, or none, on rank %d",
            infos[p].transport ? p : 0, infos[p].transport ? 0 : p);
    return ULYX_SUCCESS;
}

static ulyx_status_t
take_infos(struct uli_channel_messages *channel, const struct info *infos)
{
    ulyx_comm_t *comm = channel->comm;
    for (int32_t p = 0; p < comm->nranks; p++)
        ULI_TRY(check_infos(channel, infos, p));
    for (int32_t p = 0; p < comm->nranks; p++) {
        channel->progress[p] = infos[p].progress;
        channel->shares[p] = p != comm->rank;
        channel->share_bytes =
            uli_min(channel->share_bytes, infos[p].share_bytes);
    }
    return ULYX_SUCCESS;
}

/* The agreement of the first use. outcome: of channel_prepare. A failure of one
 * rank is an error of all. */
static ulyx_status_t
channel_meet(ulyx_comm_t *comm, struct uli_channel_messages *channel,
    ulyx_status_t outcome)
{
    uli_deadline_t deadline = uli_comm_step_deadline(comm);
    struct info mine, *infos = NULL;
    memset(&mine, 0, sizeof(mine));
    if (outcome == ULYX_SUCCESS) {
        infos = calloc((size_t)comm->nranks, sizeof(*infos));
        if (!infos)
            outcome =
                uli_error(ULYX_ERR_NO_MEMORY, "no memory for collectives");
    }
    if (outcome != ULYX_SUCCESS)
        return uli_agree_refuse(
            comm, ULI_CALL_ALLTOALL_SETUP, outcome, deadline);
    mine.progress.window = channel->watch.block.window;
    mine.progress.offset = channel->watch.block.offset;
    mine.transport = uli_comm_batch_transport(comm->settings.algo);
    mine.share_bytes = channel->share_bytes;
    ulyx_status_t status = uli_agree_gather(
        comm, &(struct uli_gather){.call = ULI_CALL_ALLTOALL_SETUP,
                  .mine = &mine,
                  .bytes = sizeof(mine),
                  .max_bytes = sizeof(mine),
                  .all_p = infos,
                  .status_p = channel->outcomes,
                  .deadline = deadline});
    if (status == ULYX_SUCCESS)
        status = take_infos(channel, infos);
    free(infos);
    return status;
}

/* ---- after it ------------------------------------------------------------ */

static ulyx_status_t
send_first(struct uli_channel_messages *channel, void *stream)
{
    ulyx_comm_t *comm = channel->comm;
    int64_t half = ULI_GPU_LINE / 2;
    channel->nbatch = 0;
    channel->stream = stream;
    for (int32_t p = 0; p < comm->nranks; p++) {
        unsigned char *at = channel->arrived + p * channel->share_bytes;
        if (p == comm->rank)
            continue;
        uli_channel_messages_add(channel, p, true, at, half);
        uli_channel_messages_add(channel, p, false, at + half, half);
    }
    ULI_TRY(uli_channel_messages_send(channel));
    return CHANNEL_DEVICE(channel, stream_wait, stream);
}

/* Sends and receives the first messages. An error does not show which peer is
 * its cause, so it fails the communicator. */
static ulyx_status_t
channel_connect(struct uli_channel_messages *channel)
{
    ulyx_comm_t *comm = channel->comm;
    void *stream = NULL;
    ulyx_status_t status = CHANNEL_DEVICE(channel, stream_create, &stream);
    if (status == ULYX_SUCCESS)
        status = uli_comm_batch_take(comm, uli_comm_step_deadline(comm));
    if (status == ULYX_SUCCESS) {
        status = send_first(channel, stream);
        uli_comm_batch_give(comm);
    }
    if (stream)
        (void)CHANNEL_DEVICE(channel, stream_destroy, stream);
    if (status == ULYX_SUCCESS)
        return status;
    return uli_comm_fail(comm, status, -1, "collectives: %s", uli_error_text());
}

static void
channel_watch(struct uli_channel_messages *channel)
{
    struct uli_batch_watch *watch = &channel->watch;
    watch->begun = &channel->report->begun;
    watch->ended = &channel->report->ended;
    watch->call = &channel->report->call;
    watch->name_of = uli_collective_name;
    watch->timeout_s = channel->comm->timeout_s;
    watch->what = "collective";
    watch->progress = channel->progress;
    watch->shares = channel->shares;
    uli_batch_watch_add(channel->comm, watch);
    channel->watched = true;
}

/* ---- the end ------------------------------------------------------------- */

static void
free_channel(struct uli_channel_messages *channel)
{
    if (!channel)
        return;
    if (channel->watched)
        uli_batch_watch_remove(channel->comm, &channel->watch);
    if (channel->watch.block.address)
        uli_arena_free(channel->comm, &channel->watch.block);
    if (channel->ended)
        (void)CHANNEL_DEVICE(channel, event_destroy, channel->ended);
    if (channel->memory)
        (void)CHANNEL_DEVICE(channel, free, channel->memory);
    if (channel->report)
        (void)CHANNEL_DEVICE(channel, host_free, channel->report);
    free(channel->mine);
    free(channel->all);
    free(channel->outcomes);
    free(channel->batch);
    free(channel->progress);
    free(channel->shares);
    free(channel);
}

static void
channel_publish(ulyx_comm_t *comm, struct uli_channel_messages *channel)
{
    pthread_mutex_lock(&comm->gpu->plans_lock);
    comm->alltoall = channel;
    pthread_mutex_unlock(&comm->gpu->plans_lock);
}

static void
channel_destroy(ulyx_comm_t *comm)
{
    struct uli_channel_messages *channel = comm->alltoall;
    channel_publish(comm, NULL);
    free_channel(channel);
}

/* A graph counts only once it has begun. */
static bool
channel_in_flight(ulyx_comm_t *comm)
{
    pthread_mutex_lock(&comm->gpu->plans_lock);
    const struct uli_channel_messages *channel = comm->alltoall;
    bool busy =
        channel && uli_gpu_calls_in_flight(comm, channel->ops, channel->device,
                       channel->ended, &channel->enqueued, channel->report);
    pthread_mutex_unlock(&comm->gpu->plans_lock);
    return busy;
}

/* Does nothing: the watch over the batch checks the calls. */
static void
channel_look(ulyx_comm_t *comm)
{
    (void)comm;
}

static const struct uli_gpu_calls channel_calls = {
    channel_in_flight, channel_look};

/* ---- the first use ------------------------------------------------------- */

/* After the agreement, with the same arguments on all ranks: opens the batch
 * and makes the connections. */
static ulyx_status_t
channel_complete(struct uli_channel_messages *channel)
{
    ulyx_comm_t *comm = channel->comm;
    int32_t wanted =
        comm->batch ? 0 : uli_comm_batch_transport(comm->settings.algo);
    ULI_TRY(uli_comm_batch_open(comm, wanted, uli_comm_step_deadline(comm)));
    ULI_TRY(channel_connect(channel));
    channel_watch(channel);
    return ULYX_SUCCESS;
}

static ulyx_status_t
set_up(ulyx_comm_t *comm, ulyx_status_t outcome, void *stream)
{
    struct uli_channel_messages *channel = NULL;
    if (outcome == ULYX_SUCCESS)
        outcome = uli_gpu_check_first(comm, "connections", stream);
    if (outcome == ULYX_SUCCESS)
        outcome = channel_prepare(comm, &channel);
    ulyx_status_t status = channel_meet(comm, channel, outcome);
    if (status == ULYX_SUCCESS)
        status = channel_complete(channel);
    if (status != ULYX_SUCCESS) {
        free_channel(channel);
        return status;
    }
    channel_publish(comm, channel);
    comm->alltoall_destroy = channel_destroy;
    comm->gpu->calls = &channel_calls;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_channel_messages_take(ulyx_comm_t *comm, ulyx_status_t outcome,
    void *stream, struct uli_channel_messages **channel_p)
{
    bool expected = false;
    ULI_TRY(uli_comm_check(comm));
    if (!comm->alltoall)
        ULI_TRY(set_up(comm, outcome, stream));
    struct uli_channel_messages *channel = comm->alltoall;
    if (!atomic_compare_exchange_strong(&channel->busy, &expected, true))
        return uli_error(ULYX_ERR_BUSY,
            "another thread calls a collective of %.63s", comm->name);
    channel->stream = stream;
    channel->nbatch = 0;
    *channel_p = channel;
    return ULYX_SUCCESS;
}

void
uli_channel_messages_give(struct uli_channel_messages *channel)
{
    atomic_store(&channel->busy, false);
}
