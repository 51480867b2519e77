/* SPDX-License-Identifier: Apache-2.0
 *
 * See staged.h: opening, runs and the end of a batch, and the table of the
 * transport. The id carries the settings of its maker, so all ranks cut chunks
 * alike.
 *
 * `held` keeps a second thread out. abort only stores a word, which kernels
 * read, so it does not take `held`. An event orders runs on several streams;
 * only their graph orders captured runs.
 */
#include "transport/staged/staged.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/late.h"
#include "base/log.h"
#include "base/size.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"
#include "device/device.h"
#include "topology/bind.h"
#include "transport/transport.h"

enum {
    WARPS = ULI_STAGED_THREADS / 32, /* of a block */
    PAIRS_OF_QUEUES = 2, /* all pairs of a rank together have at most this many
                          * times the queues of the id, but each has at least
                          * one */
    LOOK_NS = 100 * 1000,
};
/* How much longer a kernel waits than the watch over its call. */
#define AFTER_NS INT64_C(500000000)

/* The struct uli_batch of this transport. */
struct staged_batch {
    struct uli_batch_params params;
    struct uli_staged_memory memory;
    struct uli_staged_relay relay;
    struct uli_staged_state *state;                   /* on the device */
    struct uli_staged_report *report, *device_report; /* pinned */
    int32_t per_sm, claimed; /* claimed: blocks that may wait for other ranks */
    void *event;             /* after the last run that was not captured */
    bool recorded;
    _Atomic bool held, aborted, used;
};

#define DEVICE(batch, call, ...)                                               \
    uli_device_cuda.call((batch)->params.device, __VA_ARGS__)

/* ---- the shape ----------------------------------------------------------- */

struct id {
    int64_t chunk_bytes, bytes, queues;
};
_Static_assert(sizeof(struct id) <= ULI_BATCH_ID_BYTES, "id");

static ulyx_status_t
make_id(
    const struct uli_settings *settings, unsigned char id_p[ULI_BATCH_ID_BYTES])
{
    struct id id = {.chunk_bytes = settings->stage_chunk_bytes,
        .bytes = settings->stage_bytes,
        .queues = settings->stage_queues};
    memset(id_p, 0, ULI_BATCH_ID_BYTES);
    memcpy(id_p, &id, sizeof(id));
    return ULYX_SUCCESS;
}

/* Several queues per pair keep enough warps busy where there are few peers. The
 * bound on a chunk assumes that the rank has slots for both ways with every
 * peer, which holds where all peers are on other nodes. */
static struct uli_staged_shape
shape_of(const struct uli_batch_params *params)
{
    struct uli_staged_shape shape = {.peers = params->nranks - 1};
    struct id id;
    memcpy(&id, params->id, sizeof(id));
    shape.queues = (int32_t)uli_min(id.queues,
        uli_max(1, PAIRS_OF_QUEUES * id.queues / uli_max(shape.peers, 1)));
    int64_t most = id.bytes / (2 * ULI_STAGED_SLOTS * shape.queues *
                                  uli_max(shape.peers, 1));
    shape.chunk_bytes = uli_max(uli_min(id.chunk_bytes, most), 4096);
    shape.chunk_bytes -= shape.chunk_bytes % 4096;
    return shape;
}

/* ---- life ---------------------------------------------------------------- */

static ulyx_status_t
make_flags(struct staged_batch *batch)
{
    const struct uli_batch_params *params = &batch->params;
    struct uli_bind_scope scope; /* pinned memory is allocated near the
                                  * device */
    void *host, *there, *state;
    uli_bind_begin(params->binding, &scope);
    ulyx_status_t status = DEVICE(
        batch, host_alloc, (int64_t)sizeof(*batch->report), &host, &there);
    uli_bind_end(&scope);
    ULI_TRY(status);
    batch->report = host;
    batch->device_report = there;
    memset(host, 0, sizeof(*batch->report));
    ULI_TRY(DEVICE(batch, alloc, (int64_t)sizeof(*batch->state), &state));
    batch->state = state;
    ULI_TRY(params->hooks.upload(
        params->hooks.context, state, NULL, (int64_t)sizeof(*batch->state)));
    return DEVICE(batch, event_create, &batch->event);
}

