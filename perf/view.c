/* SPDX-License-Identifier: Apache-2.0
 *
 * Views of tensors, from the positions, heads and segments that plans publish.
 */
#include "view.h"

#include <stdlib.h>
#include <string.h>

bool
perf_to_head(ulyx_direction_t direction)
{
    return direction == ULYX_SEQ_TO_HEAD ||
           direction == ULYX_HEAD_TO_SEQ_ADJOINT;
}

const ulyx_part_t *
perf_view_part(const struct perf_view *v)
{
    return &v->rank->shape->parts[v->rank->shape->tensors[v->tensor].part];
}

ulyx_segment_t *
perf_view_segments(
    const struct perf_rank *rank, int32_t tensor, int32_t of, int64_t *count_p)
{
    ulyx_segment_t *segments;

    *count_p = 0;
    ulyx_plan_get_segments(
        rank->plan, tensor, of, 0, sizeof(*segments), NULL, count_p);
    segments = calloc((size_t)*count_p + 1, sizeof(*segments));
    ulyx_plan_get_segments(
        rank->plan, tensor, of, *count_p, sizeof(*segments), segments, count_p);
    return segments;
}

void
perf_view_open(struct perf_view *v, const struct perf_rank *rank,
    int32_t tensor, bool source)
{
    const ulyx_tensor_t *t = &rank->shape->tensors[tensor];
    int32_t packed = 0;
    int64_t packed_rows;

    *v = (struct perf_view){.rank = rank,
        .tensor = tensor,
        .dim = t->dim,
        .head_side = source != perf_to_head(rank->direction),
        .dtype = t->dtype};
    if (rank->direction == ULYX_SEQ_TO_HEAD_ADJOINT && source)
        ulyx_plan_get_partial_dtype(rank->plan, tensor, &v->dtype);
    v->elem_bytes =
        t->elem_bytes > 0 ? t->elem_bytes : ulyx_dtype_size(v->dtype);
    if (!v->head_side) {
        ulyx_plan_get_seq_rows(rank->plan, t->part, rank->rank, &v->rows);
        v->heads = t->heads;
        v->positions = calloc((size_t)v->rows + 1, sizeof(int64_t));
        ulyx_plan_get_positions(
            rank->plan, t->part, rank->rank, v->rows, v->positions);
        return;
    }
    v->rows = rank->shape->seq;
    for (int32_t p = 1; p < rank->shape->params.nparts; p++)
        v->rows += rank->shape->parts[p].rows;
    ulyx_plan_get_heads(rank->plan, tensor, rank->rank, &v->first, &v->heads);
    ulyx_plan_get_packed_rows(
        rank->plan, tensor, rank->rank, &packed, &packed_rows);
    if (packed)
        v->segments =
            perf_view_segments(rank, tensor, rank->rank, &v->nsegments);
}

void
perf_view_close(struct perf_view *v)
{
    free(v->positions);
    free(v->segments);
}

/* The first row of the tensor's part on the axis, where parts follow each
 * other. */
static int64_t
first_row(const struct perf_view *v)
{
    return v->rank->shape->tensors[v->tensor].part == 0 ? 0
                                                        : v->rank->shape->seq;
}

static void
each_segment_row(const struct perf_view *v, perf_line_fn fn, void *context)
{
    int64_t low = first_row(v), high = low + perf_view_part(v)->rows;
    int64_t row_bytes = v->dim * v->elem_bytes;
    /* A published offset is in bytes of the tensor's own type. Partials may
     * have another type: their rows have the same numbers, but other sizes. */
    const ulyx_tensor_t *t = &v->rank->shape->tensors[v->tensor];
    int64_t published =
        t->dim *
        (t->elem_bytes > 0 ? t->elem_bytes : ulyx_dtype_size(t->dtype));

    for (int64_t s = 0; s < v->nsegments; s++) {
        const ulyx_segment_t *segment = &v->segments[s];

        for (int64_t r = segment->row_begin; r < segment->row_end; r++) {
            struct perf_line row = {.offset = (segment->offset / published + r -
                                                  segment->row_begin) *
                                              row_bytes,
                .batch = segment->batch,
                .position = r - low,
                .axis_row = r,
                .head = segment->head};

            if (r >= low && r < high)
                fn(context, v, &row);
        }
    }
}

void
perf_view_each(const struct perf_view *v, perf_line_fn fn, void *context)
{
    int64_t rows = v->head_side ? perf_view_part(v)->rows : v->rows;

    if (v->segments) {
        each_segment_row(v, fn, context);
        return;
    }
    for (int64_t b = 0; b < v->rank->shape->params.batch; b++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t h = 0; h < v->heads; h++) {
                int64_t position = v->head_side ? r : v->positions[r];
                int64_t at = v->head_side ? first_row(v) + r : r;
                struct perf_line row = {.batch = b,
                    .position = position,
                    .axis_row = first_row(v) + position,
                    .head = v->first + h,
                    .offset = ((b * v->rows + at) * v->heads + h) * v->dim *
                              v->elem_bytes};

                fn(context, v, &row);
            }
}
