/* SPDX-License-Identifier: Apache-2.0
 *
 * Which parts of an arena are in use. Blocks, used and free, are listed in
 * address order. The list lies apart from the memory that it describes, because
 * peers write that memory and the host may not reach it. A free block next to a
 * free one is merged, so giving a block back needs no memory and cannot fail.
 * First fit: a plan's blocks are taken and given back together, in few sizes.
 */
#ifndef ULI_COMM_MEMORY_BLOCKS_H
#define ULI_COMM_MEMORY_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/list.h"

struct uli_blocks {
    struct uli_list list; /* the whole arena, in order */
};

/* One free block [offset, end). False: no memory. */
bool uli_blocks_open(struct uli_blocks *blocks, int64_t offset, int64_t end);
void uli_blocks_close(struct uli_blocks *blocks);

/* Takes the first free block of at least `bytes`, cut to `bytes` (or whole,
 * where there is no memory to record the rest). False: there is none. */
bool uli_blocks_take(struct uli_blocks *blocks, int64_t bytes,
    int64_t *offset_p, int64_t *bytes_p);
/* Whether no block is in use. */
bool uli_blocks_empty(const struct uli_blocks *blocks);
/* Gives back the block at the offset. False: no block in use begins there. */
bool uli_blocks_give(struct uli_blocks *blocks, int64_t offset);

#endif
