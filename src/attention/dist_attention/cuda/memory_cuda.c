/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributed attention on device memory: kernels and copies follow each other
 * on the call's stream. Nothing is waited for, so a call may be captured.
 *
 * Where head groups have two slots, plans run in a stream of their own, so that
 * the exchange of one group and the attention of another run side by side. The
 * attention then leaves multiprocessors free for the exchange, because a block
 * of the attention keeps its multiprocessor until its last tile.
 *
 * Two errors only the device can find: that another forward has filled saved,
 * and that a captured call is older than the last update of documents or rows
 * that change the layout. The device notes them in a word of pinned memory, and
 * the next call returns them. Where the layout does not depend on documents, a
 * captured call keeps its own documents, in the attention's tables and in the
 * hash that peers compare.
 */
#include "attention/dist_attention/memory.h"

#include <stdlib.h>
#include <string.h>
#include "attention/attention.h"
#include "attention/cuda/attention_gpu.h"
#include "attention/cuda/dist_rows_gpu.h"
#include "attention/cuda/forward_gpu.h"
#include "base/status.h"
#include "collectives/device/calls_gpu.h"
#include "collectives/exchange/mover.h"
#include "comm/device/gpu.h"
#include "comm/device/residency.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"

#define INVALID(...)     uli_error(ULYX_ERR_INVALID_ARGUMENT, __VA_ARGS__)
#define UNSUPPORTED(...) uli_error(ULYX_ERR_UNSUPPORTED, __VA_ARGS__)

struct uli_dist_device {
    const struct uli_device_ops *ops;
    int32_t device;
    uint64_t *tables; /* on the device: hash of the last update, 0: none yet */
    _Atomic uint64_t *cause; /* pinned; what the device has found */
    uint64_t *cause_there;
    void *exchanges;        /* stream of plans; NULL: the call's */
    void *marks[ULI_MARKS]; /* events, with exchanges */
    int32_t share_sms;      /* of the attention beside it; 0 = all */
    void *ended;            /* event, after the last call that was no capture */
    bool enqueued;
};

/* ---- creation ------------------------------------------------------------ */

static ulyx_status_t
cuda_check_params(const ulyx_dist_attention_params_t *p)
{
    if (p->dtype == ULYX_DTYPE_F64)
        return UNSUPPORTED(
            "dist attention on device memory: dtype F64 is not supported");
    if (p->dim_qk % 8 || p->dim_v % 8)
        return UNSUPPORTED("dist attention on device memory: %s is %lld, must "
                           "be a multiple of 8",
            p->dim_qk % 8 ? "dim_qk" : "dim_v",
            (long long)(p->dim_qk % 8 ? p->dim_qk : p->dim_v));
    return ULYX_SUCCESS;
}

static ulyx_status_t
load_kernels(int32_t device)
{
    ULI_TRY(uli_cuda_enter(device));
    return uli_cuda_leave(uli_cuda_status(
        uli_gpu_dist_load(), "loading the kernels of distributed attention"));
}

static ulyx_status_t
take_words(ulyx_comm_t *comm, struct uli_dist_device *own)
{
    const uint64_t zero = 0;
    void *cause, *there, *tables;
    ULI_TRY(uli_gpu_host_alloc(comm, sizeof(uint64_t), &cause, &there));
    own->cause = cause;
    own->cause_there = there;
    atomic_store(own->cause, 0);
    ULI_TRY(own->ops->alloc(own->device, sizeof(uint64_t), &tables));
    own->tables = tables;
    ULI_TRY(own->ops->event_create(own->device, &own->ended));
    return uli_gpu_upload(comm, own->tables, &zero, sizeof(zero));
}

static ulyx_status_t
cuda_open(struct ulyx_dist_attention *dist)
{
    struct uli_dist_device *own = calloc(1, sizeof(*own));
    if (!own)
        return uli_error(
            ULYX_ERR_NO_MEMORY, "no memory for a distributed attention");
    dist->device = own;
    own->ops = dist->comm->gpu->ops;
    own->device = dist->comm->gpu->device;
    ULI_TRY(load_kernels(own->device));
    return take_words(dist->comm, own);
}

/* Ranks on one device have equal parts of it. The exchange takes what a plan
 * takes, at most half of the part, and the attention the rest. */
