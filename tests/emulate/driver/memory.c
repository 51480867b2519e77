/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulated driver's memory. Plain allocations are the runtime's. Physical
 * memory is a memfd with shadow cells of its own, so that races are seen
 * whichever of its mappings is used; a descriptor that is exported is a
 * duplicate of the memfd, and its import, in this process, the same memory
 * again. Plain memory cannot be sent to other processes.
 */
#include "emulate/driver/driver.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    GRANULARITY = 1 << 16,
    HANDLES = 4096,
    MEMORY_TYPE = 2, /* attributes of a pointer */
    BUFFER_ID = 7,
    IS_MANAGED = 8,
    DEVICE_ORDINAL = 9,
    IS_LEGACY_IPC = 10,
    RANGE_START = 11,
    RANGE_SIZE = 12,
    MAPPING_SIZE = 18,
    MAPPING_BASE = 19,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct physical {
    int holders, fd;
    size_t bytes;
    struct uli_cu_memory_props props;
    struct emu_cell *cells;
} handles[HANDLES + 1]; /* index 0 is no handle */

/* The mappings: the address of each, and the handle of its memory. */
static struct mapping {
    struct emu_allocation *at;
    uli_cu_memory memory;
} mappings[HANDLES];

static void *
address_pointer(uli_cu_ptr address)
{
    return (void *)(uintptr_t)address;
}

/* ---- plain memory -------------------------------------------------------- */

int
do_cuMemAlloc(uli_cu_ptr *address, size_t bytes)
{
    void *p = NULL;
    EMU_DRIVER_MAY_FAIL();
    EMU_DRIVER_NOT_IN_CAPTURE();
    int result = emu_driver_allocated((int)cudaMalloc(&p, bytes));
    *address = (uintptr_t)p;
    return result;
}

int
do_cuMemFree(uli_cu_ptr address)
{
    EMU_DRIVER_MAY_FAIL();
    EMU_DRIVER_NOT_IN_CAPTURE();
    return emu_driver_freed((int)cudaFree(address_pointer(address)));
}

int
do_cuPointerGetAttribute(void *value, int attribute, uli_cu_ptr address)
{
    EMU_DRIVER_MAY_FAIL();
    const struct emu_allocation *a = emu_memory_find(address_pointer(address));
    if (!a)
        return ULI_CU_INVALID_VALUE;
    int number = 0;
    switch (attribute) {
    case RANGE_START:
    case MAPPING_BASE:
        memcpy(value, &a->base, sizeof a->base);
        return 0;
    case RANGE_SIZE:
    case MAPPING_SIZE:
        memcpy(value, &a->bytes, sizeof a->bytes);
        return 0;
    case BUFFER_ID:
        memcpy(value, &a->id, sizeof a->id);
        return 0;
    case MEMORY_TYPE:
        number = a->device < 0 ? 1 : 2;
        break;
    case DEVICE_ORDINAL:
        number = a->device < 0 ? 0 : a->device;
        break;
    case IS_LEGACY_IPC:
        number = a->device >= 0 && !a->mapped;
        break;
    case IS_MANAGED:
        break;
    default:
        return ULI_CU_NOT_SUPPORTED;
    }
    memcpy(value, &number, sizeof number);
    return 0;
}

int
do_cuIpcGetMemHandle(struct uli_cu_ipc *ipc, uli_cu_ptr address)
{
    (void)ipc;
    (void)address;
    return ULI_CU_NOT_SUPPORTED;
}

int
do_cuIpcOpenMemHandle(
    uli_cu_ptr *address, struct uli_cu_ipc ipc, unsigned flags)
{
    (void)address;
    (void)ipc;
    (void)flags;
    return ULI_CU_NOT_SUPPORTED;
}

int
do_cuIpcCloseMemHandle(uli_cu_ptr address)
{
    (void)address;
    return ULI_CU_NOT_SUPPORTED;
}

/* ---- physical memory ----------------------------------------------------- */

int
do_cuMemGetAllocationGranularity(
    size_t *bytes, const struct uli_cu_memory_props *props, int option)
{
    EMU_DRIVER_MAY_FAIL();
    (void)option;
    *bytes = GRANULARITY;
    return props->type == ULI_CU_PINNED ? 0 : ULI_CU_INVALID_VALUE;
}

/* Returns a handle over the descriptor, which the handle then owns, or 0 when
 * there is no room. */