/* Loads the kernel and claims blocks: one warp per part of the largest launch,
 * if that number of blocks may wait for other ranks. Without enough claimed
 * blocks, a launch has as few blocks as give a warp at most ULI_STAGED_PARTS
 * parts (blocks_of), which is one block. */
static ulyx_status_t
claim_blocks(struct staged_batch *batch)
{
    const struct uli_batch_hooks *hooks = &batch->params.hooks;
    int64_t parts =
        2 * (int64_t)batch->memory.shape.peers * batch->memory.shape.queues;
    int32_t multiprocessors = 0, per_sm = 0;
    ULI_TRY(uli_cuda_enter(batch->params.device));
    ULI_TRY(uli_cuda_leave(
        uli_cuda_status(uli_staged_prepare(&multiprocessors, &per_sm),
            "loading the kernel of staging")));
    batch->per_sm = per_sm; /* from now on release gives back the claim, or the
                             * wait that is counted without a claim */
    batch->claimed = hooks->claim(
        hooks->context, multiprocessors, per_sm, (parts + WARPS - 1) / WARPS);
    return ULYX_SUCCESS;
}

/* Frees the batch. The device no longer uses any of its memory. */
static void
free_batch(struct staged_batch *batch)
{
    const struct uli_batch_hooks *hooks = &batch->params.hooks;
    uli_staged_relay_close(&batch->relay);
    uli_staged_memory_close(
        &batch->memory, &batch->params, atomic_load(&batch->used));
    hooks->release(hooks->context, batch->per_sm, batch->claimed);
    if (batch->event)
        (void)DEVICE(batch, event_destroy, batch->event);
    if (batch->state)
        (void)DEVICE(batch, free, batch->state);
    if (batch->report)
        (void)DEVICE(batch, host_free, batch->report);
    free(batch);
}

static ulyx_status_t
open_batch(const struct uli_batch_params *params, struct uli_batch **batch_p)
{
    struct uli_staged_shape shape = shape_of(params);
    struct staged_batch *batch = calloc(1, sizeof(*batch));
    if (!batch)
        return uli_staged_memory_refuse(params,
            uli_error(ULYX_ERR_NO_MEMORY, "staged: no memory for a batch"));
    batch->params = *params;
    ulyx_status_t status =
        uli_staged_memory_open(&batch->memory, params, &shape);
    if (status == ULYX_SUCCESS)
        status = make_flags(batch);
    if (status == ULYX_SUCCESS)
        status = claim_blocks(batch);
    if (status == ULYX_SUCCESS)
        status = uli_staged_relay_open(
            &batch->relay, &batch->params, &batch->memory, batch->report);
    if (status != ULYX_SUCCESS) {
        free_batch(batch);
        return status;
    }
    *batch_p = (struct uli_batch *)batch;
    return ULYX_SUCCESS;
}

/* Whether runs are in flight. Of captured runs only those count that have
 * begun. */
static bool
in_flight(const struct staged_batch *batch)
{
    const struct uli_staged_report *report = batch->report;
    return (batch->recorded &&
               DEVICE(batch, event_test, batch->event) == ULYX_IN_PROGRESS) ||
           __atomic_load_n(&report->ended, __ATOMIC_ACQUIRE) <
               __atomic_load_n(&report->begun, __ATOMIC_ACQUIRE);
}

static void
close_batch(struct uli_batch *base, uli_deadline_t deadline)
{
    struct staged_batch *batch = (struct staged_batch *)base;
    struct timespec look = {0, LOOK_NS};
    while (in_flight(batch) && !uli_deadline_over(deadline))
        nanosleep(&look, NULL);
    if (in_flight(batch))
        __atomic_store_n(&batch->report->abort, 1, __ATOMIC_RELEASE);
    for (uli_deadline_t end = uli_deadline_in(1);
         in_flight(batch) && !uli_deadline_over(end);)
        nanosleep(&look, NULL);
    if (!in_flight(batch)) {
        free_batch(batch);
        return;
    }
    uli_staged_relay_close(&batch->relay);
    ULI_WARN(ULI_LOG_FAULT, batch->params.rank,
        "staged: a kernel does not end: its memory is left");
}

