/* SPDX-License-Identifier: Apache-2.0
 *
 * Several boxes in one pass. Peers share the tokens of a source, each takes
 * some heads: 1/P of every row. Box after box, each pass jumps through the
 * source, and neither the hardware's prefetchers nor the memory's open pages
 * help; row after row, the source is read in order and only stores jump, which
 * costs nothing where they stream. Without streaming, or where runs are too
 * short to fill lines, boxes take turns in blocks of rows, whose page
 * translations are then found again.
 */
#include "base/size.h"
#include "collectives/kernels/copy.h"
#include "collectives/kernels/copy_kernel.h"

/* Boxes of a pass: their planes are on the stack. */
enum { JOINT_BOXES = 32, BLOCK_ROWS = 64 };

static struct uli_copy_plane
plane_of(const struct uli_box *box, const struct uli_span_rect *rect, void *dst,
    const void *src)
{
    return (struct uli_copy_plane){
        .extent = {box->extent[1], rect->extent[1]},
        .run_bytes = box->run_bytes,
        .dst = (unsigned char *)dst + box->dst_offset +
               uli_span_offset(rect->index, box->dst_stride),
        .dst_stride = {box->dst_stride[1], box->dst_stride[2]},
        .src = (const unsigned char *)src + box->src_offset +
               uli_span_offset(rect->index, box->src_stride),
        .src_stride = {box->src_stride[1], box->src_stride[2]},
    };
}

static void
copy_in_blocks(const struct uli_copy_kernel *kernel,
    const struct uli_copy_plane planes[], int32_t count, bool stream)
{
    int64_t rows = planes[0].extent[1];
    for (int64_t k = 0; k < rows; k += BLOCK_ROWS) {
        for (int32_t n = 0; n < count; n++) {
            struct uli_copy_plane block = planes[n];
            block.extent[1] = uli_min(BLOCK_ROWS, rows - k);
            block.dst += k * block.dst_stride[1];
            block.src += k * block.src_stride[1];
            kernel->copy(&block, stream);
        }
    }
}

/* At most JOINT_BOXES boxes. */
static void
copy_group(const struct uli_copy_kernel *kernel, const struct uli_box boxes[],
    int32_t count, struct uli_box_span span, void *const dst[],
    const void *const src[], bool stream)
{
    struct uli_copy_plane planes[JOINT_BOXES];
    const int64_t rows[3] = {boxes[0].extent[0], 1, boxes[0].extent[2]};
    struct uli_span_rect rect;
    bool whole_lines = stream;
    for (int32_t n = 0; n < count; n++)
        whole_lines = whole_lines && boxes[n].run_bytes >= ULI_STREAM_RUN_BYTES;
    while (uli_span_next(rows, &span, &rect)) {
        for (int32_t n = 0; n < count; n++)
            planes[n] = plane_of(&boxes[n], &rect, dst[n], src[n]);
        if (whole_lines)
            kernel->stream_joint(planes, count);
        else
            copy_in_blocks(kernel, planes, count, stream);
    }
}

void
uli_box_copy_joint(const struct uli_box boxes[], int32_t count,
    struct uli_box_span span, void *const dst[], const void *const src[],
    bool stream_stores)
{
    const struct uli_copy_kernel *kernel = uli_copy_kernel();
    bool stream = stream_stores && kernel->fence != NULL;
    for (int32_t n = 0; n < count; n += JOINT_BOXES) {
        int32_t some = count - n < JOINT_BOXES ? count - n : JOINT_BOXES;
        copy_group(kernel, boxes + n, some, span, dst + n, src + n, stream);
    }
    if (stream)
        kernel->fence();
}