static uli_cu_memory
take_handle(int fd, size_t bytes, const struct uli_cu_memory_props *props)
{
    struct emu_cell *cells =
        mmap(NULL, bytes * sizeof *cells, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uli_cu_memory memory = 1;
    if (cells == MAP_FAILED)
        return 0;
    while (memory <= HANDLES && handles[memory].holders)
        memory++;
    if (memory > HANDLES) {
        munmap(cells, bytes * sizeof *cells);
        return 0;
    }
    handles[memory] = (struct physical){1, fd, bytes, *props, cells};
    emu_driver_count(1);
    return memory;
}

static struct physical *
physical_of(uli_cu_memory memory)
{
    return memory && memory <= HANDLES && handles[memory].holders
               ? &handles[memory]
               : NULL;
}

static int
memory_drop(uli_cu_memory memory)
{
    struct physical *p = physical_of(memory);
    if (!p)
        return ULI_CU_INVALID_VALUE;
    emu_driver_count(-1);
    if (--p->holders == 0) {
        munmap(p->cells, p->bytes * sizeof *p->cells);
        close(p->fd);
    }
    return 0;
}

int
do_cuMemCreate(uli_cu_memory *memory, size_t bytes,
    const struct uli_cu_memory_props *props, unsigned long long flags)
{
    EMU_DRIVER_MAY_FAIL();
    if (flags || !bytes || bytes % GRANULARITY || props->location < 0 ||
        props->location >= EMU_DEVICES)
        return ULI_CU_INVALID_VALUE;
    int fd = memfd_create("emulated-device", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes)) {
        if (fd >= 0)
            close(fd);
        return ULI_CU_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&lock);
    *memory = take_handle(fd, bytes, props);
    pthread_mutex_unlock(&lock);
    if (!*memory)
        close(fd);
    return *memory ? 0 : ULI_CU_OUT_OF_MEMORY;
}

int
do_cuMemRelease(uli_cu_memory memory)
{
    EMU_DRIVER_MAY_FAIL();
    pthread_mutex_lock(&lock);
    int result = memory_drop(memory);
    pthread_mutex_unlock(&lock);
    return result;
}

int
do_cuMemExportToShareableHandle(void *handle, uli_cu_memory memory,
    int handle_type, unsigned long long flags)
{
    EMU_DRIVER_MAY_FAIL();
    int fd = -1;
    pthread_mutex_lock(&lock);
    const struct physical *p = physical_of(memory);
    if (p && !flags && handle_type == ULI_CU_DESCRIPTOR &&
        p->props.handle_types & ULI_CU_DESCRIPTOR)
        fd = dup(p->fd);
    pthread_mutex_unlock(&lock);
    memcpy(handle, &fd, sizeof fd);
    return fd < 0 ? ULI_CU_INVALID_VALUE : 0;
}

/* Returns the handle of the memory that the descriptor refers to, if this
 * process has made it, or 0. */
static uli_cu_memory
same_memory(const struct stat *file)
{
    for (uli_cu_memory m = 1; m <= HANDLES; m++) {
        struct stat own;
        if (handles[m].holders && fstat(handles[m].fd, &own) == 0 &&
            own.st_ino == file->st_ino && own.st_dev == file->st_dev)
            return m;
    }
    return 0;
}

int
do_cuMemImportFromShareableHandle(
    uli_cu_memory *memory, void *handle, int handle_type)
{
    EMU_DRIVER_MAY_FAIL();
    struct stat file;
    int fd = (int)(intptr_t)handle;
    if (handle_type != ULI_CU_DESCRIPTOR || fstat(fd, &file))
        return ULI_CU_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    *memory = same_memory(&file);
    if (*memory) {
        handles[*memory].holders++;
        emu_driver_count(1);
    } else {
        const struct uli_cu_memory_props props = {
            .type = ULI_CU_PINNED, .handle_types = ULI_CU_DESCRIPTOR};
        int own = dup(fd);
        *memory = own < 0 ? 0 : take_handle(own, (size_t)file.st_size, &props);
    }
    pthread_mutex_unlock(&lock);
    return *memory ? 0 : ULI_CU_INVALID_VALUE;
}

int
do_cuMemGetAllocationPropertiesFromHandle(
    struct uli_cu_memory_props *props, uli_cu_memory memory)
{
    EMU_DRIVER_MAY_FAIL();
    pthread_mutex_lock(&lock);
    const struct physical *p = physical_of(memory);
    if (p)
        *props = p->props;
    pthread_mutex_unlock(&lock);
    return p ? 0 : ULI_CU_INVALID_VALUE;
}

/* ---- addresses and mappings ---------------------------------------------- */

