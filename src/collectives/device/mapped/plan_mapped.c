/* SPDX-License-Identifier: Apache-2.0
 *
 * The mover of mapped device memory: one kernel stores copies at peers and
 * loads the shares of sums. Serves every plan on device memory that no other
 * mover serves.
 */
#include <stdlib.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/device/engine/plan_engine.h"
#include "collectives/device/mapped/plan_gpu.h"

static bool
mapped_serves(const ulyx_plan_t *plan, const char *algo)
{
    (void)algo;
    return plan->comm->gpu != NULL;
}

static ulyx_status_t
mapped_prepare(ulyx_plan_t *plan, const struct uli_plan_params *params)
{
    struct uli_plan_gpu *gpu = calloc(1, sizeof(*gpu));
    if (!gpu)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    ULI_TRY(uli_plan_gpu_begin(plan, &uli_mover_mapped, gpu, params, true));
    return uli_plan_gpu_take(plan);
}

static ulyx_status_t
mapped_complete(ulyx_plan_t *plan)
{
    struct uli_gpu_peer *peers =
        calloc((size_t)plan->comm->nranks, sizeof(*peers));
    ulyx_status_t status =
        peers ? uli_plan_gpu_connect(plan, peers)
              : uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan");
    free(peers);
    return uli_plan_gpu_ready(plan, status);
}

/* Blocks of a launch that moves: as many as have a tile, because warps without
 * a tile would only poll and be counted. Tables of documents may get more tiles
 * with any update. */
static int32_t
blocks_of(const ulyx_plan_t *plan, ulyx_direction_t direction)
{
    const struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    int64_t ntiles = gpu->op[direction].table.ntiles;
    int64_t needed = (ntiles + ULI_GPU_WARPS - 1) / ULI_GPU_WARPS;
    if (uli_layout_has_tables(plan->layout))
        return gpu->blocks;
    return (int32_t)uli_max(uli_min(gpu->blocks, needed), 1);
}

static ulyx_status_t
mapped_enqueue(ulyx_plan_t *plan, ulyx_direction_t direction,
    struct uli_gpu_args *args, void *stream, bool *begun_p)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    int32_t blocks = blocks_of(plan, direction);
    if (gpu->room.claimed)
        return uli_plan_gpu_launch(
            gpu, args, ULI_GPU_ALL, blocks, ULI_GPU_THREADS, stream);
    ULI_TRY(uli_plan_gpu_launch(gpu, args, ULI_GPU_OPEN, 1, 32, stream));
    *begun_p = true;
    ULI_TRY(uli_plan_gpu_launch(
        gpu, args, ULI_GPU_MOVE, blocks, ULI_GPU_THREADS, stream));
    return uli_plan_gpu_launch(gpu, args, ULI_GPU_CLOSE, 1, 32, stream);
}

static ulyx_status_t
mapped_start(ulyx_plan_t *plan, const struct uli_plan_call *call,
    ulyx_request_t **request_p)
{
    (void)request_p;
    return uli_plan_gpu_start(plan, call, mapped_enqueue);
}

static void
mapped_destroy(
    ulyx_comm_t *comm, struct uli_mover_state *state, bool gives_back)
{
    struct uli_plan_gpu *gpu = (struct uli_plan_gpu *)state;
    uli_plan_gpu_free(comm, gpu, gives_back);
    free(gpu);
}

/* ---- in words ------------------------------------------------------------ */

static void
mapped_describe(const ulyx_plan_t *plan, struct uli_text *text)
{
    const struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    uli_text_add(text, "direct on device memory (%d of %d SMs; %s", gpu->sms,
        gpu->room.multiprocessors,
        gpu->room.claimed
            ? "one launch per call (blocks that wait for each other fit on the device)"
            : "three launches per call (other plans have claimed the device)");
    if (gpu->blocks > gpu->sms)
        uli_text_add(text, "; %d blocks per SM", gpu->blocks / gpu->sms);
    if (gpu->room.crowded)
        uli_text_add(text,
            "; waits may find no room beside other plans: all ranks have to "
            "enqueue the calls of all plans in one order");
    if (uli_plan_engine_selected(plan))
        uli_text_add(
            text, "; no copy engines: %s", uli_plan_engine_refused(plan));
    uli_text_add(text, ")");
}

static bool
has_peers(const ulyx_plan_t *plan, ulyx_direction_t direction, int32_t *peers_p)
{
    const struct uli_plan_room *room = &plan->room[direction];
    *peers_p = 0;
    for (int32_t p = 0; p < plan->comm->nranks; p++)
        *peers_p +=
            p != plan->comm->rank && (room->in[p].items || room->out[p].items);
    return *peers_p > 0;
}

/* Copies are pushed and sums are pulled, or everything goes through slots. */
void
uli_plan_gpu_describe_direction(
    const ulyx_plan_t *plan, ulyx_direction_t direction, struct uli_text *text)
{
    const struct uli_gpu_table *table =
        &uli_plan_gpu_of(plan)->op[direction].table;
    int32_t peers;
    if (!has_peers(plan, direction, &peers))
        uli_text_add(text, "nothing between ranks");
    else
        uli_text_add(text, "%d %s, tiles of %lld bytes", peers,
            table->slots  ? "by slot (small)"
            : table->sums ? "stored to, shares of sums loaded"
                          : "stored to",
            (long long)table->tile_bytes);
}

int64_t
uli_plan_gpu_bytes(const struct uli_plan_gpu *gpu)
{
    return (int64_t)sizeof(*gpu) + gpu->block.bytes + gpu->marks.bytes +
           gpu->pinned_bytes +
           gpu->nranks *
               (int64_t)(sizeof(void *) * 2 + sizeof(int32_t) + sizeof(bool));
}

static int64_t
mapped_bytes(const ulyx_plan_t *plan)
{
    return uli_plan_gpu_bytes(uli_plan_gpu_of(plan));
}

const struct uli_mover_ops uli_mover_mapped = {.name = "mapped",
    .by_stream = true,
    .takes_strides = true,
    .takes_hash = true,
    .serves = mapped_serves,
    .check = uli_plan_gpu_check,
    .prepare = mapped_prepare,
    .complete = mapped_complete,
    .needs_windows = uli_plan_gpu_needs_windows,
    .start = mapped_start,
    .refuse = uli_plan_gpu_refuse,
    .update = uli_plan_gpu_update,
    .update_rows = uli_plan_gpu_update_rows,
    .leave = uli_plan_gpu_leave,
    .left = uli_plan_gpu_left,
    .destroy = mapped_destroy,
    .describe = mapped_describe,
    .describe_direction = uli_plan_gpu_describe_direction,
    .describe_rest = uli_plan_describe_slots,
    .bytes = mapped_bytes};
