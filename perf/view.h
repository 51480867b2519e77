/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of a tensor on one side of a rank, from what the plan publishes: for
 * each row its offset, batch item, token and head.
 */
#ifndef PERF_VIEW_H
#define PERF_VIEW_H

#include "perf.h"

/* One row of a tensor, of `dim` elements. */
struct perf_line {
    int64_t offset; /* bytes in the tensor, from its base */
    int64_t batch, position, axis_row, head;
};
struct perf_view {
    const struct perf_rank *rank;
    int32_t tensor;
    bool head_side;
    int32_t dtype;
    int64_t elem_bytes, dim;
    int64_t *positions;         /* sequence side: the token of each row */
    int64_t rows, first, heads; /* of this rank; first: its first head */
    ulyx_segment_t *segments;   /* packed head side, else NULL */
    int64_t nsegments;
};

typedef void (*perf_line_fn)(
    void *context, const struct perf_view *v, const struct perf_line *row);

/* Is the destination of the direction the head side? */
bool perf_to_head(ulyx_direction_t direction);

/* Opens a view of the source or the destination of the rank's operation; the
 * caller closes it. */
void perf_view_open(struct perf_view *view, const struct perf_rank *rank,
    int32_t tensor, bool source);
void perf_view_close(struct perf_view *view);

/* Calls fn for each row of the side. */
void perf_view_each(
    const struct perf_view *view, perf_line_fn fn, void *context);

const ulyx_part_t *perf_view_part(const struct perf_view *view);

/* The published segments of a tensor on a rank; the caller frees them. */
ulyx_segment_t *perf_view_segments(
    const struct perf_rank *rank, int32_t tensor, int32_t of, int64_t *count_p);

#endif
