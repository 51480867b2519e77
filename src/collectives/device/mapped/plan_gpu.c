/* SPDX-License-Identifier: Apache-2.0
 *
 * Creation and end of a plan over mapped device memory: its blocks before the
 * agreement, the addresses of its peers after the agreement, and its end.
 *
 * The end. Peers may post into this rank's words as long as they have calls, so
 * the plan's block is retired until all peers have left. To leave, a rank
 * launches a kernel that stores into the device words of each peer, waits for
 * the kernel, and then stores a mark in the peer's host memory, which sweeps
 * read. After the mark the rank stores nothing at the peer any more.
 */
#include "collectives/device/mapped/plan_gpu.h"

#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/device/mapped/plan_device.h"
#include "comm/device/gpu.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"

/* ---- the device ---------------------------------------------------------- */

ulyx_status_t
uli_plan_gpu_check(
    const ulyx_plan_t *plan, const struct uli_plan_params *params)
{
    (void)params;
    ULI_TRY(uli_plan_device_check(plan));
    return uli_gpu_check_mapped(plan->comm, "");
}

/* Loads the kernels. For the first plan of the process no kernel of the library
 * can be running yet. */
static ulyx_status_t
load_kernels(int32_t device, bool sums, struct uli_residency *room)
{
    ULI_TRY(uli_cuda_enter(device));
    ulyx_status_t status =
        uli_cuda_status(uli_gpu_multiprocessors(&room->multiprocessors),
            "cudaDeviceGetAttribute");
    if (status == ULYX_SUCCESS)
        status = uli_cuda_status(
            uli_gpu_exchange_prepare(ULI_GPU_THREADS, sums, &room->per_sm),
            "loading the kernels of the exchange");
    return uli_cuda_leave(status);
}

/* Whether any call adds shares, also after an update. */
static bool
has_sums(const struct uli_plan_gpu *gpu)
{
    for (int o = 0; o < ULYX_DIRECTIONS; o++)
        if (gpu->op[o].source_room > 0)
            return true;
    return false;
}

/* Shares the claim of another plan, which never runs at the same time as this
 * one, if that claim has enough blocks of at least this size. */
static bool
borrow_claim(struct uli_plan_gpu *gpu, const ulyx_plan_t *other)
{
    int32_t per_sm = gpu->room.per_sm;
    if (!other || other->mover != gpu->state.mover ||
        uli_plan_gpu_of(other)->room.claimed < gpu->blocks ||
        uli_plan_gpu_of(other)->room.per_sm > per_sm)
        return false;
    gpu->room = uli_plan_gpu_of(other)->room;
    gpu->room.per_sm = per_sm;
    gpu->borrows = true;
    return true;
}

/* waits: whether the blocks of a launch wait for the blocks of other ranks. If
 * not, no blocks are claimed: copy engines have launches of one warp each, on
 * two streams. */
static ulyx_status_t
choose_blocks(
    ulyx_plan_t *plan, const struct uli_plan_params *params, bool waits)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    struct uli_residency *room = &gpu->room;
    bool sums = has_sums(gpu);
    ULI_TRY(load_kernels(gpu->device, sums, room));
    gpu->sms =
        uli_residency_sms(plan->comm, params->max_sms, room->multiprocessors);
    int64_t each =
        sums ? 1 : uli_min(plan->comm->settings.gpu_blocks, room->per_sm);
    gpu->blocks = (int32_t)(gpu->sms * uli_max(each, 1));
    if (!waits || !borrow_claim(gpu, params->in_turn_with))
        uli_residency_choose(
            plan->comm, waits ? gpu->blocks : 0, waits ? 1 : 2, room);
    return ULYX_SUCCESS;
}

/* ---- memory -------------------------------------------------------------- */

static bool
plan_gpu_allocate(struct uli_plan_gpu *gpu, const ulyx_plan_t *plan)
{
    size_t n = (size_t)gpu->nranks;
    gpu->their_marks = calloc(n, sizeof(*gpu->their_marks));
    gpu->nodes = calloc(n, sizeof(*gpu->nodes));
    gpu->strides = calloc(n, sizeof(*gpu->strides));
    gpu->shares = calloc(n, sizeof(*gpu->shares));
    if (!gpu->their_marks || !gpu->nodes || !gpu->strides || !gpu->shares)
        return false;
    for (int32_t p = 0; p < gpu->nranks; p++) {
        gpu->nodes[p] = plan->comm->peers[p].node;
        gpu->strides[p] = plan->ranks[p].strides;
    }
    return true;
}

