/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of a plan by copy engines, its calls, and its description. The receive
 * buffer and the tables lie in the plan's block of the device arena. The
 * receive buffer has two slots of a chunk per peer, or one slot per peer where
 * everything fits in one, so its size does not grow with the tensors. The slots
 * lie source by source: at rank d, source s is number (s - d - 1) mod P.
 */
#include "collectives/device/engine/plan_engine.h"

#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/device/calls_gpu.h"
#include "collectives/device/mapped/plan_device.h"
#include "comm/device/gpu.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"

bool
uli_plan_engine_selected(const ulyx_plan_t *plan)
{
    return plan->flags & ULYX_PLAN_COPY_ENGINE ||
           strcmp(plan->comm->settings.gpu_mode, "engine") == 0;
}

const char *
uli_plan_engine_refused(const ulyx_plan_t *plan)
{
    return uli_layout_has_tables(plan->layout)
               ? "document tables may change under captured calls"
               : NULL;
}

static bool
engine_serves(const ulyx_plan_t *plan, const char *algo)
{
    (void)algo;
    return plan->comm->gpu && uli_plan_engine_selected(plan) &&
           !uli_plan_engine_refused(plan);
}

/* ---- before the agreement ------------------------------------------------ */

static int64_t
choose_chunk(const ulyx_plan_t *plan, int64_t bytes_in_flight)
{
    int64_t chunk = bytes_in_flight ? bytes_in_flight / ULI_ENGINE_SLOTS
                                    : plan->comm->settings.engine_chunk_bytes;
    return uli_max(chunk / ULI_GPU_LINE * ULI_GPU_LINE, ULI_ENGINE_CHUNK_MIN);
}

static struct uli_engine_params
params_of(const ulyx_plan_t *plan, int direction)
{
    const struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    struct uli_engine_params params = {.layout = plan->layout,
        .direction = direction,
        .rank = plan->comm->rank,
        .nodes = gpu->nodes,
        .strides = gpu->strides,
        .slot_bytes = uli_plan_engine_of(plan)->slot_bytes,
        .workers = (int64_t)gpu->blocks * (ULI_GPU_THREADS / 32)};
    return params;
}

static ulyx_status_t
make_tables(const ulyx_plan_t *plan, struct uli_plan_engine *engine)
{
    int64_t at = 0, n = plan->comm->nranks;
    engine->peers_at =
        uli_plan_device_take(&at, n, sizeof(struct uli_gpu_peer));
    engine->rounds_at =
        uli_plan_device_take(&at, 2 * n * ULYX_DIRECTIONS, sizeof(int32_t));
    for (int o = 0; o < ULYX_DIRECTIONS; o++) {
        struct uli_engine_params params = params_of(plan, o);
        struct uli_engine_op *op = &engine->op[o];
        if (!(plan->directions >> o & 1))
            continue;
        ULI_TRY(uli_engine_table_create(&params, &engine->walk, &op->table));
        op->items_at = uli_plan_device_take(
            &at, op->table.nitems, sizeof(struct uli_gpu_item));
        op->sources_at = uli_plan_device_take(
            &at, op->table.nsources, sizeof(struct uli_gpu_source));
    }
    engine->gpu.extra_bytes = at;
    return ULYX_SUCCESS;
}

static ulyx_status_t
load_kernel(int32_t device)
{
    ULI_TRY(uli_cuda_enter(device));
    return uli_cuda_leave(uli_cuda_status(
        uli_engine_prepare(), "loading the kernel of the copy engines"));
}

/* Makes what does not depend on the peers' strides. */
static ulyx_status_t
engine_cut(ulyx_plan_t *plan, int64_t bytes_in_flight)
{
    struct uli_plan_engine *engine = uli_plan_engine_of(plan);
    struct uli_plan_gpu *gpu = &engine->gpu;
    engine->recv_buffers =
        calloc((size_t)gpu->nranks, sizeof(*engine->recv_buffers));
    if (!engine->recv_buffers)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    engine->chunk_bytes = choose_chunk(plan, bytes_in_flight);
    plan->terms[ULI_TERM_ENGINE_CHUNK] = engine->chunk_bytes;
    ULI_TRY(uli_engine_walk_create(
        plan->layout, engine->chunk_bytes, &engine->walk));
    ULI_TRY(uli_engine_measure(
        &engine->walk, plan->directions, &engine->slot_bytes, &engine->slots));
    gpu->recv_buffer_bytes =
        (gpu->nranks - 1) * engine->slots * engine->slot_bytes;
    ULI_TRY(make_tables(plan, engine));
    ULI_TRY(load_kernel(gpu->device));
    ULI_TRY(gpu->ops->stream_create(gpu->device, &engine->stream));
    ULI_TRY(gpu->ops->event_create(gpu->device, &engine->fork));
    return gpu->ops->event_create(gpu->device, &engine->join);
}

