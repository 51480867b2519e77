/* SPDX-License-Identifier: Apache-2.0
 *
 * The mover of messages: the exchange by messages over the communicator's
 * batch, whichever transport carries it. Serves plans where device memory of
 * some pair of ranks cannot be mapped, or whose algorithm names a batch
 * transport; both are known to all ranks alike before the plan's agreement.
 * Calls of all such plans of a communicator come in the same order on all
 * ranks.
 *
 * A call that has begun on a stream and not ended within the plan's timeout
 * fails the communicator with TIMEOUT and the rank that has not come, and its
 * kernels leave the stream. Ranks that disagree about the direction of a call
 * may send messages of different sizes. Such a call ends at the timeout as
 * well; the error names the other rank if that rank is on this node. Replays of
 * calls that were captured before an update move nothing and report so, because
 * their messages have the sizes of the capture.
 *
 * Creation takes, after the plan's agreement: two gathers that open the
 * communicator's batch, for its first plan only; one gather in which each rank
 * gives whether its part exists and where it publishes its progress; and one
 * empty message per pair, so that no call ever waits for a connection.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/size.h"
#include "collectives/device/calls_gpu.h"
#include "collectives/device/messages/messages.h"
#include "collectives/device/mapped/plan_device.h"
#include "collectives/device/mapped/plan_gpu.h"
#include "comm/messages/batch.h"
#include "comm/device/gpu.h"
#include "comm/device/residency.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"

enum { SMALLEST_CHUNK = ULI_GPU_LINE, LARGEST_CHUNK = 1 << 30 };

struct uli_plan_messages {
    struct uli_mover_state state; /* first */
    struct uli_messages *messages;
    int32_t transport; /* number of the requested one (comm/messages/batch.h);
                        * 0: any */
    struct uli_batch_watch watch;
    struct uli_batch_place *progress; /* [nranks] */
    int32_t *nodes;               /* [nranks] */
    uli_strides_t **strides;      /* [nranks] */
    int32_t blocks, multiprocessors;
    int64_t chunk_bytes;
    bool watched;
    uint64_t outcome_seen;
    void *ended; /* event after the last enqueued call, if there was one */
    _Atomic bool enqueued;
};

static struct uli_plan_messages *
messages_of(const ulyx_plan_t *plan)
{
    return (struct uli_plan_messages *)plan->state;
}

/* The name of a batch transport requests this mover. "direct" is an exchange
 * over mapped memory; the host's other schedules are between nodes and have no
 * effect here. */
static bool
messages_serve(const ulyx_plan_t *plan, const char *algo)
{
    const ulyx_comm_t *comm = plan->comm;
    if (!comm->gpu)
        return false;
    return uli_comm_batch_transport(algo) ||
           (uli_gpu_unmapped(comm) && strcmp(algo, "direct") != 0);
}

/* ---- before the agreement ------------------------------------------------ */

static bool
messages_allocate(struct uli_plan_messages *own, int32_t nranks)
{
    size_t n = (size_t)nranks;
    own->progress = calloc(n, sizeof(*own->progress));
    own->nodes = calloc(n, sizeof(*own->nodes));
    own->strides = calloc(n, sizeof(*own->strides));
    return own->progress && own->nodes && own->strides;
}

static ulyx_status_t
messages_load_kernels(struct uli_plan_messages *own, int32_t max_sms)
{
    const ulyx_comm_t *comm = own->state.plan->comm;
    ULI_TRY(uli_cuda_enter(comm->gpu->device));
    ulyx_status_t status = uli_cuda_status(
        uli_messages_prepare(), "loading the kernels of the exchange by messages");
    if (status == ULYX_SUCCESS)
        status = uli_cuda_status(uli_gpu_multiprocessors(&own->multiprocessors),
            "cudaDeviceGetAttribute");
    own->blocks = uli_residency_sms(comm, max_sms, own->multiprocessors);
    return uli_cuda_leave(status);
}

/* A pair has two chunks each way. */
static int64_t
messages_chunk(const ulyx_plan_t *plan, int64_t bytes_in_flight)
{
    int64_t chunk = bytes_in_flight ? bytes_in_flight / 4
                                    : plan->comm->settings.message_chunk_bytes;
    chunk = uli_min(uli_max(chunk, SMALLEST_CHUNK), LARGEST_CHUNK);
    return chunk / ULI_GPU_LINE * ULI_GPU_LINE;
}

static ulyx_status_t
messages_check(const ulyx_plan_t *plan, const struct uli_plan_params *params)
{
    (void)params;
    return uli_plan_device_check(plan);
}

