/* SPDX-License-Identifier: Apache-2.0
 *
 * Where an access goes: shared memory of the block, device memory, the
 * fibre's own stack (its registers and local memory), the kernel's arguments,
 * or constants of the program. Everything else does not exist on a device.
 * Kernels are compiled with -fsanitize=thread, which calls the functions at
 * the end of this file before every plain load and store; they are defined
 * here instead of by a sanitizer's run time.
 */
#include "emulate/memory/memory.h"
#include <sys/mman.h>

enum { SHARED_SPAN = 1 << 18 };

/* Shared memories that no block uses, each with its cells. */
static struct shared {
    unsigned char *base;
    struct emu_cell *cells;
} * spare;
static size_t spare_count, spare_room;

static void *
pages_map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

bool
emu_shared_take(struct emu_block *block, size_t bytes)
{
    struct shared s;
    if (spare_count) {
        s = spare[--spare_count];
    } else {
        s.base = pages_map(SHARED_SPAN);
        s.cells = pages_map(SHARED_SPAN * sizeof *s.cells);
    }
    if (!s.base || !s.cells)
        return false;
    memset(s.base, 0xff, bytes);
    memset(s.cells, 0, bytes * sizeof *s.cells);
    block->shared = s.base;
    block->shared_cells = s.cells;
    return true;
}

void
emu_shared_give(struct emu_block *block)
{
    emu_order_forget(block->shared, SHARED_SPAN);
    emu_grow(&spare, &spare_room, spare_count + 1, sizeof *spare);
    spare[spare_count].base = block->shared;
    spare[spare_count++].cells = block->shared_cells;
}

unsigned char *
emu_shared_at(struct emu_block *block, uint32_t address)
{
    return block->shared + (address - EMU_SHARED_START);
}

uint32_t
emu_shared_address(struct emu_block *block, const void *p)
{
    return (uint32_t)((const unsigned char *)p - block->shared) +
           EMU_SHARED_START;
}

bool
emu_shared_holds(struct emu_block *block, const void *p)
{
    return (size_t)((const unsigned char *)p - block->shared) < SHARED_SPAN;
}

unsigned char *
emu_shared_base(void)
{
    return emu.self->block->shared;
}

uint32_t
emu_shared_addr(const void *p)
{
    struct emu_block *block = emu.self->block;
    if (!emu_shared_holds(block, p))
        emu_fault_fatal(EMU_FAULT_BOUNDS,
            "%p is not in the block's shared memory%s", p, emu_here());
    return emu_shared_address(block, p);
}

struct emu_accessor
emu_accessor_self(void)
{
    struct emu_thread *self = emu.self;
    struct emu_accessor who = {.clocks = self->warp->now,
        .agent = self->warp->agent,
        .clock = emu_agent_clock(self->warp->agent),
        .block = self->block,
        .device = self->block->launch->device};
    return who;
}

static const char *
accessor_verb(const struct emu_accessor *who, bool write)
{
    return who->what ? who->what : write ? "a write" : "a read";
}

static bool
access_shared(const struct emu_accessor *who, const unsigned char *p,
    size_t bytes, bool write)
{
    struct emu_block *block = who->block;
    size_t offset = (size_t)(p - block->shared);
    size_t size = block->launch->shared_bytes;
    if (offset >= size || bytes > size - offset) {
        emu_fault_fatal(EMU_FAULT_BOUNDS,
            "%s of %zu bytes at shared+%zu, past the block's %zu%s",
            accessor_verb(who, write), bytes, offset, size, emu_here());
        return false;
    }
    if (block->mbarriers && !who->strong)
        emu_mbarrier_plain_access(
            block, (uint32_t)offset + EMU_SHARED_START, bytes, write);
    if (write)
        emu_shadow_write(who, block->shared_cells + offset, p, bytes, true);
    else
        emu_shadow_read(who, block->shared_cells + offset, p, bytes, true);
    return true;
}

static void
count_writes(struct emu_allocation *a, size_t offset, size_t bytes,
    const struct emu_accessor *who)
{
    for (size_t i = offset; i < offset + bytes; i++) {
        size_t t = i - a->track_offset;
        if (i < a->track_offset || t >= a->track_bytes)
            continue;
        if (a->writes[t] < 255)
            a->writes[t]++;
        if (a->writes[t] == 2)
            emu_fault(EMU_FAULT_TWICE, who->pc + 1,
                "byte %zu of a tracked destination is written twice, now by "
                "%s%s",
                t, accessor_verb(who, true), emu_here());
    }
}

/* Plain memory is reached by peer access; mapped memory has a list of its
 * own. */
static bool
device_reaches(int device, const struct emu_allocation *a)
{
    if (a->mapped)
        return a->granted >> device & 1;
    return a->device < 0 || a->device == device ||
           emu.devices[device].peers[a->device];
}

static bool
access_global(const struct emu_accessor *who, const unsigned char *p,
    size_t bytes, bool write)
{
    struct emu_allocation *a = emu_memory_find(p);
    size_t offset = a ? (size_t)(p - a->base) : 0;
    if (!a || bytes > a->bytes - offset) {
        emu_fault_fatal(EMU_FAULT_BOUNDS,
            "%s of %zu bytes at %p, outside of any allocation%s%s",
            accessor_verb(who, write), bytes, (const void *)p,
            a ? " (it runs over the end)" : "", emu_here());
        return false;
    }
    if (who->block && !device_reaches(who->device, a))
        emu_fault_fatal(EMU_FAULT_PEER,
            "%s at %p of device %d without peer access%s",
            accessor_verb(who, write), (const void *)p, a->device, emu_here());
    if (write && a->writes)
        count_writes(a, offset, bytes, who);
    if (write)
        emu_shadow_write(who, a->cells + offset, p, bytes, false);
    else
        emu_shadow_read(who, a->cells + offset, p, bytes, false);
    return true;
}

