/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries of the head side of PACKED plans. Tensors with the same ownership
 * and number of heads are one family and share their runs.
 */
#include "collectives/layout_private.h"

static const struct uli_family *
family_of(const struct uli_layout *layout, int32_t tensor)
{
    return &uli_layout_tables(layout)->family[layout->family_of[tensor]];
}

int64_t
uli_layout_packed_rows(
    const struct uli_layout *layout, int32_t tensor, int32_t rank)
{
    return family_of(layout, tensor)->rows[rank];
}

int64_t
uli_layout_max_packed_rows(const struct uli_layout *layout, int32_t tensor)
{
    return layout->family[layout->family_of[tensor]].max_rows;
}

const struct uli_run *
uli_layout_runs(const struct uli_layout *layout, int32_t tensor, int32_t rank,
    int64_t *count_p)
{
    const struct uli_family *family = family_of(layout, tensor);
    *count_p = family->start[rank + 1] - family->start[rank];
    return &family->run[family->start[rank]];
}

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
