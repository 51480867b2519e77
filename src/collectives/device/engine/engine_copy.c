/* SPDX-License-Identifier: Apache-2.0
 *
 * A box as copies of the driver. A box has four dimensions: a run of bytes, and
 * the three of extent. One copy takes as many of the inner dimensions as the
 * driver's rectangles can express with the strides of both sides; a loop on the
 * host goes over the outer dimensions. In a normalized box the dimensions of
 * extent 1 are outermost.
 *
 *     width run, height extent[2], depth extent[1]; extent[0] is the loop
 *     width run, height extent[2];  extent[0] x extent[1] is the loop
 *     else one copy per run
 */
#include "collectives/device/engine/engine_table.h"

#include "base/status.h"

/* How many of the extents, from the innermost on, one copy takes. */
static int
rect_of(const struct uli_box *box, struct uli_device_rect *rect_p)
{
    struct uli_device_rect rect = {.width = box->run_bytes,
        .height = box->extent[2],
        .depth = box->extent[1],
        .dst_pitch = box->dst_stride[2],
        .dst_slice = box->dst_stride[1],
        .src_pitch = box->src_stride[2],
        .src_slice = box->src_stride[1]};
    int dims = 2;
    if (!uli_device_rect_fits(&rect)) {
        rect.depth = 1;
        dims = 1;
    }
    if (!uli_device_rect_fits(&rect)) {
        rect.height = 1;
        dims = 0;
    }
    *rect_p = rect;
    return dims;
}

int64_t
uli_engine_copy_count(const struct uli_box *box)
{
    struct uli_device_rect rect;
    int64_t count = 1;
    for (int d = 2 - rect_of(box, &rect); d >= 0; d--)
        count *= box->extent[d];
    return count;
}

ulyx_status_t
uli_engine_copy(const struct uli_device_ops *ops, int32_t device,
    const struct uli_box *box, unsigned char *dst, const unsigned char *src,
    void *stream)
{
    struct uli_device_rect rect;
    int dims = rect_of(box, &rect);
    const int64_t *to = box->dst_stride, *from = box->src_stride;
    int64_t extent[3] = {box->extent[0], box->extent[1], box->extent[2]};
    for (int d = 3 - dims; d < 3; d++)
        extent[d] = 1;
    dst += box->dst_offset;
    src += box->src_offset;
    for (int64_t i = 0; i < extent[0]; i++)
        for (int64_t j = 0; j < extent[1]; j++)
            for (int64_t k = 0; k < extent[2]; k++)
                ULI_TRY(ops->copy_rect(device,
                    dst + i * to[0] + j * to[1] + k * to[2],
                    src + i * from[0] + j * from[1] + k * from[2], &rect,
                    stream));
    return ULYX_SUCCESS;
}
