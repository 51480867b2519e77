/* SPDX-License-Identifier: Apache-2.0
 *
 * See fake_memory.h. A handle counts its holders: each creation, import and
 * retain, and each mapping; the memfd lives as long as one holder does. Misuse
 * (sizes that are no multiple of the granularity, unmapping a part of a
 * mapping, a handle that is freed) is an error, as it is to the driver.
 */
#include "device/fake_memory.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HANDLES = 512, RANGES = 1024 };

#define MAY_FAIL()                                                             \
    FAKE_GUARD();                                                              \
    do {                                                                       \
        int outcome = fake_outcome(__func__ + 3 /* do_ */);                    \
        if (outcome)                                                           \
            return outcome;                                                    \
    } while (0)

static struct handle {
    int holders, fd;
    size_t bytes;
    struct uli_cu_memory_props props;
} handles[HANDLES + 1]; /* handle 0 is none */

enum form { NONE, RESERVED, MAPPED, ALLOCATED, OPENED, PINNED, REGISTERED };
static struct range {
    enum form form;
    char *base;
    size_t bytes;
    uli_cu_memory memory;
    unsigned long long id;
} ranges[RANGES];
static unsigned long long last_id;

static void *
memory_at(uli_cu_ptr address)
{
    return (void *)(uintptr_t)address;
}

static struct handle *
handle_of(uli_cu_memory memory)
{
    return memory > 0 && memory <= HANDLES && handles[memory].holders > 0
               ? &handles[memory]
               : NULL;
}

static uli_cu_memory
take_handle(int fd, size_t bytes)
{
    for (uli_cu_memory m = 1; m <= HANDLES; m++)
        if (handles[m].holders == 0) {
            handles[m] =
                (struct handle){.holders = 1, .fd = fd, .bytes = bytes};
            return m;
        }
    return 0;
}

static struct range *
range_at(uli_cu_ptr address, enum form form)
{
    for (int i = 0; i < RANGES; i++)
        if (ranges[i].form == form &&
            address - (uintptr_t)ranges[i].base < ranges[i].bytes)
            return &ranges[i];
    return NULL;
}

static struct range *
take_range(enum form form, void *base, size_t bytes, uli_cu_memory memory)
{
    for (int i = 0; i < RANGES; i++)
        if (ranges[i].form == NONE) {
            ranges[i] = (struct range){form, base, bytes, memory, ++last_id};
            return &ranges[i];
        }
    return NULL;
}

bool
fake_memory_find(uli_cu_ptr address, struct fake_range *range_p)
{
    FAKE_GUARD();
    struct range *range = NULL;
    for (enum form form = MAPPED; form <= OPENED && !range; form++)
        range = range_at(address, form);
    if (!range)
        return false;
    *range_p =
        (struct fake_range){(uintptr_t)range->base, range->bytes, range->id,
            handles[range->memory].props.location, range->form == ALLOCATED};
    return true;
}

int
fake_memory_count(void)
{
    FAKE_GUARD();
    int count = 0;
    for (int i = 0; i < RANGES; i++)
        count += ranges[i].form != NONE;
    for (int i = 1; i <= HANDLES; i++)
        count += handles[i].holders;
    return count;
}

/* Freed addresses stay reserved, so no later allocation gets them by chance. */
void
fake_memory_forget(void)
{
    for (int i = 0; i < RANGES; i++)
        ranges[i].form = NONE;
    for (int i = 1; i <= HANDLES; i++) {
        if (handles[i].holders > 0)
            close(handles[i].fd);
        handles[i].holders = 0;
    }
}

/* ---- physical memory ----------------------------------------------------- */

int
do_cuMemGetAllocationGranularity(
    size_t *bytes, const struct uli_cu_memory_props *props, int option)
{
    MAY_FAIL();
    *bytes = FAKE_GRANULARITY;
    return props->type == 1 && props->location_type == 1 && option == 0
               ? 0
               : ULI_CU_INVALID_VALUE;
}

static int
memory_create(uli_cu_memory *memory, size_t bytes)
{
    int fd = memfd_create("fake-device", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes)) {
        if (fd >= 0)
            close(fd);
        return ULI_CU_OUT_OF_MEMORY;
    }
    *memory = take_handle(fd, bytes);
    if (!*memory)
        close(fd);
    return *memory ? 0 : ULI_CU_OUT_OF_MEMORY;
}

int
do_cuMemCreate(uli_cu_memory *memory, size_t bytes,
    const struct uli_cu_memory_props *props, unsigned long long flags)
{
    MAY_FAIL();
    if (bytes == 0 || bytes % FAKE_GRANULARITY || flags || props->type != 1)
        return ULI_CU_INVALID_VALUE;
    if ((props->handle_types & ULI_CU_FABRIC) && fake_no_fabric())
        return ULI_CU_NOT_PERMITTED;
    int result = memory_create(memory, bytes);
    if (result == 0)
        handles[*memory].props = *props;
    return result;
}

