/* SPDX-License-Identifier: Apache-2.0
 *
 * The limit of copies: the ranks of the exchange copy as many bytes between
 * memory of the same windows, but contiguously. As many bytes as this rank
 * sends to rank p in the exchange are copied into p's spare window. The fastest
 * of several ways to copy counts: memcpy and a streaming copy for vs_memcpy;
 * for vs_best also ulyx's copies of several pages side by side.
 *
 * The limit of memory, as STREAM measures it (of_bw): each rank copies as many
 * bytes between two arrays of its own, which are larger than the caches of a
 * core.
 */
#include "perf.h"

#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"

/* The set in use of rank p's spare memory, as mapped in this process; this
 * rank's own spare memory where p has no window. *room_p: bytes of the set,
 * which differ by a few pages between ranks with different numbers of rows. */
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
bytes_copy(unsigned char *dst, const unsigned char *src, int64_t bytes,
    enum perf_copy copy)
{
    static const struct uli_copy_way ways[PERF_COPIES] = {
        [PERF_COPY_STREAMED] = {ULI_HINT_NONE, 1, 0, true},
        [PERF_COPY_LANES] = {ULI_HINT_L2, 4, 16, true},
        [PERF_COPY_LANES_ONCE] = {ULI_HINT_ONCE, 4, 16, true},
        [PERF_COPY_LANES_PLAIN] = {ULI_HINT_L2, 4, 16, false},
    };
    struct uli_box box = {.extent = {1, 1, 1}, .run_bytes = bytes};

    if (copy == PERF_COPY_LIBC)
        memcpy(dst, src, (size_t)bytes);
    else
        uli_box_copy(&box, (struct uli_box_span){0, 1}, dst, src, &ways[copy]);
}

/* Copies as many bytes as this rank sends to p. *from_p advances through the
 * source, so that every byte is read once, as in the exchange: bytes that are
 * read repeatedly would come from the caches. At the end of the source or of
 * the destination, the copy goes on at its begin. */
static void
copy_to(struct perf_rank *rank, int32_t p, enum perf_copy copy, int64_t *from_p)
{
    int64_t left = rank->to[p].bytes, room, set_bytes = rank->src.set_bytes;
    unsigned char *dst = spare_of(rank, p, &room);
    const unsigned char *src = rank->src.base + rank->turn * set_bytes;
    int64_t at = room / rank->nranks * rank->rank / 4096 * 4096;

    while (left > 0) {
        int64_t piece = left;

        piece = piece < room - at ? piece : room - at;
        piece = piece < set_bytes - *from_p ? piece : set_bytes - *from_p;
        bytes_copy(dst + at, src + *from_p, piece, copy);
        left -= piece;
        at = (at + piece) % room;
        *from_p = (*from_p + piece) % set_bytes;
    }
}

bool
perf_run_memcpy(struct perf_rank *ranks, int count_ranks, int count, int copy)
{
    for (int i = 0; i < count; i++)
        for (int r = 0; r < count_ranks; r++) {
            struct perf_rank *rank = &ranks[r];
            int64_t from = 0;

            for (int32_t p = 0; p < rank->nranks; p++)
                copy_to(rank, (rank->rank + 1 + p) % rank->nranks,
                    (enum perf_copy)copy, &from);
            rank->turn = (rank->turn + 1) % rank->sets;
        }
    return true;
}

/* ---- the rank's own arrays ----------------------------------------------- */

enum { STREAM_BYTES = 32 << 20 };

bool
perf_stream_open(struct perf_rank *rank)
{
    rank->arrays = aligned_alloc(4096, 2 * (size_t)STREAM_BYTES);
    if (!rank->arrays)
        return perf_status_ok("arrays to copy", ULYX_ERR_NO_MEMORY);
    memset(rank->arrays, 1, 2 * (size_t)STREAM_BYTES);
    return true;
}

void
perf_stream_close(struct perf_rank *rank)
{
    free(rank->arrays);
    rank->arrays = NULL;
}

static void
stream_once(struct perf_rank *rank, enum perf_copy copy)
{
    int64_t left = 0;

    for (int32_t p = 0; p < rank->nranks; p++)
        left += rank->to[p].bytes;
    while (left > 0) {
        int64_t piece = STREAM_BYTES - rank->array_at;

        piece = piece < left ? piece : left;
        bytes_copy(rank->arrays + STREAM_BYTES + rank->array_at,
            rank->arrays + rank->array_at, piece, copy);
        left -= piece;
        rank->array_at = (rank->array_at + piece) % STREAM_BYTES;
    }
}

bool
perf_run_stream(struct perf_rank *ranks, int count_ranks, int count, int copy)
{
    for (int i = 0; i < count; i++)
        for (int r = 0; r < count_ranks; r++)
            stream_once(&ranks[r], (enum perf_copy)copy);
    return true;
}
