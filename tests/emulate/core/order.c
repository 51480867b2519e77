/* SPDX-License-Identifier: Apache-2.0
 *
 * Release and acquire. Each flag (an address used by ordered or relaxed
 * accesses) has, for every scope, the clocks that its last write publishes to
 * a reader in that scope: a release store publishes the writer's state to its
 * own scope and narrower ones; a relaxed store publishes the state at the
 * writer's last fence, as far as both scopes reach; a read-modify-write adds
 * to what is there. An acquiring load takes what its scope and the distance
 * to the writer allow; a relaxed load takes it at the next fence. So a store
 * that lost its release, or has too narrow a scope, orders nothing, and the
 * race shows in the shadow memory.
 */
#include "emulate/memory/memory.h"

enum { BUCKETS = 4096 };

struct flag {
    const void *address;
    struct flag *next;
    /* NULL = nothing is published in that scope */
    struct emu_clocks *level[EMU_SCOPES];
    uint64_t block; /* the block that has published; 0: several blocks */
    int device;     /* the device that has published; -1 = several devices */
};

static struct flag *buckets[BUCKETS];
static uint32_t shared_flags; /* number of flags in shared memory */

static struct flag *
flag_of(const void *address, bool make)
{
    size_t slot = ((uintptr_t)address >> 2) * 0x9e3779b97f4a7c15u >> 52;
    struct flag *f = buckets[slot % BUCKETS];
    while (f && f->address != address)
        f = f->next;
    if (f || !make)
        return f;
    f = calloc(1, sizeof *f);
    if (!f)
        emu_out_of_memory("a flag");
    f->address = address;
    shared_flags += !emu_memory_in_arena(address);
    f->next = buckets[slot % BUCKETS];
    buckets[slot % BUCKETS] = f;
    return f;
}

void
emu_publish(struct emu_warp *warp, struct emu_clocks *to)
{
    emu_clocks_join(to, warp->now);
    emu_clocks_raise(to, warp->agent, emu_agent_clock(warp->agent));
    emu_agent_advance(warp->agent);
}

static void
drop_levels(struct flag *f)
{
    for (int s = 0; s < EMU_SCOPES; s++) {
        free(f->level[s]);
        f->level[s] = NULL;
    }
    f->block = 0;
    f->device = -1;
}

static void
add_level(struct flag *f, int level, const struct emu_clocks *clocks)
{
    if (!f->level[level])
        f->level[level] = emu_clocks_new();
    emu_clocks_join(f->level[level], clocks);
}

static bool
flag_published(const struct flag *f)
{
    return f->level[0] || f->level[1] || f->level[2];
}

/* rmw: a read-modify-write, which keeps what others have published. */
static void
writes_publish(struct emu_thread *self, const void *address, int order,
    int scope, bool rmw)
{
    struct emu_warp *warp = self->warp;
    bool any = order & EMU_RELEASE;
    for (int s = 0; s <= scope; s++)
        any = any || warp->fence[s];
    struct flag *f = flag_of(address, any);
    if (!f)
        return;
    bool before = flag_published(f);
    if (!rmw)
        drop_levels(f);
    if (!any)
        return;
    int device = self->block->launch->device;
    f->block = rmw && before && f->block != self->block->serial
                   ? 0
                   : self->block->serial;
    f->device = rmw && before && f->device != device ? -1 : device;
    if (order & EMU_RELEASE) {
        emu_clocks_raise(warp->now, warp->agent, emu_agent_clock(warp->agent));
        for (int s = 0; s <= scope; s++)
            add_level(f, s, warp->now);
        emu_agent_advance(warp->agent);
        return;
    }
    for (int s = 0; s <= scope; s++)
        if (warp->fence[s])
            add_level(f, s, warp->fence[s]);
}

static void
writes_observe(
    struct emu_thread *self, const void *address, int order, int scope)
{
    struct flag *f = flag_of(address, false);
    struct emu_warp *warp = self->warp;
    if (!f || !flag_published(f))
        return;
    int distance = f->block == self->block->serial            ? EMU_CTA
                   : f->device == self->block->launch->device ? EMU_GPU
                                                              : EMU_SYS;
    const struct emu_clocks *got = f->level[distance];
    if (!got || scope < distance)
        return;
    if (order & EMU_ACQUIRE) {
        emu_clocks_join(warp->now, got);
        return;
    }
    for (int s = distance; s < EMU_SCOPES; s++) {
        if (!warp->seen[s])
            warp->seen[s] = emu_clocks_new();
        emu_clocks_join(warp->seen[s], got);
    }
}

/* Joins what relaxed loads have seen: a fence of scope s takes seen[s]. */
void
emu_fence(int scope)
{
    struct emu_warp *warp = emu.self->warp;
    if (warp->seen[scope])
        emu_clocks_join(warp->now, warp->seen[scope]);
    emu_clocks_raise(warp->now, warp->agent, emu_agent_clock(warp->agent));
    emu_agent_advance(warp->agent);
    for (int s = 0; s <= scope; s++) {
        if (!warp->fence[s])
            warp->fence[s] = emu_clocks_new();
        emu_clocks_copy(warp->fence[s], warp->now);
    }
}

