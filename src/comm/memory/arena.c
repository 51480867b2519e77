/* SPDX-License-Identifier: Apache-2.0
 *
 * Arenas: small blocks of memory that all peers can address. The first arena is
 * the rest of the control segment. Each further arena is a segment given to all
 * ranks, twice as large as the last one, but at most MOST_STEP unless one block
 * needs more. A segment counts in full as memory of the process, however little
 * of it is in use, so doubling must end. An arena for the ranks of this node
 * alone is a segment for one block, given to these ranks only.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/size.h"
#include "comm/memory/blocks.h"
#include "comm/team.h"
#include "comm/memory/windows.h"

#define MOST_STEP (INT64_C(8) << 20)

struct arena {
    struct uli_list node; /* comm->arenas */
    uint32_t window;
    struct uli_segment segment; /* address NULL: the control segment's rest */
    char *base;                 /* of the window */
    int64_t bytes;
    struct uli_blocks blocks; /* in multiples of ULI_LINE */
};

#define ARENA_OF(n) ULI_CONTAINER_OF(n, struct arena, node)

/* An arena with one free block [offset, bytes). */
static struct arena *
new_arena(uint32_t window, char *base, int64_t offset, int64_t bytes)
{
    struct arena *arena = calloc(1, sizeof(*arena));
    if (!arena ||
        !uli_blocks_open(&arena->blocks, offset, bytes / ULI_LINE * ULI_LINE)) {
        free(arena);
        return NULL;
    }
    arena->window = window;
    arena->base = base;
    arena->bytes = bytes;
    uli_list_init(&arena->node);
    return arena;
}

static void
delete_arena(struct arena *arena)
{
    uli_blocks_close(&arena->blocks);
    free(arena);
}

/* ---- arenas -------------------------------------------------------------- */

/* Under comm->lock. */
static ulyx_status_t
open_first(ulyx_comm_t *comm)
{
    if (!uli_list_empty(&comm->arenas))
        return ULYX_SUCCESS;
    struct arena *arena = new_arena(0, comm->segment.address,
        uli_control_bytes(comm->nranks), comm->segment.bytes);
    if (!arena)
        return uli_error(ULYX_ERR_NO_MEMORY, "arena: no memory");
    uli_list_append(&comm->arenas, &arena->node);
    return ULYX_SUCCESS;
}

/* Under comm->lock. */
static bool
alloc_from(ulyx_comm_t *comm, int64_t bytes, struct uli_arena_block *block_p)
{
    for (struct uli_list *n = comm->arenas.next; n != &comm->arenas;
         n = n->next) {
        struct arena *arena = ARENA_OF(n);
        int64_t offset, taken;
        if (!uli_blocks_take(&arena->blocks, bytes, &offset, &taken))
            continue;
        *block_p = (struct uli_arena_block){
            arena->window, offset, taken, arena->base + offset};
        memset(block_p->address, 0, (size_t)block_p->bytes);
        return true;
    }
    return false;
}

static ulyx_status_t
create_segment(ulyx_comm_t *comm, int64_t bytes, struct uli_segment *segment_p)
{
    ULI_TRY(uli_segment_create(bytes, !comm->by_address, false, segment_p));
    uli_bind_memory(&comm->binding, segment_p->address, segment_p->bytes);
    ulyx_status_t status =
        comm->team ? uli_team_reserve(comm->team) : ULYX_SUCCESS;
    if (status != ULYX_SUCCESS)
        uli_segment_destroy(segment_p);
    return status;
}

/* Peers of this process may touch the segment as long as the team lives. */
static void
release_segment(ulyx_comm_t *comm, struct uli_segment *segment)
{
    if (comm->team)
        uli_team_retire(comm->team, segment);
    else
        uli_segment_destroy(segment);
}

/* Adds an arena of at least `bytes`; waits for the peers without a lock. With
 * node_p the arena is for this node alone, and *node_p is all of the arena. */
