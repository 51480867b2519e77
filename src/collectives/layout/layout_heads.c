/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole heads on ranks. Rank r has query heads [q_r, q_{r+1}). Of a tensor with
 * hk heads, each read by g = h / hk query heads (g > 1 with GQA and MQA;
 * HEADS_QUERY: g = 1), rank r
 *     holds                  [floor(q_r / g), ceil(q_{r+1} / g)) if h_r > 0
 *     is the lowest holder   [ceil(q_r / g),  ceil(q_{r+1} / g))
 * because the lowest holder of head k is the rank that has its first query
 * head, k * g.
 */
#include "collectives/layout/layout_private.h"

static int64_t
group_of(const struct uli_layout *layout, int32_t tensor)
{
    return layout->shape.heads / layout->shape.tensors[tensor].heads;
}

int32_t
uli_heads_owner(const struct uli_layout *layout, int64_t head)
{
    int32_t low = 0, high = layout->shape.nranks; /* head_begin[low] <= head */
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (layout->head_begin[middle] <= head)
            low = middle;
        else
            high = middle;
    }
    return low;
}

struct uli_head_range
uli_heads_all(const struct uli_layout *layout, int32_t tensor, int32_t rank)
{
    int64_t group = group_of(layout, tensor);
    int64_t first = layout->head_begin[rank];
    int64_t end = layout->head_begin[rank + 1];
    struct uli_head_range range = {first / group, first / group};
    if (end > first)
        range.end = uli_div_up(end, group);
    return range;
}

struct uli_head_range
uli_heads_lowest(const struct uli_layout *layout, int32_t tensor, int32_t rank)
{
    int64_t group = group_of(layout, tensor);
    struct uli_head_range range = {uli_div_up(layout->head_begin[rank], group),
        uli_div_up(layout->head_begin[rank + 1], group)};
    return range;
}

/* With one holder the cell ends at the first head of which that rank has not
 * all query heads. With several holders the cell is one head: the first of the
 * holders has no query head of the next one. */
int64_t
uli_heads_cell(const struct uli_layout *layout, int32_t tensor, int64_t head,
    int32_t *lo_p, int32_t *hi_p)
{
    int64_t group = group_of(layout, tensor);
    *lo_p = uli_heads_owner(layout, head * group);
    *hi_p = uli_heads_owner(layout, head * group + group - 1);
    if (*lo_p != *hi_p)
        return head + 1;
    return layout->head_begin[*lo_p + 1] / group;
}

/* PACKED: from the lowest to the highest head of the runs. */
void
uli_layout_heads(const struct uli_layout *layout, int32_t tensor, int32_t rank,
    int64_t *first_p, int64_t *count_p)
{
    struct uli_head_range range = {0, 0};
    if (!layout->packed) {
        range = uli_heads_all(layout, tensor, rank);
    } else {
        int64_t count;
        const struct uli_run *run =
            uli_layout_runs(layout, tensor, rank, &count);
        if (count > 0) {
            range.first = run[0].head;
            range.end = run[count - 1].head + 1;
        }
    }
    *first_p = range.first;
    *count_p = range.end - range.first;
}
