/* SPDX-License-Identifier: Apache-2.0
 *
 * Bulk groups of a thread, and bulk copies without a tensor map. Per group we
 * count operations that have still to read their source and to write their
 * destination: wait_group waits for both, wait_group.read for the first only,
 * and each gives order after what it waited for and nothing else.
 */
#include "emulate/engine/engine.h"

struct bulk_group {
    /* operations that have yet to read, or to write */
    uint32_t reads, writes;
    uint32_t read_clock, write_clock; /* clocks of the last operation */
};

struct emu_bulk {
    struct emu_thread *owner;
    uint32_t read_agent, write_agent;
    struct bulk_group *groups; /* the last group is open */
    size_t count, room;
    size_t read_waited; /* number of groups whose reads were waited for */
    struct emu_queue queue;
};

static void
open_group(struct emu_bulk *bulk)
{
    emu_grow(&bulk->groups, &bulk->room, bulk->count + 1, sizeof *bulk->groups);
    memset(&bulk->groups[bulk->count++], 0, sizeof *bulk->groups);
}

static struct emu_bulk *
bulk_of(struct emu_thread *self)
{
    if (self->bulk)
        return self->bulk;
    struct emu_bulk *bulk = calloc(1, sizeof *bulk);
    if (!bulk)
        emu_out_of_memory("bulk groups");
    uint32_t block = self->block->number, warp = self->warp->index;
    bulk->owner = self;
    bulk->read_agent = emu_agent_take("bulk reads of warp", block, warp);
    bulk->write_agent = emu_agent_take("bulk writes of warp", block, warp);
    open_group(bulk);
    return self->bulk = bulk;
}

struct emu_bulk_ticket
emu_bulk_enter(void)
{
    struct emu_bulk *bulk = bulk_of(emu.self);
    struct bulk_group *g = &bulk->groups[bulk->count - 1];
    struct emu_bulk_ticket t = {.bulk = bulk,
        .group = (uint32_t)bulk->count - 1,
        .read_agent = bulk->read_agent,
        .write_agent = bulk->write_agent,
        .read_clock = emu_agent_advance(bulk->read_agent),
        .write_clock = emu_agent_advance(bulk->write_agent)};
    g->reads++;
    g->writes++;
    g->read_clock = t.read_clock;
    g->write_clock = t.write_clock;
    return t;
}

void
emu_bulk_read_done(const struct emu_bulk_ticket *ticket)
{
    ticket->bulk->groups[ticket->group].reads--;
    emu_wake_all(&ticket->bulk->queue);
}

void
emu_bulk_write_done(const struct emu_bulk_ticket *ticket)
{
    ticket->bulk->groups[ticket->group].writes--;
    emu_wake_all(&ticket->bulk->queue);
}

void
emu_bulk_commit(void)
{
    open_group(bulk_of(emu.self));
}

static bool
groups_pending(const struct emu_bulk *bulk, size_t groups, bool read_only)
{
    for (size_t g = 0; g < groups; g++)
        if (bulk->groups[g].reads || (!read_only && bulk->groups[g].writes))
            return true;
    return false;
}

void
emu_bulk_wait(uint32_t left, bool read_only)
{
    struct emu_thread *self = emu.self;
    struct emu_bulk *bulk = bulk_of(self);
    size_t closed = bulk->count - 1;
    size_t groups = closed > left ? closed - left : 0;
    while (groups_pending(bulk, groups, read_only))
        emu_park(
            &bulk->queue, "bulk groups, at most %llu left", left, 0, false);
    for (size_t g = 0; g < groups; g++) {
        struct emu_clocks *now = self->warp->now;
        emu_clocks_raise(now, bulk->read_agent, bulk->groups[g].read_clock);
        if (!read_only)
            emu_clocks_raise(
                now, bulk->write_agent, bulk->groups[g].write_clock);
    }
    if (bulk->read_waited < groups)
        bulk->read_waited = groups;
}

/* The shared memory of the block is freed, so all reads of it must have been
 * waited for. */
void
emu_bulk_end(struct emu_thread *thread)
{
    struct emu_bulk *bulk = thread->bulk;
    if (!bulk)
        return;
    for (size_t g = bulk->read_waited; g < bulk->count && !emu.failed; g++)
        if (bulk->groups[g].read_clock)
            emu_fault(EMU_FAULT_ASYNC, 0,
                "block %u of %s ended, and no wait_group covers the bulk "
                "copies that read its shared memory",
                thread->block->number, thread->block->launch->name);
    struct emu_clocks *end = thread->block->launch->op->clocks;
    emu_clocks_raise(end, bulk->read_agent, emu_agent_clock(bulk->read_agent));
    emu_clocks_raise(
        end, bulk->write_agent, emu_agent_clock(bulk->write_agent));
    emu_agent_give(bulk->read_agent);
    emu_agent_give(bulk->write_agent);
    free(bulk->groups);
    free(bulk);
    thread->bulk = NULL;
}

/* ---- copies of bytes ---- */
struct bulk_copy {
    struct emu_async async;
    struct emu_accessor reader, writer;
    struct emu_clocks *clocks;
    void *dst;
    const void *src;
    uint32_t bytes, bar;
    bool load, add, has_read, has_written;
    struct emu_bulk_ticket ticket;
    unsigned char *data;
};

