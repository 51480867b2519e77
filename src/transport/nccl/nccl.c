/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport nccl: batches of sends and receives on a stream by libnccl, in
 * an NCCL communicator of its own that never blocks its caller. Every call that
 * could wait for a peer returns "in progress" instead, and its state is queried
 * until the deadline; then the communicator is aborted, which also ends its
 * kernels on streams.
 *
 * Abort from another thread. ncclCommAbort frees the communicator, so no thread
 * may be inside it. `state` is a ticket: the thread that holds it may call
 * NCCL. abort sets `abort_requested` and takes the ticket if it can; else the
 * holder reads `abort_requested`, in its wait or after giving the ticket back,
 * and aborts. One of the two always does so: the holder reads `abort_requested`
 * after it has given the ticket back, abort tries the ticket after it has set
 * `abort_requested`.
 *
 * check takes no ticket, because it must not make a run wait: it increments
 * `lookers`, then reads that `state` is not GOING, and queries the
 * communicator's error, which NCCL allows beside other calls. The thread that
 * ends the communicator first sets GOING, then waits until `lookers` is 0.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/system/clock.h"
#include "device/cuda_context.h"
#include "transport/nccl/library.h"
#include "transport/transport.h"

enum ticket { FREE, HELD, GOING, GONE };

enum {
    EAGER_LOOKS = 200,    /* looks without a sleep between them */
    LOOK_NS = 100 * 1000, /* the sleep between later looks */
};

/* The struct uli_batch of this transport. */
struct nccl_batch {
    struct uli_nccl_calls calls;
    uli_nccl_comm comm; /* for the holder of the ticket */
    int32_t memory_kind, device;
    _Atomic int32_t state;        /* enum ticket */
    _Atomic bool abort_requested; /* an abort is requested */
    _Atomic int32_t lookers;      /* threads inside check */
};

/* ---- the device around a call -------------------------------------------- */

static ulyx_status_t
batch_enter(const struct nccl_batch *batch)
{
    return batch->memory_kind == ULYX_MEMORY_CUDA
               ? uli_cuda_enter(batch->device)
               : ULYX_SUCCESS;
}

static ulyx_status_t
batch_leave(const struct nccl_batch *batch, ulyx_status_t status)
{
    return batch->memory_kind == ULYX_MEMORY_CUDA ? uli_cuda_leave(status)
                                                  : status;
}

/* ---- errors -------------------------------------------------------------- */

static ulyx_status_t
nccl_calls_report(const struct uli_nccl_calls *calls, uli_nccl_comm comm,
    int result, const char *call)
{
    const char *words = calls->GetLastError(comm);
    return uli_error(result == ULI_NCCL_INVALID_ARGUMENT
                         ? ULYX_ERR_INVALID_ARGUMENT
                         : ULYX_ERR_SYSTEM,
        "nccl: %s: %s (%d)%s%.200s", call, calls->GetErrorString(result),
        result, words && *words ? ": " : "", words ? words : "");
}

static bool
is_bad(int result)
{
    return result != ULI_NCCL_SUCCESS && result != ULI_NCCL_IN_PROGRESS;
}

/* ---- the ticket ---------------------------------------------------------- */

static bool
move_ticket(struct nccl_batch *batch, int32_t from, int32_t to)
{
    return atomic_compare_exchange_strong(&batch->state, &from, to);
}

/* For the holder: from here on no check begins to use the communicator. */
static void
keep_lookers_out(struct nccl_batch *batch)
{
    atomic_store(&batch->state, GOING);
    while (atomic_load(&batch->lookers))
        sched_yield();
}

/* For the holder: aborts the communicator; nothing of it is left. */
static void
abort_held(struct nccl_batch *batch)
{
    keep_lookers_out(batch);
    if (batch_enter(batch) == ULYX_SUCCESS) {
        batch->calls.CommAbort(batch->comm);
        batch_leave(batch, ULYX_SUCCESS);
    }
    batch->comm = NULL;
    atomic_store(&batch->state, GONE);
}

static ulyx_status_t
nccl_take(struct nccl_batch *batch)
{
    if (move_ticket(batch, FREE, HELD))
        return ULYX_SUCCESS;
    if (atomic_load(&batch->state) >= GOING)
        return uli_error(ULYX_ERR_ABORTED, "nccl: the batch was aborted");
    return uli_error(ULYX_ERR_BUSY,
        "nccl: another thread runs a batch of this communicator");
}

/* Gives the ticket back. status: the result of the work; after an error the
 * communicator is useless and is aborted. */
static ulyx_status_t
batch_give(struct nccl_batch *batch, ulyx_status_t status)
{
    if (status != ULYX_SUCCESS) {
        abort_held(batch);
        return status;
    }
    atomic_store(&batch->state, FREE);
    if (atomic_load(&batch->abort_requested) && move_ticket(batch, FREE, HELD))
        abort_held(batch);
    return ULYX_SUCCESS;
}

