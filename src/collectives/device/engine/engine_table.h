/* SPDX-License-Identifier: Apache-2.0
 *
 * What copy engines move in one direction at one rank, as lists that are made
 * once. To enqueue a call, the host walks the lists and adds base addresses.
 * Plain C.
 *
 * The host that enqueues does not know the peer's tensor of this call, only the
 * peer's receive buffer: two slots per pair, of a fixed size. So the bytes from
 * rank s to rank d are cut into copy items that fill slots in rounds, slot
 * k mod 2 in round k:
 *
 *     push   src tensor at s      ->  receive buffer at d, packed, items of s
 *                                     in order
 *     take   receive buffer at d  ->  dst tensor
 *     own    src tensor           ->  dst tensor, no receive buffer
 *
 * Both ends walk all moves of d in the layout's order and cut the moves alike,
 * by extents, never by strides; so an item has the same place and order of bytes
 * at both ends. An item of a sum lies in the same round for all its sharers: a
 * pair that is behind skips ahead. The kernel of the direct exchange adds the
 * shares when the round has arrived.
 */
#ifndef ULI_COLLECTIVES_DEVICE_ENGINE_ENGINE_TABLE_H
#define ULI_COLLECTIVES_DEVICE_ENGINE_ENGINE_TABLE_H

#include "collectives/device/mapped/exchange_table.h"
#include "device/device.h"

enum {
    ULI_ENGINE_SLOTS = 2,
    ULI_ENGINE_CHUNK_MIN = 4096,     /* the largest element */
    ULI_ENGINE_ROUNDS_MAX = 1 << 20, /* fewer: a round shares a word with n */
};

/* ---- copy items (engine_cut.c) ------------------------------------------- */

/* Position in a pair's stream of items to the current destination. */
struct uli_engine_cursor {
    int32_t round;
    bool used;
    int64_t at; /* bytes of the round's slot */
};

/* A part of a move: batches, rows, heads, elements of a run. */
struct uli_engine_copy_item {
    const struct uli_move *move;
    int64_t first[4], count[4];
    int64_t element_bytes; /* at the source */
    int32_t round;         /* -1: nothing of it goes through a receive buffer */
    const int64_t *at;     /* [nranks] of each source in its slot */
};

/* Return false to end the walk early. */
typedef bool (*uli_engine_copy_fn)(
    void *context, const struct uli_engine_copy_item *cut);

struct uli_engine_walk {
    const struct uli_layout *layout;
    ulyx_direction_t direction;
    int64_t chunk_bytes;
    struct uli_place *places;          /* uli_layout_scratch() + 1 */
    struct uli_engine_cursor *cursors; /* [nranks] */
    int64_t *at;                       /* [nranks] */
};

/* Errors: NO_MEMORY; nothing is left then. */
ulyx_status_t uli_engine_walk_create(const struct uli_layout *layout,
    int64_t chunk_bytes, struct uli_engine_walk *walk_p);
void uli_engine_walk_free(struct uli_engine_walk *walk);

/* Visits the copy items of all moves whose destination is dst. Afterwards the
 * cursors are at the ends of the streams. visit may be NULL. False: visit ended
 * the walk. */
bool uli_engine_each_copy(struct uli_engine_walk *walk, int32_t dst,
    uli_engine_copy_fn visit, void *context);
/* Rounds of the walk's stream from src. */
int32_t uli_engine_rounds(const struct uli_engine_walk *walk, int32_t src);

/* The bytes of the fullest slot of all pairs and the given directions, and the
 * number of slots in use. Equal on all ranks. Errors: UNSUPPORTED, too many
 * rounds. */
ulyx_status_t uli_engine_measure(struct uli_engine_walk *walk,
    uint64_t directions, int64_t *slot_bytes_p, int32_t *slots_p);

/* ---- lists --------------------------------------------------------------- */

struct uli_engine_copy {
    struct uli_box box; /* normalized; receive buffer offsets are from the pair's */
    int64_t order;
    int32_t round; /* -1: own */
    int32_t tensor, peer;
};

struct uli_engine_copies {
    struct uli_engine_copy *at;
    int64_t count;
    int64_t *first; /* [rounds + 2]: of round k from first[k + 1] on */
};

/* A launch of the kernel after a round has landed. */
struct uli_engine_sums {
    int64_t first, count, ntiles, tile_bytes;
};

/* All lists of one rank. */
struct uli_engine_table {
    struct uli_engine_copies push, take; /* own copies are takes of round -1 */
    struct uli_gpu_item *items;          /* sums and zeros, by round */
    struct uli_gpu_source *sources;
    int64_t nitems, nsources;
    struct uli_engine_sums *sums;    /* [in + 1]: of round k at k + 1 */
    int32_t *out_rounds, *in_rounds; /* [nranks] */
    int32_t out, in;                 /* most of them */
};

struct uli_engine_params {
    const struct uli_layout *layout;
    ulyx_direction_t direction;
    int32_t rank;
    const int32_t *nodes;          /* [nranks]: groups of the order of sums */
    uli_strides_t *const *strides; /* [nranks] -> [tensors] */
    int64_t slot_bytes;            /* of the receive buffer */
    int64_t workers;               /* warps that share the tiles of a launch */
};

/* Makes the table without places: counts, rounds, and memory for all the rest.
 * Needs no strides. Errors: NO_MEMORY; free the table in any case. */
ulyx_status_t uli_engine_table_create(const struct uli_engine_params *params,
    struct uli_engine_walk *walk, struct uli_engine_table *table);
/* Fills in the places. Allocates only the scratch of sums. Errors:
 * NO_MEMORY. */
ulyx_status_t uli_engine_table_fill(const struct uli_engine_params *params,
    struct uli_engine_walk *walk, struct uli_engine_table *table);
void uli_engine_table_free(struct uli_engine_table *table);

/* ---- copies of the driver (engine_copy.c) -------------------------------- */

/* Number of driver copies of a box: one where rows and slices are regular. */
int64_t uli_engine_copy_count(const struct uli_box *box);
/* Enqueues the copies of a box. */
ulyx_status_t uli_engine_copy(const struct uli_device_ops *ops, int32_t device,
    const struct uli_box *box, unsigned char *dst, const unsigned char *src,
    void *stream);

#endif