void
emu_fence_proxy(uint32_t spaces)
{
    struct emu_warp *warp = emu.self->warp;
    emu_clocks_raise(warp->now, warp->agent, emu_agent_clock(warp->agent));
    emu_agent_advance(warp->agent);
    if (spaces & 1) {
        emu_clocks_fence(warp->now, EMU_ASYNC_SHARED);
        emu_fence_mbarrier_init();
    }
    if (spaces & 2)
        emu_clocks_fence(warp->now, EMU_ASYNC_GLOBAL);
}

static uint64_t
read_value(const void *p, int bytes)
{
    return bytes == 4 ? *(const volatile uint32_t *)p
                      : *(const volatile uint64_t *)p;
}

static void
write_value(void *p, uint64_t value, int bytes)
{
    if (bytes == 4)
        *(volatile uint32_t *)p = (uint32_t)value;
    else
        *(volatile uint64_t *)p = value;
}

static void
strong_access(const void *p, int bytes, bool write)
{
    struct emu_accessor who = emu_accessor_self();
    who.strong = true;
    who.what = "an ordered or atomic access";
    if ((uintptr_t)p % (size_t)bytes)
        emu_fault_fatal(EMU_FAULT_BOUNDS, "%d bytes at %p, not aligned%s",
            bytes, p, emu_here());
    emu_memory_access(&who, p, (size_t)bytes, write);
}

/* If a load finds the same value at the same place, with the same order, as the
 * lane's last load, the lane spins and is parked. An acquire that follows
 * relaxed polls ends a wait, so its order differs and it does not count. */
static void
wait_for_change(const void *p, int bytes, int order)
{
    struct emu_thread *self = emu.self;
    if (self->poll_at == p && self->poll_order == order &&
        read_value(p, bytes) == self->poll_value)
        emu_park(emu_pollers(p), "memory at %llx to change from %llx",
            (uint64_t)(uintptr_t)p, self->poll_value, true);
    else if (!emu_random(4))
        emu_yield();
}

uint64_t
emu_load(const void *p, int bytes, int order, int scope)
{
    struct emu_thread *self = emu.self;
    strong_access(p, bytes, false);
    wait_for_change(p, bytes, order);
    writes_observe(self, p, order, scope);
    self->poll_at = p;
    self->poll_order = order;
    self->poll_value = read_value(p, bytes);
    return self->poll_value;
}

static void
word_changed(struct emu_thread *self, const void *p)
{
    self->poll_at = NULL;
    emu_progress();
    emu_wake_pollers(p);
}

void
emu_store(void *p, uint64_t value, int bytes, int order, int scope)
{
    struct emu_thread *self = emu.self;
    if (!emu_random(4))
        emu_yield();
    strong_access(p, bytes, true);
    writes_publish(self, p, order, scope, false);
    if (read_value(p, bytes) != value)
        word_changed(self, p);
    write_value(p, value, bytes);
}

static uint64_t
add_floats(uint64_t old, uint64_t value)
{
    union {
        uint32_t bits;
        float f;
    } a = {(uint32_t)old}, b = {(uint32_t)value};
    a.f += b.f;
    return a.bits;
}

static uint64_t
rmw_combine(int rmw, uint64_t old, uint64_t value, uint64_t expected)
{
    switch (rmw) {
    case EMU_ADD:
        return old + value;
    case EMU_CAS:
        return old == expected ? value : old;
    case EMU_MIN:
        return old < value ? old : value;
    case EMU_MAX:
        return old > value ? old : value;
    case EMU_AND:
        return old & value;
    case EMU_OR:
        return old | value;
    case EMU_XOR:
        return old ^ value;
    case EMU_ADD_F32:
        return add_floats(old, value);
    default:
        return value;
    }
}

uint64_t
emu_atomic(void *p, int rmw, uint64_t value, uint64_t expected, int bytes,
    int order, int scope)
{
    struct emu_thread *self = emu.self;
    strong_access(p, bytes, true);
    wait_for_change(p, bytes, order);
    writes_observe(self, p, order, scope);
    uint64_t old = read_value(p, bytes);
    uint64_t now = rmw_combine(rmw, old, value, expected);
    if (bytes == 4)
        now = (uint32_t)now;
    bool same = now == old;
    if (!(rmw == EMU_CAS && old != expected))
        writes_publish(self, p, order, scope, true);
    write_value(p, now, bytes);
    if (!same) {
        word_changed(self, p);
    } else {
        self->poll_at = p;
        self->poll_order = order;
        self->poll_value = old;
    }
    return old;
}

/* Drops the flags of a bucket that lie in the range. */
static void
drop_flags(struct flag **link, const unsigned char *base, size_t bytes)
{
    while (*link) {
        struct flag *f = *link;
        if ((size_t)((const unsigned char *)f->address - base) >= bytes) {
            link = &f->next;
            continue;
        }
        *link = f->next;
        shared_flags -= !emu_memory_in_arena(f->address);
        drop_levels(f);
        free(f);
    }
}

void
emu_order_forget(const unsigned char *base, size_t bytes)
{
    for (int i = 0; i < BUCKETS && shared_flags; i++)
        drop_flags(&buckets[i], base, bytes);
}

void
emu_order_reset(void)
{
    for (int i = 0; i < BUCKETS; i++)
        drop_flags(&buckets[i], NULL, SIZE_MAX);
}
