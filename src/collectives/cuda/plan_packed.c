/* SPDX-License-Identifier: Apache-2.0
 *
 * See plan_packed.h. Creation takes the two gathers of the communicator's batch
 * (once), one of its own in which all ranks say whether their part exists and
 * where they tell how far they are, and one empty message a pair, so that no
 * call ever waits for a connection.
 */
#include "collectives/cuda/plan_packed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/size.h"
#include "collectives/cuda/calls_gpu.h"
#include "collectives/cuda/packed.h"
#include "collectives/cuda/plan_device.h"
#include "collectives/cuda/plan_gpu.h"
#include "comm/batch.h"
#include "comm/gpu.h"
#include "comm/residency.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"

enum { SMALLEST_CHUNK = ULI_GPU_LINE, LARGEST_CHUNK = 1 << 30 };

struct uli_plan_packed {
    ulyx_plan_t *plan;
    struct uli_packed *packed;
    struct uli_batch_watch watch;
    struct uli_batch_place *told; /* [nranks] */
    int32_t *nodes;               /* [nranks] */
    uli_strides_t **strides;      /* [nranks] */
    int32_t blocks, multiprocessors;
    int64_t chunk_bytes;
    bool watched;
    void *ended; /* event after the last call enqueued, if any was */
    _Atomic bool enqueued;
};

bool
uli_plan_packed_wanted(const ulyx_comm_t *comm, const char *algo)
{
    if (algo && uli_comm_batch_carrier(algo))
        return true;
    return comm->gpu && uli_gpu_unmapped(comm) != NULL &&
           !(algo && strcmp(algo, "direct") == 0);
}

/* ---- before the agreement ------------------------------------------------ */

static bool
allocate(struct uli_plan_packed *own, int32_t nranks)
{
    size_t n = (size_t)nranks;
    own->told = calloc(n, sizeof(*own->told));
    own->nodes = calloc(n, sizeof(*own->nodes));
    own->strides = calloc(n, sizeof(*own->strides));
    return own->told && own->nodes && own->strides;
}

static ulyx_status_t
load_kernels(struct uli_plan_packed *own, int32_t max_sms)
{
    const ulyx_comm_t *comm = own->plan->comm;
    ULI_TRY(uli_cuda_enter(comm->gpu->device));
    ulyx_status_t status = uli_cuda_status(
        uli_packed_prepare(), "loading the kernels of the packed exchange");
    if (status == ULYX_SUCCESS)
        status = uli_cuda_status(uli_gpu_multiprocessors(&own->multiprocessors),
            "cudaDeviceGetAttribute");
    own->blocks = uli_residency_sms(comm, max_sms, own->multiprocessors);
    return uli_cuda_leave(status);
}

/* A pair has two chunks each way. */
static int64_t
chunk_of(const ulyx_plan_t *plan, int64_t bytes_in_flight)
{
    int64_t chunk = bytes_in_flight ? bytes_in_flight / 4
                                    : plan->comm->settings.message_chunk_bytes;
    chunk = uli_min(uli_max(chunk, SMALLEST_CHUNK), LARGEST_CHUNK);
    return chunk / ULI_GPU_LINE * ULI_GPU_LINE;
}

ulyx_status_t
uli_plan_packed_prepare(ulyx_plan_t *plan, const struct uli_plan_params *params)
{
    ULI_TRY(uli_plan_device_check(plan));
    struct uli_plan_packed *own = calloc(1, sizeof(*own));
    if (!own)
        return uli_error(ULYX_ERR_NO_MEMORY, "a packed plan: no memory");
    plan->packed = own;
    own->plan = plan;
    own->chunk_bytes = chunk_of(plan, params->bytes_in_flight);
    if (!allocate(own, plan->comm->nranks))
        return uli_error(ULYX_ERR_NO_MEMORY, "a packed plan: no memory");
    return load_kernels(own, params->max_sms);
}

