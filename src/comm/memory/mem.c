/* SPDX-License-Identifier: Apache-2.0
 *
 * Window objects; see mem.h. The states of (window, communicator):
 *
 *     free --attach--> attached --detach--> free
 *     attached --detach, failed communicator--> quarantined --> free
 *     attached --destroy of a failed communicator--> quarantined --> free
 *
 * A quarantined window leaves that state when its quarantine is over; each call
 * on the window checks that.
 */
#include "comm/memory/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/handle.h"
#include "base/log.h"
#include "comm/memory/mem_device.h"
#include "comm/memory/quarantine.h"
#include "comm/service/service.h"
#include "comm/memory/windows.h"

struct attachment {
    struct uli_list in_comm, in_mem;
    ulyx_comm_t *comm;
    ulyx_mem_t *mem;
    uint32_t window;
    struct uli_quarantine *quarantine; /* once a detach had to wait */
};

struct ulyx_mem {
    pthread_mutex_t lock;
    bool registered;                /* the caller's memory */
    struct uli_segment segment;     /* where allocated, on the host */
    int32_t memory_kind, device;    /* device: CUDA ordinal, or -1 */
    struct uli_share_memory memory; /* where allocated, on a device */
    void *address;
    int64_t bytes;
    struct uli_list attachments; /* to communicators that live */
    struct uli_list quarantines; /* of communicators that were destroyed */
    bool lost; /* no memory to record the awaited ranks: never freed */
};

/* ---- life ---------------------------------------------------------------- */

static ulyx_status_t
new_mem(int32_t memory_kind, ulyx_mem_t **mem_p)
{
    if (uli_service_forked())
        return uli_error(ULYX_ERR_FORKED,
            "process %d was forked while ulyx was in use", (int)getpid());
    ulyx_mem_t *mem = uli_handle_new(ULI_HANDLE_MEM, sizeof(*mem));
    if (!mem)
        return uli_error(ULYX_ERR_NO_MEMORY, "a window object: no memory");
    mem->memory_kind = memory_kind;
    mem->device = -1;
    mem->segment.fd = -1;
    pthread_mutex_init(&mem->lock, NULL);
    uli_list_init(&mem->attachments);
    uli_list_init(&mem->quarantines);
    *mem_p = mem;
    return ULYX_SUCCESS;
}

/* Frees the object. Where the driver does not free the memory, that memory
 * leaks. */
static void
delete_mem(ulyx_mem_t *mem)
{
    if (mem->memory.address && uli_share_free(&mem->memory) != ULYX_SUCCESS)
        ULI_WARN(
            ULI_LOG_MEM, -1, "freeing device memory: %s", uli_error_text());
    uli_segment_destroy(&mem->segment);
    pthread_mutex_destroy(&mem->lock);
    uli_handle_free(mem);
}

static ulyx_status_t
alloc_host(int64_t bytes, bool hugepages, ulyx_mem_t *mem)
{
    ULI_TRY(uli_segment_create(bytes, true, hugepages, &mem->segment));
    mem->address = mem->segment.address;
    return ULYX_SUCCESS;
}

