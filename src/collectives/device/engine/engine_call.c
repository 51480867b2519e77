/* SPDX-License-Identifier: Apache-2.0
 *
 * One call by copy engines: kernels and copies on two streams, in the order
 * that engine_gpu.h argues for. Nothing is waited for and nothing is allocated.
 */
#include "base/status.h"
#include "collectives/device/calls_gpu.h"
#include "collectives/device/engine/plan_engine.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"

struct enqueue {
    ulyx_plan_t *plan;
    struct uli_plan_engine *engine;
    struct uli_plan_gpu *gpu; /* the engine's */
    const struct uli_engine_op *op;
    struct uli_engine_args args;
    unsigned char *recv_buffer; /* here */
    void *caller, *own;     /* streams */
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

/* What comes later on one stream waits for what is on the other now. */
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
recv_buffer_of(const struct enqueue *e, int32_t peer)
{
    const struct uli_plan_engine *engine = e->engine;
    int64_t number =
        (peer - e->args.call.rank - 1 + e->gpu->nranks) % e->gpu->nranks;
    return e->recv_buffer + number * engine->slots * engine->slot_bytes;
}

/* The kernel of the direct exchange, with the receive buffer in place of
 * slots. */
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

/* round -1: what does not go through the receive buffer. */
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
                      : recv_buffer_of(e, copy->peer),
            e->own));
    }
    return add_sums(e, round);
}

/* Round k goes out before round k - 1 comes in. */
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

ulyx_status_t
uli_plan_engine_enqueue(ulyx_plan_t *plan, ulyx_direction_t direction,
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
