/* SPDX-License-Identifier: Apache-2.0
 *
 * cp.async: small copies from global to shared memory, by the generic proxy
 * but later. Groups are per thread; the agent is per warp.
 */
#include "emulate/engine/engine.h"

struct thread_group {
    uint32_t left, clock;
};

struct emu_copies {
    struct thread_group *groups; /* the last group is open */
    size_t count, room, waited;
    uint64_t issued; /* copies that the thread has issued so far */
    uint32_t left;   /* copies in flight */
    struct thread_copy *arrivals;
    struct emu_queue queue;
};

struct thread_copy {
    struct emu_async async;
    struct emu_accessor who;
    struct emu_clocks *clocks;
    struct emu_copies *copies;
    uint32_t dst, bytes, src_bytes, bar;
    const void *src;
    size_t group;
    bool has_read, has_written;
    unsigned char data[16];
    /* of an arrival: the number of the last copy before it, and the copies for
     * which it waits */
    uint64_t number;
    uint32_t waits;
    struct thread_copy *next;
};

static struct emu_copies *
copies_of(struct emu_thread *self)
{
    struct emu_copies *c = self->copies;
    if (c)
        return c;
    c = calloc(1, sizeof *c);
    if (!c)
        emu_out_of_memory("cp.async groups");
    emu_grow(&c->groups, &c->room, 1, sizeof *c->groups);
    memset(c->groups, 0, sizeof *c->groups);
    c->count = 1;
    return self->copies = c;
}

static uint32_t
agent_of(struct emu_warp *warp)
{
    if (warp->copy_agent == EMU_AGENTS)
        warp->copy_agent = emu_agent_take(
            "cp.async of warp", warp->block->number, warp->index);
    return warp->copy_agent;
}

static void
copy_discard(struct thread_copy *c)
{
    emu_async_remove(&c->async);
    free(c->clocks);
    free(c);
}

static bool
copy_finish(struct thread_copy *c)
{
    struct emu_copies *all = c->copies;
    all->groups[c->group].left--;
    all->left--;
    for (struct thread_copy *a = all->arrivals; a; a = a->next)
        if (a->number >= c->number)
            a->waits--;
    emu_wake_all(&all->queue);
    copy_discard(c);
    return true;
}

static bool
step_arrival(struct emu_async *async)
{
    struct thread_copy *c = (struct thread_copy *)async;
    if (c->waits)
        return false;
    struct thread_copy **link = &c->copies->arrivals;
    while (*link != c)
        link = &(*link)->next;
    *link = c->next;
    emu_mbarrier_engine_arrive(
        async->block, c->bar, c->who.agent, c->who.clock);
    copy_discard(c);
    return true;
}

static bool
copy_step(struct emu_async *async)
{
    struct thread_copy *c = (struct thread_copy *)async;
    unsigned char *dst = emu_shared_at(async->block, c->dst);
    if (!c->has_read) {
        c->has_read = true;
        if (c->src_bytes &&
            emu_memory_access(&c->who, c->src, c->src_bytes, false))
            memmove(c->data, c->src, c->src_bytes);
    } else if (!c->has_written) {
        c->has_written = true;
        if (emu_memory_access(&c->who, dst, c->bytes, true))
            memmove(dst, c->data, c->bytes);
    } else {
        return copy_finish(c);
    }
    return false;
}

static struct thread_copy *
new_copy(void)
{
    struct emu_thread *self = emu.self;
    struct thread_copy *c = calloc(1, sizeof *c);
    if (!c)
        emu_out_of_memory("a cp.async");
    c->copies = copies_of(self);
    c->clocks = emu_issue_clocks();
    c->who.clocks = c->clocks;
    c->who.agent = agent_of(self->warp);
    c->who.clock = emu_agent_clock(c->who.agent);
    c->who.block = self->block;
    c->who.device = self->block->launch->device;
    c->who.what = "a cp.async";
    emu_async_add(&c->async, self->block);
    return c;
}

void
emu_cp_async(uint32_t dst, const void *src, uint32_t bytes, uint32_t src_bytes)
{
    struct emu_block *block = emu.self->block;
    emu_check_multiple("cp.async", "destination", dst, bytes);
    emu_check_multiple("cp.async", "source", (uintptr_t)src, bytes);
    if (src_bytes > bytes)
        emu_fault_fatal(EMU_FAULT_ASYNC, "cp.async of %u bytes from %u%s",
            bytes, src_bytes, emu_here());
    struct thread_copy *c = new_copy();
    struct emu_copies *all = c->copies;
    c->async.step = copy_step;
    c->number = ++all->issued;
    c->group = all->count - 1;
    all->groups[c->group].left++;
    all->groups[c->group].clock = c->who.clock;
    all->left++;
    c->dst = dst;
    c->src = src;
    c->bytes = bytes;
    c->src_bytes = src_bytes;
    if (dst - EMU_SHARED_START + bytes <= block->launch->shared_bytes)
        emu_poison(emu_shared_at(block, dst), bytes);
}

void
emu_cp_async_arrive(uint32_t bar)
{
    emu_mbarrier_check_engine(bar, false);
    struct thread_copy *c = new_copy();
    c->async.step = step_arrival;
    c->number = c->copies->issued;
    c->waits = c->copies->left;
    c->next = c->copies->arrivals;
    c->copies->arrivals = c;
    c->bar = bar;
}

void
emu_cp_async_commit(void)
{
    struct emu_copies *c = copies_of(emu.self);
    emu_grow(&c->groups, &c->room, c->count + 1, sizeof *c->groups);
    memset(&c->groups[c->count++], 0, sizeof *c->groups);
    emu_agent_advance(agent_of(emu.self->warp));
}

void
emu_cp_async_wait(uint32_t pending)
{
    struct emu_thread *self = emu.self;
    struct emu_copies *c = copies_of(self);
    size_t closed = c->count - 1;
    size_t groups = closed > pending ? closed - pending : 0;
    for (size_t g = c->waited; g < groups; g++) {
        while (c->groups[g].left)
            emu_park(&c->queue, "cp.async groups, at most %llu left", pending,
                0, false);
        if (c->groups[g].clock)
            emu_clocks_raise(
                self->warp->now, agent_of(self->warp), c->groups[g].clock);
    }
    if (c->waited < groups)
        c->waited = groups;
}

void
emu_copies_end(struct emu_thread *thread)
{
    struct emu_copies *c = thread->copies;
    if (!c)
        return;
    if (thread->warp->copy_agent != EMU_AGENTS)
        emu_clocks_raise(thread->block->launch->op->clocks,
            thread->warp->copy_agent,
            emu_agent_clock(thread->warp->copy_agent));
    free(c->groups);
    free(c);
    thread->copies = NULL;
}
