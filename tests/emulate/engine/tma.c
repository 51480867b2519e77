/* SPDX-License-Identifier: Apache-2.0
 *
 * TMA: boxes of a tensor between global and shared memory. The box lies in
 * shared memory row by row, innermost dimension first, 16-byte pieces swizzled
 * by address bits. Outside of the tensor a load gives zeros, which count for
 * the barrier's bytes; a store skips.
 */
#include "emulate/engine/engine.h"

struct box {
    struct emu_async async;
    struct emu_map map;
    int at[EMU_MAP_RANK];
    struct emu_accessor reader, writer;
    struct emu_clocks *clocks;
    uint32_t shared, bar, bytes;
    bool load, has_read, has_written;
    struct emu_bulk_ticket ticket;
    unsigned char *data; /* the bytes of the box, not swizzled */
};

static const struct emu_map *
check_map(const struct emu_map *map, int count, const char *what)
{
    if (map->magic != EMU_MAP_MAGIC || (uintptr_t)map % 64)
        emu_fault_fatal(EMU_FAULT_ASYNC,
            "%s: %p is not a tensor map at a multiple of 64%s", what,
            (const void *)map, emu_here());
    if (count && map->rank != (uint32_t)count)
        emu_fault_fatal(EMU_FAULT_ASYNC,
            "%s with %d coordinates of a map of rank %u%s", what, count,
            map->rank, emu_here());
    return map;
}

static uint32_t
row_count(const struct emu_map *map)
{
    uint32_t rows = 1;
    for (uint32_t d = 1; d < map->rank; d++)
        rows *= map->box[d];
    return rows;
}

/* Finds the part of row r of the box that lies within the tensor: the row's
 * address, and the range of bytes within the row. Returns false when there is
 * no such part. */
static bool
row_inside(const struct box *b, uint32_t r, unsigned char **address,
    uint32_t *begin, uint32_t *end)
{
    const struct emu_map *m = &b->map;
    int64_t offset = 0, size = m->element_bytes;
    for (uint32_t d = 1; d < m->rank; d++) {
        int64_t c = b->at[d] + (int64_t)(r % m->box[d]);
        r /= m->box[d];
        if (c < 0 || c >= (int64_t)m->extents[d])
            return false;
        offset += c * (int64_t)m->strides[d - 1];
    }
    int64_t first = b->at[0], last = first + m->box[0];
    int64_t low = first < 0 ? 0 : first;
    int64_t high =
        last > (int64_t)m->extents[0] ? (int64_t)m->extents[0] : last;
    if (low >= high)
        return false;
    *begin = (uint32_t)((low - first) * size);
    *end = (uint32_t)((high - first) * size);
    *address = (unsigned char *)(uintptr_t)m->base + offset + low * size;
    return true;
}

static void
move_global(struct box *b, const struct emu_accessor *who)
{
    uint32_t row_bytes = b->map.box[0] * b->map.element_bytes;
    for (uint32_t r = 0; r < row_count(&b->map); r++) {
        unsigned char *address, *row = b->data + (size_t)r * row_bytes;
        uint32_t begin, end;
        bool any = row_inside(b, r, &address, &begin, &end);
        if (b->load)
            memset(row, 0, row_bytes);
        if (!any || !emu_memory_access(who, address, end - begin, !b->load))
            continue;
        if (b->load)
            memmove(row + begin, address, end - begin);
        else
            memmove(address, row + begin, end - begin);
    }
}

static void
move_shared(struct box *b, const struct emu_accessor *who)
{
    struct emu_block *block = b->async.block;
    unsigned char *base = emu_shared_at(block, b->shared);
    if (!emu_memory_access(who, base, b->bytes, b->load))
        return;
    for (uint32_t i = 0; i < b->bytes; i += 16) {
        unsigned char *piece = emu_shared_at(
            block, emu_swizzle(b->shared + i, b->map.swizzle_bytes));
        if (b->load)
            memmove(piece, b->data + i, 16);
        else
            memmove(b->data + i, piece, 16);
    }
}

