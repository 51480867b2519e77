/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes: the canonical form, and the walk that turns a span of runs into
 * rectangles for the kernel in use. A few short runs are left to the C library,
 * whichever kernel is in use.
 *
 * Order. Loops run by destination stride, so stores are as sequential as
 * possible. When the source lies the other way round (its inner loop has larger
 * steps than its outer one, as in [head][row] <- [row][head]), a whole inner
 * loop would touch extent[2] source pages and return to each once per head.
 * With ordinary stores the walk cuts the inner loop into tiles, so small that
 * lines and page translations are still cached when the next head needs them.
 * With streaming stores of whole lines the loops change places, because such
 * stores cost the same anywhere and reads in order cost less.
 */
#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "collectives/kernels/copy.h"
#include "collectives/kernels/copy_kernel.h"

/* ---- canonical form ------------------------------------------------------ */

static void
drop_dim(struct uli_box *box, int dim)
{
    for (int i = dim; i > 0; i--) {
        box->extent[i] = box->extent[i - 1];
        box->dst_stride[i] = box->dst_stride[i - 1];
        box->src_stride[i] = box->src_stride[i - 1];
    }
    box->extent[0] = 1;
    box->dst_stride[0] = 0;
    box->src_stride[0] = 0;
}

static void
swap_dims(struct uli_box *box, int a, int b)
{
    int64_t *fields[] = {box->extent, box->dst_stride, box->src_stride};
    for (int i = 0; i < 3; i++) {
        int64_t held = fields[i][a];
        fields[i][a] = fields[i][b];
        fields[i][b] = held;
    }
}

/* Merges a dimension into the run, or two dimensions into one; true if it
 * did. */
static bool
merge_once(struct uli_box *box)
{
    int64_t run_bytes = box->run_bytes;
    for (int i = 0; i < 3; i++) {
        if (box->extent[i] > 1 && box->dst_stride[i] == run_bytes &&
            box->src_stride[i] == run_bytes) {
            box->run_bytes *= box->extent[i];
            drop_dim(box, i);
            return true;
        }
    }
    for (int i = 0; i < 9; i++) {
        int outer = i / 3, inner = i % 3;
        int64_t extent = box->extent[inner];
        if (outer == inner || extent == 1 || box->extent[outer] == 1)
            continue;
        if (box->dst_stride[outer] == box->dst_stride[inner] * extent &&
            box->src_stride[outer] == box->src_stride[inner] * extent) {
            box->extent[inner] *= box->extent[outer];
            drop_dim(box, outer);
            return true;
        }
    }
    return false;
}

/* Should dimension a be inside dimension b? Those of extent 1 are outermost. */
static bool
axes_inside(const struct uli_box *box, int a, int b)
{
    if (box->extent[a] == 1 || box->extent[b] == 1)
        return box->extent[a] != 1;
    int64_t da = llabs(box->dst_stride[a]), db = llabs(box->dst_stride[b]);
    int64_t sa = llabs(box->src_stride[a]), sb = llabs(box->src_stride[b]);
    return da < db || (da == db && sa < sb);
}

/* Removes dimensions of extent 1; a box without bytes becomes empty: false. */
static bool
drop_ones(struct uli_box *box)
{
    if (uli_box_bytes(box) == 0) {
        *box = (struct uli_box){.extent = {1, 1, 0}};
        return false;
    }
    for (int i = 0; i < 3; i++) {
        if (box->extent[i] == 1)
            drop_dim(box, i);
    }
    return true;
}

/* Merges a loop into the next inner one, or the innermost into the run, where
 * both sides are adjacent; true if it did. */
static bool
merge_neighbours(struct uli_box *box)
{
    for (int i = 2; i >= 0; i--) {
        int64_t inner = i == 2 ? 1 : box->extent[i + 1];
        int64_t dst = i == 2 ? box->run_bytes : box->dst_stride[i + 1];
        int64_t src = i == 2 ? box->run_bytes : box->src_stride[i + 1];
        if (box->extent[i] == 1 || box->dst_stride[i] != dst * inner ||
            box->src_stride[i] != src * inner)
            continue;
        if (i == 2)
            box->run_bytes *= box->extent[2];
        else
            box->extent[i + 1] *= box->extent[i];
        drop_dim(box, i);
        return true;
    }
    return false;
}

void
uli_box_merge(struct uli_box *box)
{
    if (!drop_ones(box))
        return;
    while (merge_neighbours(box))
        continue;
}

void
uli_box_normalize(struct uli_box *box)
{
    if (!drop_ones(box))
        return;
    while (merge_once(box))
        continue;
    if (axes_inside(box, 0, 1))
        swap_dims(box, 0, 1);
    if (axes_inside(box, 1, 2))
        swap_dims(box, 1, 2);
    if (axes_inside(box, 0, 1))
        swap_dims(box, 0, 1);
}