static void
abort_batch(struct uli_batch *base)
{
    struct nccl_batch *batch = (struct nccl_batch *)base;
    atomic_store(&batch->abort_requested, true);
    if (move_ticket(batch, FREE, HELD))
        abort_held(batch);
}

/* ---- waiting ------------------------------------------------------------- */

static void
pause_between(int looks)
{
    if (looks < EAGER_LOOKS)
        sched_yield();
    else
        uli_clock_sleep_ns(LOOK_NS);
}

/* Waits until the last call is no longer in progress. */
static ulyx_status_t
batch_settle(
    struct nccl_batch *batch, uli_deadline_t deadline, const char *call)
{
    for (int looks = 0;; looks++) {
        int now = ULI_NCCL_IN_PROGRESS;
        int result = batch->calls.CommGetAsyncError(batch->comm, &now);
        if (is_bad(result) || is_bad(now))
            return nccl_calls_report(
                &batch->calls, batch->comm, is_bad(now) ? now : result, call);
        if (now == ULI_NCCL_SUCCESS)
            return ULYX_SUCCESS;
        if (atomic_load(&batch->abort_requested))
            return uli_error(
                ULYX_ERR_ABORTED, "nccl: %s: the batch was aborted", call);
        if (uli_deadline_over(deadline))
            return uli_error(ULYX_ERR_TIMEOUT,
                "nccl: %s: not all ranks came before the deadline", call);
        pause_between(looks);
    }
}

/* ---- life ---------------------------------------------------------------- */

static ulyx_status_t
open_calls(const struct uli_settings *settings, struct uli_nccl_calls *calls_p)
{
    char why[256];
    if (uli_nccl_open(settings->nccl_lib, calls_p, why, sizeof(why)))
        return uli_error(ULYX_ERR_UNSUPPORTED, "nccl: %s", why);
    return ULYX_SUCCESS;
}

static ulyx_status_t
make_id(
    const struct uli_settings *settings, unsigned char id_p[ULI_BATCH_ID_BYTES])
{
    struct uli_nccl_calls calls;
    struct uli_nccl_id id;
    ULI_TRY(open_calls(settings, &calls));
    int result = calls.GetUniqueId(&id);
    if (result != ULI_NCCL_SUCCESS)
        return nccl_calls_report(&calls, NULL, result, "ncclGetUniqueId");
    memcpy(id_p, id.bytes, sizeof(id.bytes));
    return ULYX_SUCCESS;
}

static ulyx_status_t
batch_init(struct nccl_batch *batch, const struct uli_batch_params *params)
{
    struct uli_nccl_config config = {.size = sizeof(config),
        .magic = ULI_NCCL_MAGIC,
        .version = ULI_NCCL_OLDEST,
        .blocking = 0,
        .cga_cluster_size = ULI_NCCL_UNDEFINED,
        .min_ctas = ULI_NCCL_UNDEFINED,
        .max_ctas = ULI_NCCL_UNDEFINED,
        .split_share = ULI_NCCL_UNDEFINED};
    struct uli_nccl_id id;
    memcpy(id.bytes, params->id, sizeof(id.bytes));
    int result = batch->calls.CommInitRankConfig(
        &batch->comm, params->nranks, id, params->rank, &config);
    ulyx_status_t status =
        is_bad(result)
            ? nccl_calls_report(
                  &batch->calls, NULL, result, "ncclCommInitRankConfig")
            : batch_settle(batch, params->deadline, "ncclCommInitRankConfig");
    if (status != ULYX_SUCCESS && batch->comm)
        batch->calls.CommAbort(batch->comm);
    return status;
}

static ulyx_status_t
open_batch(const struct uli_batch_params *params, struct uli_batch **batch_p)
{
    struct nccl_batch *batch = calloc(1, sizeof(*batch));
    if (!batch)
        return uli_error(ULYX_ERR_NO_MEMORY, "nccl: no memory for a batch");
    batch->memory_kind = params->memory_kind;
    batch->device = params->device;
    ulyx_status_t status = open_calls(params->settings, &batch->calls);
    if (status == ULYX_SUCCESS)
        status = batch_enter(batch);
    if (status == ULYX_SUCCESS)
        status = batch_leave(batch, batch_init(batch, params));
    if (status != ULYX_SUCCESS) {
        free(batch);
        return status;
    }
    *batch_p = (struct uli_batch *)batch;
    return ULYX_SUCCESS;
}

/* For the holder: waits until all enqueued work has ended, then destroys the
 * communicator. */
static ulyx_status_t
batch_finish(struct nccl_batch *batch, uli_deadline_t deadline)
{
    int result = batch->calls.CommFinalize(batch->comm);
    if (is_bad(result))
        return nccl_calls_report(
            &batch->calls, batch->comm, result, "ncclCommFinalize");
    ULI_TRY(batch_settle(batch, deadline, "ncclCommFinalize"));
    keep_lookers_out(batch);
    result = batch->calls.CommDestroy(batch->comm);
    if (is_bad(result))
        return nccl_calls_report(
            &batch->calls, NULL, result, "ncclCommDestroy");
    batch->comm = NULL;
    atomic_store(&batch->state, GONE);
    return ULYX_SUCCESS;
}