void
emu_poison(void *p, size_t bytes)
{
    volatile unsigned char *b = p;
    for (size_t i = 0; i < bytes; i++)
        b[i] = 0xff;
}

struct emu_clocks *
emu_issue_clocks(void)
{
    struct emu_warp *warp = emu.self->warp;
    struct emu_clocks *clocks = emu_clocks_new();
    emu_clocks_raise(warp->now, warp->agent, emu_agent_clock(warp->agent));
    emu_clocks_copy(clocks, warp->now);
    emu_agent_advance(warp->agent);
    return clocks;
}

void
emu_check_multiple(
    const char *what, const char *field, uint64_t value, uint64_t multiple)
{
    if (value % multiple)
        emu_fault_fatal(EMU_FAULT_ASYNC,
            "%s: %s %llu is not a multiple of %llu%s", what, field,
            (unsigned long long)value, (unsigned long long)multiple,
            emu_here());
}

static void
add_floats(float *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

static void
write_copy(struct bulk_copy *c)
{
    if (!emu_memory_access(&c->writer, c->dst, c->bytes, true))
        return;
    if (c->add)
        add_floats(c->dst, (float *)c->data, c->bytes / sizeof(float));
    else
        memmove(c->dst, c->data, c->bytes);
    if (!c->load)
        emu_wake_pollers(c->dst);
}

static bool
finish_copy(struct bulk_copy *c)
{
    struct emu_block *block = c->async.block;
    if (c->load) {
        emu_mbarrier_complete_tx(
            block, c->bar, c->bytes, c->writer.agent, c->writer.clock);
        emu_agent_give(c->writer.agent);
    } else {
        emu_bulk_write_done(&c->ticket);
    }
    emu_async_remove(&c->async);
    free(c->clocks);
    free(c->data);
    free(c);
    return true;
}

static bool
step_copy(struct emu_async *async)
{
    struct bulk_copy *c = (struct bulk_copy *)async;
    if (!c->has_read) {
        c->has_read = true;
        if (emu_memory_access(&c->reader, c->src, c->bytes, false))
            memmove(c->data, c->src, c->bytes);
        if (!c->load)
            emu_bulk_read_done(&c->ticket);
    } else if (!c->has_written) {
        c->has_written = true;
        write_copy(c);
    } else {
        return finish_copy(c);
    }
    return false;
}

static struct bulk_copy *
new_copy(void *dst, const void *src, uint32_t bytes)
{
    struct bulk_copy *c = calloc(1, sizeof *c);
    struct emu_block *block = emu.self->block;
    if (!c || !(c->data = malloc(bytes + 1)))
        emu_out_of_memory("a bulk copy");
    c->async.step = step_copy;
    c->clocks = emu_issue_clocks();
    c->dst = dst;
    c->src = src;
    c->bytes = bytes;
    c->reader.clocks = c->writer.clocks = c->clocks;
    c->reader.async = c->writer.async = true;
    c->reader.block = c->writer.block = block;
    c->reader.device = c->writer.device = block->launch->device;
    return c;
}

void
emu_bulk_load(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar)
{
    struct emu_thread *self = emu.self;
    emu_check_multiple("bulk load", "size", bytes, 16);
    emu_check_multiple("bulk load", "source", (uintptr_t)src, 16);
    emu_check_multiple("bulk load", "destination", dst, 16);
    emu_mbarrier_check_engine(bar, true);
    void *to = emu_shared_at(self->block, dst);
    struct bulk_copy *c = new_copy(to, src, bytes);
    uint32_t agent = emu_agent_take(
        "bulk load of warp", self->block->number, self->warp->index);
    c->load = true;
    c->bar = bar;
    c->reader.agent = c->writer.agent = agent;
    c->reader.clock = c->writer.clock = emu_agent_clock(agent);
    c->reader.what = "a bulk load's read";
    c->writer.what = "a bulk load's write";
    if (dst - EMU_SHARED_START + bytes <= self->block->launch->shared_bytes)
        emu_poison(to, bytes);
    emu_async_add(&c->async, self->block);
}

void
emu_bulk_store(void *dst, uint32_t src, uint32_t bytes, bool add_f32)
{
    struct emu_thread *self = emu.self;
    emu_check_multiple("bulk store", "size", bytes, 16);
    emu_check_multiple("bulk store", "destination", (uintptr_t)dst, 16);
    emu_check_multiple("bulk store", "source", src, 16);
    struct bulk_copy *c = new_copy(dst, emu_shared_at(self->block, src), bytes);
    c->ticket = emu_bulk_enter();
    c->add = add_f32;
    c->reader.agent = c->ticket.read_agent;
    c->reader.clock = c->ticket.read_clock;
    c->writer.agent = c->ticket.write_agent;
    c->writer.clock = c->ticket.write_clock;
    c->writer.strong = add_f32;
    c->reader.what = "a bulk store's read";
    c->writer.what = add_f32 ? "a bulk reduction" : "a bulk store's write";
    emu_async_add(&c->async, self->block);
}