static ulyx_status_t
messages_prepare(ulyx_plan_t *plan, const struct uli_plan_params *params)
{
    const char *algo = uli_plan_requested_algo(plan->comm, params->algo);
    struct uli_plan_messages *own = calloc(1, sizeof(*own));
    if (!own)
        return uli_error(ULYX_ERR_NO_MEMORY, "a plan by messages: no memory");
    plan->state = &own->state;
    own->state.mover = &uli_mover_messages;
    own->state.plan = plan;
    own->transport = uli_comm_batch_transport(algo);
    own->chunk_bytes = messages_chunk(plan, params->bytes_in_flight);
    plan->terms[ULI_TERM_MESSAGES] = 1;
    plan->terms[ULI_TERM_BATCH_TRANSPORT] = own->transport;
    plan->terms[ULI_TERM_MESSAGE_CHUNK] = own->chunk_bytes;
    ULI_TRY(uli_plan_measure(plan));
    if (!messages_allocate(own, plan->comm->nranks))
        return uli_error(ULYX_ERR_NO_MEMORY, "a plan by messages: no memory");
    return messages_load_kernels(own, params->max_sms);
}

/* ---- after the agreement ------------------------------------------------- */

/* Makes this rank's part. Sends nothing to other ranks. */
static ulyx_status_t
messages_make_part(struct uli_plan_messages *own)
{
    ulyx_plan_t *plan = own->state.plan;
    ulyx_comm_t *comm = plan->comm;
    for (int32_t p = 0; p < comm->nranks; p++) {
        own->nodes[p] = comm->peers[p].node;
        own->strides[p] = plan->ranks[p].strides;
    }
    struct uli_messages_params params = {.layout = plan->layout,
        .directions = plan->directions,
        .rank = comm->rank,
        .nodes = own->nodes,
        .strides = own->strides,
        .device_ops = comm->gpu->ops,
        .device = comm->gpu->device,
        .blocks = own->blocks,
        .threads = ULI_GPU_THREADS,
        .chunk_bytes = own->chunk_bytes,
        .poison = uli_gpu_poison(comm),
        .batch_ops = uli_comm_batch_ops(comm),
        .batch = uli_comm_batch(comm)};
    ULI_TRY(comm->gpu->ops->event_create(comm->gpu->device, &own->ended));
    struct uli_bind_scope scope; /* pinned memory is allocated near the
                                  * device */
    uli_bind_begin(&comm->binding, &scope);
    ulyx_status_t status = uli_messages_create(&params, &own->messages);
    uli_bind_end(&scope);
    ULI_TRY(status);
    return uli_arena_alloc(comm, ULI_BATCH_PROGRESS_BYTES, &own->watch.block);
}

struct messages_part {
    int32_t status;
    char text[188];
    struct uli_batch_place place;
};

/* Whether the parts of all ranks exist; if not, the lowest rank's error is
 * returned on all ranks. */
static ulyx_status_t
messages_agree(
    struct uli_plan_messages *own, ulyx_status_t status, uli_deadline_t deadline)
{
    ulyx_comm_t *comm = own->state.plan->comm;
    struct messages_part mine = {.status = status}, *all;
    if (status != ULYX_SUCCESS)
        snprintf(mine.text, sizeof(mine.text), "%s", uli_error_text());
    mine.place.window = own->watch.block.window;
    mine.place.offset = own->watch.block.offset;
    all = calloc((size_t)comm->nranks, sizeof(*all));
    if (!all)
        return uli_comm_fail(
            comm, ULYX_ERR_NO_MEMORY, comm->rank, "a plan by messages: no memory");
    status = uli_agree_gather(comm, &(struct uli_gather){.call = ULI_CALL_BATCH,
                                        .mine = &mine,
                                        .bytes = sizeof(mine),
                                        .max_bytes = sizeof(mine),
                                        .all_p = all,
                                        .deadline = deadline});
    for (int32_t p = 0; status == ULYX_SUCCESS && p < comm->nranks; p++) {
        own->progress[p] = all[p].place;
        if (all[p].status != ULYX_SUCCESS)
            status = uli_error((ulyx_status_t)all[p].status,
                "a plan by messages: rank %d: %.*s", p, (int)sizeof(all[p].text),
                all[p].text);
    }
    free(all);
    return status;
}

/* Sends and receives the first messages. An error does not show which peer is
 * its cause, so it fails the communicator. */