bool
emu_memory_access(const struct emu_accessor *who, const void *address,
    size_t bytes, bool write)
{
    const unsigned char *p = address;
    if (who->block && emu_shared_holds(who->block, p))
        return access_shared(who, p, bytes, write);
    if (emu_memory_in_arena(p))
        return access_global(who, p, bytes, write);
    emu_fault_fatal(EMU_FAULT_BOUNDS, "%s at %p, which is not device memory%s",
        accessor_verb(who, write), address, emu_here());
    return false;
}

void
emu_plain(const void *p, size_t bytes, bool write)
{
    struct emu_accessor who = emu_accessor_self();
    who.what = write ? "a 16-byte store" : "a 16-byte load";
    if ((uintptr_t)p % bytes)
        emu_fault_fatal(EMU_FAULT_BOUNDS, "%s at %p, not aligned%s", who.what,
            p, emu_here());
    emu_memory_access(&who, p, bytes, write);
}

void
emu_copy_16(void *to, const void *from)
{
    const uint64_t *f = from;
    volatile uint64_t *t = to;
    t[0] = f[0];
    t[1] = f[1];
}

/* The bounds of the program, or of the shared library that contains the
 * emulator. */
extern const unsigned char program_start[] __asm__("__ehdr_start")
    __attribute__((visibility("hidden")));
extern const unsigned char program_end[] __asm__("_end");

/* Returns false in host code: that of a .cu file is instrumented too, and may
 * run at the same time. */
static bool
in_fibre(void)
{
    return emu_on_scheduler && emu.self;
}

static void
access_plain(const void *address, size_t bytes, bool write, const void *pc)
{
    struct emu_thread *self = emu.self;
    const unsigned char *p = address;
    if (!in_fibre())
        return;
    if ((size_t)(p - self->stack) < EMU_STACK_BYTES) {
        if (self->touched)
            emu_register_access(self, (uintptr_t)p, bytes, write);
        return;
    }
    if ((size_t)(self->stack - p) <= EMU_GUARD_BYTES)
        return; /* core/crash.c reports the overflow */
    const struct emu_launch *launch = self->block->launch;
    if (!write &&
        ((p >= program_start && p < program_end) ||
            (size_t)(p - (unsigned char *)launch->args) < launch->args_bytes))
        return;
    struct emu_accessor who = emu_accessor_self();
    who.pc = (uint64_t)((const unsigned char *)pc - program_start);
    self->poll_at = NULL;
    emu_memory_access(&who, p, bytes, write);
}

/* ---- what -fsanitize=thread calls ---- */
#define PC         __builtin_return_address(0)
#define NAME(name) __asm__("__tsan_" name)

void on_range_read(const void *p, size_t bytes) NAME("read_range");
void on_range_write(const void *p, size_t bytes) NAME("write_range");
void on_nothing(void) NAME("init");
void on_entry(const void *pc) NAME("func_entry");
void on_exit_(void) NAME("func_exit");

void
on_range_read(const void *p, size_t bytes)
{
    access_plain(p, bytes, false, PC);
}

void
on_range_write(const void *p, size_t bytes)
{
    access_plain(p, bytes, true, PC);
}

void
on_nothing(void)
{
}

void
on_entry(const void *pc)
{
    (void)pc;
}

void
on_exit_(void)
{
}

#define ON(bytes, prefix, text)                                                \
    void on_##prefix##read##bytes(const void *p) NAME(text "read" #bytes);     \
    void on_##prefix##write##bytes(const void *p) NAME(text "write" #bytes);   \
    void on_##prefix##read##bytes(const void *p)                               \
    {                                                                          \
        access_plain(p, bytes, false, PC);                                     \
    }                                                                          \
    void on_##prefix##write##bytes(const void *p)                              \
    {                                                                          \
        access_plain(p, bytes, true, PC);                                      \
    }
ON(1, , "")
ON(2, , "")
ON(4, , "")
ON(8, , "")
ON(16, , "")
ON(2, unaligned_, "unaligned_")
ON(4, unaligned_, "unaligned_")
ON(8, unaligned_, "unaligned_")
ON(16, unaligned_, "unaligned_")

/* clang leaves copies of 16 bytes and more to memcpy and memset; the test
 * programs are linked with --wrap for these two. The emulator itself moves
 * device memory with memmove. */
void *real_memcpy(void *to, const void *from, size_t n) __asm__(
    "__real_memcpy");
void *real_memset(void *to, int v, size_t n) __asm__("__real_memset");
void *wrap_memcpy(void *to, const void *from, size_t n) __asm__(
    "__wrap_memcpy");
void *wrap_memset(void *to, int v, size_t n) __asm__("__wrap_memset");

static bool
device_pointer(const void *p)
{
    return in_fibre() &&
           (emu_memory_in_arena(p) || emu_shared_holds(emu.self->block, p));
}

void *
wrap_memcpy(void *to, const void *from, size_t n)
{
    if (n && device_pointer(from))
        access_plain(from, n, false, PC);
    if (n && device_pointer(to))
        access_plain(to, n, true, PC);
    return real_memcpy(to, from, n);
}

void *
wrap_memset(void *to, int v, size_t n)
{
    if (n && device_pointer(to))
        access_plain(to, n, true, PC);
    return real_memset(to, v, n);
}
