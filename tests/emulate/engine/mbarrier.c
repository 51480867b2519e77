/* SPDX-License-Identifier: Apache-2.0
 *
 * mbarriers: pending arrivals, bytes in flight, phases. A phase completes when
 * no arrival is pending and the byte count is zero; the clocks of all threads
 * that arrived (and of the engines whose bytes came) are joined by each thread
 * that finds the phase complete. The barrier's eight bytes are opaque: only
 * these functions may touch them between init and inval.
 */
#include "emulate/engine/engine.h"

enum { TX_LIMIT = 1 << 20, COUNT_LIMIT = 1 << 20 };

struct emu_mbarrier {
    uint32_t address, count, pending;
    int64_t tx;
    uint64_t phases;               /* phases that have completed */
    struct emu_clocks *now, *done; /* clocks of this phase, of the last one */
    struct emu_queue queue;
    const struct emu_warp *initialiser;
    bool visible; /* whether the asynchronous proxy sees the initialisation */
    struct emu_mbarrier *next;
};

static void
mbarrier_touch(uint32_t bar, bool strong)
{
    struct emu_accessor who = emu_accessor_self();
    who.strong = strong;
    who.what = strong ? "an mbarrier operation" : "mbarrier.init or inval";
    emu_check_multiple("mbarrier", "address", bar, 8);
    emu_memory_access(&who, emu_shared_at(who.block, bar), 8, true);
}

static struct emu_mbarrier *
block_find(struct emu_block *block, uint32_t bar)
{
    struct emu_mbarrier *b = block->mbarriers;
    while (b && b->address != bar)
        b = b->next;
    return b;
}

static struct emu_mbarrier *
block_need(struct emu_block *block, uint32_t bar, const char *what)
{
    struct emu_mbarrier *b = block_find(block, bar);
    if (!b)
        emu_fault_fatal(EMU_FAULT_MBARRIER,
            "%s at shared+%u, which is no initialised mbarrier%s", what,
            bar - EMU_SHARED_START, emu_here());
    return b;
}

void
emu_mbarrier_init(uint32_t bar, uint32_t count)
{
    struct emu_block *block = emu.self->block;
    if (block_find(block, bar))
        emu_fault_fatal(EMU_FAULT_MBARRIER,
            "mbarrier.init at shared+%u, where one is in use%s",
            bar - EMU_SHARED_START, emu_here());
    if (!count || count >= COUNT_LIMIT)
        emu_fault_fatal(EMU_FAULT_MBARRIER, "mbarrier.init with count %u%s",
            count, emu_here());
    mbarrier_touch(bar, false);
    struct emu_mbarrier *b = calloc(1, sizeof *b);
    if (!b)
        emu_out_of_memory("an mbarrier");
    b->address = bar;
    b->count = b->pending = count;
    b->now = emu_clocks_new();
    b->done = emu_clocks_new();
    b->initialiser = emu.self->warp;
    b->next = block->mbarriers;
    block->mbarriers = b;
}

static void
mbarrier_destroy(struct emu_mbarrier *b)
{
    free(b->now);
    free(b->done);
    free(b);
}

void
emu_mbarrier_inval(uint32_t bar)
{
    struct emu_block *block = emu.self->block;
    struct emu_mbarrier **link = &block->mbarriers;
    struct emu_mbarrier *b = block_need(block, bar, "mbarrier.inval");
    if (b->tx || b->queue.first)
        emu_fault_fatal(EMU_FAULT_MBARRIER,
            "mbarrier.inval at shared+%u while %s%s", bar - EMU_SHARED_START,
            b->tx ? "bytes are expected" : "threads wait", emu_here());
    while (*link != b)
        link = &(*link)->next;
    *link = b->next;
    mbarrier_destroy(b);
    mbarrier_touch(bar, false);
}

void
emu_fence_mbarrier_init(void)
{
    struct emu_warp *warp = emu.self->warp;
    for (struct emu_mbarrier *b = warp->block->mbarriers; b; b = b->next)
        if (b->initialiser == warp)
            b->visible = true;
}

void
emu_mbarrier_check_engine(uint32_t bar, bool async_proxy)
{
    struct emu_mbarrier *b =
        block_need(emu.self->block, bar, "an asynchronous copy completes");
    mbarrier_touch(bar, true);
    if (async_proxy && !b->visible)
        emu_fault(EMU_FAULT_MBARRIER, 0,
            "mbarrier at shared+%u is used by an asynchronous copy, but no "
            "fence.mbarrier_init or proxy fence followed its init%s",
            bar - EMU_SHARED_START, emu_here());
    b->visible = b->visible || async_proxy;
}

