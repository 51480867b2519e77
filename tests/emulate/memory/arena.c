/* SPDX-License-Identifier: Apache-2.0
 *
 * The arena: one reserved range for the memory of all devices. Allocations
 * begin at pages of 64 KiB, are followed by an empty page, and their addresses
 * are not used again, so that every use outside of an allocation or after its
 * end is detected.
 */
#include "emulate/memory/memory.h"
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARENA_BYTES ((size_t)1 << 38)
enum { PAGE_SHIFT = 16, POISON_LIMIT = 1 << 28 };
#define PAGES (ARENA_BYTES >> PAGE_SHIFT)

static unsigned char *arena;
static struct emu_allocation **pages;
static struct emu_allocation **all;
static size_t all_count, all_room, next_page;
static uint64_t last_id;
static pthread_mutex_t arena_lock = PTHREAD_MUTEX_INITIALIZER;

static void *
arena_reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

int
emu_memory_open(void)
{
    arena = mmap(NULL, ARENA_BYTES, PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED)
        return -1;
    pages = arena_reserve(PAGES * sizeof *pages);
    next_page = 1;
    return pages ? 0 : -1;
}

void
emu_memory_close(void)
{
    for (size_t i = 0; i < all_count; i++) {
        if (!all[i]->freed && !all[i]->mapped)
            munmap(all[i]->cells, all[i]->bytes * sizeof(struct emu_cell));
        free(all[i]->writes);
        free(all[i]);
    }
    all_count = 0;
    munmap(arena, ARENA_BYTES);
    munmap(pages, PAGES * sizeof *pages);
    arena = NULL;
}

static size_t
page_count(size_t bytes)
{
    return (bytes + (1 << PAGE_SHIFT) - 1) >> PAGE_SHIFT;
}

/* Takes pages with an empty one after them. Returns NULL when none are left. */
static unsigned char *
take_pages(size_t bytes)
{
    size_t count = page_count(bytes);
    if (!bytes || count + 1 > PAGES - next_page)
        return NULL;
    unsigned char *base = arena + (next_page << PAGE_SHIFT);
    next_page += count + 1;
    return base;
}

static struct emu_allocation *
enter_allocation(
    unsigned char *base, size_t bytes, int device, struct emu_cell *cells)
{
    struct emu_allocation *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->base = base;
    a->bytes = bytes;
    a->device = device;
    a->cells = cells;
    a->id = ++last_id;
    size_t first = (size_t)(base - arena) >> PAGE_SHIFT;
    for (size_t i = 0; i < page_count(bytes); i++)
        pages[first + i] = a;
    emu_grow(&all, &all_room, all_count + 1, sizeof *all);
    all[all_count++] = a;
    return a;
}

static void *
arena_allocate(size_t bytes, int device)
{
    unsigned char *base = take_pages(bytes);
    struct emu_cell *cells = base ? arena_reserve(bytes * sizeof *cells) : NULL;
    if (!cells ||
        mprotect(base, page_count(bytes) << PAGE_SHIFT, PROT_READ | PROT_WRITE))
        return NULL;
    if (!enter_allocation(base, bytes, device, cells))
        return NULL;
    if (bytes <= POISON_LIMIT)
        memset(base, 0xff, bytes);
    return base;
}

void *
emu_memory_allocate(size_t bytes, int device)
{
    pthread_mutex_lock(&arena_lock);
    void *p = arena_allocate(bytes, device);
    pthread_mutex_unlock(&arena_lock);
    return p;
}

void *
emu_memory_reserve(size_t bytes)
{
    pthread_mutex_lock(&arena_lock);
    void *p = take_pages(bytes);
    pthread_mutex_unlock(&arena_lock);
    return p;
}

struct emu_allocation *
emu_memory_map(
    void *base, size_t bytes, int device, int fd, struct emu_cell *cells)
{
    struct emu_allocation *a = NULL;
    pthread_mutex_lock(&arena_lock);
    if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
            0) != MAP_FAILED)
        a = enter_allocation(base, bytes, device, cells);
    if (a)
        a->mapped = true;
    pthread_mutex_unlock(&arena_lock);
    return a;
}

