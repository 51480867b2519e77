/* SPDX-License-Identifier: Apache-2.0
 *
 * Arenas in device memory: as arena.c, made of device allocations that are
 * given to all ranks. Each allocation is at least twice as large as the last
 * one, without a limit. The host never reads or writes a block. The device
 * zeroes a block when it is taken, with no lock held but gpu->lock.
 */
#include <inttypes.h>
#include <stdlib.h>
#include "base/log.h"
#include "base/size.h"
#include "comm/memory/blocks.h"
#include "comm/device/gpu.h"
#include "comm/memory/mem_device.h"
#include "comm/team.h"
#include "comm/memory/windows.h"

/* Bytes of the first arena; the granularity of the device rounds them up (2
 * MiB). */
#define FIRST_BYTES (INT64_C(1) << 20)

struct arena {
    struct uli_list node; /* gpu->arenas */
    uint32_t window;
    struct uli_share_memory memory;
    struct uli_blocks blocks; /* in multiples of ULI_GPU_ARENA_LINE */
};

#define ARENA_OF(n) ULI_CONTAINER_OF(n, struct arena, node)

/* ---- blocks -------------------------------------------------------------- */

/* Under comm->lock. */
static bool
take_from(ulyx_comm_t *comm, int64_t bytes, struct uli_arena_block *block_p)
{
    for (struct uli_list *n = comm->gpu->arenas.next; n != &comm->gpu->arenas;
         n = n->next) {
        struct arena *arena = ARENA_OF(n);
        int64_t offset, taken;
        if (!uli_blocks_take(&arena->blocks, bytes, &offset, &taken))
            continue;
        *block_p = (struct uli_arena_block){arena->window, offset, taken,
            (char *)arena->memory.address + offset};
        return true;
    }
    return false;
}

void
uli_gpu_arena_free(ulyx_comm_t *comm, const struct uli_arena_block *block)
{
    pthread_mutex_lock(&comm->lock);
    for (struct uli_list *n = comm->gpu->arenas.next; n != &comm->gpu->arenas;
         n = n->next)
        if (ARENA_OF(n)->window == block->window)
            uli_blocks_give(&ARENA_OF(n)->blocks, block->offset);
    pthread_mutex_unlock(&comm->lock);
}

/* ---- arenas -------------------------------------------------------------- */

/* Peers of this process may touch the memory as long as the team lives. */
static void
release_memory(ulyx_comm_t *comm, const struct uli_share_memory *memory)
{
    if (comm->team)
        uli_team_retire_device(comm->team, memory);
    else if (uli_share_free(memory) != ULYX_SUCCESS)
        ULI_WARN(ULI_LOG_MEM, comm->rank, "device arena: %s", uli_error_text());
}

static ulyx_status_t
fill_arena(ulyx_comm_t *comm, int64_t bytes, struct arena *arena)
{
    uli_deadline_t deadline = uli_comm_step_deadline(comm);
    ULI_TRY(uli_share_alloc(comm->gpu->device, bytes, &arena->memory));
    ulyx_status_t status =
        comm->team ? uli_team_reserve(comm->team) : ULYX_SUCCESS;
    if (status != ULYX_SUCCESS) {
        uli_share_free(&arena->memory);
        return status;
    }
    status = uli_mem_device_give(comm, arena->memory.address,
        arena->memory.bytes, arena->memory.device, deadline, &arena->window);
    if (status != ULYX_SUCCESS) {
        release_memory(comm, &arena->memory);
        return status;
    }
    if (uli_blocks_open(&arena->blocks, 0,
            arena->memory.bytes / ULI_GPU_ARENA_LINE * ULI_GPU_ARENA_LINE))
        return ULYX_SUCCESS;
    uli_windows_take_back(comm, arena->window, deadline);
    release_memory(comm, &arena->memory);
    return uli_error(ULYX_ERR_NO_MEMORY, "device arena: no memory");
}

/* Waits for the peers without a lock. */
static ulyx_status_t
gpu_arena_grow(ulyx_comm_t *comm, int64_t bytes)
{
    struct arena *arena = calloc(1, sizeof(*arena));
    if (!arena)
        return uli_error(ULYX_ERR_NO_MEMORY, "device arena: no memory");
    uli_list_init(&arena->node);
    ulyx_status_t status = fill_arena(comm, bytes, arena);
    if (status != ULYX_SUCCESS) {
        free(arena);
        return status;
    }
    ULI_INFO(ULI_LOG_MEM, comm->rank, "device arena of %" PRId64 " bytes added",
        arena->memory.bytes);
    pthread_mutex_lock(&comm->lock);
    uli_list_append(&comm->gpu->arenas, &arena->node);
    pthread_mutex_unlock(&comm->lock);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_gpu_arena_alloc(
    ulyx_comm_t *comm, int64_t bytes, struct uli_arena_block *block_p)
{
    struct uli_gpu *gpu = comm->gpu;
    struct uli_arena_block block;
    ULI_TRY(uli_gpu_check_mapped(comm, ""));
    if (bytes <= 0 || bytes > INT64_MAX / 2)
        return uli_error(ULYX_ERR_NO_MEMORY,
            "device arena: a block of %" PRId64 " bytes", bytes);
    bytes = uli_round_up(bytes, ULI_GPU_ARENA_LINE);
    for (;;) {
        pthread_mutex_lock(&comm->lock);
        bool done = take_from(comm, bytes, &block);
        int64_t last = uli_list_empty(&gpu->arenas)
                           ? FIRST_BYTES / 2
                           : ARENA_OF(gpu->arenas.prev)->memory.bytes;
        pthread_mutex_unlock(&comm->lock);
        if (done)
            break;
        ULI_TRY(gpu_arena_grow(comm, uli_max(bytes, uli_sat_add(last, last))));
    }
    /* On an error the block is not given back: the device may still be zeroing
     * it. */
    ULI_TRY(uli_gpu_zero(comm, block.address, block.bytes));
    *block_p = block;
    return ULYX_SUCCESS;
}

void
uli_gpu_arena_close(ulyx_comm_t *comm)
{
    while (comm->gpu && !uli_list_empty(&comm->gpu->arenas)) {
        struct arena *arena = ARENA_OF(comm->gpu->arenas.next);
        uli_list_remove(&arena->node);
        release_memory(comm, &arena->memory);
        uli_blocks_close(&arena->blocks);
        free(arena);
    }
}

int64_t
uli_gpu_bytes(ulyx_comm_t *comm)
{
    struct uli_gpu *gpu = comm->gpu;
    int64_t bytes = (int64_t)gpu->nrows * ULI_WINDOW_CHUNK * ULI_WINDOW_CHUNKS *
                    (int64_t)sizeof(void *);
    pthread_mutex_lock(&comm->lock);
    for (struct uli_list *n = gpu->arenas.next; n != &gpu->arenas; n = n->next)
        bytes += ARENA_OF(n)->memory.bytes;
    pthread_mutex_unlock(&comm->lock);
    return bytes;
}