static ulyx_status_t
messages_connect(struct uli_plan_messages *own, uli_deadline_t deadline)
{
    ulyx_comm_t *comm = own->state.plan->comm;
    const struct uli_device_ops *ops = comm->gpu->ops;
    void *stream = NULL;
    ULI_TRY(ops->stream_create(comm->gpu->device, &stream));
    ulyx_status_t status = uli_comm_batch_take(comm, deadline);
    if (status == ULYX_SUCCESS) {
        status = uli_messages_connect(own->messages, stream, deadline);
        uli_comm_batch_give(comm);
    }
    ops->stream_destroy(comm->gpu->device, stream);
    if (status == ULYX_SUCCESS)
        return ULYX_SUCCESS;
    return uli_comm_fail(
        comm, status, -1, "a plan by messages: %s", uli_error_text());
}

static const char *
call_name(uint64_t call)
{
    return uli_direction_name((ulyx_direction_t)(call >> 32));
}

static void
messages_watch(struct uli_plan_messages *own)
{
    struct uli_gpu_report *words = uli_messages_report(own->messages);
    own->watch.begun = &words->begun;
    own->watch.ended = &words->ended;
    own->watch.call = &words->call;
    own->watch.name_of = call_name;
    own->watch.timeout_s = own->state.plan->timeout_s;
    own->watch.what = "reshuffle";
    own->watch.progress = own->progress;
    own->watch.shares = uli_messages_shares(own->messages);
    uli_batch_watch_add(own->state.plan->comm, &own->watch);
    own->watched = true;
}

static ulyx_status_t
messages_complete(ulyx_plan_t *plan)
{
    struct uli_plan_messages *own = messages_of(plan);
    uli_deadline_t deadline = plan->comm->call_deadline;
    ULI_TRY(uli_comm_batch_open(plan->comm, own->transport, deadline));
    uli_plan_fill_extents(plan);
    ULI_TRY(messages_agree(own, messages_make_part(own), deadline));
    ULI_TRY(messages_connect(own, deadline));
    messages_watch(own);
    return ULYX_SUCCESS;
}

/* ---- calls --------------------------------------------------------------- */

/* The error of a peer's refusal, with the peer's text if that has not been
 * overwritten. */
static ulyx_status_t
refusal_error(const struct uli_plan_messages *own, uint64_t word)
{
    char reason[ULI_REFUSAL_BYTES], text[ULI_REFUSAL_TEXT_BYTES];
    struct uli_gpu_noted_cause cause = uli_gpu_cause(word);
    bool here = uli_messages_reason(own->messages, word, reason);
    return uli_error(ULYX_ERR_PEER_REFUSED,
        "reshuffle, call %u: rank %d refused: %s", cause.call, cause.peer,
        uli_status_reason((ulyx_status_t)-cause.status, reason,
            here ? sizeof(reason) : 0, text));
}

/* The error of a call that has ended; it is returned once. */
static ulyx_status_t
messages_outcome(struct uli_plan_messages *own, uint64_t word)
{
    if (word == own->outcome_seen)
        return ULYX_SUCCESS;
    own->outcome_seen = word;
    return uli_gpu_cause(word).phase == ULI_GPU_REFUSED
               ? refusal_error(own, word)
               : uli_gpu_outcome_error(word, own->state.plan->comm->rank);
}

/* A captured call has no event: only its words show its end. */
static ulyx_status_t
messages_mark_end(struct uli_plan_messages *own, void *stream)
{
    const struct uli_gpu *gpu = own->state.plan->comm->gpu;
    bool capturing = false;
    ULI_TRY(gpu->ops->stream_capturing(gpu->device, stream, &capturing));
    if (capturing)
        return ULYX_SUCCESS;
    ULI_TRY(gpu->ops->event_record(gpu->device, own->ended, stream));
    atomic_store(&own->enqueued, true);
    return ULYX_SUCCESS;
}

/* Enqueues in the device's context, which the launches need. Other ranks wait
 * for what a batch has not sent, so an error fails the communicator. reason:
 * the text of a refusal. */
static ulyx_status_t
messages_enqueue(struct uli_plan_messages *own,
    const struct uli_plan_call *call, ulyx_status_t refusal, const char *reason)
{
    ulyx_plan_t *plan = own->state.plan;
    ulyx_comm_t *comm = plan->comm;
    const struct uli_messages_call enqueued = {.direction = call->direction,
        .src = call->src,
        .dst = call->dst,
        .refusal = refusal,
        .reason = reason,
        .user_hash = plan->user_hash,
        .stream = call->stream,
        .deadline = uli_deadline_in(plan->timeout_s)};
    ULI_TRY(uli_cuda_enter(comm->gpu->device));
    ulyx_status_t status =
        uli_cuda_leave(uli_messages_execute(own->messages, &enqueued));
    if (status == ULYX_SUCCESS)
        status = messages_mark_end(own, call->stream);
    if (status == ULYX_SUCCESS)
        return status;
    return uli_comm_fail(comm, status, -1, "reshuffle: %s", uli_error_text());
}

