/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of a plan on the device, and updates of documents and rows. The tables
 * of all directions make up one block, in pinned host memory and with the same
 * layout in the plan's block. So an update is one copy in stream order, and
 * each call of the stream finds the tables that are current at its place in the
 * stream. Pinned memory has two such blocks: one may still be copied while the
 * next is filled. Each table has room for the largest, so an update allocates
 * nothing.
 *
 * The counts and the hash lie in front of each table (uli_gpu_head), where
 * kernels read them, so that captured launches follow an update.
 */
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/device/mapped/plan_device.h"
#include "collectives/device/mapped/plan_gpu.h"

static bool
plan_gpu_uses(const ulyx_plan_t *plan, int direction)
{
    return plan->directions >> direction & 1;
}

static struct uli_gpu_table_params
table_params(const ulyx_plan_t *plan, int direction, int64_t slot_bytes)
{
    const struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    return (struct uli_gpu_table_params){.layout = plan->layout,
        .direction = direction,
        .rank = plan->comm->rank,
        .nodes = gpu->nodes,
        .strides = gpu->strides,
        .slot_bytes = slot_bytes,
        .workers = (int64_t)gpu->blocks * ULI_GPU_WARPS,
        .small_workers = gpu->room.claimed ? ULI_GPU_WARPS : 1};
}

/* Bytes of a slot; 0 = the direction is never a small call. Whether a call is
 * small may not change with an update. */
static int64_t
slot_bytes_of(const ulyx_plan_t *plan, int direction)
{
    const struct uli_gpu_op *op = &uli_plan_gpu_of(plan)->op[direction];
    return !uli_layout_has_tables(plan->layout) || op->most_fit_slots
               ? plan->slot_limit
               : 0;
}

/* With fewer rows no pair moves more, unless splits or documents decide the
 * rows of ranks. */
static bool
most_fit_slots(const ulyx_plan_t *plan, int direction)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    struct uli_gpu_table_params params =
        table_params(plan, direction, plan->slot_limit);
    return uli_layout_rows_change(plan->layout) &&
           !uli_layout_moves_anything(plan->layout) &&
           uli_gpu_slots_fit(&params, &gpu->scratch);
}

ulyx_status_t
uli_plan_gpu_measure(ulyx_plan_t *plan)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    int64_t at = 0;
    ULI_TRY(uli_gpu_scratch_create(plan->layout, &gpu->scratch));
    for (int o = 0; o < ULYX_DIRECTIONS; o++) {
        struct uli_gpu_op *op = &gpu->op[o];
        op->head_at = uli_plan_device_take(&at, 1, sizeof(struct uli_gpu_head));
        if (!plan_gpu_uses(plan, o))
            continue;
        op->most_fit_slots = most_fit_slots(plan, o);
        uli_gpu_table_room(plan->layout, o, plan->comm->rank, &gpu->scratch,
            &op->item_room, &op->source_room);
        op->items_at = uli_plan_device_take(
            &at, op->item_room, sizeof(struct uli_gpu_item));
        op->sources_at = uli_plan_device_take(
            &at, op->source_room, sizeof(struct uli_gpu_source));
        if (!plan->mover->takes_strides)
            continue;
        op->rects_at = uli_plan_device_take(
            &at, op->item_room, sizeof(struct uli_gpu_rect));
        op->indices_at = uli_plan_device_take(
            &at, op->source_room, sizeof(struct uli_gpu_index));
        op->usual_at = uli_plan_device_take(
            &at, gpu->nranks, sizeof(struct uli_gpu_strides));
    }
    gpu->tables_bytes = at;
    return ULYX_SUCCESS;
}

/* All ranks' strides of creation. */
static void
fill_usual(
    const ulyx_plan_t *plan, int direction, struct uli_gpu_strides *usual)
{
    for (int32_t p = 0; p < plan->comm->nranks; p++)
        for (int dst = 0; dst < 2; dst++) {
            enum uli_side side = uli_plan_side(direction, !dst);
            for (int32_t t = 0; t < plan->exchange.ntensors; t++)
                memcpy(usual[p].at[dst][t], plan->ranks[p].strides[t][side],
                    sizeof(usual[p].at[dst][t]));
        }
}