int
do_cuMemAddressReserve(uli_cu_ptr *address, size_t bytes, size_t alignment,
    uli_cu_ptr preference, unsigned long long flags)
{
    EMU_DRIVER_MAY_FAIL();
    (void)preference;
    if (flags || bytes % GRANULARITY || alignment > GRANULARITY)
        return ULI_CU_INVALID_VALUE;
    emu_enter(); /* opens the emulator if it is closed */
    void *p = emu_memory_reserve(bytes);
    emu_leave();
    *address = (uintptr_t)p;
    return p ? emu_driver_allocated(0) : ULI_CU_OUT_OF_MEMORY;
}

/* Addresses are never used again, so this frees nothing. */
int
do_cuMemAddressFree(uli_cu_ptr address, size_t bytes)
{
    EMU_DRIVER_MAY_FAIL();
    return emu_memory_in_arena(address_pointer(address)) &&
                   bytes % GRANULARITY == 0
               ? emu_driver_freed(0)
               : ULI_CU_INVALID_VALUE;
}

static struct mapping *
mapping_at(uli_cu_ptr address)
{
    for (int i = 0; i < HANDLES; i++)
        if (mappings[i].at &&
            address - (uintptr_t)mappings[i].at->base < mappings[i].at->bytes)
            return &mappings[i];
    return NULL;
}

static int
memory_map(uli_cu_ptr address, size_t bytes, uli_cu_memory memory)
{
    struct physical *p = physical_of(memory);
    int i = 0;
    while (i < HANDLES && mappings[i].at)
        i++;
    if (!p || bytes != p->bytes || i == HANDLES)
        return ULI_CU_INVALID_VALUE;
    mappings[i].at = emu_memory_map(
        address_pointer(address), bytes, p->props.location, p->fd, p->cells);
    mappings[i].memory = memory;
    if (!mappings[i].at)
        return ULI_CU_OUT_OF_MEMORY;
    p->holders++;
    emu_driver_count(1);
    return 0;
}

int
do_cuMemMap(uli_cu_ptr address, size_t bytes, size_t offset,
    uli_cu_memory memory, unsigned long long flags)
{
    EMU_DRIVER_MAY_FAIL();
    if (offset || flags || emu_memory_find(address_pointer(address)) ||
        !emu_memory_in_arena(address_pointer(address)))
        return ULI_CU_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    int result = memory_map(address, bytes, memory);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Calls act on each of the mappings that lie side by side from the address on.
 * A hole, or a part of a mapping, is an error. */
static int
each_mapping(uli_cu_ptr address, size_t bytes,
    void (*act)(struct mapping *mapping, int value), int value)
{
    for (size_t done = 0; done < bytes;) {
        struct mapping *m = mapping_at(address + done);
        if (!m || (uintptr_t)m->at->base != address + done ||
            m->at->bytes > bytes - done)
            return ULI_CU_INVALID_VALUE;
        done += m->at->bytes;
        act(m, value);
    }
    return 0;
}

static void
mapping_unmap(struct mapping *m, int unused)
{
    (void)unused;
    emu_memory_unmap(m->at);
    m->at = NULL;
    memory_drop(m->memory);
}

static void
mapping_grant(struct mapping *m, int device)
{
    m->at->granted |= 1u << device;
}

/* Does not wait, as on a card: work that still uses the memory is a fault. */
int
do_cuMemUnmap(uli_cu_ptr address, size_t bytes)
{
    EMU_DRIVER_MAY_FAIL();
    pthread_mutex_lock(&lock);
    int result = each_mapping(address, bytes, mapping_unmap, 0);
    pthread_mutex_unlock(&lock);
    return result;
}

int
do_cuMemSetAccess(uli_cu_ptr address, size_t bytes,
    const struct uli_cu_access *access, size_t count)
{
    EMU_DRIVER_MAY_FAIL();
    int result = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count && result == 0; i++) {
        if (access[i].location < 0 || access[i].location >= EMU_DEVICES)
            result = ULI_CU_INVALID_DEVICE;
        else if (access[i].flags != ULI_CU_READ_WRITE)
            result = ULI_CU_NOT_SUPPORTED;
        else
            result =
                each_mapping(address, bytes, mapping_grant, access[i].location);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int
do_cuMemRetainAllocationHandle(uli_cu_memory *memory, void *address)
{
    EMU_DRIVER_MAY_FAIL();
    pthread_mutex_lock(&lock);
    const struct mapping *m = mapping_at((uintptr_t)address);
    if (m) {
        *memory = m->memory;
        handles[m->memory].holders++;
        emu_driver_count(1);
    }
    pthread_mutex_unlock(&lock);
    return m ? 0 : ULI_CU_INVALID_VALUE;
}
