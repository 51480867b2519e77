/* SPDX-License-Identifier: Apache-2.0
 *
 * The limit: the same bytes, copied by the same ranks at the same time between
 * the same windows, but contiguous. What this rank stores to rank p in the
 * exchange it copies, in one piece, into p's spare window; the faster of
 * memcpy and a streaming copy counts.
 */
#include "perf.h"

#include <string.h>

#include "comm/comm.h"

/* The set in turn of rank p's spare memory as mapped here, and its room (sets
 * of uneven ranks differ by a few pages); own memory where p has no window. */
static unsigned char *
spare_of(const struct perf_rank *rank, int32_t p, int64_t *room_p)
{
    int64_t room = rank->back.set_bytes, at = rank->turn * room, offset;
    unsigned char *address = NULL;
    uint32_t window;

    /* Ranks attach their windows in the same order, so ids agree. */
    if (p != rank->rank && rank->back.mem &&
        uli_window_find(rank->comm, rank->back.base, 1, &window, &offset))
        for (; !address && room > 0; room -= address ? 0 : 4096)
            address = uli_window_address(rank->comm, p, window, at, room);
    *room_p = address ? room : rank->back.set_bytes;
    return address ? address : rank->back.base + at;
}

static void
bytes_copy(
    unsigned char *dst, const unsigned char *src, int64_t bytes, bool streaming)
{
    struct uli_box box = {.extent = {1, 1, 1}, .run_bytes = bytes};

    if (streaming)
        uli_box_copy(&box, (struct uli_box_span){0, 1}, dst, src, true);
    else
        memcpy(dst, src, (size_t)bytes);
}

/* Copies this rank's share for p. *from_p walks through the source, so that
 * every byte is read once, as in the exchange: a source that is read again and
 * again would come from the caches. Shares longer than what is left of either
 * end go round. */
static void
copy_to(struct perf_rank *rank, int32_t p, bool streaming, int64_t *from_p)
{
    int64_t left = rank->to[p].bytes, room, set_bytes = rank->src.set_bytes;
    unsigned char *dst = spare_of(rank, p, &room);
    const unsigned char *src = rank->src.base + rank->turn * set_bytes;
    int64_t at = room / rank->nranks * rank->rank / 4096 * 4096;

    while (left > 0) {
        int64_t piece = left;

        piece = piece < room - at ? piece : room - at;
        piece = piece < set_bytes - *from_p ? piece : set_bytes - *from_p;
        bytes_copy(dst + at, src + *from_p, piece, streaming);
        left -= piece;
        at = (at + piece) % room;
        *from_p = (*from_p + piece) % set_bytes;
    }
}

bool
perf_run_memcpy(
    struct perf_rank *ranks, int count_ranks, int count, bool streaming)
{
    for (int i = 0; i < count; i++)
        for (int r = 0; r < count_ranks; r++) {
            struct perf_rank *rank = &ranks[r];
            int64_t from = 0;

            for (int32_t p = 0; p < rank->nranks; p++)
                copy_to(rank, (rank->rank + 1 + p) % rank->nranks, streaming,
                    &from);
            rank->turn = (rank->turn + 1) % rank->sets;
        }
    return true;
}