static ulyx_status_t
divide_device(struct ulyx_dist_attention *dist)
{
    int32_t sms = 0, capability;
    int error = uli_gpu_attn_device(&sms, &capability);
    int32_t part = sms / uli_max(uli_gpu_sharers(dist->comm), 1);
    int32_t exchange = uli_residency_sms(dist->comm, 0, sms);
    dist->exchange_sms = uli_max(uli_min(exchange, part / 2), 1);
    dist->device->share_sms = uli_max(part - dist->exchange_sms, 1);
    return uli_cuda_status(error, "asking for the device");
}

static ulyx_status_t
cuda_settle(struct ulyx_dist_attention *dist)
{
    struct uli_dist_device *own = dist->device;
    if (dist->slots < 2)
        return ULYX_SUCCESS;
    ULI_TRY(divide_device(dist));
    for (int m = 0; m < ULI_MARKS; m++)
        ULI_TRY(own->ops->event_create(own->device, &own->marks[m]));
    return own->ops->stream_create(own->device, &own->exchanges);
}

/* Plans report graphs that are being replayed. */
static ulyx_status_t
cuda_idle(const struct ulyx_dist_attention *dist)
{
    const struct uli_dist_device *own = dist->device;
    if (!own->enqueued)
        return ULYX_SUCCESS;
    ulyx_status_t status = own->ops->event_test(own->device, own->ended);
    if (status != ULYX_IN_PROGRESS)
        return status;
    return uli_error(ULYX_ERR_BUSY,
        "a call of distributed attention is in flight on device %d: wait for "
        "its stream",
        own->device);
}

static ulyx_status_t
cause_error(uint64_t cause)
{
    switch (cause) {
    case ULI_GPU_DIST_FINE:
        return ULYX_SUCCESS;
    case ULI_GPU_DIST_STALE:
        return uli_error(ULYX_ERR_MISMATCH,
            "an earlier call was captured before the last update of the "
            "documents: capture it again");
    case ULI_GPU_DIST_SAVED_IS_OTHER:
        return INVALID("an earlier backward: " ULI_SAVED_IS_OTHER);
    default:
        return INVALID("an earlier backward: " ULI_SAVED_HAS_OTHER_TABLES);
    }
}

/* An error that no call will return any more is logged. */
static void
cuda_close(struct ulyx_dist_attention *dist)
{
    struct uli_dist_device *own = dist->device;
    if (!own)
        return;
    if (own->cause) {
        (void)cause_error(atomic_load(own->cause));
        (void)own->ops->host_free(own->device, (void *)own->cause);
    }
    if (own->tables)
        (void)own->ops->free(own->device, own->tables);
    if (own->ended)
        (void)own->ops->event_destroy(own->device, own->ended);
    for (int m = 0; m < ULI_MARKS; m++)
        if (own->marks[m])
            (void)own->ops->event_destroy(own->device, own->marks[m]);
    if (own->exchanges)
        (void)own->ops->stream_destroy(own->device, own->exchanges);
    free(own);
    dist->device = NULL;
}

static ulyx_status_t
cuda_enter(const struct ulyx_dist_attention *dist)
{
    const struct uli_dist_device *own = dist->device;
    return uli_cuda_enter(own->device);
}

/* ---- launches ------------------------------------------------------------ */

/* error: of a launch on the device that has been entered. */
static ulyx_status_t
launch_leave(int error, const char *what)
{
    return uli_cuda_leave(uli_cuda_status(error, what));
}

static ulyx_status_t
put_words(const struct uli_dist_device *own, void *to, const void *words,
    int64_t bytes, void *stream)
{
    ULI_TRY(uli_cuda_enter(own->device));
    return launch_leave(uli_gpu_attn_put(to, words, bytes, stream),
        "launch of a copy of distributed attention");
}

/* Whether the layout depends on documents or rows. */
static bool
follows_docs(const struct ulyx_dist_attention *dist)
{
    return uli_layout_has_tables(uli_dist_first_plan(dist)->layout);
}

static ulyx_status_t
cuda_retable(struct ulyx_dist_attention *dist, void *stream)
{
    struct uli_dist_device *own = dist->device;
    if (!follows_docs(dist))
        return ULYX_SUCCESS;
    return put_words(
        own, own->tables, &dist->tables, sizeof(dist->tables), stream);
}