static ulyx_status_t
take_pinned(ulyx_comm_t *comm, struct uli_plan_gpu *gpu, bool has_tables)
{
    void *there;
    gpu->nbuffers = has_tables ? ULI_GPU_BUFFERS : 1;
    gpu->pinned_bytes = ULI_GPU_LINE + gpu->nbuffers * gpu->tables_bytes;
    ULI_TRY(uli_gpu_host_alloc(comm, gpu->pinned_bytes, &gpu->pinned, &there));
    memset(gpu->pinned, 0, (size_t)gpu->pinned_bytes);
    gpu->report = gpu->pinned;
    for (int o = 0; o < ULYX_DIRECTIONS; o++)
        gpu->op[o].args.report = there;
    for (int b = 0; b < gpu->nbuffers; b++) {
        gpu->buffers[b] =
            (unsigned char *)gpu->pinned + ULI_GPU_LINE + b * gpu->tables_bytes;
        ULI_TRY(gpu->ops->event_create(gpu->device, &gpu->copied[b]));
    }
    ULI_TRY(gpu->ops->event_create(gpu->device, &gpu->ended));
    return gpu->ops->stream_create(gpu->device, &gpu->own_stream);
}

static ulyx_status_t
take_blocks(ulyx_plan_t *plan)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    int64_t at = 0, n = gpu->nranks;
    uli_plan_device_take(&at, n, sizeof(struct uli_gpu_flags)); /* words at 0 */
    gpu->slots_at = uli_plan_device_take(&at, 2 * n, (size_t)plan->slot_limit);
    gpu->recv_buffer_at =
        uli_plan_device_take(&at, 1, (size_t)gpu->recv_buffer_bytes);
    gpu->state_at = uli_plan_device_take(&at, 1, sizeof(struct uli_gpu_state));
    gpu->peers_at = uli_plan_device_take(&at, n, sizeof(struct uli_gpu_peer));
    gpu->tables_at = uli_plan_device_take(&at, 1, (size_t)gpu->tables_bytes);
    gpu->extra_at = uli_plan_device_take(&at, 1, (size_t)gpu->extra_bytes);
    ULI_TRY(uli_gpu_arena_alloc(plan->comm, at, &gpu->block));
    ULI_TRY(uli_arena_alloc(
        plan->comm, n * (int64_t)sizeof(uint64_t), &gpu->marks));
    plan->info.device.window = gpu->block.window;
    plan->info.device.offset = gpu->block.offset;
    plan->info.marks.window = gpu->marks.window;
    plan->info.marks.offset = gpu->marks.offset;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_plan_gpu_begin(ulyx_plan_t *plan, const struct uli_mover_ops *mover,
    struct uli_plan_gpu *gpu, const struct uli_plan_params *params, bool waits)
{
    ulyx_comm_t *comm = plan->comm;
    plan->state = &gpu->state;
    gpu->state.mover = mover;
    gpu->state.plan = plan;
    gpu->ops = comm->gpu->ops;
    gpu->device = comm->gpu->device;
    gpu->nranks = comm->nranks;
    uli_list_init(&gpu->node);
    ULI_TRY(uli_plan_measure(plan));
    if (!plan_gpu_allocate(gpu, plan))
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    ULI_TRY(uli_plan_gpu_measure(plan));
    return choose_blocks(plan, params, waits);
}

ulyx_status_t
uli_plan_gpu_take(ulyx_plan_t *plan)
{
    ULI_TRY(take_pinned(plan->comm, uli_plan_gpu_of(plan),
        uli_layout_has_tables(plan->layout)));
    return take_blocks(plan);
}

/* ---- after the agreement ------------------------------------------------- */

/* Finds the words and slots of p, which have the same places in its block as
 * those of this rank in this rank's block. */
