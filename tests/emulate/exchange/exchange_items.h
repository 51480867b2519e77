/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of the exchange kernels alone: one item at one rank, without peers,
 * against the copies and sums of the host. The item is drawn: extents that are
 * no powers of two, strides with gaps and in another order at the source,
 * alignments, tiles that end within rows, warps that share them. Some items are
 * laid by the strides of the call, while the table has others.
 */
#ifndef TESTS_EMULATE_EXCHANGE_EXCHANGE_ITEMS_H
#define TESTS_EMULATE_EXCHANGE_EXCHANGE_ITEMS_H

#include <stdbool.h>
#include <stdint.h>
#include "collectives/device/mapped/exchange_gpu.h"
#include "support/random.h"

/* dst and src are memory of the current device, the other pointers the host's.
 * rect and indices are NULL where the item is taken as it is. */
struct item_launch {
    struct uli_gpu_item item;
    const struct uli_gpu_source *sources; /* [item.nsources] */
    const struct uli_gpu_rect *rect;
    const struct uli_gpu_index *indices; /* [item.nsources] */
    struct uli_gpu_strides strides;      /* of the call */
    void *dst;
    const void *src;
    int64_t dst_at, src_at; /* bytes from there to the tensor */
    int64_t tile_bytes;
    int32_t blocks, threads;
};

/* Runs the kernel and waits for it.
 * returns false for an error of the runtime. */
bool item_run(const struct item_launch *launch);

/* One draw each.
 * returns false where a byte is wrong, or written twice, or the emulator has
 * reported a fault. */
bool item_copy_is_right(struct test_random *random);
bool item_sum_is_right(struct test_random *random);

#endif