static ulyx_status_t
check_launch(const struct uli_pass *pass, const void *saved,
    const struct uli_saved_header *expected)
{
    const struct uli_dist_device *own = pass->dist->device;
    const struct uli_gpu_dist_check_args args = {.saved = saved,
        .expected = {expected->magic, expected->shape, expected->tables},
        .tables = own->tables,
        .cause = own->cause_there};
    ULI_TRY(uli_cuda_enter(own->device));
    return launch_leave(uli_gpu_dist_check(&args, pass->call->stream),
        "launch of a check of distributed attention");
}

static ulyx_status_t
cuda_check_saved(struct uli_pass *pass, const struct uli_saved_header *expected)
{
    return check_launch(pass, pass->call->saved, expected);
}

static ulyx_status_t
cuda_write_header(struct uli_pass *pass, const struct uli_saved_header *header)
{
    return put_words(pass->dist->device, pass->call->saved, header,
        sizeof(*header), pass->call->stream);
}

/* ---- calls --------------------------------------------------------------- */

/* Nothing of a call that is being captured takes place, so a refusal is not
 * posted either. */
static ulyx_status_t
cuda_begin(struct uli_pass *pass)
{
    struct uli_dist_device *own = pass->dist->device;
    const struct uli_saved_header tables = {.tables = pass->dist->tables};
    pass->exchange_stream =
        own->exchanges ? own->exchanges : pass->call->stream;
    uli_pass_earlier(pass, cause_error(atomic_exchange(own->cause, 0)));
    ULI_TRY(own->ops->stream_capturing(
        own->device, pass->call->stream, &pass->silent));
    return follows_docs(pass->dist) ? check_launch(pass, NULL, &tables)
                                    : ULYX_SUCCESS;
}

/* Memory that begins in a window is memory of the device; the driver is queried
 * about other memory only. */
static ulyx_status_t
check_array(
    const struct ulyx_dist_attention *dist, const char *name, const void *array)
{
    const struct uli_dist_device *own = dist->device;
    struct uli_device_range range;
    uint32_t window;
    int64_t offset;
    if (!array || uli_window_find(dist->comm, array, 1, &window, &offset))
        return ULYX_SUCCESS;
    ULI_TRY(own->ops->range(array, &range));
    if (range.memory_kind != ULYX_MEMORY_CUDA)
        return INVALID("%s: %p is not device memory, and the communicator's "
                       "memory kind is CUDA",
            name, array);
    if (range.device != own->device && !range.managed)
        return INVALID("%s: %p is memory of CUDA device %d, the communicator's "
                       "is %d",
            name, array, range.device, own->device);
    return ULYX_SUCCESS;
}

/* Whether peers store into the tensors of the head side. By messages they do
 * not. */
static bool
needs_windows(const struct ulyx_dist_attention *dist)
{
    const ulyx_plan_t *plan = uli_dist_first_plan(dist);
    return plan->mover->needs_windows(plan, ULI_SIDE_HEAD) != NULL;
}

static ulyx_status_t
check_window(const struct ulyx_dist_attention *dist, const char *name,
    const void *address, int64_t bytes)
{
    uint32_t window;
    int64_t offset;
    if (dist->nranks == 1 || !bytes || !needs_windows(dist) ||
        uli_window_find(dist->comm, address, bytes, &window, &offset))
        return ULYX_SUCCESS;
    return INVALID("%s (%p, %lld bytes) is not inside a window attached to the "
                   "communicator, as memory of a device must be",
        name, address, (long long)bytes);
}

static ulyx_status_t
cuda_check(
    const struct ulyx_dist_attention *dist, const struct uli_dist_call *call)
{
    for (int t = 0; t < ULI_DIST_TENSORS; t++)
        for (int32_t i = 0;
             call->given[t] && i < dist->nparts[uli_dist_keys(t)]; i++)
            ULI_TRY(check_array(
                dist, uli_dist_tensor_names[t], call->tensors[t][i]));
    ULI_TRY(check_array(dist, "sinks", call->sinks));
    ULI_TRY(check_array(dist, "alibi_slopes", call->alibi_slopes));
    ULI_TRY(check_array(dist, "d_sink", call->d_sink));
    ULI_TRY(check_array(dist, "workspace", call->workspace));
    ULI_TRY(check_array(dist, "saved", call->saved));
    ULI_TRY(check_window(
        dist, "workspace", call->workspace, uli_dist_workspace(dist)));
    bool travels =
        dist->saves_heads || dist->params->p.flags & ULYX_DIST_ATTENTION_LSE;
    return check_window(
        dist, "saved", call->saved, travels ? dist->saved_now : 0);
}