static ulyx_status_t
plan_meet(ulyx_plan_t *plan, int32_t p, struct uli_gpu_peer *peer)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    const struct uli_rank_info *info = &plan->ranks[p];
    unsigned char *mine = gpu->block.address;
    int32_t me = plan->comm->rank;
    unsigned char *theirs = uli_window_address(
        plan->comm, p, info->device.window, info->device.offset, gpu->state_at);
    gpu->their_marks[p] = uli_window_address(plan->comm, p, info->marks.window,
        info->marks.offset + me * (int64_t)sizeof(uint64_t), sizeof(uint64_t));
    if (!theirs || !gpu->their_marks[p])
        return uli_error(ULYX_ERR_INTERNAL,
            "plan create: words of rank %d are not mapped", p);
    int64_t slots = 2 * plan->slot_limit;
    peer->mine = (struct uli_gpu_flags *)(void *)mine + p;
    peer->yours = (struct uli_gpu_flags *)(void *)theirs + me;
    peer->slot_in = mine + gpu->slots_at + p * slots;
    peer->slot_out = theirs + gpu->slots_at + me * slots;
    peer->windows = uli_gpu_windows(plan->comm, p, &peer->nwindows);
    peer->shares = gpu->shares[p];
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_plan_gpu_connect(ulyx_plan_t *plan, struct uli_gpu_peer *peers)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    char *base = gpu->block.address;
    for (int32_t p = 0; p < gpu->nranks; p++)
        gpu->shares[p] = uli_plan_shares(plan, p);
    if (uli_layout_rows_change(plan->layout)) { /* until here measured for the
                                                 * most rows */
        uli_plan_fill_strides(plan);
        uli_plan_remeasure(plan);
    }
    uli_plan_fill_extents(plan);
    for (int32_t p = 0; p < gpu->nranks; p++)
        if (p != plan->comm->rank)
            ULI_TRY(plan_meet(plan, p, &peers[p]));
    ULI_TRY(uli_gpu_upload(plan->comm, base + gpu->peers_at, peers,
        gpu->nranks * (int64_t)sizeof(*peers)));
    ULI_TRY(uli_plan_gpu_fill(plan, 0));
    return uli_gpu_upload(
        plan->comm, base + gpu->tables_at, gpu->buffers[0], gpu->tables_bytes);
}

/* Fills in the arguments that are equal in all calls. */
static void
fill_args(ulyx_plan_t *plan, struct uli_gpu_op *op)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    unsigned char *base = gpu->block.address;
    unsigned char *tables = base + gpu->tables_at;
    struct uli_gpu_args *args = &op->args;
    args->items = (void *)(tables + op->items_at);
    args->sources = (void *)(tables + op->sources_at);
    if (plan->mover->takes_strides) {
        args->rects = (void *)(tables + op->rects_at);
        args->indices = (void *)(tables + op->indices_at);
        args->usual = (void *)(tables + op->usual_at);
    }
    args->head = (void *)(tables + op->head_at);
    args->state = (void *)(base + gpu->state_at);
    args->peers = (void *)(base + gpu->peers_at);
    args->rank = plan->comm->rank;
    args->nranks = gpu->nranks;
    args->poison = uli_gpu_poison(plan->comm);
    args->timeout_ns = (uint64_t)(plan->timeout_s * 1e9);
    args->slot_bytes = plan->slot_limit;
    args->slots = op->table.slots;
    /* An update may add sums. */
    args->sums = op->table.sums ||
                 (uli_layout_has_tables(plan->layout) && op->source_room > 0);
}

static void
plan_gpu_enlist(struct uli_plan_gpu *gpu)
{
    struct uli_gpu *device = gpu->state.plan->comm->gpu;
    device->calls = &uli_plans_gpu_calls;
    pthread_mutex_lock(&device->plans_lock);
    uli_list_append(&device->plans, &gpu->node);
    pthread_mutex_unlock(&device->plans_lock);
}

static void
plan_gpu_delist(ulyx_comm_t *comm, struct uli_plan_gpu *gpu)
{
    pthread_mutex_lock(&comm->gpu->plans_lock);
    uli_list_remove(&gpu->node);
    pthread_mutex_unlock(&comm->gpu->plans_lock);
    gpu->state.plan = NULL;
}

