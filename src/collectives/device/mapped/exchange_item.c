/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes and sums as items of the kernels' tables: extents and strides are copied,
 * and `align` collects the bits from which kernels find the width of vectors.
 */
#include <string.h>
#include "base/dtype.h"
#include "collectives/device/mapped/exchange_table.h"

void
uli_gpu_packed_strides(
    const int64_t extent[3], int64_t run_bytes, int64_t stride[3])
{
    stride[2] = run_bytes;
    stride[1] = stride[2] * extent[2];
    stride[0] = stride[1] * extent[1];
}

/* Without the offsets: kernels look at the addresses. */
static uint64_t
align_of(const int64_t extent[3], const int64_t stride[3])
{
    uint64_t bits = 0;
    for (int d = 0; d < 3; d++)
        if (extent[d] > 1)
            bits |= (uint64_t)stride[d];
    return bits;
}

void
uli_gpu_item_of_box(struct uli_gpu_item *item, const struct uli_box *box)
{
    memcpy(item->extent, box->extent, sizeof(item->extent));
    item->run = box->run_bytes;
    item->dst_offset = box->dst_offset;
    item->src_offset = box->src_offset;
    memcpy(item->dst_stride, box->dst_stride, sizeof(item->dst_stride));
    memcpy(item->src_stride, box->src_stride, sizeof(item->src_stride));
    item->align =
        (uint64_t)item->run | align_of(item->extent, item->dst_stride);
    if (item->kind == ULI_GPU_COPY)
        item->align |= align_of(item->extent, item->src_stride);
}

/* The bits in elements; an odd number when they are not whole elements. */
static uint64_t
element_align(uint64_t bytes, int64_t element)
{
    return bytes % (uint64_t)element ? 1 : bytes / (uint64_t)element;
}

void
uli_gpu_item_of_sum(struct uli_gpu_item *item, const struct uli_sum *sum,
    const struct uli_gpu_source source[])
{
    int64_t element = uli_dtype_size(sum->dtype);
    memcpy(item->extent, sum->extent, sizeof(item->extent));
    item->run = sum->run;
    item->dst_offset = sum->dst_offset;
    memcpy(item->dst_stride, sum->dst_stride, sizeof(item->dst_stride));
    item->dtype = sum->dtype;
    item->partial_dtype = sum->partial_dtype;
    item->nsources = sum->nsources;
    item->align =
        (uint64_t)sum->run |
        element_align(align_of(sum->extent, sum->dst_stride), element);
    element = uli_dtype_size(sum->partial_dtype);
    for (int32_t s = 0; s < sum->nsources; s++)
        item->align |=
            element_align(align_of(sum->extent, source[s].stride), element);
}