int64_t
uli_box_bytes(const struct uli_box *box)
{
    return uli_box_runs(box) * box->run_bytes;
}

/* ---- spans --------------------------------------------------------------- */

bool
uli_span_next(const int64_t extent[3], struct uli_box_span *left,
    struct uli_span_rect *rect)
{
    int64_t runs = left->end - left->begin;
    if (runs <= 0)
        return false;
    int64_t line = left->begin / extent[2];
    rect->index[0] = line / extent[1];
    rect->index[1] = line % extent[1];
    rect->index[2] = left->begin % extent[2];
    if (rect->index[2] != 0 || runs < extent[2]) {
        rect->extent[0] = 1;
        rect->extent[1] = uli_min(extent[2] - rect->index[2], runs);
    } else {
        rect->extent[0] = uli_min(extent[1] - rect->index[1], runs / extent[2]);
        rect->extent[1] = extent[2];
    }
    left->begin += rect->extent[0] * rect->extent[1];
    return true;
}

/* ---- the operations ------------------------------------------------------ */

/* Runs of the inner loop per tile, which the outer loop repeats. With short
 * runs each source line is used in many iterations, so there are so few that
 * all lines stay cached even where a power-of-two stride puts them into one
 * set. */
enum { TILE_RUNS = 128, SHORT_TILE_RUNS = 16, SHORT_RUN_BYTES = 16 };

/* Parts of a long run that are copied side by side: one page, which is the
 * reach of hardware prefetchers. */
enum { PIECE_BYTES = 4096 };

enum { FEW_RUN_BYTES = 64 };

static struct uli_copy_plane
plane_swapped(const struct uli_copy_plane *plane)
{
    struct uli_copy_plane swapped = *plane;
    for (int i = 0; i < 2; i++) {
        swapped.extent[i] = plane->extent[1 - i];
        swapped.dst_stride[i] = plane->dst_stride[1 - i];
        swapped.src_stride[i] = plane->src_stride[1 - i];
    }
    return swapped;
}

static void
copy_tiles(const struct uli_copy_kernel *kernel,
    const struct uli_copy_plane *plane, const struct uli_copy_way *way)
{
    struct uli_copy_plane tile = *plane;
    int64_t runs =
        plane->run_bytes < SHORT_RUN_BYTES ? SHORT_TILE_RUNS : TILE_RUNS;
    for (int64_t k = 0; k < plane->extent[1]; k += runs) {
        tile.extent[1] = uli_min(runs, plane->extent[1] - k);
        tile.dst = plane->dst + k * plane->dst_stride[1];
        tile.src = plane->src + k * plane->src_stride[1];
        kernel->copy(&tile, way);
    }
}

/* Copies a long run as rows, which can be copied side by side. */
static void
copy_pieces(const struct uli_copy_kernel *kernel,
    const struct uli_copy_plane *run, const struct uli_copy_way *way)
{
    struct uli_copy_plane pieces = *run;
    int64_t count = run->run_bytes / PIECE_BYTES, done = count * PIECE_BYTES;
    pieces.extent[1] = count;
    pieces.run_bytes = PIECE_BYTES;
    pieces.dst_stride[1] = pieces.src_stride[1] = PIECE_BYTES;
    kernel->copy(&pieces, way);
    pieces.extent[1] = 1;
    pieces.run_bytes = run->run_bytes - done;
    pieces.dst += done;
    pieces.src += done;
    if (pieces.run_bytes)
        kernel->copy(&pieces, way);
}

static void
copy_transposed(const struct uli_copy_kernel *kernel,
    const struct uli_copy_plane *plane, const struct uli_copy_way *way)
{
    if (way->stream && plane->run_bytes >= ULI_STREAM_RUN_BYTES) {
        const struct uli_copy_plane swapped = plane_swapped(plane);
        kernel->copy(&swapped, way);
    } else {
        copy_tiles(kernel, plane, way);
    }
}

static void
copy_plane(const struct uli_copy_kernel *kernel,
    const struct uli_copy_plane *plane, const struct uli_copy_way *way)
{
    if (plane->extent[0] > 1 &&
        llabs(plane->src_stride[0]) < llabs(plane->src_stride[1]))
        copy_transposed(kernel, plane, way);
    else if (plane->extent[0] * plane->extent[1] == 1 &&
             plane->run_bytes >= 2 * way->lanes * PIECE_BYTES)
        copy_pieces(kernel, plane, way);
    else
        kernel->copy(plane, way);
}

const struct uli_copy_way uli_copy_plain = {ULI_HINT_NONE, 1, 0, false};

/* Run 0 of a box; its extents are those of a whole plane. */
static inline struct uli_copy_plane
plane_first(const struct uli_box *box, void *dst, const void *src)
{
    return (struct uli_copy_plane){
        .extent = {box->extent[1], box->extent[2]},
        .run_bytes = box->run_bytes,
        .dst = (unsigned char *)dst + box->dst_offset,
        .dst_stride = {box->dst_stride[1], box->dst_stride[2]},
        .src = (const unsigned char *)src + box->src_offset,
        .src_stride = {box->src_stride[1], box->src_stride[2]},
    };
}