/* Copies move the bytes, and launches that wait for other ranks have one warp
 * each. So no blocks are claimed. */
static ulyx_status_t
engine_prepare(ulyx_plan_t *plan, const struct uli_plan_params *params)
{
    struct uli_plan_engine *engine = calloc(1, sizeof(*engine));
    if (!engine)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    ULI_TRY(uli_plan_gpu_begin(
        plan, &uli_mover_engine, &engine->gpu, params, false));
    ULI_TRY(engine_cut(plan, params->bytes_in_flight));
    return uli_plan_gpu_take(plan);
}

/* ---- after the agreement ------------------------------------------------- */

static int64_t
recv_buffer_of(const struct uli_plan_engine *engine, int32_t src, int32_t dst)
{
    int32_t nranks = engine->gpu.nranks;
    int64_t number = (src - dst - 1 + nranks) % nranks;
    return engine->gpu.recv_buffer_at +
           number * engine->slots * engine->slot_bytes;
}

static ulyx_status_t
find_recv_buffers(ulyx_plan_t *plan)
{
    struct uli_plan_engine *engine = uli_plan_engine_of(plan);
    struct uli_plan_gpu *gpu = &engine->gpu;
    for (int32_t p = 0; p < gpu->nranks; p++) {
        const struct uli_rank_info *info = &plan->ranks[p];
        if (p == plan->comm->rank)
            continue;
        unsigned char *theirs = uli_window_address(plan->comm, p,
            info->device.window, info->device.offset, gpu->state_at);
        if (!theirs)
            return uli_error(ULYX_ERR_INTERNAL,
                "plan create: the receive buffer of rank %d is not mapped", p);
        engine->recv_buffers[p] =
            theirs + recv_buffer_of(engine, plan->comm->rank, p);
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
fill_direction(ulyx_plan_t *plan, int o, unsigned char *tables)
{
    struct uli_plan_engine *engine = uli_plan_engine_of(plan);
    struct uli_engine_params params = params_of(plan, o);
    struct uli_engine_op *op = &engine->op[o];
    struct uli_engine_table *table = &op->table;
    size_t n = (size_t)engine->gpu.nranks;
    int32_t *rounds = (int32_t *)(void *)(tables + engine->rounds_at);
    ULI_TRY(uli_engine_table_fill(&params, &engine->walk, table));
    if (engine->gpu.op[o].table.slots)
        return ULYX_SUCCESS;
    rounds += 2 * n * (size_t)o;
    memcpy(rounds, table->out_rounds, n * sizeof(*rounds));
    memcpy(rounds + n, table->in_rounds, n * sizeof(*rounds));
    memcpy(tables + op->items_at, table->items,
        (size_t)table->nitems * sizeof(*table->items));
    memcpy(tables + op->sources_at, table->sources,
        (size_t)table->nsources * sizeof(*table->sources));
    return ULYX_SUCCESS;
}

static ulyx_status_t
fill_tables(
    ulyx_plan_t *plan, const struct uli_gpu_peer *peers, unsigned char *tables)
{
    struct uli_plan_engine *engine = uli_plan_engine_of(plan);
    struct uli_plan_gpu *gpu = &engine->gpu;
    size_t n = (size_t)gpu->nranks;
    struct uli_gpu_peer *own = (void *)(tables + engine->peers_at);
    memcpy(own, peers, n * sizeof(*own));
    for (int32_t p = 0; p < gpu->nranks; p++)
        own[p].slot_in = (unsigned char *)gpu->block.address +
                         recv_buffer_of(engine, p, plan->comm->rank);
    for (int o = 0; o < ULYX_DIRECTIONS; o++)
        if (plan->directions >> o & 1)
            ULI_TRY(fill_direction(plan, o, tables));
    return ULYX_SUCCESS;
}

/* Runs after uli_plan_gpu_connect, with the peers that it has filled in. */
static ulyx_status_t
engine_connect(ulyx_plan_t *plan, const struct uli_gpu_peer *peers)
{
    struct uli_plan_engine *engine = uli_plan_engine_of(plan);
    struct uli_plan_gpu *gpu = &engine->gpu;
    ULI_TRY(find_recv_buffers(plan));
    unsigned char *tables = calloc(1, (size_t)gpu->extra_bytes);
    if (!tables)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    ulyx_status_t status = fill_tables(plan, peers, tables);
    if (status == ULYX_SUCCESS)
        status = uli_gpu_upload(plan->comm,
            (char *)gpu->block.address + gpu->extra_at, tables,
            gpu->extra_bytes);
    free(tables);
    uli_engine_walk_free(&engine->walk);
    return status;
}

static ulyx_status_t
engine_complete(ulyx_plan_t *plan)
{
    struct uli_gpu_peer *peers =
        calloc((size_t)plan->comm->nranks, sizeof(*peers));
    ulyx_status_t status =
        peers ? uli_plan_gpu_connect(plan, peers)
              : uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    if (status == ULYX_SUCCESS)
        status = engine_connect(plan, peers);
    free(peers);
    return uli_plan_gpu_ready(plan, status);
}

/* ---- a call -------------------------------------------------------------- */

/* One call, enqueued as kernels and copies on two streams; engine_gpu.h has the
 * order and its reasons. Enqueueing waits for nothing and allocates nothing. */
struct enqueue {
    ulyx_plan_t *plan;
    struct uli_plan_engine *engine;
    struct uli_plan_gpu *gpu; /* the engine's */
    const struct uli_engine_op *op;
    struct uli_engine_args args;
    unsigned char *recv_buffer; /* here */
    void *caller, *own;         /* streams */
};

static ulyx_status_t
enqueue_launch(
    struct enqueue *e, enum uli_engine_step step, int32_t round, void *stream)
{
    e->args.step = step;
    e->args.round = round;
    ULI_TRY(uli_cuda_enter(e->gpu->device));
    return uli_cuda_leave(uli_cuda_status(uli_engine_launch(&e->args, stream),
        "launch of a step of an exchange"));
}

/* Work that is enqueued on `later` from now on waits for all work that `earlier`
 * has now. */
static ulyx_status_t
enqueue_order(const struct enqueue *e, void *event, void *earlier, void *later)
{
    const struct uli_device_ops *ops = e->gpu->ops;
    ULI_TRY(ops->event_record(e->gpu->device, event, earlier));
    return ops->event_order(e->gpu->device, event, later);
}

static ulyx_status_t
push_round(const struct enqueue *e, int32_t round)
{
    const struct uli_engine_copies *copies = &e->op->table.push;
    const struct uli_plan_gpu *gpu = e->gpu;
    for (int64_t i = copies->first[round + 1]; i < copies->first[round + 2];
         i++) {
        const struct uli_engine_copy *copy = &copies->at[i];
        ULI_TRY(uli_engine_copy(gpu->ops, gpu->device, &copy->box,
            e->engine->recv_buffers[copy->peer], e->args.call.src[copy->tensor],
            e->caller));
    }
    return ULYX_SUCCESS;
}

static const unsigned char *
recv_buffer_from(const struct enqueue *e, int32_t peer)
{
    const struct uli_plan_engine *engine = e->engine;
    int64_t number =
        (peer - e->args.call.rank - 1 + e->gpu->nranks) % e->gpu->nranks;
    return e->recv_buffer + number * engine->slots * engine->slot_bytes;
}

/* Launches the kernel of the direct exchange, with the receive buffer in place
 * of slots. */
static ulyx_status_t
add_sums(const struct enqueue *e, int32_t round)
{
    struct uli_plan_gpu *gpu = e->gpu;
    const struct uli_engine_table *table = &e->op->table;
    const struct uli_engine_sums *sums = &table->sums[round + 1];
    const unsigned char *tables =
        (unsigned char *)gpu->block.address + gpu->extra_at;
    struct uli_gpu_args args = e->args.call;
    if (sums->count == 0)
        return ULYX_SUCCESS;
    args.items =
        (const struct uli_gpu_item *)(const void *)(tables + e->op->items_at) +
        sums->first;
    args.sources = (const void *)(tables + e->op->sources_at);
    args.peers = (const void *)(tables + e->engine->peers_at);
    args.nitems = sums->count;
    args.nfirst = args.nfirst_tiles = 0;
    args.ntiles = sums->ntiles;
    args.tile_bytes = sums->tile_bytes;
    args.head = NULL;
    args.record[ULI_GPU_RECORD_HASH] = uli_layout_table_hash(e->plan->layout);
    args.slot_bytes = 0;
    args.slots = 1;
    args.sums = table->nsources > 0;
    return uli_plan_gpu_launch(
        gpu, &args, ULI_GPU_MOVE, gpu->blocks, ULI_GPU_THREADS, e->own);
}

/* Enqueues the copies and sums of a round. round -1: the bytes that do not go
 * through the receive buffer. */
static ulyx_status_t
take_round(const struct enqueue *e, int32_t round)
{
    const struct uli_engine_copies *copies = &e->op->table.take;
    const struct uli_plan_gpu *gpu = e->gpu;
    for (int64_t i = copies->first[round + 1]; i < copies->first[round + 2];
         i++) {
        const struct uli_engine_copy *copy = &copies->at[i];
        ULI_TRY(uli_engine_copy(gpu->ops, gpu->device, &copy->box,
            e->args.call.dst[copy->tensor],
            round < 0 ? e->args.call.src[copy->tensor]
                      : recv_buffer_from(e, copy->peer),
            e->own));
    }
    return add_sums(e, round);
}

/* Round k is pushed before round k - 1 is taken. */
static ulyx_status_t
enqueue_rounds(struct enqueue *e)
{
    int32_t out = e->op->table.out, in = e->op->table.in;
    for (int32_t k = 0; k <= out || k <= in + 1; k++) {
        if (k > 0 && k <= out)
            ULI_TRY(enqueue_launch(e, ULI_ENGINE_OUT, k, e->caller));
        if (k < out)
            ULI_TRY(push_round(e, k));
        if (k > 0 && in > 0 && k <= in + 1)
            ULI_TRY(enqueue_launch(e, ULI_ENGINE_IN, k - 1, e->own));
        if (k > 0 && k <= in)
            ULI_TRY(take_round(e, k - 1));
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
engine_enqueue(ulyx_plan_t *plan, ulyx_direction_t direction,
    struct uli_gpu_args *call, void *stream, bool *begun_p)
{
    struct uli_plan_engine *engine = uli_plan_engine_of(plan);
    unsigned char *base = engine->gpu.block.address;
    const unsigned char *tables = base + engine->gpu.extra_at;
    struct enqueue e = {.plan = plan,
        .engine = engine,
        .gpu = &engine->gpu,
        .op = &engine->op[direction],
        .args = {.call = *call},
        .recv_buffer = base + engine->gpu.recv_buffer_at,
        .caller = stream,
        .own = engine->stream};
    e.args.rounds = (const void *)(tables + engine->rounds_at);
    ULI_TRY(uli_gpu_check_inner(e.gpu->ops, e.gpu->device, e.own, stream));
    ULI_TRY(enqueue_launch(&e, ULI_ENGINE_ENTER, 0, stream));
    *begun_p = true;
    ULI_TRY(enqueue_order(&e, engine->fork, stream, e.own));
    ULI_TRY(take_round(&e, -1));
    ULI_TRY(enqueue_rounds(&e));
    ULI_TRY(enqueue_order(&e, engine->join, e.own, stream));
    return enqueue_launch(&e, ULI_ENGINE_CLOSE, 0, stream);
}

static ulyx_status_t
engine_start(ulyx_plan_t *plan, const struct uli_plan_call *call,
    ulyx_request_t **request_p)
{
    (void)request_p;
    return uli_plan_gpu_start(plan, call, engine_enqueue);
}

/* ---- the end ------------------------------------------------------------- */

static void
engine_destroy(
    ulyx_comm_t *comm, struct uli_mover_state *state, bool gives_back)
{
    struct uli_plan_engine *engine = (struct uli_plan_engine *)state;
    struct uli_plan_gpu *gpu = &engine->gpu;
    uli_plan_gpu_free(comm, gpu, gives_back);
    if (engine->stream)
        (void)gpu->ops->stream_destroy(gpu->device, engine->stream);
    if (engine->fork)
        (void)gpu->ops->event_destroy(gpu->device, engine->fork);
    if (engine->join)
        (void)gpu->ops->event_destroy(gpu->device, engine->join);
    for (int o = 0; o < ULYX_DIRECTIONS; o++)
        uli_engine_table_free(&engine->op[o].table);
    uli_engine_walk_free(&engine->walk);
    free(engine->recv_buffers);
    free(engine);
}

/* ---- in words ------------------------------------------------------------ */

/* uli_plan_gpu_bytes counts the plan's block, and so all that is on the device.
 * The rest is on the host. */
static int64_t
engine_bytes(const ulyx_plan_t *plan)
{
    const struct uli_plan_engine *engine = uli_plan_engine_of(plan);
    int64_t bytes = uli_plan_gpu_bytes(&engine->gpu) +
                    (int64_t)(sizeof(*engine) - sizeof(engine->gpu)) +
                    engine->gpu.nranks * (int64_t)sizeof(*engine->recv_buffers);
    for (int o = 0; o < ULYX_DIRECTIONS; o++) {
        const struct uli_engine_table *t = &engine->op[o].table;
        bytes +=
            (t->push.count + t->take.count) * (int64_t)sizeof(*t->push.at) +
            t->nitems * (int64_t)sizeof(*t->items) +
            t->nsources * (int64_t)sizeof(*t->sources);
    }
    return bytes;
}

static void
engine_describe(const ulyx_plan_t *plan, struct uli_text *text)
{
    const struct uli_plan_engine *engine = uli_plan_engine_of(plan);
    uli_text_add(text,
        "engine on device memory (copy engines, by %s; receive buffer of %d x "
        "%lld "
        "bytes per peer; sums by %d of %d SMs)",
        plan->flags & ULYX_PLAN_COPY_ENGINE ? "the plan's flag"
                                            : "ULYX_GPU_MODE",
        engine->slots, (long long)engine->slot_bytes, engine->gpu.sms,
        engine->gpu.room.multiprocessors);
}

static int64_t
count_copies(const struct uli_engine_copies *copies, bool own)
{
    int64_t count = 0;
    for (int64_t i = 0; i < copies->count; i++)
        if (own == (copies->at[i].round < 0))
            count += uli_engine_copy_count(&copies->at[i].box);
    return count;
}

/* Small calls go through the slots of the direct exchange. */
static void
engine_describe_direction(
    const ulyx_plan_t *plan, ulyx_direction_t direction, struct uli_text *text)
{
    const struct uli_plan_engine *engine = uli_plan_engine_of(plan);
    const struct uli_engine_table *table = &engine->op[direction].table;
    if (engine->gpu.op[direction].table.slots) {
        uli_plan_gpu_describe_direction(plan, direction, text);
        return;
    }
    int64_t pushed = count_copies(&table->push, false);
    int64_t taken = count_copies(&table->take, false);
    int64_t own = count_copies(&table->take, true);
    uli_text_add(text,
        "%lld copies per call (%lld to peers in %d round%s, %lld from the "
        "receive buffer "
        "in %d, %lld own)%s",
        (long long)(pushed + taken + own), (long long)pushed, table->out,
        uli_plural(table->out), (long long)taken, table->in, (long long)own,
        table->nsources ? ", sums by a kernel" : "");
}

const struct uli_mover_ops uli_mover_engine = {.name = "engine",
    .by_stream = true,
    .takes_hash = true,
    .serves = engine_serves,
    .check = uli_plan_gpu_check,
    .prepare = engine_prepare,
    .complete = engine_complete,
    .needs_windows = uli_plan_gpu_needs_windows,
    .start = engine_start,
    .refuse = uli_plan_gpu_refuse,
    .update = uli_plan_gpu_update,
    .leave = uli_plan_gpu_leave,
    .left = uli_plan_gpu_left,
    .destroy = engine_destroy,
    .describe = engine_describe,
    .describe_direction = engine_describe_direction,
    .describe_rest = uli_plan_describe_slots,
    .bytes = engine_bytes};