static void
box_finish(struct box *b)
{
    if (b->load) {
        emu_mbarrier_complete_tx(
            b->async.block, b->bar, b->bytes, b->writer.agent, b->writer.clock);
        emu_agent_give(b->writer.agent);
    } else {
        emu_bulk_write_done(&b->ticket);
    }
    emu_async_remove(&b->async);
    free(b->clocks);
    free(b->data);
    free(b);
}

static bool
tma_step(struct emu_async *async)
{
    struct box *b = (struct box *)async;
    if (!b->has_read) {
        b->has_read = true;
        if (b->load) {
            move_global(b, &b->reader);
        } else {
            move_shared(b, &b->reader);
            emu_bulk_read_done(&b->ticket);
        }
    } else if (!b->has_written) {
        b->has_written = true;
        if (b->load)
            move_shared(b, &b->writer);
        else
            move_global(b, &b->writer);
    } else {
        box_finish(b);
        return true;
    }
    return false;
}

static struct box *
new_box(const struct emu_map *map, uint32_t shared, const int *coordinates,
    const char *what)
{
    struct emu_block *block = emu.self->block;
    struct box *b = calloc(1, sizeof *b);
    if (!b)
        emu_out_of_memory("a TMA operation");
    b->map = *map;
    for (uint32_t d = 0; d < map->rank; d++)
        b->at[d] = coordinates[d];
    b->async.step = tma_step;
    b->shared = shared;
    b->bytes = row_count(map) * map->box[0] * map->element_bytes;
    b->data = malloc(b->bytes);
    if (!b->data)
        emu_out_of_memory("a TMA operation");
    emu_check_multiple(what, "shared address", shared, 128);
    b->clocks = emu_issue_clocks();
    b->reader.clocks = b->writer.clocks = b->clocks;
    b->reader.async = b->writer.async = true;
    b->reader.block = b->writer.block = block;
    b->reader.device = b->writer.device = block->launch->device;
    return b;
}

void
emu_tma_load(uint32_t dst, const void *map, uint32_t bar,
    const int *coordinates, int count)
{
    struct emu_thread *self = emu.self;
    const struct emu_map *m = check_map(map, count, "a TMA load");
    emu_mbarrier_check_engine(bar, true);
    struct box *b = new_box(m, dst, coordinates, "a TMA load");
    uint32_t agent = emu_agent_take(
        "TMA load of warp", self->block->number, self->warp->index);
    b->load = true;
    b->bar = bar;
    b->reader.agent = b->writer.agent = agent;
    b->reader.clock = b->writer.clock = emu_agent_clock(agent);
    b->reader.what = "a TMA load's read";
    b->writer.what = "a TMA load's write";
    if (dst - EMU_SHARED_START + b->bytes <= self->block->launch->shared_bytes)
        emu_poison(emu_shared_at(self->block, dst), b->bytes);
    emu_async_add(&b->async, self->block);
}

void
emu_tma_store(const void *map, uint32_t src, const int *coordinates, int count)
{
    const struct emu_map *m = check_map(map, count, "a TMA store");
    struct box *b = new_box(m, src, coordinates, "a TMA store");
    b->ticket = emu_bulk_enter();
    b->reader.agent = b->ticket.read_agent;
    b->reader.clock = b->ticket.read_clock;
    b->writer.agent = b->ticket.write_agent;
    b->writer.clock = b->ticket.write_clock;
    b->reader.what = "a TMA store's read";
    b->writer.what = "a TMA store's write";
    emu_async_add(&b->async, emu.self->block);
}

void
emu_tma_prefetch(const void *map, int count)
{
    check_map(map, count, "a TMA prefetch");
}

void
emu_unsupported(const char *what)
{
    emu_fault_fatal(EMU_FAULT_UNSUPPORTED,
        "%s is not emulated: kernels here do without%s", what, emu_here());
    abort();
}
