/* SPDX-License-Identifier: Apache-2.0
 *
 * How many items and sources the tables of exchange_table.c have at most, and
 * the scratch memory for making them. Plans allocate room for both at creation,
 * so that an update of document tables cannot fail for lack of memory. Also the
 * cut of tables into tiles. An item is a move in which this rank takes part; a
 * source is one share of a sum that this rank adds.
 */
#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/device/mapped/exchange_table.h"

ulyx_status_t
uli_gpu_scratch_create(
    const struct uli_layout *layout, struct uli_gpu_scratch *scratch_p)
{
    size_t n = (size_t)uli_layout_shape(layout)->nranks;
    struct uli_gpu_scratch scratch = {
        .places = malloc((size_t)(uli_layout_scratch(layout) + 1) *
                         sizeof(struct uli_place)),
        .slot_at = calloc(n, sizeof(int64_t)),
        .group = malloc(n * sizeof(int32_t)),
        .offset = malloc(n * sizeof(int64_t)),
        .stride = malloc(n * sizeof(int64_t[3]))};
    *scratch_p = scratch;
    if (scratch.places && scratch.slot_at && scratch.group && scratch.offset &&
        scratch.stride)
        return ULYX_SUCCESS;
    uli_gpu_scratch_free(scratch_p);
    return uli_error(
        ULYX_ERR_NO_MEMORY, "tables of an exchange on a device: no memory");
}

void
uli_gpu_scratch_free(struct uli_gpu_scratch *scratch)
{
    free(scratch->places);
    free(scratch->slot_at);
    free(scratch->group);
    free(scratch->offset);
    free(scratch->stride);
    memset(scratch, 0, sizeof(*scratch));
}

/* ---- room ---------------------------------------------------------------- */

struct room {
    int64_t items, sources;
};

static bool
count_move(void *context, const struct uli_move *move)
{
    struct room *room = context;
    room->items++;
    room->sources += move->kind == ULI_MOVE_SUM ? move->nsources : 0;
    return true;
}

/* Adds the most items and sources that any document tables can give. */
static void
bound_room(const struct uli_layout *layout, ulyx_direction_t direction,
    int32_t me, int32_t tensor, struct room *room)
{
    int32_t nranks = uli_layout_shape(layout)->nranks;
    room->items += uli_layout_max_moves(layout, direction, tensor, me, -1);
    for (int32_t p = 0; p < nranks; p++) {
        room->sources += uli_layout_max_moves(layout, direction, tensor, me, p);
        if (p != me)
            room->items +=
                uli_layout_max_moves(layout, direction, tensor, p, me);
    }
}

void
uli_gpu_table_room(const struct uli_layout *layout, ulyx_direction_t direction,
    int32_t rank, struct uli_gpu_scratch *scratch, int64_t *items_p,
    int64_t *sources_p)
{
    const struct uli_shape *shape = uli_layout_shape(layout);
    struct room room = {0, 0}, out = {0, 0};
    for (int32_t t = 0; t < shape->ntensors; t++) {
        if (uli_layout_has_tables(layout)) {
            bound_room(layout, direction, rank, t, &room);
            continue;
        }
        uli_layout_each_move(
            layout, direction, t, rank, -1, scratch->places, count_move, &room);
        for (int32_t p = 0; p < shape->nranks; p++)
            if (p != rank)
                uli_layout_each_move(layout, direction, t, p, rank,
                    scratch->places, count_move, &out);
    }
    *items_p = room.items + out.items;
    *sources_p = room.sources;
}

/* ---- tiles --------------------------------------------------------------- */

/* The size of a tile gives each worker about one tile, but is at least
 * ULI_GPU_TILE_MIN and at most ULI_GPU_TILE_MAX. */
void
uli_gpu_table_cut(struct uli_gpu_table *table, int64_t workers)
{
    int64_t total = 0, tile;
    for (int64_t i = 0; i < table->nitems; i++) {
        const struct uli_gpu_item *item = &table->items[i];
        total += item->extent[0] * item->extent[1] * item->extent[2] *
                 item->run * (item->kind == ULI_GPU_SUM ? 4 : 1);
    }
    tile = uli_round_up(total / uli_max(1, workers) + 1, ULI_GPU_TILE_MIN);
    tile = uli_min(tile, ULI_GPU_TILE_MAX);
    table->tile_bytes = tile;
    for (int64_t i = 0; i < table->nitems; i++) {
        struct uli_gpu_item *item = &table->items[i];
        int64_t each = item->kind == ULI_GPU_SUM ? tile / 4 : tile;
        int64_t length =
            item->extent[0] * item->extent[1] * item->extent[2] * item->run;
        item->first_tile = table->ntiles;
        table->ntiles += (length + each - 1) / each;
        if (i < table->nfirst)
            table->nfirst_tiles = table->ntiles;
    }
}