static int
memory_release(uli_cu_memory memory)
{
    struct handle *handle = handle_of(memory);
    if (!handle)
        return ULI_CU_INVALID_VALUE;
    if (--handle->holders == 0)
        close(handle->fd);
    return 0;
}

int
do_cuMemRelease(uli_cu_memory memory)
{
    MAY_FAIL();
    return memory_release(memory);
}

int
do_cuMemRetainAllocationHandle(uli_cu_memory *memory, void *address)
{
    MAY_FAIL();
    struct range *range = range_at((uintptr_t)address, MAPPED);
    if (!range)
        return ULI_CU_INVALID_VALUE;
    handles[range->memory].holders++;
    *memory = range->memory;
    return 0;
}

int
do_cuMemGetAllocationPropertiesFromHandle(
    struct uli_cu_memory_props *props, uli_cu_memory memory)
{
    MAY_FAIL();
    struct handle *handle = handle_of(memory);
    if (!handle)
        return ULI_CU_INVALID_VALUE;
    *props = handle->props;
    return 0;
}

/* A fabric handle is a token of 64 bytes, which names the descriptor in its
 * process. */
static void
name_descriptor(int fd, char token[64])
{
    memset(token, 0, 64);
    snprintf(token, 64, "/proc/%d/fd/%d", (int)getpid(), fd);
}

int
do_cuMemExportToShareableHandle(
    void *out, uli_cu_memory memory, int handle_type, unsigned long long flags)
{
    MAY_FAIL();
    struct handle *handle = handle_of(memory);
    if (!handle || !(handle->props.handle_types & handle_type) || flags)
        return ULI_CU_INVALID_VALUE;
    if (handle_type == ULI_CU_FABRIC) {
        name_descriptor(handle->fd, out);
        return 0;
    }
    int fd = dup(handle->fd);
    memcpy(out, &fd, sizeof(fd));
    return fd < 0 ? ULI_CU_OUT_OF_MEMORY : 0;
}

int
do_cuMemImportFromShareableHandle(
    uli_cu_memory *memory, void *in, int handle_type)
{
    MAY_FAIL();
    struct stat status;
    int fd = handle_type == ULI_CU_FABRIC ? open(in, O_RDWR | O_CLOEXEC)
             : handle_type == 1           ? dup((int)(intptr_t)in)
                                          : -1;
    if (fd < 0 || fstat(fd, &status)) {
        if (fd >= 0)
            close(fd);
        return ULI_CU_INVALID_VALUE;
    }
    *memory = take_handle(fd, (size_t)status.st_size);
    return *memory ? 0 : ULI_CU_OUT_OF_MEMORY;
}

/* ---- addresses ----------------------------------------------------------- */

static int
range_reserve(void *fixed, size_t bytes, void **base_p)
{
    *base_p = mmap(fixed, bytes, PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | (fixed ? MAP_FIXED : 0), -1, 0);
    return *base_p == MAP_FAILED ? ULI_CU_OUT_OF_MEMORY : 0;
}

int
do_cuMemAddressReserve(uli_cu_ptr *address, size_t bytes, size_t alignment,
    uli_cu_ptr preference, unsigned long long flags)
{
    MAY_FAIL();
    void *base;
    if (bytes == 0 || bytes % FAKE_GRANULARITY || alignment || preference ||
        flags)
        return ULI_CU_INVALID_VALUE;
    if (range_reserve(NULL, bytes, &base) ||
        !take_range(RESERVED, base, bytes, 0))
        return ULI_CU_OUT_OF_MEMORY;
    *address = (uintptr_t)base;
    return 0;
}

int
do_cuMemAddressFree(uli_cu_ptr address, size_t bytes)
{
    MAY_FAIL();
    struct range *range = range_at(address, RESERVED);
    if (!range || range->base != memory_at(address) || range->bytes != bytes ||
        range_at(address, MAPPED))
        return ULI_CU_INVALID_VALUE;
    munmap(range->base, bytes);
    range->form = NONE;
    return 0;
}

