/* SPDX-License-Identifier: Apache-2.0
 *
 * The sixteen barriers of a block. A barrier orders everything that arriving
 * threads did before it ahead of everything that waiting threads do after it.
 * Barrier 0 without a count takes the threads that have not ended.
 */
#include "emulate/core/emu.h"

/* Publishes what a warp has done before it arrived. All lanes of a warp share
 * one state, so it is published once: when the last live lane has arrived, or
 * when the barrier completes. */
static void
barrier_notify(struct emu_barrier *b, struct emu_warp *warp)
{
    emu_publish(warp, b->clocks);
    b->pending[warp->index] = 0;
}

static void
barrier_complete(struct emu_block *block, struct emu_barrier *b)
{
    uint32_t joined = 0;
    emu_progress();
    b->result = b->votes;
    b->unanimous = (uint32_t)b->votes == b->arrived;
    b->arrived = b->expected = 0;
    b->votes = 0;
    for (uint32_t w = 0; w < block->warp_count; w++)
        if (b->pending[w])
            barrier_notify(b, &block->warps[w]);
    for (struct emu_thread *t = b->queue.first; t; t = t->next) {
        if (!(joined >> t->warp->index & 1))
            emu_clocks_join(t->warp->now, b->clocks);
        joined |= 1u << t->warp->index;
    }
    if (emu.self && emu.self->block == block &&
        !(joined >> emu.self->warp->index & 1))
        emu_clocks_join(emu.self->warp->now, b->clocks);
    emu_clocks_clear(b->clocks);
    emu_wake_all(&b->queue);
}

static void
barrier_check(const struct emu_barrier *b, uint32_t id, uint32_t threads)
{
    const struct emu_block *block = emu.self->block;
    if (id >= EMU_BARRIERS)
        emu_fault_fatal(
            EMU_FAULT_BARRIER, "barrier %u does not exist%s", id, emu_here());
    if (threads % EMU_WARP || threads > block->thread_count)
        emu_fault_fatal(EMU_FAULT_BARRIER,
            "barrier %u with %u threads in a block of %u%s", id, threads,
            block->thread_count, emu_here());
    if (b->arrived && b->expected != threads)
        emu_fault_fatal(EMU_FAULT_BARRIER,
            "barrier %u has %u threads for some and %u for others%s", id,
            b->expected, threads, emu_here());
}

static bool
barrier_is_full(const struct emu_block *block, const struct emu_barrier *b)
{
    return b->arrived >= (b->expected ? b->expected : block->live);
}

static void
barrier_arrive(uint32_t id, uint32_t threads, bool wait, int vote)
{
    struct emu_thread *self = emu.self;
    struct emu_block *block = self->block;
    struct emu_barrier *b = id < EMU_BARRIERS ? &block->barriers[id] : NULL;
    barrier_check(b, id, threads);
    if (!b->clocks)
        b->clocks = emu_clocks_new();
    b->expected = threads;
    b->arrived++;
    b->votes += vote;
    b->pending[self->warp->index] |= 1u << self->lane;
    if (!wait || !(self->warp->live & ~b->pending[self->warp->index]))
        barrier_notify(b, self->warp);
    if (barrier_is_full(block, b) && wait)
        barrier_complete(block, b);
    else if (barrier_is_full(block, b)) {
        struct emu_clocks *mine = emu_clocks_new();
        emu_clocks_copy(mine, self->warp->now);
        barrier_complete(block, b);
        emu_clocks_copy(self->warp->now, mine);
        free(mine);
    } else if (wait)
        emu_park(&b->queue, "barrier %llu of %llu threads", id,
            threads ? threads : block->live, false);
}

void
emu_barrier(uint32_t id, uint32_t threads, bool wait)
{
    barrier_arrive(id, threads, wait, 0);
}

int
emu_barrier_reduce(int how, int predicate)
{
    const struct emu_block *block = emu.self->block;
    barrier_arrive(0, 0, true, predicate != 0);
    const struct emu_barrier *b = &block->barriers[0];
    return how == 0 ? b->result : how == 1 ? b->unanimous : b->result > 0;
}

/* A thread that has ended is not awaited at barrier 0. */
void
emu_barrier_thread_ended(struct emu_block *block)
{
    struct emu_barrier *b = &block->barriers[0];
    if (b->arrived && !b->expected && barrier_is_full(block, b))
        barrier_complete(block, b);
}