static ulyx_status_t
alloc_device(int64_t bytes, int32_t device, ulyx_mem_t *mem)
{
    ULI_TRY(uli_mem_device_alloc(bytes, device, &mem->memory));
    mem->device = mem->memory.device;
    mem->address = mem->memory.address;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_mem_alloc(int64_t bytes, int32_t memory_kind, int32_t device,
    bool hugepages, ulyx_mem_t **mem_p)
{
    ulyx_mem_t *mem = NULL;
    ULI_TRY(new_mem(memory_kind, &mem));
    ulyx_status_t status = memory_kind == ULYX_MEMORY_CUDA
                               ? alloc_device(bytes, device, mem)
                               : alloc_host(bytes, hugepages, mem);
    if (status != ULYX_SUCCESS) {
        delete_mem(mem);
        return status;
    }
    mem->bytes = bytes;
    *mem_p = mem;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_mem_register(void *address, int64_t bytes, int32_t memory_kind,
    int32_t device, ulyx_mem_t **mem_p)
{
    ulyx_mem_t *mem = NULL;
    int32_t lies_on = -1;
    if (memory_kind == ULYX_MEMORY_CUDA)
        ULI_TRY(uli_mem_device_find(address, bytes, device, &lies_on));
    ULI_TRY(new_mem(memory_kind, &mem));
    mem->registered = true;
    mem->device = lies_on;
    mem->address = address;
    mem->bytes = bytes;
    *mem_p = mem;
    return ULYX_SUCCESS;
}

void
uli_mem_range(const ulyx_mem_t *mem, void **address_p, int64_t *bytes_p)
{
    *address_p = mem->address;
    *bytes_p = mem->bytes;
}

/* ---- quarantine ---------------------------------------------------------- */

/* Drops quarantines that are over. BUSY, naming the awaited ranks, for the
 * first that is not. */
static ulyx_status_t
check_quarantine(ulyx_mem_t *mem, const char *call)
{
    char awaited[256];
    if (mem->lost)
        return uli_error(ULYX_ERR_BUSY,
            "%s: the window was left attached to a failed communicator", call);
    for (struct uli_list *n = mem->quarantines.next, *next;
         n != &mem->quarantines; n = next) {
        struct uli_quarantine *quarantine =
            ULI_CONTAINER_OF(n, struct uli_quarantine, in_mem);
        next = n->next;
        if (!uli_quarantine_is_over(quarantine, INT64_MAX)) {
            uli_quarantine_text(quarantine, awaited, sizeof(awaited));
            return uli_error(ULYX_ERR_BUSY,
                "%s: the window is in quarantine: %s may still use it", call,
                awaited);
        }
        uli_list_remove(n);
        uli_quarantine_destroy(quarantine);
    }
    return ULYX_SUCCESS;
}

/* A window attached to a failed communicator counts as quarantined. */
static ulyx_status_t
check_failed_comms(const ulyx_mem_t *mem, const char *call)
{
    for (struct uli_list *n = mem->attachments.next; n != &mem->attachments;
         n = n->next) {
        const struct attachment *a =
            ULI_CONTAINER_OF(n, struct attachment, in_mem);
        if (uli_comm_check(a->comm) != ULYX_SUCCESS)
            return uli_error(ULYX_ERR_BUSY,
                "%s: the window is in quarantine: it is attached to %.63s, "
                "which has failed: detach it there first",
                call, a->comm->name);
    }
    return ULYX_SUCCESS;
}

/* ---- attach and detach --------------------------------------------------- */

static struct attachment *
find_attachment(const ulyx_mem_t *mem, const ulyx_comm_t *comm)
{
    for (struct uli_list *n = mem->attachments.next; n != &mem->attachments;
         n = n->next) {
        struct attachment *a = ULI_CONTAINER_OF(n, struct attachment, in_mem);
        if (a->comm == comm)
            return a;
    }
    return NULL;
}

static void
link_attachment(struct attachment *a)
{
    uli_list_append(&a->mem->attachments, &a->in_mem);
    pthread_mutex_lock(&a->comm->lock);
    uli_list_append(&a->comm->attachments, &a->in_comm);
    a->comm->nattached++;
    pthread_mutex_unlock(&a->comm->lock);
}

static void
unlink_attachment(struct attachment *a)
{
    uli_list_remove(&a->in_mem);
    pthread_mutex_lock(&a->comm->lock);
    uli_list_remove(&a->in_comm);
    a->comm->nattached--;
    pthread_mutex_unlock(&a->comm->lock);
}

static ulyx_status_t
check_fits(const ulyx_comm_t *comm, const ulyx_mem_t *mem)
{
    if (mem->memory_kind == ULYX_MEMORY_CUDA)
        return uli_mem_device_fits(comm, mem->device);
    if (comm->memory_kind != ULYX_MEMORY_HOST)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "attach: the window is host memory, %.63s moves CUDA memory",
            comm->name);
    if (mem->registered && !comm->by_address)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "attach: registered host memory cannot be mapped by the other "
            "%s of %.63s: take ulyx_mem_alloc, or leave it unattached",
            comm->one_process ? "ranks" : "processes", comm->name);
    return ULYX_SUCCESS;
}

static ulyx_status_t
mem_give(ulyx_comm_t *comm, const ulyx_mem_t *mem, uint32_t *window_p)
{
    struct uli_tr_handle handle = {
        mem->segment.fd, mem->address, mem->bytes, NULL};
    uli_deadline_t deadline = uli_deadline_in(comm->timeout_s);
    if (mem->memory_kind == ULYX_MEMORY_CUDA)
        return uli_mem_device_give(
            comm, mem->address, mem->bytes, mem->device, deadline, window_p);
    return uli_windows_give(comm, &handle, deadline, window_p);
}

static ulyx_status_t
mem_mem_attach(ulyx_comm_t *comm, ulyx_mem_t *mem)
{
    if (find_attachment(mem, comm))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "attach: the window is attached to %.63s already", comm->name);
    ULI_TRY(check_quarantine(mem, "attach"));
    ULI_TRY(check_failed_comms(mem, "attach"));
    ULI_TRY(uli_comm_check(comm));
    ULI_TRY(check_fits(comm, mem));
    struct attachment *a = calloc(1, sizeof(*a));
    if (!a)
        return uli_error(ULYX_ERR_NO_MEMORY, "attach: no memory");
    a->comm = comm;
    a->mem = mem;
    ulyx_status_t status = mem_give(comm, mem, &a->window);
    if (status != ULYX_SUCCESS) {
        free(a);
        return status;
    }
    link_attachment(a);
    ULI_TRACE(ULI_LOG_MEM, comm->rank, "window %u: %" PRId64 " bytes at %p",
        a->window, mem->bytes, mem->address);
    return ULYX_SUCCESS;
}

