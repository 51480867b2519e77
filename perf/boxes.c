/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes that one rank sends another in an operation, as strided boxes
 * between dense tensors. The comparators copy these boxes, which follow from
 * the index maths alone.
 */
#include "perf.h"

#include <stdlib.h>
#include <string.h>

struct box_walk {
    const struct uli_layout *layout;
    ulyx_direction_t direction;
    int32_t src_rank;
    struct perf_boxes *boxes;
    bool ok;
};

/* Strides {batch, row, head}, in bytes, of a dense tensor on one side of a
 * rank. */
static void
strides_of(const struct box_walk *g, int32_t tensor, int32_t rank,
    bool head_side, int64_t strides_p[3])
{
    const struct uli_shape *shape = uli_layout_shape(g->layout);
    const struct uli_shape_tensor *t = &shape->tensors[tensor];
    int64_t heads = t->heads, first = 0;
    int64_t rows = uli_layout_seq_rows(g->layout, t->part, rank);

    if (head_side && !uli_layout_packed(g->layout)) {
        uli_layout_heads(g->layout, tensor, rank, &first, &heads);
        rows = uli_layout_axis_rows(g->layout, shape->parts[t->part].axis);
    } else if (head_side) {
        heads = 1;
    }
    strides_p[2] = t->dim * t->elem_bytes;
    strides_p[1] = heads * strides_p[2];
    strides_p[0] = rows * strides_p[1];
}

static void
place_offset(const struct uli_place *place, const int64_t strides[3],
    int64_t *offset_p, int64_t stride_p[3])
{
    *offset_p = place->batch * strides[0] + place->row * strides[1] +
                place->head * strides[2];
    memcpy(stride_p, strides, 3 * sizeof(*strides));
}

static bool
box_take(void *context, const struct uli_move *move)
{
    struct box_walk *g = context;
    struct perf_boxes *all = g->boxes;
    const struct uli_shape_tensor *t =
        &uli_layout_shape(g->layout)->tensors[move->tensor];
    bool to_head = g->direction == ULYX_SEQ_TO_HEAD ||
                   g->direction == ULYX_HEAD_TO_SEQ_ADJOINT;
    int64_t src[3], dst[3];
    int32_t s = 0;
    struct uli_box *box;

    if (move->kind == ULI_MOVE_ZERO)
        return true;
    while (s < move->nsources && move->sources[s].rank != g->src_rank)
        s++;
    box = realloc(all->boxes, (size_t)(all->count + 1) * sizeof(*box));
    if (box)
        all->boxes = box;
    int32_t *tensors =
        realloc(all->tensors, (size_t)(all->count + 1) * sizeof(*tensors));
    if (tensors)
        all->tensors = tensors;
    if (!box || !tensors || s == move->nsources)
        return g->ok = false;
    strides_of(g, move->tensor, move->dst.rank, to_head, dst);
    strides_of(g, move->tensor, g->src_rank, !to_head, src);
    box += all->count;
    *box = (struct uli_box){.extent = {move->batches, move->rows, move->heads},
        .run_bytes = t->dim * t->elem_bytes};
    place_offset(&move->dst, dst, &box->dst_offset, box->dst_stride);
    place_offset(&move->sources[s], src, &box->src_offset, box->src_stride);
    uli_box_normalize(box);
    all->bytes += uli_box_bytes(box);
    all->tensors[all->count++] = move->tensor;
    return true;
}

bool
perf_boxes_make(const struct uli_layout *layout, ulyx_direction_t direction,
    int32_t dst_rank, int32_t src_rank, struct perf_boxes *boxes_p)
{
    struct box_walk g = {layout, direction, src_rank, boxes_p, true};
    struct uli_place *scratch =
        calloc((size_t)uli_layout_scratch(layout) + 1, sizeof(*scratch));

    memset(boxes_p, 0, sizeof(*boxes_p));
    for (int32_t t = 0; scratch && t < uli_layout_shape(layout)->ntensors; t++)
        uli_layout_each_move(
            layout, direction, t, dst_rank, src_rank, scratch, box_take, &g);
    free(scratch);
    return g.ok && scratch;
}

void
perf_boxes_free(struct perf_boxes *boxes)
{
    free(boxes->boxes);
    free(boxes->tensors);
    memset(boxes, 0, sizeof(*boxes));
}
