/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the tables of exchange_gpu.h from a layout and all ranks' strides.
 * Plain C on the host: no CUDA.
 */
#ifndef ULI_COLLECTIVES_DEVICE_MAPPED_EXCHANGE_TABLE_H
#define ULI_COLLECTIVES_DEVICE_MAPPED_EXCHANGE_TABLE_H

#include "collectives/device/mapped/exchange_gpu.h"
#include "collectives/plan/plan.h"

struct uli_gpu_table_params {
    const struct uli_layout *layout;
    ulyx_direction_t direction;
    int32_t rank;
    const int32_t *nodes;          /* [nranks]: sums go node by node */
    uli_strides_t *const *strides; /* [nranks] -> [tensors] */
    int64_t slot_bytes;            /* of one slot; 0 = never a small call */
    int64_t workers; /* warps that share the tiles; gives the size of a tile */
    int64_t small_workers; /* the same for a small call, which is one block; 0:
                              workers */
    /* Results for a small call, [nranks] each or NULL: bytes used of the slot
     * at a peer, and of the slot here that the peer fills. */
    int64_t *sent_p, *received_p;
};

/* ---- items (exchange_item.c) --------------------------------------------- */

/* Strides of runs that lie one after another. */
void uli_gpu_packed_strides(
    const int64_t extent[3], int64_t run_bytes, int64_t stride[3]);
/* Fills in a copy or zeros (item->kind is set) from a normalized box. */
void uli_gpu_item_of_box(struct uli_gpu_item *item, const struct uli_box *box);
/* Fills in a sum from a normalized sum, whose sources have the offsets and
 * strides of source[sum->nsources]. */
void uli_gpu_item_of_sum(struct uli_gpu_item *item, const struct uli_sum *sum,
    const struct uli_gpu_source source[]);

/* Cuts the items into tiles for `workers` warps (exchange_room.c). */
void uli_gpu_table_cut(struct uli_gpu_table *table, int64_t workers);

/* Scratch memory for making a table, so that making it allocates nothing. */
struct uli_gpu_scratch {
    struct uli_place *places;
    int64_t *slot_at, *offset;
    int32_t *group;
    int64_t (*stride)[3];
};
/* Errors: NO_MEMORY; nothing is left then. */
ulyx_status_t uli_gpu_scratch_create(
    const struct uli_layout *layout, struct uli_gpu_scratch *scratch_p);
void uli_gpu_scratch_free(struct uli_gpu_scratch *scratch);

/* The most items and sources of a direction's table at a rank, over all
 * document tables that the layout takes (exchange_room.c). */
void uli_gpu_table_room(const struct uli_layout *layout,
    ulyx_direction_t direction, int32_t rank, struct uli_gpu_scratch *scratch,
    int64_t *items_p, int64_t *sources_p);
/* Whether a call of the present rows and tables is small. */
bool uli_gpu_slots_fit(
    const struct uli_gpu_table_params *params, struct uli_gpu_scratch *scratch);
/* Makes the table in table->items and ->sources, and in ->rects and ->indices
 * unless they are NULL, which have that room and belong to the caller. Both
 * sides of every pair compute the same decision whether a call is small, and
 * the same places of shares in slots. Allocates nothing. Errors: INTERNAL, the
 * room was too small. */
ulyx_status_t uli_gpu_table_fill(const struct uli_gpu_table_params *params,
    struct uli_gpu_scratch *scratch, int64_t item_room, int64_t source_room,
    struct uli_gpu_table *table);

#endif