/* Detaches from a failed communicator, once no rank can use the window any
 * more. */
static ulyx_status_t
detach_failed(struct attachment *a, uli_deadline_t deadline)
{
    char awaited[256];
    if (!a->quarantine)
        a->quarantine = uli_quarantine_create(a->comm, a->window);
    if (!a->quarantine)
        return uli_error(ULYX_ERR_BUSY, "detach: no memory to query the ranks");
    if (uli_quarantine_is_over(a->quarantine, deadline)) {
        uli_windows_forget(a->comm, a->window);
        uli_quarantine_destroy(a->quarantine);
        return ULYX_SUCCESS;
    }
    uli_quarantine_text(a->quarantine, awaited, sizeof(awaited));
    return uli_error(ULYX_ERR_BUSY,
        "detach: the window is in quarantine: %s may still use it", awaited);
}

static ulyx_status_t
mem_detach(ulyx_comm_t *comm, ulyx_mem_t *mem)
{
    struct attachment *a = find_attachment(mem, comm);
    if (!a)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "detach: the window is not attached to %.63s", comm->name);
    uli_deadline_t deadline = uli_deadline_in(comm->timeout_s);
    ulyx_status_t status = uli_comm_check(comm);
    if (status == ULYX_SUCCESS)
        status = uli_windows_take_back(comm, a->window, deadline);
    if (status != ULYX_SUCCESS && atomic_load(&comm->failed))
        status = detach_failed(a, deadline);
    if (status != ULYX_SUCCESS)
        return status;
    unlink_attachment(a);
    free(a);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_mem_attach(ulyx_comm_t *comm, ulyx_mem_t *mem)
{
    pthread_mutex_lock(&mem->lock);
    ulyx_status_t status = mem_mem_attach(comm, mem);
    pthread_mutex_unlock(&mem->lock);
    return status;
}

ulyx_status_t
uli_mem_detach(ulyx_comm_t *comm, ulyx_mem_t *mem)
{
    pthread_mutex_lock(&mem->lock);
    ulyx_status_t status = mem_detach(comm, mem);
    pthread_mutex_unlock(&mem->lock);
    return status;
}

bool
uli_mem_is_attached(const ulyx_comm_t *comm, ulyx_mem_t *mem)
{
    pthread_mutex_lock(&mem->lock);
    bool attached = find_attachment(mem, comm) != NULL;
    pthread_mutex_unlock(&mem->lock);
    return attached;
}

static ulyx_status_t
check_free(ulyx_mem_t *mem)
{
    if (!uli_list_empty(&mem->attachments)) {
        const struct attachment *a =
            ULI_CONTAINER_OF(mem->attachments.next, struct attachment, in_mem);
        return uli_error(ULYX_ERR_BUSY,
            "free: the window is still attached to %.63s, rank %d",
            a->comm->name, a->comm->rank);
    }
    return check_quarantine(mem, "free");
}

ulyx_status_t
uli_mem_free(ulyx_mem_t *mem)
{
    pthread_mutex_lock(&mem->lock);
    ulyx_status_t status = check_free(mem);
    pthread_mutex_unlock(&mem->lock);
    if (status == ULYX_SUCCESS)
        delete_mem(mem);
    return status;
}

/* ---- end of a communicator ----------------------------------------------- */

/* Ends an attachment with its communicator. Ranks that may still use the window
 * are recorded with the window. */
static void
release_attachment(struct attachment *a)
{
    ulyx_mem_t *mem = a->mem;
    pthread_mutex_lock(&mem->lock);
    if (!a->quarantine)
        a->quarantine = uli_quarantine_create(a->comm, a->window);
    if (a->quarantine)
        uli_quarantine_orphan(a->quarantine);
    if (!a->quarantine)
        mem->lost = true;
    else if (uli_quarantine_is_over(a->quarantine, INT64_MAX))
        uli_quarantine_destroy(a->quarantine);
    else
        uli_list_append(&mem->quarantines, &a->quarantine->in_mem);
    unlink_attachment(a);
    pthread_mutex_unlock(&mem->lock);
    free(a);
}

void
uli_mem_close(ulyx_comm_t *comm)
{
    for (;;) {
        pthread_mutex_lock(&comm->lock);
        struct uli_list *first = comm->attachments.next;
        bool none = uli_list_empty(&comm->attachments);
        pthread_mutex_unlock(&comm->lock);
        if (none)
            return;
        release_attachment(ULI_CONTAINER_OF(first, struct attachment, in_comm));
    }
}
