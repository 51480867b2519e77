/* SPDX-License-Identifier: Apache-2.0
 *
 * Fan-outs: boxes that read different runs of the same source rows, as the
 * heads of a token that go to different ranks are. The rows are read once, in
 * order, and each run is stored where its box says. Box by box, a page of the
 * source would be read once per box.
 */
#include <stdlib.h>
#include "collectives/kernels/copy.h"
#include "collectives/kernels/copy_kernel.h"

enum {
    LINE_BYTES = 64,
    /* The longest run that is copied whole: one page, which is the reach of
     * hardware prefetchers. */
    PIECE_BYTES = 4096,
    MOST_PIECES = 4, /* longer runs share too few pages to gain anything */
};

_Static_assert((int)ULI_FAN_PARTS *MOST_PIECES <= (int)ULI_FAN_TARGETS,
    "a target for each piece");

/* ---- which boxes --------------------------------------------------------- */

/* The least number of equal pieces of a run that are whole lines and not longer
 * than PIECE_BYTES; 0: there is none. */
static int64_t
run_pieces(int64_t run_bytes)
{
    int64_t pieces = (run_bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    while (pieces <= MOST_PIECES && run_bytes % (pieces * LINE_BYTES))
        pieces++;
    return pieces <= MOST_PIECES ? pieces : 0;
}

/* Are there several rows, apart from each other, and is the innermost loop the
 * one whose rows are nearest in the source? */
static bool
rows_are_apart(const struct uli_box *box)
{
    for (int i = 0; i < 2; i++)
        if (box->extent[i] > 1 &&
            llabs(box->src_stride[i]) < llabs(box->src_stride[2]))
            return false;
    return !uli_box_reads_on(box);
}

bool
uli_boxes_fan(const struct uli_box *a, const struct uli_box *b)
{
    for (int i = 0; i < 3; i++)
        if (a->extent[i] != b->extent[i] ||
            (a->extent[i] > 1 && a->src_stride[i] != b->src_stride[i]))
            return false;
    return a->run_bytes == b->run_bytes && rows_are_apart(a) &&
           llabs(a->src_offset - b->src_offset) < llabs(a->src_stride[2]) &&
           run_pieces(a->run_bytes) > 0;
}

/* Does the part store whole lines only? */
static bool
part_is_aligned(const struct uli_fan_part *part)
{
    const struct uli_box *box = part->box;
    uintptr_t bits = (uintptr_t)part->dst + (uintptr_t)box->dst_offset;
    for (int i = 0; i < 3; i++)
        bits |= box->extent[i] > 1 ? (uintptr_t)box->dst_stride[i] : 0;
    return bits % LINE_BYTES == 0;
}

bool
uli_parts_fan(const struct uli_fan_part *parts, int32_t count, bool stream)
{
    for (int32_t n = 0; stream && n < count; n++)
        if (!part_is_aligned(&parts[n]))
            return false;
    return true;
}

/* ---- the copy ------------------------------------------------------------ */

/* Puts a target among the others, which lie in the order of the source. */
static void
target_insert(struct uli_copy_fan *fan, struct uli_copy_target target)
{
    int32_t at = fan->ntargets++;
    while (at > 0 && fan->targets[at - 1].src_offset > target.src_offset) {
        fan->targets[at] = fan->targets[at - 1];
        at--;
    }
    fan->targets[at] = target;
}

/* Sets the targets for the rows from index[2] on: each piece of a run is one.
 */
static void
fan_fill(struct uli_copy_fan *fan, const struct uli_fan_part *parts,
    int32_t count, const int64_t index[3])
{
    int64_t run_bytes = parts[0].box->run_bytes;
    int64_t pieces = run_pieces(run_bytes);
    fan->run_bytes = run_bytes / pieces;
    fan->ntargets = 0;
    for (int32_t n = 0; n < count; n++) {
        const struct uli_box *box = parts[n].box;
        struct uli_copy_target target = {
            .dst = (unsigned char *)parts[n].dst + box->dst_offset +
                   uli_span_offset(index, box->dst_stride),
            .dst_stride = box->dst_stride[2],
            .src_offset =
                box->src_offset + uli_span_offset(index, box->src_stride)};
        for (int64_t i = 0; i < pieces; i++) {
            target_insert(fan, target);
            target.dst += fan->run_bytes;
            target.src_offset += fan->run_bytes;
        }
    }
}

void
uli_boxes_copy(const struct uli_fan_part *parts, int32_t count,
    struct uli_box_span span, const void *src, const struct uli_copy_way *way)
{
    const struct uli_copy_kernel *kernel = uli_copy_kernel();
    const struct uli_box *box = parts[0].box;
    struct uli_copy_way usable = *way;
    struct uli_copy_fan fan = {.src = src, .src_stride = box->src_stride[2]};
    struct uli_span_rect rect;
    usable.stream = way->stream && kernel->fence;
    while (uli_span_next(box->extent, &span, &rect)) {
        fan.rows = rect.extent[1];
        for (int64_t j = 0; j < rect.extent[0]; j++) {
            fan_fill(&fan, parts, count, rect.index);
            kernel->fan(&fan, &usable);
            rect.index[1]++;
        }
    }
    if (usable.stream)
        kernel->fence();
}