void
emu_memory_unmap(struct emu_allocation *a)
{
    a->freed = true;
    mmap(a->base, a->bytes, PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* Replaces private pages by shared pages with the same bytes. */
static bool
make_shared(void *host, size_t bytes)
{
    int fd = memfd_create("emulated-host", MFD_CLOEXEC);
    bool good = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 &&
                pwrite(fd, host, bytes, 0) == (ssize_t)bytes &&
                mmap(host, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
    if (fd >= 0)
        close(fd);
    return good;
}

/* Maps the shared pages a second time. The system call is made by number,
 * because UCX replaces libc's mremap by one that ignores the new address. */
static bool
copy_mapping(void *host, size_t bytes, void *base)
{
    return syscall(SYS_mremap, host, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
               base) == (long)(uintptr_t)base;
}

static bool
map_again(void *host, size_t bytes, void *base)
{
    return copy_mapping(host, bytes, base) ||
           (make_shared(host, bytes) && copy_mapping(host, bytes, base));
}

struct emu_allocation *
emu_memory_alias(void *host, size_t bytes)
{
    struct emu_allocation *a = NULL;
    pthread_mutex_lock(&arena_lock);
    unsigned char *base = take_pages(bytes);
    struct emu_cell *cells = base ? arena_reserve(bytes * sizeof *cells) : NULL;
    if (cells && map_again(host, bytes, base))
        a = enter_allocation(base, bytes, -1, cells);
    if (a) {
        a->mapped = true;
        a->granted = ~0u;
    } else if (cells)
        munmap(cells, bytes * sizeof *cells);
    pthread_mutex_unlock(&arena_lock);
    return a;
}

void
emu_memory_unalias(struct emu_allocation *a)
{
    emu_memory_unmap(a);
    munmap(a->cells, a->bytes * sizeof(struct emu_cell));
}

bool
emu_memory_in_arena(const void *address)
{
    return arena && (const unsigned char *)address >= arena &&
           (const unsigned char *)address < arena + ARENA_BYTES;
}

struct emu_allocation *
emu_memory_find(const void *address)
{
    if (!emu_memory_in_arena(address))
        return NULL;
    size_t offset = (size_t)((const unsigned char *)address - arena);
    struct emu_allocation *a = pages[offset >> PAGE_SHIFT];
    if (!a || a->freed || (const unsigned char *)address >= a->base + a->bytes)
        return NULL;
    return a;
}

int
emu_memory_release(void *base)
{
    struct emu_allocation *a = emu_memory_find(base);
    if (!a || a->base != base || a->mapped)
        return -1;
    a->freed = true;
    munmap(a->cells, a->bytes * sizeof(struct emu_cell));
    mmap(base, page_count(a->bytes) << PAGE_SHIFT, PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return 0;
}

int
emu_track(void *device_memory, size_t bytes)
{
    struct emu_allocation *a = emu_memory_find(device_memory);
    size_t offset = a ? (size_t)((unsigned char *)device_memory - a->base) : 0;
    if (!a || bytes > a->bytes - offset)
        return -1;
    free(a->writes);
    a->writes = calloc(bytes + 1, 1);
    a->track_offset = offset;
    a->track_bytes = bytes;
    return a->writes ? 0 : -1;
}

int64_t
emu_track_check(void *device_memory, size_t bytes)
{
    struct emu_allocation *a = emu_memory_find(device_memory);
    int64_t wrong = 0;
    if (!a || !a->writes || bytes != a->track_bytes ||
        a->base + a->track_offset != device_memory)
        return -1;
    for (size_t i = 0; i < bytes; i++)
        wrong += a->writes[i] != 1;
    free(a->writes);
    a->writes = NULL;
    return wrong;
}
