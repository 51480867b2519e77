/* SPDX-License-Identifier: Apache-2.0
 *
 * See pool.h. One lock guards the pool. It stays locked during waits for the
 * services of peers; services never call the pool. The locks of windows and
 * communicators are taken after this lock. Device allocations are the segments
 * of a caching allocator, some hundreds, so lists are fast enough.
 */
#include "comm/memory/pool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/log.h"
#include "base/size.h"
#include "comm/device/gpu.h"
#include "comm/memory/blocks.h"
#include "comm/memory/mem.h"
#include "device/device.h"

enum { HOST = -1 };

struct segment {
    struct uli_list node;
    ulyx_mem_t *mem;
    void *address;
    int32_t device; /* or HOST */
    bool freed;     /* by the caller; kept for a quarantine */
    /* Only where device is HOST: */
    struct uli_blocks blocks;
    int64_t bytes, live; /* of the segment; allocations in use */
    bool retired;        /* a rank of a failed communicator may store here */
};

struct member {
    struct uli_list node;
    ulyx_comm_t *comm;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct uli_list segments = {&segments, &segments};
static struct uli_list members = {&members, &members};

#define SEGMENT_OF(n) ULI_CONTAINER_OF(n, struct segment, node)
#define MEMBER_OF(n)  ULI_CONTAINER_OF(n, struct member, node)

static struct member *
find_member(const ulyx_comm_t *comm)
{
    for (struct uli_list *n = members.next; n != &members; n = n->next)
        if (MEMBER_OF(n)->comm == comm)
            return MEMBER_OF(n);
    return NULL;
}

static struct segment *
find_segment(const void *address)
{
    for (struct uli_list *n = segments.next; n != &segments; n = n->next)
        if (SEGMENT_OF(n)->address == address && !SEGMENT_OF(n)->freed &&
            SEGMENT_OF(n)->device != HOST)
            return SEGMENT_OF(n);
    return NULL;
}

static bool
is_of(const ulyx_comm_t *comm, const struct segment *segment)
{
    return (comm->gpu ? comm->gpu->device : HOST) == segment->device;
}

/* ---- freeing ------------------------------------------------------------- */

/* Detaches the segment from all members, then frees it. */
static ulyx_status_t
segment_release(struct segment *segment)
{
    for (struct uli_list *n = members.next; n != &members; n = n->next)
        if (uli_mem_is_attached(MEMBER_OF(n)->comm, segment->mem))
            ULI_TRY(uli_mem_detach(MEMBER_OF(n)->comm, segment->mem));
    ULI_TRY(uli_mem_free(segment->mem));
    uli_list_remove(&segment->node);
    if (segment->device == HOST)
        uli_blocks_close(&segment->blocks);
    free(segment);
    return ULYX_SUCCESS;
}

/* Tries again to free the segments that had to be kept. */
static void
pool_sweep(void)
{
    for (struct uli_list *n = segments.next, *next; n != &segments; n = next) {
        next = n->next;
        if (SEGMENT_OF(n)->freed)
            (void)segment_release(SEGMENT_OF(n));
    }
}

ulyx_status_t
uli_pool_free(void *address, void *stream)
{
    ulyx_status_t status;
    pthread_mutex_lock(&lock);
    struct segment *segment = find_segment(address);
    pthread_mutex_unlock(&lock);
    if (!segment)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "pool: %p was not allocated from the pool", address);
    /* Work that the caller has enqueued may still use the memory. The segment
     * stays valid without the lock, because no other thread may free the same
     * memory. */
    ULI_TRY(uli_device_cuda.stream_wait(segment->device, stream));
    pthread_mutex_lock(&lock);
    pool_sweep();
    segment->freed = true;
    status = segment_release(segment);
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- allocating ---------------------------------------------------------- */

static void
attach_to_all(struct segment *segment)
{
    for (struct uli_list *n = members.next; n != &members; n = n->next) {
        ulyx_comm_t *comm = MEMBER_OF(n)->comm;
        if (is_of(comm, segment) &&
            uli_mem_attach(comm, segment->mem) != ULYX_SUCCESS)
            ULI_WARN(ULI_LOG_MEM, comm->rank,
                "pool: %s cannot attach the allocation at %p: %s", comm->name,
                segment->address, uli_error_text());
    }
}

ulyx_status_t
uli_pool_malloc(int64_t bytes, int32_t device, void **address_p)
{
    struct segment *segment = calloc(1, sizeof(*segment));
    int64_t size;
    if (!segment)
        return uli_error(ULYX_ERR_NO_MEMORY, "pool: no memory");
    uli_list_init(&segment->node);
    pthread_mutex_lock(&lock);
    pool_sweep();
    ulyx_status_t status =
        uli_mem_alloc(bytes, ULYX_MEMORY_CUDA, device, false, &segment->mem);
    if (status == ULYX_SUCCESS) {
        uli_mem_range(segment->mem, &segment->address, &size);
        segment->device = device;
        uli_list_append(&segments, &segment->node);
        attach_to_all(segment);
        *address_p = segment->address;
    }
    pthread_mutex_unlock(&lock);
    if (status != ULYX_SUCCESS)
        free(segment);
    return status;
}

/* ---- host memory --------------------------------------------------------- */

/* A window costs a message to each process, so allocations are parts of larger
 * segments. A segment that ranks of a failed communicator may still store into
 * gives out no more parts: it is freed as a whole when its last part has been
 * freed and its quarantine has ended. */
enum { HOST_SEGMENT_BYTES = 8 << 20, HOST_ALIGN = 64 };

static void
retire_segments(const ulyx_comm_t *comm)
{
    if (!atomic_load(&comm->failed))
        return;
    for (struct uli_list *n = segments.next; n != &segments; n = n->next)
        if (is_of(comm, SEGMENT_OF(n)))
            SEGMENT_OF(n)->retired = true;
}

/* Frees the segments without live allocations. While there are members, one of
 * these segments that is not retired is kept for the next allocation. */
static void
host_trim(void)
{
    bool kept = uli_list_empty(&members);
    for (struct uli_list *n = members.next; n != &members; n = n->next)
        retire_segments(MEMBER_OF(n)->comm);
    for (struct uli_list *n = segments.next, *next; n != &segments; n = next) {
        struct segment *segment = SEGMENT_OF(n);
        next = n->next;
        if (segment->device != HOST || segment->freed || segment->live)
            continue;
        if (!segment->retired && !kept) {
            kept = true;
            continue;
        }
        segment->freed = true;
        (void)segment_release(segment);
    }
}

static bool
host_take(struct segment *segment, int64_t bytes, void **address_p)
{
    int64_t offset, taken;
    if (!uli_blocks_take(&segment->blocks, bytes, &offset, &taken))
        return false;
    segment->live++;
    *address_p = (char *)segment->address + offset;
    return true;
}

static ulyx_status_t
host_grow(int64_t bytes, struct segment **segment_p)
{
    struct segment *segment = calloc(1, sizeof(*segment));
    if (!segment || !uli_blocks_open(&segment->blocks, 0,
                        uli_max(bytes, HOST_SEGMENT_BYTES))) {
        free(segment);
        return uli_error(ULYX_ERR_NO_MEMORY, "pool: no memory");
    }
    uli_list_init(&segment->node);
    segment->device = HOST;
    ulyx_status_t status = uli_mem_alloc(uli_max(bytes, HOST_SEGMENT_BYTES),
        ULYX_MEMORY_HOST, -1, false, &segment->mem);
    if (status != ULYX_SUCCESS) {
        uli_blocks_close(&segment->blocks);
        free(segment);
        return status;
    }
    uli_mem_range(segment->mem, &segment->address, &segment->bytes);
    uli_list_append(&segments, &segment->node);
    attach_to_all(segment);
    *segment_p = segment;
    return ULYX_SUCCESS;
}

static ulyx_status_t
host_malloc(int64_t bytes, void **address_p)
{
    struct segment *segment = NULL;
    pool_sweep();
    host_trim();
    for (struct uli_list *n = segments.next; n != &segments; n = n->next) {
        segment = SEGMENT_OF(n);
        if (segment->device == HOST && !segment->freed && !segment->retired &&
            host_take(segment, bytes, address_p))
            return ULYX_SUCCESS;
    }
    ULI_TRY(host_grow(bytes, &segment));
    return host_take(segment, bytes, address_p)
               ? ULYX_SUCCESS
               : uli_error(ULYX_ERR_NO_MEMORY, "pool: no memory");
}

ulyx_status_t
uli_pool_malloc_host(int64_t bytes, void **address_p)
{
    if (bytes > INT64_MAX - HOST_ALIGN)
        return uli_error(ULYX_ERR_NO_MEMORY,
            "pool: an allocation of %lld bytes", (long long)bytes);
    pthread_mutex_lock(&lock);
    ulyx_status_t status =
        host_malloc(uli_round_up(bytes, HOST_ALIGN), address_p);
    pthread_mutex_unlock(&lock);
    return status;
}

static bool
host_give(void *address)
{
    for (struct uli_list *n = segments.next; n != &segments; n = n->next) {
        struct segment *segment = SEGMENT_OF(n);
        int64_t offset =
            (int64_t)((uintptr_t)address - (uintptr_t)segment->address);
        if (segment->device != HOST || offset < 0 || offset >= segment->bytes)
            continue;
        if (!uli_blocks_give(&segment->blocks, offset))
            return false;
        segment->live--;
        return true;
    }
    return false;
}

ulyx_status_t
uli_pool_free_host(void *address)
{
    pthread_mutex_lock(&lock);
    bool given = host_give(address);
    if (given)
        host_trim();
    pthread_mutex_unlock(&lock);
    if (given)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "pool: %p is not host memory of the pool", address);
}

