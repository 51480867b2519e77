/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of a plan's copy-engine mode, and what it says of itself. Its landing
 * and tables lie in the plan's piece of the device arena. The landing holds, of
 * every peer, two slots of a chunk (or one of the fullest, where all fit), so
 * it does not grow with the tensors; that of source s at rank d is number
 * (s - d - 1) mod P.
 */
#include "collectives/cuda/plan_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/cuda/plan_device.h"
#include "comm/gpu.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"

bool
uli_plan_engine_wanted(const ulyx_plan_t *plan)
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

int64_t
uli_plan_engine_chunk(const ulyx_plan_t *plan)
{
    return plan->gpu && plan->gpu->engine ? plan->gpu->engine->chunk_bytes : 0;
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
params_of(const ulyx_plan_t *plan, int operation)
{
    const struct uli_plan_gpu *gpu = plan->gpu;
    struct uli_engine_params params = {.layout = plan->layout,
        .operation = operation,
        .rank = plan->comm->rank,
        .nodes = gpu->nodes,
        .strides = gpu->strides,
        .slot_bytes = gpu->engine->slot_bytes,
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
        uli_plan_device_take(&at, 2 * n * ULYX_OPERATIONS, sizeof(int32_t));
    for (int o = 0; o < ULYX_OPERATIONS; o++) {
        struct uli_engine_params params = params_of(plan, o);
        struct uli_engine_op *op = &engine->op[o];
        if (!(plan->operations >> o & 1))
            continue;
        ULI_TRY(uli_engine_table_create(&params, &engine->walk, &op->table));
        op->items_at = uli_plan_device_take(
            &at, op->table.nitems, sizeof(struct uli_gpu_item));
        op->sources_at = uli_plan_device_take(
            &at, op->table.nsources, sizeof(struct uli_gpu_source));
    }
    engine->tables_bytes = at;
    return ULYX_SUCCESS;
}

static ulyx_status_t
load_kernel(int32_t device)
{
    ULI_TRY(uli_cuda_enter(device));
    return uli_cuda_leave(uli_cuda_status(
        uli_engine_prepare(), "loading the kernel of the copy engines"));
}

ulyx_status_t
uli_plan_engine_prepare(ulyx_plan_t *plan, int64_t bytes_in_flight)
{
    struct uli_plan_gpu *gpu = plan->gpu;
    struct uli_plan_engine *engine = calloc(1, sizeof(*engine));
    size_t n = (size_t)gpu->nranks;
    gpu->engine = engine;
    if (!engine || !(engine->landings = calloc(n, sizeof(*engine->landings))))
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    engine->chunk_bytes = choose_chunk(plan, bytes_in_flight);
    ULI_TRY(uli_engine_walk_create(
        plan->layout, engine->chunk_bytes, &engine->walk));
    ULI_TRY(uli_engine_measure(
        &engine->walk, plan->operations, &engine->slot_bytes, &engine->slots));
    engine->landing_bytes =
        (gpu->nranks - 1) * engine->slots * engine->slot_bytes;
    ULI_TRY(make_tables(plan, engine));
    ULI_TRY(load_kernel(gpu->device));
    ULI_TRY(gpu->ops->stream_create(gpu->device, &engine->stream));
    ULI_TRY(gpu->ops->event_create(gpu->device, &engine->fork));
    return gpu->ops->event_create(gpu->device, &engine->join);
}

/* ---- after the agreement ------------------------------------------------- */

static int64_t
landing_of(const struct uli_plan_gpu *gpu, int32_t src, int32_t dst)
{
    const struct uli_plan_engine *engine = gpu->engine;
    int64_t number = (src - dst - 1 + gpu->nranks) % gpu->nranks;
    return engine->landing_at + number * engine->slots * engine->slot_bytes;
}

static ulyx_status_t
find_landings(ulyx_plan_t *plan)
{
    struct uli_plan_gpu *gpu = plan->gpu;
    for (int32_t p = 0; p < gpu->nranks; p++) {
        const struct uli_rank_info *info = &plan->ranks[p];
        if (p == plan->comm->rank)
            continue;
        unsigned char *theirs = uli_window_address(plan->comm, p,
            info->device.window, info->device.offset, gpu->state_at);
        if (!theirs)
            return uli_error(ULYX_ERR_INTERNAL,
                "plan create: the landing of rank %d is not mapped", p);
        gpu->engine->landings[p] =
            theirs + landing_of(gpu, plan->comm->rank, p);
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
fill_operation(ulyx_plan_t *plan, int o, unsigned char *tables)
{
    struct uli_plan_engine *engine = plan->gpu->engine;
    struct uli_engine_params params = params_of(plan, o);
    struct uli_engine_op *op = &engine->op[o];
    struct uli_engine_table *table = &op->table;
    size_t n = (size_t)plan->gpu->nranks;
    int32_t *rounds = (int32_t *)(void *)(tables + engine->rounds_at);
    ULI_TRY(uli_engine_table_fill(&params, &engine->walk, table));
    if (plan->gpu->op[o].table.slots)
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
    struct uli_plan_gpu *gpu = plan->gpu;
    struct uli_plan_engine *engine = gpu->engine;
    size_t n = (size_t)gpu->nranks;
    struct uli_gpu_peer *own = (void *)(tables + engine->peers_at);
    memcpy(own, peers, n * sizeof(*own));
    for (int32_t p = 0; p < gpu->nranks; p++)
        own[p].slot_in = (unsigned char *)gpu->piece.address +
                         landing_of(gpu, p, plan->comm->rank);
    for (int o = 0; o < ULYX_OPERATIONS; o++)
        if (plan->operations >> o & 1)
            ULI_TRY(fill_operation(plan, o, tables));
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_plan_engine_complete(ulyx_plan_t *plan, const struct uli_gpu_peer *peers)
{
    struct uli_plan_gpu *gpu = plan->gpu;
    struct uli_plan_engine *engine = gpu->engine;
    ULI_TRY(find_landings(plan));
    unsigned char *tables = calloc(1, (size_t)engine->tables_bytes);
    if (!tables)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    ulyx_status_t status = fill_tables(plan, peers, tables);
    if (status == ULYX_SUCCESS)
        status = uli_gpu_upload(plan->comm,
            (char *)gpu->piece.address + engine->tables_at, tables,
            engine->tables_bytes);
    free(tables);
    uli_engine_walk_free(&engine->walk);
    return status;
}

void
uli_plan_engine_destroy(
    const struct uli_plan_gpu *gpu, struct uli_plan_engine *engine)
{
    if (!engine)
        return;
    if (engine->stream)
        (void)gpu->ops->stream_destroy(gpu->device, engine->stream);
    if (engine->fork)
        (void)gpu->ops->event_destroy(gpu->device, engine->fork);
    if (engine->join)
        (void)gpu->ops->event_destroy(gpu->device, engine->join);
    for (int o = 0; o < ULYX_OPERATIONS; o++)
        uli_engine_table_free(&engine->op[o].table);
    uli_engine_walk_free(&engine->walk);
    free(engine->landings);
    free(engine);
}

/* ---- in words ------------------------------------------------------------ */

/* On the host; what is on the device lies in the plan's piece. */
int64_t
uli_plan_engine_bytes(const struct uli_plan_engine *engine, int32_t nranks)
{
    int64_t bytes =
        (int64_t)sizeof(*engine) + nranks * (int64_t)sizeof(*engine->landings);
    for (int o = 0; o < ULYX_OPERATIONS; o++) {
        const struct uli_engine_table *t = &engine->op[o].table;
        bytes +=
            (t->push.count + t->take.count) * (int64_t)sizeof(*t->push.at) +
            t->nitems * (int64_t)sizeof(*t->items) +
            t->nsources * (int64_t)sizeof(*t->sources);
    }
    return bytes;
}

void
uli_plan_engine_describe(
    const ulyx_plan_t *plan, char *text_p, size_t text_bytes)
{
    const struct uli_plan_gpu *gpu = plan->gpu;
    const struct uli_plan_engine *engine = gpu->engine;
    snprintf(text_p, text_bytes,
        "copy engines, by %s; landing of %d x %lld bytes a peer; sums by %d of "
        "%d SMs",
        plan->flags & ULYX_PLAN_COPY_ENGINE ? "the plan's flag"
                                            : "ULYX_GPU_MODE",
        engine->slots, (long long)engine->slot_bytes, gpu->blocks,
        gpu->room.multiprocessors);
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

void
uli_plan_engine_describe_operation(const ulyx_plan_t *plan,
    ulyx_operation_t operation, char *text_p, size_t text_bytes)
{
    const struct uli_engine_table *table =
        &plan->gpu->engine->op[operation].table;
    int64_t pushed = count_copies(&table->push, false);
    int64_t taken = count_copies(&table->take, false);
    int64_t own = count_copies(&table->take, true);
    snprintf(text_p, text_bytes,
        "%lld copies a call (%lld to peers in %d rounds, %lld from the landing "
        "in %d, %lld own)%s",
        (long long)(pushed + taken + own), (long long)pushed, table->out,
        (long long)taken, table->in, (long long)own,
        table->nsources ? ", sums by a kernel" : "");
}
