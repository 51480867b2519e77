/* SPDX-License-Identifier: Apache-2.0
 *
 * Which parts of an arena are taken. Blocks, used and free, are listed in
 * address order apart from the memory they describe, which peers write (and
 * which the host may not even reach). A free block next to a free one is
 * merged, so giving back needs no memory and cannot fail. First fit: plans come
 * and go as a whole, in few sizes.
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

/* Takes the first free block of at least `bytes`, cut to that (or whole when
 * there is no memory to note the rest). False: none. */
bool uli_blocks_take(struct uli_blocks *blocks, int64_t bytes,
    int64_t *offset_p, int64_t *bytes_p);
/* Nothing is taken. */
bool uli_blocks_empty(const struct uli_blocks *blocks);
/* Gives back what was taken at the offset; false: that is nothing taken. */
bool uli_blocks_give(struct uli_blocks *blocks, int64_t offset);

#endif