/* ---- runs ---------------------------------------------------------------- */

static ulyx_status_t
batch_take(struct staged_batch *batch)
{
    if (atomic_load(&batch->aborted))
        return uli_error(ULYX_ERR_ABORTED, "staged: the batch was aborted");
    if (atomic_exchange(&batch->held, true))
        return uli_error(ULYX_ERR_BUSY,
            "staged: another thread runs a batch of this communicator");
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_messages(const struct uli_batch_params *params,
    const struct uli_batch_message *messages, int32_t count)
{
    if (count > ULI_STAGED_MESSAGES)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "staged: %d messages are more than %d", count, ULI_STAGED_MESSAGES);
    for (int32_t i = 0; i < count; i++) {
        int32_t peer = messages[i].peer;
        if (peer < 0 || peer >= params->nranks || peer == params->rank ||
            messages[i].bytes <= 0)
            return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                "staged: message %d is %" PRId64 " bytes for rank %d", i,
                messages[i].bytes, peer);
    }
    return ULYX_SUCCESS;
}

static void
fill_args(const struct staged_batch *batch, uli_deadline_t deadline,
    struct uli_staged_args *args_p)
{
    int64_t left = uli_max(deadline - uli_clock_ns(), 0);
    *args_p = (struct uli_staged_args){.queues = batch->memory.queues,
        .state = batch->state,
        .report = batch->device_report,
        .poison = batch->params.poison,
        .chunk_bytes = batch->memory.shape.chunk_bytes,
        .timeout_ns = (uint64_t)uli_sat_add(left, AFTER_NS),
        .nqueues = batch->memory.shape.queues};
}

/* Lists the messages of launch `level`: those that have `level` messages of
 * their pair and way before them. A queue takes one message per launch, so the
 * second message of a pair and way moves in a second launch, at both ends.
 * False: there are none. */
static bool
list_messages(int32_t rank, const struct uli_batch_message *messages,
    int32_t count, int32_t level, struct uli_staged_args *args)
{
    args->nmessages = 0;
    for (int32_t i = 0; i < count; i++) {
        const struct uli_batch_message *message = &messages[i];
        int32_t before = 0;
        for (int32_t k = 0; k < i; k++)
            before += messages[k].peer == message->peer &&
                      messages[k].send == message->send;
        if (before == level)
            args->messages[args->nmessages++] =
                (struct uli_staged_message){.data = message->data,
                    .bytes = message->bytes,
                    .peer = uli_staged_index(message->peer, rank),
                    .send = message->send};
    }
    return args->nmessages > 0;
}

/* The blocks of a launch: at most the claimed ones, but enough that a warp has
 * at most ULI_STAGED_PARTS parts. */
static int32_t
blocks_of(const struct staged_batch *batch, int32_t parts)
{
    int32_t fewest =
        (parts + ULI_STAGED_PARTS * WARPS - 1) / (ULI_STAGED_PARTS * WARPS);
    int32_t needed = (parts + WARPS - 1) / WARPS;
    return (int32_t)uli_max(uli_min(needed, batch->claimed), fewest);
}

static ulyx_status_t
batch_launch(struct staged_batch *batch, const struct uli_staged_args *args,
    void *stream)
{
    if (batch->relay.has_thread)
        ULI_TRY(DEVICE(
            batch, host_call, stream, uli_staged_relay_wake, &batch->relay));
    int32_t blocks = blocks_of(batch, args->nmessages * args->nqueues);
    ULI_TRY(uli_cuda_enter(batch->params.device));
    return uli_cuda_leave(uli_cuda_status(
        uli_staged_launch(args, blocks, stream), "launch of staging"));
}