static void
try_complete(struct emu_mbarrier *b)
{
    if (b->pending || b->tx)
        return;
    struct emu_clocks *last = b->done;
    b->done = b->now;
    b->now = last;
    emu_clocks_clear(b->now);
    b->pending = b->count;
    b->phases++;
    emu_progress();
    emu_wake_all(&b->queue);
}

static void
change_tx(struct emu_mbarrier *b, int64_t bytes)
{
    b->tx += bytes;
    if (b->tx >= TX_LIMIT || b->tx <= -TX_LIMIT)
        emu_fault_fatal(EMU_FAULT_MBARRIER,
            "mbarrier at shared+%u expects %lld bytes, out of range%s",
            b->address - EMU_SHARED_START, (long long)b->tx, emu_here());
}

static void
take_arrival(struct emu_mbarrier *b)
{
    if (!b->pending)
        emu_fault_fatal(EMU_FAULT_MBARRIER,
            "more than %u arrivals in one phase of the mbarrier at "
            "shared+%u%s",
            b->count, b->address - EMU_SHARED_START, emu_here());
    else
        b->pending--;
}

void
emu_mbarrier_arrive(uint32_t bar, uint32_t arrivals, uint32_t expect)
{
    struct emu_thread *self = emu.self;
    if (!emu_random(4))
        emu_yield();
    struct emu_mbarrier *b = block_need(self->block, bar, "mbarrier.arrive");
    mbarrier_touch(bar, true);
    change_tx(b, expect);
    if (arrivals) {
        take_arrival(b);
        emu_publish(self->warp, b->now);
        emu_progress();
        try_complete(b);
    }
}

void
emu_mbarrier_complete_tx(struct emu_block *block, uint32_t bar, uint32_t bytes,
    uint32_t agent, uint32_t clock)
{
    struct emu_mbarrier *b =
        block_need(block, bar, "an asynchronous copy completes");
    if (!b)
        return;
    emu_clocks_raise(b->now, agent, clock);
    change_tx(b, -(int64_t)bytes);
    try_complete(b);
}

void
emu_mbarrier_engine_arrive(
    struct emu_block *block, uint32_t bar, uint32_t agent, uint32_t clock)
{
    struct emu_mbarrier *b = block_need(block, bar, "cp.async.mbarrier.arrive");
    if (!b)
        return;
    emu_clocks_raise(b->now, agent, clock);
    take_arrival(b);
    try_complete(b);
}

static bool
mbarrier_complete(const struct emu_mbarrier *b, uint32_t parity)
{
    return (b->phases & 1) != (parity & 1);
}

bool
emu_mbarrier_wait(uint32_t bar, uint32_t parity, bool may_suspend)
{
    struct emu_thread *self = emu.self;
    const char *what = may_suspend ? "mbarrier.try_wait" : "test_wait";
    struct emu_mbarrier *b = block_need(self->block, bar, what);
    mbarrier_touch(bar, true);
    if (!mbarrier_complete(b, parity)) {
        emu_park(&b->queue, "mbarrier at shared+%llu, parity %llu",
            bar - EMU_SHARED_START, parity, true);
        b = block_need(self->block, bar, what);
    }
    if (!mbarrier_complete(b, parity))
        return false;
    emu_clocks_join(self->warp->now, b->done);
    return true;
}

void
emu_mbarrier_plain_access(
    struct emu_block *block, uint32_t address, size_t bytes, bool write)
{
    for (struct emu_mbarrier *b = block->mbarriers; b; b = b->next)
        if (address < b->address + 8 && b->address < address + bytes)
            emu_fault_fatal(EMU_FAULT_MBARRIER,
                "a plain %s of %zu bytes at shared+%u touches an mbarrier%s",
                write ? "write" : "read", bytes, address - EMU_SHARED_START,
                emu_here());
}

void
emu_mbarriers_end(struct emu_block *block)
{
    while (block->mbarriers) {
        struct emu_mbarrier *b = block->mbarriers;
        block->mbarriers = b->next;
        if (b->tx && !emu.failed)
            emu_fault(EMU_FAULT_MBARRIER, 0,
                "block %u of %s ended; the mbarrier at shared+%u still "
                "expects %lld bytes",
                block->number, block->launch->name,
                b->address - EMU_SHARED_START, (long long)b->tx);
        mbarrier_destroy(b);
    }
}