static ulyx_status_t
cuda_copy(
    const struct uli_pass *pass, void *dst, const void *src, int64_t bytes)
{
    const struct uli_dist_device *own = pass->dist->device;
    return bytes > 0 ? own->ops->copy(
                           own->device, dst, src, bytes, pass->call->stream)
                     : ULYX_SUCCESS;
}

static ulyx_status_t
cuda_zero(const struct uli_pass *pass, void *address, int64_t bytes)
{
    const struct uli_dist_device *own = pass->dist->device;
    return bytes > 0
               ? own->ops->zero(own->device, address, bytes, pass->call->stream)
               : ULYX_SUCCESS;
}

static struct uli_gpu_strided
strided_of(const struct uli_attn_strided *tensor)
{
    struct uli_gpu_strided there = {.base = (const void *)tensor->base};
    memcpy(there.strides, tensor->strides, sizeof(there.strides));
    return there;
}

static ulyx_status_t
cuda_delta(const struct uli_pass *pass, const struct uli_delta_part *part)
{
    const struct uli_dist_device *own = pass->dist->device;
    struct uli_gpu_delta_args args = {.dout = strided_of(&part->dout),
        .out = strided_of(&part->out),
        .dlse = strided_of(&part->dlse),
        .delta = part->delta,
        .batch = part->sizes[0],
        .rows = part->sizes[1],
        .heads = part->sizes[2],
        .dim = (int32_t)part->sizes[3],
        .dtype = part->dtype};
    memcpy(args.delta_strides, part->delta_strides, sizeof(args.delta_strides));
    ULI_TRY(uli_cuda_enter(own->device));
    return launch_leave(
        uli_gpu_dist_delta(&args, pass->exchange_stream), "launch of delta");
}

static ulyx_status_t
cuda_mark(const struct uli_pass *pass, enum uli_mark mark)
{
    const struct uli_dist_device *own = pass->dist->device;
    if (!own->exchanges)
        return ULYX_SUCCESS;
    return own->ops->event_record(own->device, own->marks[mark],
        mark == ULI_MARK_ATTENDED ? pass->call->stream : own->exchanges);
}

static ulyx_status_t
cuda_follow(const struct uli_pass *pass, enum uli_mark mark)
{
    const struct uli_dist_device *own = pass->dist->device;
    if (!own->exchanges)
        return ULYX_SUCCESS;
    return own->ops->event_order(own->device, own->marks[mark],
        mark == ULI_MARK_ATTENDED ? own->exchanges : pass->call->stream);
}

/* The kernels wait for no rank, so ranks that share the device take turns, or
 * beside exchanges have a part of the device each. */
static ulyx_status_t
cuda_attend(const struct uli_pass *pass, struct uli_attn_call *attention,
    ulyx_attention_pass_t kind)
{
    const struct uli_dist_device *own = pass->dist->device;
    attention->stream = pass->call->stream;
    attention->poison = uli_gpu_poison(pass->dist->comm);
    attention->device_ranks = uli_gpu_sharers(pass->dist->comm);
    attention->share_sms = own->share_sms;
    attention->lies_there = true; /* cuda_check */
    ULI_TRY(uli_cuda_enter(own->device));
    return uli_cuda_leave(uli_attn_run_pass(attention, kind));
}

static ulyx_status_t
cuda_end(const struct uli_pass *pass)
{
    struct uli_dist_device *own = pass->dist->device;
    if (pass->silent)
        return ULYX_SUCCESS;
    ULI_TRY(
        own->ops->event_record(own->device, own->ended, pass->call->stream));
    own->enqueued = true;
    return ULYX_SUCCESS;
}

const struct uli_dist_memory uli_dist_memory_cuda = {.kind = ULYX_MEMORY_CUDA,
    .check_params = cuda_check_params,
    .open = cuda_open,
    .idle = cuda_idle,
    .close = cuda_close,
    .enter = cuda_enter,
    .leave = uli_cuda_leave,
    .settle = cuda_settle,
    .retable = cuda_retable,
    .begin = cuda_begin,
    .check = cuda_check,
    .check_saved = cuda_check_saved,
    .write_header = cuda_write_header,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .delta = cuda_delta,
    .attend = cuda_attend,
    .mark = cuda_mark,
    .follow = cuda_follow,
    .end = cuda_end};