static ulyx_status_t
arena_grow(ulyx_comm_t *comm, int64_t bytes, struct uli_arena_block *node_p)
{
    struct uli_segment segment;
    uint32_t window;
    uli_deadline_t deadline = uli_comm_step_deadline(comm);
    ULI_TRY(create_segment(comm, bytes, &segment));
    struct uli_tr_handle handle = {
        segment.fd, segment.address, segment.bytes, NULL};
    ulyx_status_t status = (node_p ? uli_windows_give_node : uli_windows_give)(
        comm, &handle, deadline, &window);
    if (status != ULYX_SUCCESS) {
        release_segment(comm, &segment);
        return status;
    }
    struct arena *arena = new_arena(window, segment.address, 0, segment.bytes);
    if (!arena) {
        uli_windows_take_back(comm, window, deadline);
        release_segment(comm, &segment);
        return uli_error(ULYX_ERR_NO_MEMORY, "arena: no memory");
    }
    arena->segment = segment;
    ULI_INFO(ULI_LOG_MEM, comm->rank, "arena of %" PRId64 " bytes added",
        segment.bytes);
    if (node_p) {
        *node_p =
            (struct uli_arena_block){window, 0, segment.bytes, segment.address};
        uli_blocks_take(
            &arena->blocks, segment.bytes, &node_p->offset, &node_p->bytes);
    }
    pthread_mutex_lock(&comm->lock);
    uli_list_append(&comm->arenas, &arena->node);
    pthread_mutex_unlock(&comm->lock);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_arena_alloc(
    ulyx_comm_t *comm, int64_t bytes, struct uli_arena_block *block_p)
{
    if (bytes <= 0 || bytes > INT64_MAX / 2)
        return uli_error(
            ULYX_ERR_NO_MEMORY, "arena: a block of %" PRId64 " bytes", bytes);
    bytes = uli_round_up(bytes, ULI_LINE);
    for (;;) {
        pthread_mutex_lock(&comm->lock);
        ulyx_status_t status = open_first(comm);
        bool done = status == ULYX_SUCCESS && alloc_from(comm, bytes, block_p);
        int64_t last = uli_list_empty(&comm->arenas)
                           ? 0
                           : ARENA_OF(comm->arenas.prev)->bytes;
        pthread_mutex_unlock(&comm->lock);
        if (done || status != ULYX_SUCCESS)
            return status;
        int64_t step = uli_min(uli_sat_add(last, last), MOST_STEP);
        ULI_TRY(arena_grow(comm, uli_max(bytes, step), NULL));
    }
}

/* Takes a block of an arena that all ranks have, if one has room; else a whole
 * new arena for this node. */
ulyx_status_t
uli_arena_alloc_node(
    ulyx_comm_t *comm, int64_t bytes, struct uli_arena_block *block_p)
{
    bytes = uli_round_up(bytes, ULI_LINE);
    pthread_mutex_lock(&comm->lock);
    ulyx_status_t status = open_first(comm);
    bool done = status == ULYX_SUCCESS && alloc_from(comm, bytes, block_p);
    pthread_mutex_unlock(&comm->lock);
    if (done || status != ULYX_SUCCESS)
        return status;
    return arena_grow(comm, bytes, block_p);
}

void
uli_arena_free(ulyx_comm_t *comm, const struct uli_arena_block *block)
{
    pthread_mutex_lock(&comm->lock);
    for (struct uli_list *n = comm->arenas.next; n != &comm->arenas;
         n = n->next) {
        struct arena *arena = ARENA_OF(n);
        if (arena->window == block->window)
            uli_blocks_give(&arena->blocks, block->offset);
    }
    pthread_mutex_unlock(&comm->lock);
}

/* ---- trim ---------------------------------------------------------------- */

/* Removes an arena without blocks in use from the list, so that no block of it
 * can be taken. NULL: there is none. The first arena is never removed: it is
 * part of the control segment. */
static struct arena *
arena_take_empty(ulyx_comm_t *comm)
{
    struct arena *empty = NULL;
    pthread_mutex_lock(&comm->lock);
    for (struct uli_list *n = comm->arenas.next; !empty && n != &comm->arenas;
         n = n->next)
        if (ARENA_OF(n)->segment.address &&
            uli_blocks_empty(&ARENA_OF(n)->blocks))
            empty = ARENA_OF(n);
    if (empty)
        uli_list_remove(&empty->node);
    pthread_mutex_unlock(&comm->lock);
    return empty;
}

/* The segment is freed at once: no peer touches its blocks any more. (A segment
 * of a destroyed handle is retired instead, because a peer may still ring a
 * doorbell in it.) */
ulyx_status_t
uli_arena_trim(ulyx_comm_t *comm)
{
    uli_deadline_t deadline = uli_deadline_in(comm->timeout_s);
    struct arena *arena;
    while ((arena = arena_take_empty(comm))) {
        ulyx_status_t status =
            uli_windows_take_back(comm, arena->window, deadline);
        if (status != ULYX_SUCCESS) {
            pthread_mutex_lock(&comm->lock);
            uli_list_append(&comm->arenas, &arena->node);
            pthread_mutex_unlock(&comm->lock);
            return status;
        }
        ULI_INFO(ULI_LOG_MEM, comm->rank,
            "arena of %" PRId64 " bytes given back", arena->segment.bytes);
        uli_segment_destroy(&arena->segment);
        if (comm->team)
            uli_team_unreserve(comm->team);
        delete_arena(arena);
    }
    return ULYX_SUCCESS;
}

void
uli_arena_close(ulyx_comm_t *comm)
{
    while (!uli_list_empty(&comm->arenas)) {
        struct arena *arena = ARENA_OF(comm->arenas.next);
        uli_list_remove(&arena->node);
        if (arena->segment.address)
            release_segment(comm, &arena->segment);
        delete_arena(arena);
    }
}

int64_t
uli_arena_bytes(ulyx_comm_t *comm)
{
    int64_t bytes = 0;
    pthread_mutex_lock(&comm->lock);
    for (struct uli_list *n = comm->arenas.next; n != &comm->arenas;
         n = n->next)
        if (ARENA_OF(n)->segment.address)
            bytes += ARENA_OF(n)->segment.bytes;
    pthread_mutex_unlock(&comm->lock);
    return bytes;
}