static ulyx_status_t
batch_enqueue(struct staged_batch *batch,
    const struct uli_batch_message *messages, int32_t count, void *stream,
    uli_deadline_t deadline)
{
    struct uli_staged_args args;
    bool capturing = false;
    ULI_TRY(DEVICE(batch, stream_capturing, stream, &capturing));
    if (!capturing && batch->recorded)
        ULI_TRY(DEVICE(batch, event_order, batch->event, stream));
    fill_args(batch, deadline, &args);
    for (int32_t level = 0;
         list_messages(batch->params.rank, messages, count, level, &args);
         level++)
        ULI_TRY(batch_launch(batch, &args, stream));
    if (capturing)
        return ULYX_SUCCESS;
    ULI_TRY(DEVICE(batch, event_record, batch->event, stream));
    batch->recorded = true;
    return ULYX_SUCCESS;
}

static ulyx_status_t
batch_run(struct uli_batch *base, const struct uli_batch_message *messages,
    int32_t count, void *stream, uli_deadline_t deadline)
{
    struct staged_batch *batch = (struct staged_batch *)base;
    if (count == 0)
        return ULYX_SUCCESS;
    ULI_TRY(batch_take(batch));
    ulyx_status_t status = check_messages(&batch->params, messages, count);
    if (status == ULYX_SUCCESS) {
        atomic_store(&batch->used, true);
        status = batch_enqueue(batch, messages, count, stream, deadline);
        if (status != ULYX_SUCCESS)
            atomic_store(&batch->aborted, true);
    }
    atomic_store(&batch->held, false);
    return status;
}

/* The status of a cause, as check returns it; ABORTED sets no text. */
static ulyx_status_t
report_cause(const struct staged_batch *batch, uint64_t cause)
{
    int32_t index = (int32_t)(cause >> 8 & 0xFFFF);
    uint32_t n = (uint32_t)(cause >> 32);
    if ((cause & 0xFF) == ULI_STAGED_STOPPED)
        return ULYX_ERR_ABORTED;
    int32_t rank = batch->memory.peers[index].rank;
    if ((cause & 0xFF) == ULI_STAGED_OTHER_SIZE)
        return uli_error(ULYX_ERR_MISMATCH,
            "staged: run %u: rank %d sends a message of another size", n, rank);
    struct uli_late late = uli_late_one(
        (cause & 0xFF) == ULI_STAGED_LATE_OUT ? ULI_LATE_TAKE : ULI_LATE_SEND,
        rank);
    return uli_late_error(&late, "", "staged: run %u", n);
}

static ulyx_status_t
batch_check(struct uli_batch *base)
{
    struct staged_batch *batch = (struct staged_batch *)base;
    uint64_t cause = __atomic_load_n(&batch->report->failed, __ATOMIC_ACQUIRE);
    if (cause)
        return report_cause(batch, cause);
    return atomic_load(&batch->aborted) ? ULYX_ERR_ABORTED : ULYX_SUCCESS;
}

static void
abort_batch(struct uli_batch *base)
{
    struct staged_batch *batch = (struct staged_batch *)base;
    atomic_store(&batch->aborted, true);
    __atomic_store_n(&batch->report->abort, 1, __ATOMIC_RELEASE);
}

static void
batch_describe(struct uli_batch *base, char *text_p, size_t text_bytes)
{
    struct staged_batch *batch = (struct staged_batch *)base;
    const struct uli_staged_memory *memory = &batch->memory;
    snprintf(text_p, text_bytes,
        "staged: %d queues of %d chunks of %" PRId64
        " KiB per pair and way, %" PRId64 " KiB pinned",
        memory->shape.queues, ULI_STAGED_SLOTS, memory->shape.chunk_bytes >> 10,
        memory->bytes >> 10);
}

/* ---- the table ----------------------------------------------------------- */

static const struct uli_batch_ops batch_ops = {
    .ranks_max = ULI_STAGED_MESSAGES / 2 + 1,
    .make_id = make_id,
    .open = open_batch,
    .run = batch_run,
    .check = batch_check,
    .abort = abort_batch,
    .close = close_batch,
    .describe = batch_describe,
};

const struct uli_tr_ops uli_tr_staged_ops = {
    .name = "staged",
    .caps = ULI_TR_BATCH,
    .usable = uli_tr_devices_usable,
    .reaches = uli_tr_between_devices,
    ULI_TR_NO_MAP,
    ULI_TR_NO_MAP_DEVICE,
    ULI_TR_NO_READ,
    .batch = &batch_ops,
};
