/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of a plan over mapped device memory. The call is checked, and the
 * places of its tensors are found, as on the host; then the call is enqueued.
 *
 * A refused call posts its refusal from the plan's own stream, after the last
 * call. So the refusal does not need the caller's stream, which may be the
 * reason for it. The stream of the next call waits for the refusal. While a
 * stream is being captured nothing is posted, because no call takes place.
 *
 * What the device has stored about calls is read from pinned memory, or from an
 * event. Nothing waits.
 */
#include <stdio.h>
#include <string.h>
#include "base/status.h"
#include "collectives/device/calls_gpu.h"
#include "collectives/device/collective/channel_gpu.h"
#include "collectives/device/mapped/plan_gpu.h"
#include "comm/device/gpu.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"

ulyx_status_t
uli_plan_gpu_launch(struct uli_plan_gpu *gpu, struct uli_gpu_args *args,
    int32_t steps, int32_t blocks, int32_t threads, void *stream)
{
    args->steps = steps;
    ULI_TRY(uli_cuda_enter(gpu->device));
    return uli_cuda_leave(
        uli_cuda_status(uli_gpu_exchange_launch(args, blocks, threads, stream),
            "launch of an exchange"));
}

/* ---- arguments ----------------------------------------------------------- */

const char *
uli_plan_gpu_needs_windows(const ulyx_plan_t *plan, enum uli_side side)
{
    (void)side;
    return plan->comm->nranks > 1 ? "tensors on a device must be" : NULL;
}

/* at: the place that the call's check has found. A tensor without elements gets
 * its place too where it has one: a captured call may be replayed after an
 * update has given elements to the tensor. */
static void
write_address(const ulyx_plan_t *plan, uint64_t *words, const void *pointer,
    const struct uli_address *at, int64_t bytes)
{
    struct uli_address place = *at;
    bool known = bytes > 0;
    if (!known && pointer && uli_layout_has_tables(plan->layout))
        known = uli_window_find(
            plan->comm, pointer, 1, &place.window, &place.offset);
    words[0] = known ? place.window : ULI_GPU_NO_WINDOW;
    words[1] = known ? (uint64_t)place.offset : 0;
}

/* Copies the call's strides, and clears the bits of tensors that have other
 * strides than at creation. */
static void
set_strides(const ulyx_plan_t *plan, ulyx_direction_t direction,
    struct uli_gpu_args *args)
{
    for (int dst = 0; dst < 2 && plan->call.given; dst++) {
        enum uli_side side = uli_plan_side(direction, !dst);
        for (int32_t t = 0; t < plan->exchange.ntensors; t++) {
            const int64_t *own = plan->call.at[!dst][t];
            int64_t *there = args->strides.at[dst][t];
            memcpy(there, own, sizeof(plan->call.at[0][t]));
            if (memcmp(own, plan->info.strides[t][side],
                    sizeof(plan->call.at[0][t])))
                args->record[ULI_GPU_RECORD_USUAL] &=
                    ~(UINT64_C(1) << ULI_GPU_USUAL_BIT(t, dst));
        }
    }
}

static int64_t
call_bytes(const ulyx_plan_t *plan, enum uli_side side, bool source, int32_t t)
{
    int64_t row = (int64_t)plan->comm->rank * ULI_SIDES + side;
    return plan->call.given ? plan->call.bytes[source][t]
                            : plan->extents[row * ULI_TENSORS + t];
}

static void
set_tensors(const ulyx_plan_t *plan, ulyx_direction_t direction,
    struct uli_gpu_args *args)
{
    const struct uli_exchange *exchange = &plan->exchange;
    enum uli_side from = uli_plan_side(direction, true);
    enum uli_side to = uli_plan_side(direction, false);
    memset(args->record, 0xFF, sizeof(args->record)); /* no windows, usual */
    args->record[ULI_GPU_RECORD_CALL] = (uint64_t)direction << 32;
    args->record[ULI_GPU_RECORD_HASH] = 0; /* the head has it */
    args->user_hash = plan->user_hash;
    for (int32_t t = 0; t < exchange->ntensors; t++) {
        write_address(plan, &args->record[ULI_GPU_RECORD_SRC + 2 * t],
            exchange->src[t], &exchange->src_at[t],
            call_bytes(plan, from, true, t));
        write_address(plan, &args->record[ULI_GPU_RECORD_DST + 2 * t],
            exchange->dst[t], &exchange->dst_at[t],
            call_bytes(plan, to, false, t));
        args->src[t] = (unsigned char *)exchange->src[t];
        args->dst[t] = (unsigned char *)exchange->dst[t];
    }
    set_strides(plan, direction, args);
}

/* ---- what the device has noted and is final ------------------------------ */

void
uli_plan_gpu_look(struct uli_plan_gpu *gpu)
{
    uint64_t word = uli_gpu_noted(&gpu->report->failed);
    if (word == 0 || !gpu->state.plan)
        return;
    struct uli_gpu_noted_cause cause = uli_gpu_cause(word);
    uli_gpu_fail_late(
        gpu->state.plan->comm, &cause, "reshuffle", gpu->state.plan->timeout_s);
}

