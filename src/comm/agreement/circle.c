/* SPDX-License-Identifier: Apache-2.0
 *
 * See circle.h. A rank waits for one rank, so a walk along the table either
 * ends, or returns to its first rank within nranks steps, or goes round a
 * circle that the first rank is not part of.
 */
#include "comm/agreement/circle.h"

/* The rank for which a rank waits and which stands still in another call, or
 * -1. */
static int32_t
row_next(const struct uli_circle_row *rows, int32_t nranks, int32_t rank)
{
    const struct uli_circle_row *row = &rows[rank];
    int32_t next = row->standing.awaited;

    if (next < 0 || next >= nranks || next == rank || !row->away ||
        rows[next].standing.awaited < 0 ||
        uli_call_key_equal(&row->standing.key, &rows[next].standing.key))
        return -1;
    return next;
}

int32_t
uli_circle_length(
    const struct uli_circle_row *rows, int32_t nranks, int32_t rank)
{
    int32_t at = rank;

    for (int32_t length = 1; length <= nranks; length++) {
        at = row_next(rows, nranks, at);
        if (at < 0)
            return 0;
        if (at == rank)
            return length;
    }
    return 0;
}