int
do_cuMemMap(uli_cu_ptr address, size_t bytes, size_t offset,
    uli_cu_memory memory, unsigned long long flags)
{
    MAY_FAIL();
    struct handle *handle = handle_of(memory);
    struct range *within = range_at(address, RESERVED);
    if (!handle || !within || offset || flags || bytes != handle->bytes ||
        address + bytes > (uintptr_t)within->base + within->bytes)
        return ULI_CU_INVALID_VALUE;
    if (mmap(memory_at(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
            handle->fd, 0) == MAP_FAILED ||
        !take_range(MAPPED, memory_at(address), bytes, memory))
        return ULI_CU_OUT_OF_MEMORY;
    handle->holders++;
    return 0;
}

int
do_cuMemUnmap(uli_cu_ptr address, size_t bytes)
{
    MAY_FAIL();
    struct range *range = range_at(address, MAPPED);
    void *base;
    if (!range || range->base != memory_at(address) || range->bytes != bytes)
        return ULI_CU_INVALID_VALUE;
    range->form = NONE;
    memory_release(range->memory);
    return range_reserve(memory_at(address), bytes, &base);
}

int
do_cuMemSetAccess(uli_cu_ptr address, size_t bytes,
    const struct uli_cu_access *access, size_t count)
{
    MAY_FAIL();
    if (!range_at(address, MAPPED) || count != 1 ||
        access->flags != ULI_CU_READ_WRITE || access->location_type != 1)
        return ULI_CU_INVALID_VALUE;
    return mprotect(memory_at(address), bytes, PROT_READ | PROT_WRITE)
               ? ULI_CU_INVALID_VALUE
               : 0;
}

/* ---- plain allocations and their handles --------------------------------- */

static int
map_plain(uli_cu_memory memory, enum form form, uli_cu_ptr *address)
{
    const struct handle *handle = &handles[memory];
    void *base = mmap(
        NULL, handle->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, handle->fd, 0);
    if (base == MAP_FAILED || !take_range(form, base, handle->bytes, memory)) {
        memory_release(memory);
        return ULI_CU_OUT_OF_MEMORY;
    }
    *address = (uintptr_t)base;
    return 0;
}

static int
unmap_plain(uli_cu_ptr address, enum form form)
{
    struct range *range = range_at(address, form);
    if (!range || range->base != memory_at(address))
        return ULI_CU_INVALID_VALUE;
    munmap(range->base, range->bytes);
    range->form = NONE;
    return memory_release(range->memory);
}

int
do_cuMemAlloc(uli_cu_ptr *address, size_t bytes)
{
    MAY_FAIL();
    uli_cu_memory memory;
    int result = memory_create(&memory, bytes);
    if (result == 0)
        handles[memory].props.location = fake_device_now();
    return result ? result : map_plain(memory, ALLOCATED, address);
}

int
do_cuMemFree(uli_cu_ptr address)
{
    MAY_FAIL();
    return unmap_plain(address, ALLOCATED);
}

int
do_cuIpcGetMemHandle(struct uli_cu_ipc *ipc, uli_cu_ptr address)
{
    MAY_FAIL();
    struct range *range = range_at(address, ALLOCATED);
    if (!range)
        return ULI_CU_INVALID_VALUE;
    name_descriptor(handles[range->memory].fd, (char *)ipc->bytes);
    return 0;
}

int
do_cuIpcOpenMemHandle(
    uli_cu_ptr *address, struct uli_cu_ipc ipc, unsigned flags)
{
    MAY_FAIL();
    struct stat status;
    int fd =
        flags == 1 ? open((const char *)ipc.bytes, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0 || fstat(fd, &status)) {
        if (fd >= 0)
            close(fd);
        return ULI_CU_INVALID_HANDLE;
    }
    uli_cu_memory memory = take_handle(fd, (size_t)status.st_size);
    return memory ? map_plain(memory, OPENED, address) : ULI_CU_OUT_OF_MEMORY;
}

int
do_cuIpcCloseMemHandle(uli_cu_ptr address)
{
    MAY_FAIL();
    return unmap_plain(address, OPENED);
}

/* ---- pinned host memory -------------------------------------------------- */

int
do_cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    MAY_FAIL();
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (flags != 3)
        return ULI_CU_INVALID_VALUE;
    if (base == MAP_FAILED || !take_range(PINNED, base, bytes, 0))
        return ULI_CU_OUT_OF_MEMORY;
    *address = base;
    return 0;
}

int
do_cuMemHostGetDevicePointer(uli_cu_ptr *address, void *host, unsigned flags)
{
    MAY_FAIL();
    struct range *range = range_at((uintptr_t)host, PINNED);
    if (!range)
        range = range_at((uintptr_t)host, REGISTERED);
    *address = (uintptr_t)host;
    return range && !flags ? 0 : ULI_CU_INVALID_VALUE;
}

int
do_cuMemFreeHost(void *address)
{
    MAY_FAIL();
    struct range *range = range_at((uintptr_t)address, PINNED);
    if (!range || range->base != address)
        return ULI_CU_INVALID_VALUE;
    munmap(range->base, range->bytes);
    range->form = NONE;
    return 0;
}

int
do_cuMemHostRegister(void *address, size_t bytes, unsigned flags)
{
    MAY_FAIL();
    if (flags != 3 || !bytes)
        return ULI_CU_INVALID_VALUE;
    for (int i = 0; i < RANGES; i++)
        if (ranges[i].form == REGISTERED &&
            (char *)address < (char *)ranges[i].base + ranges[i].bytes &&
            (char *)ranges[i].base < (char *)address + bytes)
            return ULI_CU_HOST_ALREADY_REGISTERED;
    return take_range(REGISTERED, address, bytes, 0) ? 0 : ULI_CU_OUT_OF_MEMORY;
}

int
do_cuMemHostUnregister(void *address)
{
    MAY_FAIL();
    struct range *range = range_at((uintptr_t)address, REGISTERED);
    if (!range || range->base != address)
        return ULI_CU_HOST_NOT_REGISTERED;
    range->form = NONE;
    return 0;
}