static void
plans_look(ulyx_comm_t *comm)
{
    struct uli_gpu *device = comm->gpu;
    pthread_mutex_lock(&device->plans_lock);
    for (struct uli_list *n = device->plans.next; n != &device->plans;
         n = n->next)
        uli_plan_gpu_look(ULI_CONTAINER_OF(n, struct uli_plan_gpu, node));
    if (device->channel)
        uli_channel_gpu_look(device->channel);
    pthread_mutex_unlock(&device->plans_lock);
}

/* ---- what concerns one call ---------------------------------------------- */

static ulyx_status_t
cause_is_refusal(const struct uli_gpu_noted_cause *cause)
{
    if (cause->status == ULI_GPU_HAS_LEFT)
        return uli_error(ULYX_ERR_PEER_REFUSED,
            "reshuffle, call %u: rank %d has destroyed its plan", cause->call,
            cause->peer);
    return uli_error(ULYX_ERR_PEER_REFUSED,
        "reshuffle, call %u: rank %d refused: %s", cause->call, cause->peer,
        uli_status_text((ulyx_status_t)-cause->status));
}

static ulyx_status_t
cause_disagrees(const struct uli_gpu_noted_cause *cause, int32_t rank)
{
    if (cause->status & ULI_GPU_OTHER_OPERATION)
        return uli_error(ULYX_ERR_MISMATCH,
            "reshuffle, call %u: rank %d executes %s, rank %d another "
            "operation",
            cause->call, cause->peer,
            uli_direction_name(cause->status & ~ULI_GPU_OTHER_OPERATION), rank);
    return uli_error(ULYX_ERR_MISMATCH,
        "reshuffle, call %u: the rows or document tables of rank %d and rank "
        "%d "
        "differ",
        cause->call, cause->peer, rank);
}

ulyx_status_t
uli_gpu_outcome_error(uint64_t word, int32_t rank)
{
    struct uli_gpu_noted_cause cause = uli_gpu_cause(word);
    if (cause.phase == ULI_GPU_REFUSED)
        return cause_is_refusal(&cause);
    if (cause.phase == ULI_GPU_DISAGREES)
        return cause_disagrees(&cause, rank);
    if (cause.phase == ULI_GPU_STALE)
        return uli_error(ULYX_ERR_MISMATCH,
            "reshuffle, call %u: captured before the last update of the "
            "document tables, with the old sizes of messages: capture it again",
            cause.call);
    return uli_error(ULYX_ERR_PEER_REFUSED,
        "reshuffle, call %u: a tensor of rank %d lies in a window that is not "
        "attached any more",
        cause.call, cause.peer);
}

uint64_t
uli_plan_gpu_noted(const struct uli_plan_gpu *gpu)
{
    return uli_gpu_noted(&gpu->report->outcome);
}

ulyx_status_t
uli_plan_gpu_outcome(ulyx_plan_t *plan, uint64_t word)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    if (word == gpu->outcome_seen)
        return ULYX_SUCCESS;
    gpu->outcome_seen = word;
    return uli_gpu_outcome_error(word, plan->comm->rank);
}

/* ---- at work? ------------------------------------------------------------ */

bool
uli_plan_gpu_in_flight(const struct uli_plan_gpu *gpu)
{
    /* In a stream, copies continue after the stream's kernels have left the
     * call. */
    if (uli_gpu_noted(&gpu->report->entered) !=
        uli_gpu_noted(&gpu->report->left))
        return true;
    return uli_gpu_calls_in_flight(gpu->state.plan->comm, gpu->ops, gpu->device,
        gpu->ended, &gpu->enqueued, gpu->report);
}

static bool
plans_in_flight(ulyx_comm_t *comm)
{
    struct uli_gpu *device = comm->gpu;
    pthread_mutex_lock(&device->plans_lock);
    bool busy = device->channel && uli_channel_gpu_in_flight(device->channel);
    for (struct uli_list *n = device->plans.next; n != &device->plans && !busy;
         n = n->next)
        busy = uli_plan_gpu_in_flight(
            ULI_CONTAINER_OF(n, struct uli_plan_gpu, node));
    pthread_mutex_unlock(&device->plans_lock);
    return busy;
}

const struct uli_gpu_calls uli_plans_gpu_calls = {plans_in_flight, plans_look};

/* ---- enqueueing ---------------------------------------------------------- */

/* Fails the communicator for a call that is enqueued in part. */
static ulyx_status_t
plan_gpu_fail(ulyx_plan_t *plan, ulyx_status_t status)
{
    return uli_comm_fail(plan->comm, status, plan->comm->rank, "reshuffle: %s",
        uli_error_text());
}

/* Small calls go through slots, in one launch. If the first launch fails, for
 * instance because of the stream, the call is refused at the peers. */
static ulyx_status_t
enqueue_call(ulyx_plan_t *plan, ulyx_direction_t direction,
    struct uli_gpu_args *args, void *stream, uli_gpu_enqueue_fn *enqueue,
    bool *begun_p)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    *begun_p = false;
    if (!args->slots)
        return enqueue(plan, direction, args, stream, begun_p);
    return uli_plan_gpu_launch(gpu, args, ULI_GPU_ALL, 1,
        gpu->room.claimed ? ULI_GPU_THREADS : 32, stream);
}

