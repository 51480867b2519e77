/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of ranks as ranges: at 4,096 ranks the missing ones must still fit a
 * message.
 */
#include "comm/rank_list.h"

#include <stdio.h>
#include <string.h>

enum { ROOM_FOR_ONE = 32 };

void
uli_rank_ranges(int32_t nranks, uli_rank_chosen_fn chosen, const void *context,
    char *text_p, size_t bytes)
{
    const char *between = "";
    size_t used = 0;

    text_p[0] = 0;
    for (int32_t rank = 0; rank < nranks; rank++) {
        int32_t last = rank;

        if (!chosen(context, rank))
            continue;
        while (last + 1 < nranks && chosen(context, last + 1))
            last++;
        if (used + ROOM_FOR_ONE > bytes) {
            snprintf(text_p + used, bytes - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text_p + used, bytes - used,
            last > rank ? "%s%d-%d" : "%s%d", between, rank, last);
        between = ", ";
        rank = last;
    }
}

void
uli_rank_list_text(int32_t nranks, uli_rank_chosen_fn chosen,
    const void *context, char *text_p, size_t bytes)
{
    int32_t count = 0;
    size_t used;

    for (int32_t rank = 0; rank < nranks; rank++)
        count += chosen(context, rank);
    used = (size_t)snprintf(text_p, bytes, count == 1 ? "rank " : "ranks ");
    uli_rank_ranges(nranks, chosen, context, text_p + used, bytes - used);
}

void
uli_rank_list_cut(const char *list, char *text_p, size_t bytes)
{
    bool cut = (size_t)snprintf(text_p, bytes, "%s", list) >= bytes;
    char *last = strrchr(text_p, ',');
    if (cut)
        *(last ? last : text_p) = 0;
}