int64_t
uli_plan_packed_chunk(const struct uli_plan_packed *own)
{
    return own ? own->chunk_bytes : 0;
}

/* ---- after it ------------------------------------------------------------ */

/* This rank's part, without a word to the others. */
static ulyx_status_t
make_part(struct uli_plan_packed *own)
{
    ulyx_plan_t *plan = own->plan;
    ulyx_comm_t *comm = plan->comm;
    for (int32_t p = 0; p < comm->nranks; p++) {
        own->nodes[p] = comm->peers[p].node;
        own->strides[p] = plan->ranks[p].strides;
    }
    struct uli_packed_params params = {.layout = plan->layout,
        .operations = plan->operations,
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
    struct uli_bind_scope scope; /* pinned memory comes near the device */
    uli_bind_begin(&comm->binding, &scope);
    ulyx_status_t status = uli_packed_create(&params, &own->packed);
    uli_bind_end(&scope);
    ULI_TRY(status);
    return uli_arena_alloc(comm, ULI_BATCH_TOLD_BYTES, &own->watch.piece);
}

struct part {
    int32_t status;
    char text[188];
    struct uli_batch_place place;
};

/* All parts exist, or the lowest rank's error is everybody's. */
static ulyx_status_t
agree(
    struct uli_plan_packed *own, ulyx_status_t status, uli_deadline_t deadline)
{
    ulyx_comm_t *comm = own->plan->comm;
    struct part mine = {.status = status}, *all;
    if (status != ULYX_SUCCESS)
        snprintf(mine.text, sizeof(mine.text), "%s", uli_error_text());
    mine.place.window = own->watch.piece.window;
    mine.place.offset = own->watch.piece.offset;
    all = calloc((size_t)comm->nranks, sizeof(*all));
    if (!all)
        return uli_comm_fail(
            comm, ULYX_ERR_NO_MEMORY, comm->rank, "a packed plan: no memory");
    status = uli_agree_gather(comm, ULI_CALL_BATCH, ULYX_SUCCESS, &mine,
        sizeof(mine), sizeof(mine), all, NULL, NULL, deadline);
    for (int32_t p = 0; status == ULYX_SUCCESS && p < comm->nranks; p++) {
        own->told[p] = all[p].place;
        if (all[p].status != ULYX_SUCCESS)
            status = uli_error((ulyx_status_t)all[p].status,
                "a packed plan: rank %d: %.*s", p, (int)sizeof(all[p].text),
                all[p].text);
    }
    free(all);
    return status;
}

/* Nobody knows which peer it was: the communicator cannot go on. */
static ulyx_status_t
connect_all(struct uli_plan_packed *own, uli_deadline_t deadline)
{
    ulyx_comm_t *comm = own->plan->comm;
    const struct uli_device_ops *ops = comm->gpu->ops;
    void *stream = NULL;
    ULI_TRY(ops->stream_create(comm->gpu->device, &stream));
    ulyx_status_t status = uli_comm_batch_take(comm, deadline);
    if (status == ULYX_SUCCESS) {
        status = uli_packed_connect(own->packed, stream, deadline);
        uli_comm_batch_give(comm);
    }
    ops->stream_destroy(comm->gpu->device, stream);
    if (status == ULYX_SUCCESS)
        return ULYX_SUCCESS;
    return uli_comm_fail(
        comm, status, -1, "a packed plan: %s", uli_error_text());
}

static const char *
name_of(uint64_t call)
{
    return uli_operation_name((ulyx_operation_t)(call >> 32));
}

static void
watch_calls(struct uli_plan_packed *own)
{
    struct uli_gpu_report *words = uli_packed_report(own->packed);
    own->watch.begun = &words->begun;
    own->watch.ended = &words->ended;
    own->watch.call = &words->call;
    own->watch.name_of = name_of;
    own->watch.timeout_s = own->plan->timeout_s;
    own->watch.what = "reshuffle";
    own->watch.told = own->told;
    own->watch.shares = uli_packed_shares(own->packed);
    uli_batch_watch_add(own->plan->comm, &own->watch);
    own->watched = true;
}

ulyx_status_t
uli_plan_packed_complete(ulyx_plan_t *plan, uli_deadline_t deadline)
{
    struct uli_plan_packed *own = plan->packed;
    ULI_TRY(uli_comm_batch_open(plan->comm, plan->carrier, deadline));
    uli_plan_fill_extents(plan);
    ULI_TRY(agree(own, make_part(own), deadline));
    ULI_TRY(connect_all(own, deadline));
    watch_calls(own);
    return ULYX_SUCCESS;
}

void
uli_plan_packed_destroy(struct uli_plan_packed *own)
{
    if (!own)
        return;
    ulyx_comm_t *comm = own->plan->comm;
    if (own->watched)
        uli_batch_watch_remove(comm, &own->watch);
    if (own->watch.piece.address)
        uli_arena_free(comm, &own->watch.piece);
    if (own->ended)
        (void)comm->gpu->ops->event_destroy(comm->gpu->device, own->ended);
    uli_packed_destroy(own->packed);
    free(own->told);
    free(own->nodes);
    free(own->strides);
    free(own);
}

/* ---- calls --------------------------------------------------------------- */

/* The error of a call that has ended, once. */
static ulyx_status_t
take_verdict(struct uli_plan_packed *own)
{
    uint64_t word = __atomic_exchange_n(
        &uli_packed_report(own->packed)->verdict, 0, __ATOMIC_ACQ_REL);
    return word ? uli_gpu_verdict_error(word, own->plan->comm->rank)
                : ULYX_SUCCESS;
}

/* A graph's end is known by its words alone. */
static ulyx_status_t
mark_end(struct uli_plan_packed *own, void *stream)
{
    const struct uli_gpu *gpu = own->plan->comm->gpu;
    bool capturing = false;
    ULI_TRY(gpu->ops->stream_capturing(gpu->device, stream, &capturing));
    if (capturing)
        return ULYX_SUCCESS;
    ULI_TRY(gpu->ops->event_record(gpu->device, own->ended, stream));
    atomic_store(&own->enqueued, true);
    return ULYX_SUCCESS;
}

/* With the device's context current, for the launches. What a batch has not
 * sent, others wait for: so its errors are the communicator's. */
static ulyx_status_t
enqueue(struct uli_plan_packed *own, ulyx_operation_t operation,
    const void *const src[], void *const dst[], ulyx_status_t refusal,
    void *stream)
{
    ulyx_plan_t *plan = own->plan;
    ulyx_comm_t *comm = plan->comm;
    ULI_TRY(uli_cuda_enter(comm->gpu->device));
    ulyx_status_t status =
        uli_cuda_leave(uli_packed_execute(own->packed, operation, src, dst,
            refusal, stream, uli_deadline_in(plan->timeout_s)));
    if (status == ULYX_SUCCESS)
        status = mark_end(own, stream);
    if (status == ULYX_SUCCESS)
        return status;
    return uli_comm_fail(comm, status, -1, "reshuffle: %s", uli_error_text());
}

/* A refused call is enqueued too; its own error comes before earlier ones. */
static ulyx_status_t
execute(struct uli_plan_packed *own, ulyx_operation_t operation,
    const void *const src[], void *const dst[], void *stream)
{
    ulyx_plan_t *plan = own->plan;
    char text[256];
    ULI_TRY(uli_comm_check(plan->comm));
    if (operation < 0 || operation >= ULYX_OPERATIONS ||
        !(plan->operations >> operation & 1))
        return uli_plan_check_call(plan, operation, src, dst);
    ULI_TRY(uli_packed_check(own->packed, operation, stream));
    ulyx_status_t earlier = take_verdict(own);
    ulyx_status_t refusal = uli_plan_check_call(plan, operation, src, dst);
    snprintf(text, sizeof(text), "%s", uli_error_text());
    ULI_TRY(enqueue(own, operation, src, dst, refusal, stream));
    return refusal != ULYX_SUCCESS ? uli_error_pass(refusal, text) : earlier;
}

ulyx_status_t
uli_plan_packed_execute(struct uli_plan_packed *own, ulyx_operation_t operation,
    const void *const src[], void *const dst[], void *stream)
{
    struct uli_exchange *exchange = &own->plan->exchange;
    ULI_TRY(uli_exchange_take(exchange));
    ulyx_status_t status = uli_comm_batch_take(own->plan->comm, 0);
    if (status == ULYX_SUCCESS) {
        status = execute(own, operation, src, dst, stream);
        uli_comm_batch_give(own->plan->comm);
    }
    atomic_store(&exchange->busy, false);
    return status;
}

/* From the layout's update on host and device must agree: what fails then fails
 * the communicator. */
static ulyx_status_t
update(struct uli_plan_packed *own, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream)
{
    ulyx_plan_t *plan = own->plan;
    ULI_TRY(uli_comm_check(plan->comm));
    if (!uli_layout_has_tables(plan->layout))
        return uli_layout_update(plan->layout, docs_q, docs_k);
    ULI_TRY(uli_plan_device_check_update(plan, stream));
    ULI_TRY(uli_plan_device_await(plan, uli_packed_buffer_event(own->packed),
        "update: the tables of the last update but one are still waiting in "
        "their stream"));
    ULI_TRY(uli_layout_update(plan->layout, docs_q, docs_k));
    uli_plan_fill_extents(plan);
    uli_plan_remeasure(plan);
    ulyx_status_t status = uli_packed_update(own->packed, stream);
    if (status == ULYX_SUCCESS)
        return ULYX_SUCCESS;
    return uli_comm_fail(plan->comm, status, plan->comm->rank,
        "plan update: %s", uli_error_text());
}

ulyx_status_t
uli_plan_packed_update(struct uli_plan_packed *own, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream)
{
    struct uli_exchange *exchange = &own->plan->exchange;
    ULI_TRY(uli_exchange_take(exchange));
    ulyx_status_t status = update(own, docs_q, docs_k, stream);
    atomic_store(&exchange->busy, false);
    return status;
}

/* Never waits. Of graphs only those count that have begun. */
static bool
in_flight(const struct uli_plan_packed *own)
{
    const ulyx_comm_t *comm = own->plan->comm;
    return uli_gpu_calls_in_flight(comm, comm->gpu->ops, comm->gpu->device,
        own->ended, &own->enqueued, uli_packed_report(own->packed));
}

ulyx_status_t
uli_plan_packed_leave(struct uli_plan_packed *own)
{
    if (atomic_load(&own->plan->comm->failed) == 0 && in_flight(own))
        return uli_error(ULYX_ERR_BUSY,
            "destroy: a call of the plan is in flight: wait for its stream");
    return ULYX_SUCCESS;
}

int64_t
uli_plan_packed_bytes(const struct uli_plan_packed *own)
{
    return uli_packed_bytes(own->packed);
}

void
uli_plan_packed_describe(
    const struct uli_plan_packed *own, char *text_p, size_t text_bytes)
{
    ulyx_comm_t *comm = own->plan->comm;
    const char *why = uli_gpu_unmapped(comm);
    char batch[400];
    uli_comm_batch_describe(comm, batch, sizeof(batch));
    snprintf(text_p, text_bytes,
        "packed on device memory: pack, send/receive (%s), unpack; messages of "
        "at most %lld bytes; %d of %d SMs; %s%s",
        batch, (long long)own->chunk_bytes, own->blocks, own->multiprocessors,
        why ? "device memory cannot be mapped: " : "asked for", why ? why : "");
}

int32_t
uli_plan_packed_rounds(
    const struct uli_plan_packed *own, ulyx_operation_t operation)
{
    return uli_packed_rounds(own->packed, operation);
}