static bool
messages_has(const ulyx_plan_t *plan, ulyx_direction_t direction)
{
    return direction >= 0 && direction < ULYX_DIRECTIONS &&
           plan->directions >> direction & 1;
}

/* A refused call is enqueued too. Its own error is returned before the errors
 * of earlier calls, which the next call returns. */
static ulyx_status_t
messages_start_call(
    struct uli_plan_messages *own, const struct uli_plan_call *call)
{
    ulyx_plan_t *plan = own->state.plan;
    char text[256];
    ULI_TRY(uli_comm_check(plan->comm));
    if (!messages_has(plan, call->direction))
        return uli_plan_check_call(plan, call);
    ULI_TRY(uli_messages_check(own->messages, call->direction, call->stream));
    /* Read first: this call may end before the outcome is looked at below. */
    uint64_t word = uli_gpu_noted(&uli_messages_report(own->messages)->outcome);
    ulyx_status_t status = uli_plan_check_call(plan, call);
    snprintf(text, sizeof(text), "%s", uli_error_text());
    ULI_TRY(messages_enqueue(own, call, status, text));
    if (status != ULYX_SUCCESS)
        return uli_error_pass(status, text);
    ulyx_status_t earlier = messages_outcome(own, word);
    *(call->earlier_p ? call->earlier_p : &status) = earlier;
    return status;
}

/* One thread at a time uses the batch; a second one gets BUSY. */
static ulyx_status_t
messages_start(ulyx_plan_t *plan, const struct uli_plan_call *call,
    ulyx_request_t **request_p)
{
    struct uli_exchange *exchange = &plan->exchange;
    (void)request_p;
    ULI_TRY(uli_exchange_take(exchange));
    ulyx_status_t status = uli_comm_batch_take(plan->comm, 0);
    if (status == ULYX_SUCCESS) {
        status = messages_start_call(messages_of(plan), call);
        uli_comm_batch_give(plan->comm);
    }
    atomic_store(&exchange->busy, false);
    return status;
}

/* The direction of the refused call is not known, and so the sizes of its
 * messages: nothing is sent, and the peers fail at their deadline. */
static ulyx_status_t
messages_refuse(ulyx_plan_t *plan, ulyx_status_t status, const char *text)
{
    (void)plan;
    return uli_error_pass(status, text);
}

/* While the stream is being captured no call takes place, so nothing is refused
 * at the peers either. */
static ulyx_status_t
messages_refuse_now(struct uli_plan_messages *own,
    const struct uli_plan_call *call, ulyx_status_t status, const char *text)
{
    ulyx_plan_t *plan = own->state.plan;
    const struct uli_gpu *gpu = plan->comm->gpu;
    bool capturing = false;
    ULI_TRY(uli_comm_check(plan->comm));
    ULI_TRY(gpu->ops->stream_capturing(gpu->device, call->stream, &capturing));
    if (!capturing && messages_has(plan, call->direction)) {
        ULI_TRY(
            uli_messages_check(own->messages, call->direction, call->stream));
        ULI_TRY(messages_enqueue(own, call, status, text));
    }
    return uli_error_pass(status, text);
}

static ulyx_status_t
messages_refuse_call(ulyx_plan_t *plan, const struct uli_plan_call *call,
    ulyx_status_t status, const char *text)
{
    char own[256];
    snprintf(own, sizeof(own), "%s", text);
    ULI_TRY(uli_exchange_take(&plan->exchange));
    ulyx_status_t now = uli_comm_batch_take(plan->comm, 0);
    if (now == ULYX_SUCCESS) {
        now = messages_refuse_now(messages_of(plan), call, status, own);
        uli_comm_batch_give(plan->comm);
    }
    atomic_store(&plan->exchange.busy, false);
    return now;
}

static const char *
messages_need_windows(const ulyx_plan_t *plan, enum uli_side side)
{
    (void)plan, (void)side;
    return NULL;
}

/* Once the layout is updated, host and device must agree, so a failure after
 * that fails the communicator. */
