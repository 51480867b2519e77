/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of the exchange kernels alone: one item at one rank, without peers,
 * compared with the copies and sums of the host. The item is drawn: extents
 * that are no powers of two, strides with gaps and in another order at the
 * source, alignments, tiles that end within rows, and warps that share tiles.
 * Some items lie by the strides of the call, which differ from those of the
 * table.
 */
#ifndef TESTS_EMULATE_EXCHANGE_EXCHANGE_ITEMS_H
#define TESTS_EMULATE_EXCHANGE_EXCHANGE_ITEMS_H

#include <stdbool.h>
#include <stdint.h>
#include "collectives/device/mapped/exchange_gpu.h"
#include "support/random.h"

/* dst and src are memory of the current device; all other pointers are memory
 * of the host. rect and indices are NULL where the kernel takes the item as the
 * table has it. */
struct item_launch {
    struct uli_gpu_item item;
    const struct uli_gpu_source *sources; /* [item.nsources] */
    const struct uli_gpu_rect *rect;
    const struct uli_gpu_index *indices; /* [item.nsources] */
    struct uli_gpu_strides strides;      /* strides of the call */
    void *dst;
    const void *src;
    /* offsets in bytes from dst and src to the tensors */
    int64_t dst_at, src_at;
    int64_t tile_bytes;
    int32_t blocks, threads;
};

/* Runs the kernel and waits for it. Returns false on an error of the
 * runtime. */
bool item_run(const struct item_launch *launch);

/* Each runs one draw. Returns false if a byte is wrong or written twice, or if
 * the emulator has reported a fault. */
bool item_copy_is_right(struct test_random *random);
bool item_sum_is_right(struct test_random *random);

#endif