/* ---- members ------------------------------------------------------------- */

static ulyx_status_t
detach_all(ulyx_comm_t *comm)
{
    for (struct uli_list *n = segments.next; n != &segments; n = n->next)
        if (uli_mem_is_attached(comm, SEGMENT_OF(n)->mem))
            ULI_TRY(uli_mem_detach(comm, SEGMENT_OF(n)->mem));
    return ULYX_SUCCESS;
}

/* Attaches all segments that are not freed, or none. */
static ulyx_status_t
attach_all(ulyx_comm_t *comm)
{
    for (struct uli_list *n = segments.next; n != &segments; n = n->next) {
        struct segment *segment = SEGMENT_OF(n);
        if (segment->freed || !is_of(comm, segment))
            continue;
        ulyx_status_t status = uli_mem_attach(comm, segment->mem);
        if (status != ULYX_SUCCESS) {
            char cause[512];
            snprintf(cause, sizeof(cause), "%s", uli_error_text());
            (void)detach_all(comm);
            return uli_error_pass(status, cause);
        }
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
pool_enter(ulyx_comm_t *comm)
{
    if (find_member(comm))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "pool: %.63s has joined the pool already", comm->name);
    struct member *member = calloc(1, sizeof(*member));
    if (!member)
        return uli_error(ULYX_ERR_NO_MEMORY, "pool: no memory");
    ulyx_status_t status = attach_all(comm);
    if (status != ULYX_SUCCESS) {
        free(member);
        return status;
    }
    uli_list_init(&member->node);
    member->comm = comm;
    uli_list_append(&members, &member->node);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_pool_attach(ulyx_comm_t *comm)
{
    if (comm->gpu)
        ULI_TRY(uli_gpu_check_mapped(comm, "pool: "));
    pthread_mutex_lock(&lock);
    ulyx_status_t status = pool_enter(comm);
    pthread_mutex_unlock(&lock);
    return status;
}

static void
remove_member(struct member *member)
{
    uli_list_remove(&member->node);
    free(member);
}

ulyx_status_t
uli_pool_detach(ulyx_comm_t *comm)
{
    pthread_mutex_lock(&lock);
    struct member *member = find_member(comm);
    ulyx_status_t status =
        member ? detach_all(comm)
               : uli_error(ULYX_ERR_INVALID_ARGUMENT,
                     "pool: %.63s has not joined the pool", comm->name);
    if (status == ULYX_SUCCESS)
        remove_member(member);
    pool_sweep();
    host_trim();
    pthread_mutex_unlock(&lock);
    return status;
}

void
uli_pool_forget(ulyx_comm_t *comm)
{
    pthread_mutex_lock(&lock);
    struct member *member = find_member(comm);
    if (member) {
        retire_segments(comm);
        remove_member(member);
    }
    pthread_mutex_unlock(&lock);
}

void
uli_pool_counts(int64_t *allocations_p, int64_t *quarantined_p)
{
    pthread_mutex_lock(&lock);
    pool_sweep();
    *allocations_p = *quarantined_p = 0;
    for (struct uli_list *n = segments.next; n != &segments; n = n->next) {
        bool parts = SEGMENT_OF(n)->device == HOST && !SEGMENT_OF(n)->freed;
        *allocations_p += parts ? SEGMENT_OF(n)->live : 1;
        *quarantined_p += SEGMENT_OF(n)->freed;
    }
    pthread_mutex_unlock(&lock);
}