static ulyx_status_t
mark_end(struct uli_plan_gpu *gpu, void *stream)
{
    ULI_TRY(gpu->ops->event_record(gpu->device, gpu->ended, stream));
    atomic_store(&gpu->enqueued, true);
    return ULYX_SUCCESS;
}

/* Posts a record with -status for the next call, from the plan's own stream. */
static ulyx_status_t
post_refusal(
    ulyx_plan_t *plan, ulyx_direction_t direction, ulyx_status_t status)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    struct uli_gpu_args args = gpu->op[0].args;
    memset(args.record, 0xFF, sizeof(args.record));
    args.record[ULI_GPU_RECORD_CALL] =
        (uint64_t)-status | (uint64_t)(uint32_t)direction << 32;
    args.slots = 0;
    if (atomic_load(&gpu->enqueued))
        ULI_TRY(
            gpu->ops->event_order(gpu->device, gpu->ended, gpu->own_stream));
    ULI_TRY(uli_plan_gpu_launch(
        gpu, &args, ULI_GPU_OPEN | ULI_GPU_CLOSE, 1, 32, gpu->own_stream));
    gpu->detour = true;
    return mark_end(gpu, gpu->own_stream);
}

/* Refuses the call. Returns status, whose text is the thread's last error. */
static ulyx_status_t
plan_refuse(ulyx_plan_t *plan, ulyx_direction_t direction, ulyx_status_t status)
{
    char text[256];
    snprintf(text, sizeof(text), "%s", uli_error_text());
    ulyx_status_t posted = post_refusal(plan, direction, status);
    if (posted != ULYX_SUCCESS)
        return plan_gpu_fail(plan, posted);
    return uli_error_pass(status, text);
}

static ulyx_status_t
start_call(ulyx_plan_t *plan, const struct uli_plan_call *call,
    uli_gpu_enqueue_fn *enqueue)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    ulyx_direction_t direction = call->direction;
    void *stream = call->stream;
    bool capturing = false, begun;
    ulyx_status_t status = uli_gpu_check_stream(
        gpu->ops, gpu->device, gpu->room.shares_device, stream, &capturing);
    if (status == ULYX_SUCCESS)
        status = uli_plan_check_call(plan, call);
    if (status == ULYX_SUCCESS)
        status = uli_gpu_end_detour(
            gpu->ops, gpu->device, gpu->ended, stream, capturing, &gpu->detour);
    if (status != ULYX_SUCCESS)
        return capturing ? status : plan_refuse(plan, direction, status);
    struct uli_gpu_args args = gpu->op[direction].args;
    set_tensors(plan, direction, &args);
    status = enqueue_call(plan, direction, &args, stream, enqueue, &begun);
    if (status != ULYX_SUCCESS && !begun && !capturing)
        return plan_refuse(plan, direction, status);
    if (status != ULYX_SUCCESS)
        return begun ? plan_gpu_fail(plan, status) : status;
    return capturing ? ULYX_SUCCESS : mark_end(gpu, stream);
}

/* Enters the device's context, once per call. */
static ulyx_status_t
enter_call(ulyx_plan_t *plan, const struct uli_plan_call *call,
    uli_gpu_enqueue_fn *enqueue)
{
    ulyx_status_t status = uli_cuda_enter(uli_plan_gpu_of(plan)->device);
    if (status != ULYX_SUCCESS)
        return plan_refuse(plan, call->direction, status);
    return uli_cuda_leave(start_call(plan, call, enqueue));
}

ulyx_status_t
uli_plan_gpu_start(ulyx_plan_t *plan, const struct uli_plan_call *call,
    uli_gpu_enqueue_fn *enqueue)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    ULI_TRY(uli_exchange_take(&plan->exchange));
    uli_plan_gpu_look(gpu);
    /* Read first: this call may end before the outcome is looked at below. */
    uint64_t noted = uli_plan_gpu_noted(gpu);
    ulyx_status_t status = uli_comm_check(plan->comm);
    if (status == ULYX_SUCCESS)
        status = enter_call(plan, call, enqueue);
    if (status == ULYX_SUCCESS) {
        ulyx_status_t earlier = uli_plan_gpu_outcome(plan, noted);
        *(call->earlier_p ? call->earlier_p : &status) = earlier;
    }
    atomic_store(&plan->exchange.busy, false);
    return status;
}

ulyx_status_t
uli_plan_gpu_refuse(ulyx_plan_t *plan, ulyx_status_t status, const char *text)
{
    char own[256];
    snprintf(own, sizeof(own), "%s", text);
    ULI_TRY(uli_exchange_take(&plan->exchange));
    uli_plan_gpu_look(uli_plan_gpu_of(plan));
    ulyx_status_t now = uli_comm_check(plan->comm);
    if (now == ULYX_SUCCESS) {
        uli_error_pass(status, own);
        now = plan_refuse(plan, 0, status);
    }
    atomic_store(&plan->exchange.busy, false);
    return now;
}
