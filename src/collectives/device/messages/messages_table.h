/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of one direction of the exchange by messages: those of a small call, the
 * places of its items in the streams of messages_gpu.h, and how many bytes each
 * pair's messages carry. Plain C on the host: no CUDA.
 *
 * Everything lies in a buffer of the caller, whose copy on the device has the
 * same layout. The buffer has room for the largest tables that any update can
 * give, so filling it again allocates nothing.
 */
#ifndef ULI_COLLECTIVES_DEVICE_MESSAGES_MESSAGES_TABLE_H
#define ULI_COLLECTIVES_DEVICE_MESSAGES_MESSAGES_TABLE_H

#include "collectives/device/mapped/exchange_table.h"
#include "collectives/device/messages/messages_gpu.h"

struct uli_messages_table {
    int64_t item_room, source_room, round_room;
    /* Byte offsets in the buffer. lists: of pack, then of unpack. peers: of
     * each round; filled by messages.c, which has the addresses of the
     * messages. */
    int64_t items_at, sources_at, order_at, lists_at, peers_at;
    int64_t *sent, *received; /* [round_room + 1][nranks]: bytes of the pair's
                               * messages before that round */
    int32_t rounds;           /* 1 at least */
    struct uli_gpu_table table;
    int64_t tile_bytes, tiles, pack_own_tiles, unpack_own_tiles;
};

/* Scratch memory for making tables. */
struct uli_messages_scratch {
    struct uli_gpu_scratch gpu;
    int64_t *at, *carried, *round; /* [nranks], of the present destination */
    int32_t *next;                 /* [nranks] */
};
/* Errors: NO_MEMORY; nothing is left then. */
ulyx_status_t uli_messages_scratch_create(
    const struct uli_layout *layout, struct uli_messages_scratch *scratch_p);
void uli_messages_scratch_free(struct uli_messages_scratch *scratch);

struct uli_messages_table_params {
    struct uli_gpu_table_params gpu; /* its slot_bytes is not read */
    int64_t chunk_bytes; /* of a window; a multiple of ULI_GPU_LINE */
};

/* Sets the rooms and allocates sent and received; places are taken from
 * *bytes_p on, which is advanced. Errors: NO_MEMORY. */
ulyx_status_t uli_messages_table_measure(
    const struct uli_messages_table_params *params,
    struct uli_messages_scratch *scratch, struct uli_messages_table *table,
    int64_t *bytes_p);
/* Fills all but the peers, for the layout's present documents. Errors:
 * INTERNAL, the rooms are too small. */
ulyx_status_t uli_messages_table_fill(
    const struct uli_messages_table_params *params,
    struct uli_messages_scratch *scratch, struct uli_messages_table *table,
    unsigned char *buffer);
/* The most bytes of a message to or from p in any round. */
int64_t uli_messages_table_longest(
    const struct uli_messages_table *table, int32_t nranks, int32_t p);
void uli_messages_table_free(struct uli_messages_table *table);

#endif