static void
close_batch(struct uli_batch *base, uli_deadline_t deadline)
{
    struct nccl_batch *batch = (struct nccl_batch *)base;
    if (move_ticket(batch, FREE, HELD)) {
        ulyx_status_t status = batch_enter(batch);
        if (status == ULYX_SUCCESS)
            status = batch_leave(batch, batch_finish(batch, deadline));
        if (status != ULYX_SUCCESS && batch->comm)
            abort_held(batch);
    }
    free(batch);
}

/* ---- runs ---------------------------------------------------------------- */

static ulyx_status_t
nccl_enqueue(struct nccl_batch *batch, const struct uli_batch_message *messages,
    int32_t count, void *stream)
{
    const struct uli_nccl_calls *calls = &batch->calls;
    const char *call = "ncclGroupStart";
    int result = calls->GroupStart(), end;
    if (is_bad(result))
        return nccl_calls_report(calls, batch->comm, result, call);
    for (int32_t i = 0; i < count && !is_bad(result); i++) {
        const struct uli_batch_message *message = &messages[i];
        call = message->send ? "ncclSend" : "ncclRecv";
        result = message->send
                     ? calls->Send(message->data, (size_t)message->bytes,
                           ULI_NCCL_INT8, message->peer, batch->comm, stream)
                     : calls->Recv(message->data, (size_t)message->bytes,
                           ULI_NCCL_INT8, message->peer, batch->comm, stream);
    }
    /* A group that was begun must be ended, whatever happened in it. */
    end = calls->GroupEnd();
    if (is_bad(result))
        return nccl_calls_report(calls, batch->comm, result, call);
    if (is_bad(end))
        return nccl_calls_report(calls, batch->comm, end, "ncclGroupEnd");
    return ULYX_SUCCESS;
}

static ulyx_status_t
nccl_run(struct uli_batch *base, const struct uli_batch_message *messages,
    int32_t count, void *stream, uli_deadline_t deadline)
{
    struct nccl_batch *batch = (struct nccl_batch *)base;
    ULI_TRY(nccl_take(batch));
    ulyx_status_t status = batch_enter(batch);
    if (status == ULYX_SUCCESS) {
        status = nccl_enqueue(batch, messages, count, stream);
        if (status == ULYX_SUCCESS)
            status = batch_settle(batch, deadline, "ncclGroupEnd");
        status = batch_leave(batch, status);
    }
    return batch_give(batch, status);
}

/* Called while counted in `lookers`. */
static ulyx_status_t
batch_query(const struct nccl_batch *batch)
{
    int now = ULI_NCCL_SUCCESS;
    int32_t state = atomic_load(&batch->state);
    if (state != FREE)
        return state == HELD ? ULYX_IN_PROGRESS : ULYX_ERR_ABORTED;
    int result = batch->calls.CommGetAsyncError(batch->comm, &now);
    if (is_bad(result) || is_bad(now))
        return nccl_calls_report(&batch->calls, batch->comm,
            is_bad(now) ? now : result, "ncclCommGetAsyncError");
    return ULYX_SUCCESS;
}

static ulyx_status_t
nccl_check(struct uli_batch *base)
{
    struct nccl_batch *batch = (struct nccl_batch *)base;
    atomic_fetch_add(&batch->lookers, 1);
    ulyx_status_t status = batch_query(batch);
    atomic_fetch_sub(&batch->lookers, 1);
    return status;
}

static void
nccl_describe(struct uli_batch *base, char *text_p, size_t text_bytes)
{
    struct nccl_batch *batch = (struct nccl_batch *)base;
    int version = batch->calls.version;
    snprintf(text_p, text_bytes, "nccl %d.%d.%d", version / 10000,
        version % 10000 / 100, version % 100);
}

/* ---- the table ----------------------------------------------------------- */

static bool
nccl_usable(const struct uli_settings *settings, char *why_p, size_t why_bytes)
{
    struct uli_nccl_calls calls;
    return uli_nccl_open(settings->nccl_lib, &calls, why_p, why_bytes) ==
           ULYX_SUCCESS;
}

static const struct uli_batch_ops batch_ops = {
    .make_id = make_id,
    .open = open_batch,
    .run = nccl_run,
    .check = nccl_check,
    .abort = abort_batch,
    .close = close_batch,
    .describe = nccl_describe,
};

/* NCCL finds its own way to every rank, but moves memory of devices only. */
const struct uli_tr_ops uli_tr_nccl_ops = {
    .name = "nccl",
    .caps = ULI_TR_BATCH,
    .usable = nccl_usable,
    .reaches = uli_tr_between_devices,
    ULI_TR_NO_MAP,
    ULI_TR_NO_MAP_DEVICE,
    ULI_TR_NO_READ,
    .batch = &batch_ops,
};
