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
 *     push   src tensor at s      ->  receive buffer at d, without gaps inside
 *                                     an item, in the order of the walk
 *     take   receive buffer at d  ->  dst tensor
 *     own    src tensor           ->  dst tensor, no receive buffer
 *
 * Both ends walk all moves whose destination is d, in the layout's order, and
 * cut the moves alike, by extents, never by strides; so an item has the same
 * place and order of bytes at both ends. An item of a sum lies in one round for
 * all its sources: a source whose stream is in an earlier round skips to the
 * round of the source that is furthest. The kernel of the direct exchange adds
 * the shares when the round has arrived.
 */
#ifndef ULI_COLLECTIVES_DEVICE_ENGINE_ENGINE_TABLE_H
#define ULI_COLLECTIVES_DEVICE_ENGINE_ENGINE_TABLE_H

#include "collectives/device/mapped/exchange_table.h"
#include "device/device.h"

enum {
    ULI_ENGINE_SLOTS = 2,
    ULI_ENGINE_CHUNK_MIN = 4096,     /* so that every element fits a chunk */
    ULI_ENGINE_ROUNDS_MAX = 1 << 20, /* exclusive: words hold a round in 20 bits */
};

/* ---- copy items (engine_cut.c) ------------------------------------------- */

/* Position in a pair's stream of items to the current destination. */
struct uli_engine_cursor {
    int32_t round;
    bool used;
    int64_t at; /* bytes of the round's slot that are in use */
};

/* A box of a move. The dimensions of first and count are batch item, row, head
 * and element of a run. first is an offset from where the move begins, and is the
 * same offset at every source and at the destination. */
struct uli_engine_copy_item {
    const struct uli_move *move;
    int64_t first[4], count[4];
    int64_t element_bytes; /* at the source */
    int32_t round;         /* -1: nothing of it goes through a receive buffer */
    const int64_t *at;     /* [nranks], by source: where the bytes that the
                            * source pushes begin in the round's slot of its
                            * pair */
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
/* The number of rounds from src to the destination that was visited last. */
int32_t uli_engine_rounds(const struct uli_engine_walk *walk, int32_t src);

/* *slot_bytes_p: the bytes that a slot needs; chunk_bytes where any pair has two
 * rounds or more, else those of the fullest slot of all pairs, rounded up to
 * ULI_GPU_LINE. *slots_p: the slots that a pair needs, 0 to ULI_ENGINE_SLOTS.
 * Each is the largest value of the given directions, and equal on all ranks.
 * Errors: UNSUPPORTED, too many rounds. */
ulyx_status_t uli_engine_measure(struct uli_engine_walk *walk,
    uint64_t directions, int64_t *slot_bytes_p, int32_t *slots_p);

/* ---- lists --------------------------------------------------------------- */

struct uli_engine_copy {
    /* Normalized. An offset on the side of the receive buffer counts from the
     * pair's first slot. */
    struct uli_box box;
    int64_t order; /* number in the walk */
    int32_t round; /* -1: own */
    int32_t tensor, peer;
};

struct uli_engine_copies {
    struct uli_engine_copy *at;
    int64_t count;
    int64_t *first; /* [rounds + 2]: round k has copies [first[k + 1],
                     * first[k + 2]) */
};

/* The items of one round, which one launch of the kernel computes: after the
 * round has landed, or for round -1 at once. */
struct uli_engine_sums {
    int64_t first, count, ntiles, tile_bytes;
};

/* All lists of one rank. */
struct uli_engine_table {
    struct uli_engine_copies push, take; /* own copies are takes of round -1 */
    struct uli_gpu_item *items;          /* sums and zeros, by round */
    struct uli_gpu_source *sources;
    int64_t nitems, nsources;
    struct uli_engine_sums *sums;    /* [in + 1]: element k + 1 is round k */
    int32_t *out_rounds, *in_rounds; /* [nranks]: rounds to and from a peer */
    int32_t out, in;                 /* the largest of each array */
};

struct uli_engine_params {
    const struct uli_layout *layout;
    ulyx_direction_t direction;
    int32_t rank;
    const int32_t *nodes;          /* [nranks]: sums go node by node */
    uli_strides_t *const *strides; /* [nranks] -> [tensors] */
    int64_t slot_bytes;            /* of the receive buffer */
    int64_t workers;               /* warps that share the tiles of a launch */
};

/* Counts copies, items and rounds, and allocates the arrays, which stay empty.
 * Needs no strides. Errors: NO_MEMORY; free the table in any case. */
ulyx_status_t uli_engine_table_create(const struct uli_engine_params *params,
    struct uli_engine_walk *walk, struct uli_engine_table *table);
/* Fills the arrays, for which all ranks' strides must be known. Allocates only
 * scratch memory. Errors: NO_MEMORY. */
ulyx_status_t uli_engine_table_fill(const struct uli_engine_params *params,
    struct uli_engine_walk *walk, struct uli_engine_table *table);
void uli_engine_table_free(struct uli_engine_table *table);

/* ---- copies of the driver (engine_copy.c) -------------------------------- */

/* Number of driver copies of a box. One copy takes up to three of the four
 * dimensions (engine_copy.c). */
int64_t uli_engine_copy_count(const struct uli_box *box);
/* Enqueues the copies of a box. */
ulyx_status_t uli_engine_copy(const struct uli_device_ops *ops, int32_t device,
    const struct uli_box *box, unsigned char *dst, const unsigned char *src,
    void *stream);

#endif