/* A whole box, without the divisions of a span: they cost as much as a few rows
 * do. */
static void
copy_whole(const struct uli_copy_kernel *kernel, const struct uli_box *box,
    void *dst, const void *src, const struct uli_copy_way *way)
{
    struct uli_copy_plane plane = plane_first(box, dst, src);
    for (int64_t i = 0; i < box->extent[0]; i++) {
        copy_plane(kernel, &plane, way);
        plane.dst += box->dst_stride[0];
        plane.src += box->src_stride[0];
    }
}

static void
copy_span(const struct uli_copy_kernel *kernel, const struct uli_box *box,
    struct uli_box_span span, void *dst, const void *src,
    const struct uli_copy_way *way)
{
    const struct uli_copy_plane first = plane_first(box, dst, src);
    struct uli_copy_plane plane = first;
    struct uli_span_rect rect;
    while (uli_span_next(box->extent, &span, &rect)) {
        memcpy(plane.extent, rect.extent, sizeof(plane.extent));
        plane.dst = first.dst + uli_span_offset(rect.index, box->dst_stride);
        plane.src = first.src + uli_span_offset(rect.index, box->src_stride);
        copy_plane(kernel, &plane, way);
    }
}

/* Are the runs so few that a kernel would copy none of them side by side? Runs
 * of less than a line are left to the kernels, which know their lengths; those
 * of two pieces and more are cut into pieces. */
static bool
runs_are_few(const struct uli_box *box, const struct uli_copy_way *way)
{
    return box->extent[0] * box->extent[1] == 1 &&
           box->extent[2] < 2 * way->lanes && !way->stream &&
           box->run_bytes >= FEW_RUN_BYTES && box->run_bytes < 2 * PIECE_BYTES;
}

/* Small calls have boxes of one or a few runs, for which planes and the call of
 * a kernel would cost about as much as the copy. */
static void
copy_few(const struct uli_box *box, struct uli_box_span span, void *dst,
    const void *src)
{
    for (int64_t k = span.begin; k < span.end; k++)
        memcpy((char *)dst + box->dst_offset + k * box->dst_stride[2],
            (const char *)src + box->src_offset + k * box->src_stride[2],
            (size_t)box->run_bytes);
}

void
uli_box_copy(const struct uli_box *box, struct uli_box_span span, void *dst,
    const void *src, const struct uli_copy_way *way)
{
    if (runs_are_few(box, way)) {
        copy_few(box, span, dst, src);
        return;
    }
    const struct uli_copy_kernel *kernel = uli_copy_kernel();
    struct uli_copy_way ordinary;
    if (way->stream && !kernel->fence) {
        ordinary = *way;
        ordinary.stream = false;
        way = &ordinary;
    }
    if (span.begin == 0 && span.end == uli_box_runs(box))
        copy_whole(kernel, box, dst, src, way);
    else
        copy_span(kernel, box, span, dst, src, way);
    if (way->stream)
        kernel->fence();
}

void
uli_box_zero(const struct uli_box *box, struct uli_box_span span, void *dst)
{
    struct uli_span_rect rect;
    while (uli_span_next(box->extent, &span, &rect)) {
        unsigned char *row = (unsigned char *)dst + box->dst_offset +
                             uli_span_offset(rect.index, box->dst_stride);
        for (int64_t j = 0; j < rect.extent[0]; j++) {
            for (int64_t k = 0; k < rect.extent[1]; k++)
                memset(row + k * box->dst_stride[2], 0, (size_t)box->run_bytes);
            row += box->dst_stride[1];
        }
    }
}

/* Strides and offset of span's runs packed from the first one on. */
static void
set_packed(const struct uli_box *box, struct uli_box_span span,
    int64_t stride[3], int64_t *offset)
{
    stride[2] = box->run_bytes;
    stride[1] = box->extent[2] * stride[2];
    stride[0] = box->extent[1] * stride[1];
    *offset = -span.begin * box->run_bytes;
}

void
uli_box_pack(const struct uli_box *box, struct uli_box_span span, void *packed,
    const void *src, const struct uli_copy_way *way)
{
    struct uli_box packing = *box;
    set_packed(box, span, packing.dst_stride, &packing.dst_offset);
    uli_box_copy(&packing, span, packed, src, way);
}

void
uli_box_unpack(const struct uli_box *box, struct uli_box_span span, void *dst,
    const void *packed, const struct uli_copy_way *way)
{
    struct uli_box packing = *box;
    set_packed(box, span, packing.src_stride, &packing.src_offset);
    uli_box_copy(&packing, span, dst, packed, way);
}