static ulyx_status_t
fill_one(ulyx_plan_t *plan, int o, unsigned char *buffer)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    struct uli_gpu_op *op = &gpu->op[o];
    struct uli_gpu_table_params params =
        table_params(plan, o, slot_bytes_of(plan, o));
    op->table.items = (void *)(buffer + op->items_at);
    op->table.sources = (void *)(buffer + op->sources_at);
    if (plan->mover->takes_strides) {
        op->table.rects = (void *)(buffer + op->rects_at);
        op->table.indices = (void *)(buffer + op->indices_at);
        fill_usual(plan, o, (void *)(buffer + op->usual_at));
    }
    ULI_TRY(uli_gpu_table_fill(
        &params, &gpu->scratch, op->item_room, op->source_room, &op->table));
    return ULYX_SUCCESS;
}

/* A direction that the plan does not have gets a head too, because the record
 * of a call that is refused for its direction has the hash. */
ulyx_status_t
uli_plan_gpu_fill(ulyx_plan_t *plan, int buffer)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    unsigned char *base = gpu->buffers[buffer];
    for (int o = 0; o < ULYX_DIRECTIONS; o++) {
        const struct uli_gpu_table *table = &gpu->op[o].table;
        if (plan_gpu_uses(plan, o))
            ULI_TRY(fill_one(plan, o, base));
        struct uli_gpu_head head = {table->nitems, table->nfirst, table->ntiles,
            table->nfirst_tiles, table->tile_bytes,
            uli_layout_table_hash(plan->layout)};
        memcpy(base + gpu->op[o].head_at, &head, sizeof(head));
    }
    return ULYX_SUCCESS;
}

/* ---- update -------------------------------------------------------------- */

/* The layout is the new one from here on. A failure now fails the communicator,
 * because host and device would no longer agree. */
static ulyx_status_t
plan_replace(ulyx_plan_t *plan, void *stream)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    int buffer = gpu->next_buffer;
    if (uli_layout_rows_change(plan->layout))
        uli_plan_fill_strides(plan);
    uli_plan_fill_extents(plan);
    uli_plan_remeasure(plan);
    ULI_TRY(uli_plan_gpu_fill(plan, buffer));
    if (gpu->detour)
        ULI_TRY(gpu->ops->event_order(gpu->device, gpu->ended, stream));
    ULI_TRY(
        gpu->ops->copy(gpu->device, (char *)gpu->block.address + gpu->tables_at,
            gpu->buffers[buffer], gpu->tables_bytes, stream));
    ULI_TRY(gpu->ops->event_record(gpu->device, gpu->copied[buffer], stream));
    gpu->next_buffer = (buffer + 1) % gpu->nbuffers;
    return ULYX_SUCCESS;
}

/* The arguments of an update; without rows the present ones stay. */
struct change {
    const ulyx_docs_t *docs_q, *docs_k;
    const int64_t *rows;
    const int64_t *const *splits;
};

static ulyx_status_t
change_layout(ulyx_plan_t *plan, const struct change *change)
{
    if (change->rows)
        return uli_layout_update_rows(plan->layout, change->rows,
            change->splits, change->docs_q, change->docs_k);
    return uli_layout_update(plan->layout, change->docs_q, change->docs_k);
}

static ulyx_status_t
plan_update(ulyx_plan_t *plan, const struct change *change, void *stream)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    bool tables = uli_layout_has_tables(plan->layout);
    ULI_TRY(uli_comm_check(plan->comm));
    if (tables) {
        ULI_TRY(uli_plan_device_check_update(plan, stream));
        ULI_TRY(uli_plan_device_await(plan, gpu->copied[gpu->next_buffer],
            "update: the tables of the last update but one are still waiting "
            "in their stream"));
    }
    ULI_TRY(change_layout(plan, change));
    ulyx_status_t status = tables ? plan_replace(plan, stream) : ULYX_SUCCESS;
    if (status == ULYX_SUCCESS)
        return ULYX_SUCCESS;
    return uli_comm_fail(plan->comm, status, plan->comm->rank,
        "plan update: %s", uli_error_text());
}

static ulyx_status_t
plan_change(ulyx_plan_t *plan, const struct change *change, void *stream)
{
    ULI_TRY(uli_exchange_take(&plan->exchange));
    ulyx_status_t status = plan_update(plan, change, stream);
    atomic_store(&plan->exchange.busy, false);
    return status;
}

ulyx_status_t
uli_plan_gpu_update(ulyx_plan_t *plan, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream)
{
    const struct change change = {.docs_q = docs_q, .docs_k = docs_k};
    return plan_change(plan, &change, stream);
}

ulyx_status_t
uli_plan_gpu_update_rows(ulyx_plan_t *plan, const int64_t *rows,
    const int64_t *const *splits, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, void *stream)
{
    const struct change change = {docs_q, docs_k, rows, splits};
    return plan_change(plan, &change, stream);
}