static ulyx_status_t
messages_update_tables(struct uli_plan_messages *own, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream)
{
    ulyx_plan_t *plan = own->state.plan;
    ULI_TRY(uli_comm_check(plan->comm));
    if (!uli_layout_has_tables(plan->layout))
        return uli_layout_update(plan->layout, docs_q, docs_k);
    ULI_TRY(uli_plan_device_check_update(plan, stream));
    ULI_TRY(uli_plan_device_await(plan, uli_messages_buffer_event(own->messages),
        "update: the tables of the last update but one are still waiting in "
        "their stream"));
    ULI_TRY(uli_layout_update(plan->layout, docs_q, docs_k));
    uli_plan_fill_extents(plan);
    uli_plan_remeasure(plan);
    ulyx_status_t status = uli_messages_update(own->messages, stream);
    if (status == ULYX_SUCCESS)
        return ULYX_SUCCESS;
    return uli_comm_fail(plan->comm, status, plan->comm->rank,
        "plan update: %s", uli_error_text());
}

static ulyx_status_t
messages_update(ulyx_plan_t *plan, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream)
{
    ULI_TRY(uli_exchange_take(&plan->exchange));
    ulyx_status_t status =
        messages_update_tables(messages_of(plan), docs_q, docs_k, stream);
    atomic_store(&plan->exchange.busy, false);
    return status;
}

/* ---- the end ------------------------------------------------------------- */

/* Never waits. A replay of a graph counts only once it has begun. */
static bool
messages_in_flight(const struct uli_plan_messages *own)
{
    const ulyx_comm_t *comm = own->state.plan->comm;
    return uli_gpu_calls_in_flight(comm, comm->gpu->ops, comm->gpu->device,
        own->ended, &own->enqueued, uli_messages_report(own->messages));
}

static ulyx_status_t
messages_leave(ulyx_plan_t *plan)
{
    struct uli_plan_messages *own = messages_of(plan);
    if (atomic_load(&plan->comm->failed) == 0 && messages_in_flight(own))
        return uli_error(ULYX_ERR_BUSY,
            "destroy: a call of the plan is in flight: wait for its stream");
    if (own->watched)
        uli_batch_watch_leave(plan->comm, &own->watch);
    own->state.plan = NULL;
    return ULYX_SUCCESS;
}

/* Always true: peers write here only by messages that a call of this rank
 * receives. */
static bool
messages_left(const struct uli_mover_state *state)
{
    (void)state;
    return true;
}

static void
messages_destroy(
    ulyx_comm_t *comm, struct uli_mover_state *state, bool gives_back)
{
    struct uli_plan_messages *own = (struct uli_plan_messages *)state;
    if (own->watched)
        uli_batch_watch_remove(comm, &own->watch);
    if (gives_back && own->watch.block.address)
        uli_arena_free(comm, &own->watch.block);
    if (own->ended)
        (void)comm->gpu->ops->event_destroy(comm->gpu->device, own->ended);
    uli_messages_destroy(own->messages);
    free(own->progress);
    free(own->nodes);
    free(own->strides);
    free(own);
}

/* ---- in words ------------------------------------------------------------ */

static int64_t
messages_bytes(const ulyx_plan_t *plan)
{
    return uli_messages_bytes(messages_of(plan)->messages);
}

static void
messages_describe(const ulyx_plan_t *plan, struct uli_text *text)
{
    const struct uli_plan_messages *own = messages_of(plan);
    const char *why = uli_gpu_unmapped(plan->comm);
    char batch[400];
    uli_comm_batch_describe(plan->comm, batch, sizeof(batch));
    uli_text_add(text,
        "packed on device memory: pack, send/receive (%s), unpack; messages of "
        "at most %lld bytes; %d of %d SMs; %s%s",
        batch, (long long)own->chunk_bytes, own->blocks, own->multiprocessors,
        why ? "device memory cannot be mapped: " : "asked for", why ? why : "");
}

static void
messages_describe_direction(
    const ulyx_plan_t *plan, ulyx_direction_t direction, struct uli_text *text)
{
    int32_t rounds = uli_messages_rounds(messages_of(plan)->messages, direction);
    uli_text_add(text, "%d round%s of one message per peer", rounds, uli_plural(rounds));
}

const struct uli_mover_ops uli_mover_messages = {.name = "messages",
    .by_stream = true,
    .takes_hash = true,
    .serves = messages_serve,
    .check = messages_check,
    .prepare = messages_prepare,
    .complete = messages_complete,
    .needs_windows = messages_need_windows,
    .start = messages_start,
    .refuse = messages_refuse,
    .refuse_call = messages_refuse_call,
    .update = messages_update,
    .leave = messages_leave,
    .left = messages_left,
    .destroy = messages_destroy,
    .describe = messages_describe,
    .describe_direction = messages_describe_direction,
    .describe_rest = uli_plan_describe_slots,
    .bytes = messages_bytes};