ulyx_status_t
uli_plan_gpu_ready(ulyx_plan_t *plan, ulyx_status_t status)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    if (status != ULYX_SUCCESS)
        return uli_comm_fail(plan->comm, status, plan->comm->rank,
            "plan create: %s", uli_error_text());
    for (int o = 0; o < ULYX_DIRECTIONS; o++)
        fill_args(plan, &gpu->op[o]);
    plan_gpu_enlist(gpu);
    return ULYX_SUCCESS;
}

/* ---- the end ------------------------------------------------------------- */

/* Waits until own_stream is empty. A kernel there ends by its deadline. */
static ulyx_status_t
await_end(const ulyx_plan_t *plan)
{
    return uli_plan_device_await(plan, uli_plan_gpu_of(plan)->ended,
        "destroy: the device did not notify the peers in time");
}

static ulyx_status_t
notify_peers(ulyx_plan_t *plan)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    struct uli_gpu_args args = gpu->op[0].args;
    ULI_TRY(
        uli_plan_gpu_launch(gpu, &args, ULI_GPU_LEAVE, 1, 32, gpu->own_stream));
    ULI_TRY(gpu->ops->event_record(gpu->device, gpu->ended, gpu->own_stream));
    return await_end(plan);
}

ulyx_status_t
uli_plan_gpu_leave(ulyx_plan_t *plan)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    ulyx_comm_t *comm = plan->comm;
    /* A refusal is in own_stream, for which the caller cannot wait. */
    if (gpu->detour)
        ULI_TRY(await_end(plan));
    uli_plan_gpu_look(gpu);
    if (uli_plan_gpu_in_flight(gpu))
        return uli_error(ULYX_ERR_BUSY,
            "plan destroy: a call is in flight on device %d: wait for its "
            "stream",
            gpu->device);
    /* Logs an outcome that no later execute can report. */
    (void)uli_plan_gpu_outcome(plan, uli_plan_gpu_noted(gpu));
    /* On a failed communicator no rank starts another call. */
    if (uli_comm_check(comm) == ULYX_SUCCESS)
        ULI_TRY(notify_peers(plan));
    plan_gpu_delist(comm, gpu);
    /* A peer that shares no bytes waits for no mark, and its block of marks may
     * belong to another plan by now. */
    for (int32_t p = 0; p < gpu->nranks; p++)
        if (gpu->their_marks[p] && gpu->shares[p])
            atomic_store(gpu->their_marks[p], 1);
    return ULYX_SUCCESS;
}

bool
uli_plan_gpu_left(const struct uli_mover_state *state)
{
    const struct uli_plan_gpu *gpu = (const struct uli_plan_gpu *)state;
    const _Atomic uint64_t *marks = gpu->marks.address;
    for (int32_t p = 0; p < gpu->nranks; p++)
        if (gpu->shares[p] && atomic_load(&marks[p]) == 0)
            return false;
    return true;
}

void
uli_plan_gpu_free(ulyx_comm_t *comm, struct uli_plan_gpu *gpu, bool gives_back)
{
    if (gives_back && gpu->block.address)
        uli_gpu_arena_free(comm, &gpu->block);
    if (gives_back && gpu->marks.address)
        uli_arena_free(comm, &gpu->marks);
    if (!gpu->borrows)
        uli_residency_release(gpu->device, &gpu->room);
    if (gpu->own_stream)
        (void)gpu->ops->stream_destroy(gpu->device, gpu->own_stream);
    if (gpu->ended)
        (void)gpu->ops->event_destroy(gpu->device, gpu->ended);
    for (int b = 0; b < ULI_GPU_BUFFERS; b++)
        if (gpu->copied[b])
            (void)gpu->ops->event_destroy(gpu->device, gpu->copied[b]);
    if (gpu->pinned)
        (void)gpu->ops->host_free(gpu->device, gpu->pinned);
    uli_gpu_scratch_free(&gpu->scratch);
    free(gpu->their_marks);
    free(gpu->nodes);
    free(gpu->strides);
    free(gpu->shares);
}
