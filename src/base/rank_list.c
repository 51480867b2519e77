/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of ranks as ranges, so that the missing ranks of 4,096 still fit a
 * message.
 */
#include "base/rank_list.h"

#include <stdio.h>

enum { MORE_BYTES = 32, RANGE_BYTES = 32 };

static int32_t
count_chosen(int32_t nranks, uli_rank_chosen_fn chosen, const void *context)
{
    int32_t count = 0;

    for (int32_t rank = 0; rank < nranks; rank++)
        count += chosen(context, rank);
    return count;
}

/* Prints the chosen ranks, which are some of `left` ranks; the others are only
 * counted. */
static void
print_ranges(int32_t left, int32_t nranks, uli_rank_chosen_fn chosen,
    const void *context, char *text_p, size_t bytes)
{
    char range[RANGE_BYTES], more[MORE_BYTES];
    size_t used = 0;

    text_p[0] = 0;
    for (int32_t rank = 0; rank < nranks; rank++) {
        int32_t last = rank;

        if (!chosen(context, rank))
            continue;
        while (last + 1 < nranks && chosen(context, last + 1))
            last++;
        int length = snprintf(range, sizeof(range),
            last > rank ? "%s%d-%d" : "%s%d", used > 0 ? ", " : "", rank, last);
        int32_t after = left - (last - rank + 1);
        int end =
            after > 0 ? snprintf(more, sizeof(more), " and %d more", after) : 0;
        if (used + (size_t)(length + end) >= bytes)
            break;
        used += (size_t)snprintf(text_p + used, bytes - used, "%s", range);
        left = after;
        rank = last;
    }
    if (left > 0)
        snprintf(text_p + used, bytes - used, " and %d more", left);
}

void
uli_rank_ranges(int32_t nranks, uli_rank_chosen_fn chosen, const void *context,
    char *text_p, size_t bytes)
{
    print_ranges(count_chosen(nranks, chosen, context), nranks, chosen, context,
        text_p, bytes);
}

void
uli_rank_list_text_of(int32_t count, int32_t nranks, uli_rank_chosen_fn chosen,
    const void *context, char *text_p, size_t bytes)
{
    size_t used =
        (size_t)snprintf(text_p, bytes, count == 1 ? "rank " : "ranks ");

    print_ranges(count, nranks, chosen, context, text_p + used, bytes - used);
}

void
uli_rank_list_text(int32_t nranks, uli_rank_chosen_fn chosen,
    const void *context, char *text_p, size_t bytes)
{
    uli_rank_list_text_of(count_chosen(nranks, chosen, context), nranks, chosen,
        context, text_p, bytes);
}
