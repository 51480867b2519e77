/* SPDX-License-Identifier: Apache-2.0
 *
 * See gpu.h. The life of a communicator's device, its small work (zeros,
 * entries of the table, uploads), and the poison word.
 *
 * The small work goes to a stream of its own: kernels of the caller that run,
 * or spin for peers, do not delay it. The host waits for its end by testing an
 * event until the deadline. After a missed deadline nothing more is enqueued,
 * since the device may still read the staging entry.
 */
#include "comm/device/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "comm/device/residency.h"
#include "comm/place.h"
#include "device/device.h"

enum { WINDOWS = ULI_WINDOW_CHUNK * ULI_WINDOW_CHUNKS };

/* Bytes of the pinned block, and where the staging entry lies in it. The poison
 * word, at offset 0, has a line of its own. */
enum { PINNED_BYTES = 4096, STAGING_AT = 2048 };

#define ROW_BYTES ((int64_t)WINDOWS * (int64_t)sizeof(unsigned char *))

/* ---- small work ---------------------------------------------------------- */

/* Under gpu->lock, after something was enqueued. */
static ulyx_status_t
gpu_settle(struct uli_gpu *gpu)
{
    uli_deadline_t deadline = uli_deadline_in(gpu->timeout_s);
    int64_t busy_until = uli_clock_ns() + 50 * 1000;
    ULI_TRY(gpu->ops->event_record(gpu->device, gpu->event, gpu->stream));
    for (;;) {
        ulyx_status_t status = gpu->ops->event_test(gpu->device, gpu->event);
        if (status != ULYX_IN_PROGRESS)
            return status;
        if (uli_deadline_over(deadline))
            break;
        if (uli_clock_ns() > busy_until)
            uli_clock_sleep_ns(20000);
    }
    gpu->stuck = true;
    return uli_error(ULYX_ERR_TIMEOUT,
        "CUDA device %d did not end a copy or zeros of the library in time",
        gpu->device);
}

/* Takes gpu->lock on success. */
static ulyx_status_t
begin_work(struct uli_gpu *gpu)
{
    pthread_mutex_lock(&gpu->lock);
    if (!gpu->stuck)
        return ULYX_SUCCESS;
    pthread_mutex_unlock(&gpu->lock);
    return uli_error(ULYX_ERR_TIMEOUT,
        "CUDA device %d has not ended earlier work of the library",
        gpu->device);
}

/* status: of the enqueue. */
static ulyx_status_t
end_work(struct uli_gpu *gpu, ulyx_status_t status)
{
    if (status == ULYX_SUCCESS)
        status = gpu_settle(gpu);
    pthread_mutex_unlock(&gpu->lock);
    return status;
}

static ulyx_status_t
gpu_zero(struct uli_gpu *gpu, void *address, int64_t bytes)
{
    ULI_TRY(begin_work(gpu));
    return end_work(
        gpu, gpu->ops->zero(gpu->device, address, bytes, gpu->stream));
}

ulyx_status_t
uli_gpu_zero(ulyx_comm_t *comm, void *address, int64_t bytes)
{
    return gpu_zero(comm->gpu, address, bytes);
}

/* Every struct uli_gpu of the process that has a stream. open_lock is taken
 * before the lock of any of them. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct uli_list opened = {&opened, &opened};

static void
gpu_enlist(struct uli_gpu *gpu)
{
    pthread_mutex_lock(&open_lock);
    uli_list_append(&opened, &gpu->node);
    pthread_mutex_unlock(&open_lock);
}

static void
gpu_delist(struct uli_gpu *gpu)
{
    pthread_mutex_lock(&open_lock);
    uli_list_remove(&gpu->node);
    pthread_mutex_unlock(&open_lock);
}

ulyx_status_t
uli_gpu_zero_new(int32_t device, void *address, int64_t bytes)
{
    ulyx_status_t status = ULYX_IN_PROGRESS;
    pthread_mutex_lock(&open_lock);
    for (struct uli_list *n = opened.next;
         n != &opened && status == ULYX_IN_PROGRESS; n = n->next) {
        struct uli_gpu *gpu = ULI_CONTAINER_OF(n, struct uli_gpu, node);
        if (gpu->device == device)
            status = gpu_zero(gpu, address, bytes);
    }
    pthread_mutex_unlock(&open_lock);
    return status;
}

ulyx_status_t
uli_gpu_upload(ulyx_comm_t *comm, void *dst, const void *src, int64_t bytes)
{
    struct uli_gpu *gpu = comm->gpu;
    ULI_TRY(begin_work(gpu));
    return end_work(
        gpu, gpu->ops->copy(gpu->device, dst, src, bytes, gpu->stream));
}

/* ---- the table ----------------------------------------------------------- */

static unsigned char **
row_of(const struct uli_gpu *gpu, int32_t rank)
{
    return gpu->table && gpu->row[rank] >= 0
               ? gpu->table + (int64_t)gpu->row[rank] * WINDOWS
               : NULL;
}

ulyx_status_t
uli_gpu_table_set(
    ulyx_comm_t *comm, int32_t rank, uint32_t window, void *address)
{
    struct uli_gpu *gpu = comm->gpu;
    unsigned char **row = row_of(gpu, rank);
    if (!row || window >= WINDOWS)
        return uli_error(ULYX_ERR_INTERNAL,
            "window %u of rank %d has no entry on the device", window, rank);
    ULI_TRY(begin_work(gpu));
    *gpu->staging = address;
    return end_work(gpu, gpu->ops->copy(gpu->device, row + window, gpu->staging,
                             (int64_t)sizeof(*row), gpu->stream));
}

unsigned char *const *
uli_gpu_windows(const ulyx_comm_t *comm, int32_t rank, uint64_t *nwindows_p)
{
    unsigned char *const *row = row_of(comm->gpu, rank);
    *nwindows_p = row ? WINDOWS : 0;
    return row;
}

/* ---- poison, reason, figures --------------------------------------------- */

void
uli_gpu_set_poison(ulyx_comm_t *comm, uint64_t poison)
{
    if (comm->gpu && comm->gpu->poison)
        atomic_store(comm->gpu->poison, poison);
}

const uint64_t *
uli_gpu_poison(const ulyx_comm_t *comm)
{
    return comm->gpu->poison_there;
}

const char *
uli_gpu_unmapped(const ulyx_comm_t *comm)
{
    return comm->gpu->unmapped[0] ? comm->gpu->unmapped : NULL;
}

ulyx_status_t
uli_gpu_check_mapped(const ulyx_comm_t *comm, const char *what)
{
    const char *unmapped = uli_gpu_unmapped(comm);
    return unmapped ? uli_error(ULYX_ERR_UNSUPPORTED,
                          "%sdevice memory is not mapped between the ranks: %s",
                          what, unmapped)
                    : ULYX_SUCCESS;
}

int32_t
uli_gpu_sharers(const ulyx_comm_t *comm)
{
    return comm->gpu->sharers;
}

ulyx_status_t
uli_gpu_admit(const ulyx_comm_t *comm)
{
    const struct uli_gpu *gpu = comm->gpu;
    if (!gpu)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "rank %d has host memory, and a window of device memory was sent "
            "to it",
            comm->rank);
    if (atomic_load(&gpu->refused))
        return uli_error(ULYX_ERR_UNSUPPORTED, "%s", gpu->refusal);
    return atomic_load(&gpu->ready) ? ULYX_SUCCESS : ULYX_IN_PROGRESS;
}

static void
note_unmapped(struct uli_gpu *gpu, const char *reason)
{
    if (!gpu->unmapped[0])
        snprintf(gpu->unmapped, sizeof(gpu->unmapped), "%s", reason);
}

void
uli_gpu_adopt(ulyx_comm_t *comm, int32_t rank, const char *unmapped)
{
    struct uli_gpu *gpu = comm->gpu;
    if (!gpu || !unmapped[0])
        return;
    /* One text on all ranks, also on the rank that found the reason. */
    snprintf(gpu->unmapped, sizeof(gpu->unmapped), "rank %d: %.180s", rank,
        unmapped);
    ULI_INFO(ULI_LOG_INIT, comm->rank, "%s: device memory is not mapped: %s",
        comm->name, gpu->unmapped);
}

/* ---- life ---------------------------------------------------------------- */

static ulyx_status_t
find_device(ulyx_comm_t *comm)
{
    struct uli_gpu *gpu = comm->gpu;
    struct uli_identity *identity = &comm->peers[comm->rank].identity;
    int32_t count = 0;
    ULI_TRY(gpu->ops->open());
    ULI_TRY(gpu->ops->count(&count));
    gpu->device = comm->device;
    if (gpu->device < 0)
        ULI_TRY(gpu->ops->current(&gpu->device));
    if (gpu->device < 0 || gpu->device >= count)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "CUDA device %d does not exist: there are %d", gpu->device, count);
    comm->device = gpu->device; /* a split inherits it */
    identity->device = gpu->device;
    return gpu->ops->uuid(gpu->device, identity->gpu);
}

ulyx_status_t
uli_gpu_host_alloc(
    ulyx_comm_t *comm, int64_t bytes, void **address_p, void **device_address_p)
{
    struct uli_bind_scope scope;
    uli_bind_begin(&comm->binding, &scope);
    ulyx_status_t status = comm->gpu->ops->host_alloc(
        comm->gpu->device, bytes, address_p, device_address_p);
    uli_bind_end(&scope);
    return status;
}

static ulyx_status_t
make_own_things(ulyx_comm_t *comm)
{
    struct uli_gpu *gpu = comm->gpu;
    void *pinned, *there;
    ULI_TRY(uli_gpu_host_alloc(comm, PINNED_BYTES, &pinned, &there));
    memset(pinned, 0, PINNED_BYTES);
    gpu->poison = pinned;
    gpu->poison_there = there;
    gpu->staging = (void **)(void *)((char *)pinned + STAGING_AT);
    ULI_TRY(gpu->ops->stream_create(gpu->device, &gpu->stream));
    ULI_TRY(gpu->ops->event_create(gpu->device, &gpu->event));
    gpu_enlist(gpu);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_gpu_open(ulyx_comm_t *comm)
{
    if (comm->memory_kind != ULYX_MEMORY_CUDA)
        return ULYX_SUCCESS;
    struct uli_gpu *gpu = calloc(1, sizeof(*gpu));
    if (!gpu)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a device's part");
    gpu->ops = uli_device_ops(ULYX_MEMORY_CUDA);
    gpu->sharers = 1;
    gpu->timeout_s = comm->timeout_s;
    pthread_mutex_init(&gpu->lock, NULL);
    uli_list_init(&gpu->node);
    uli_list_init(&gpu->arenas);
    pthread_mutex_init(&gpu->plans_lock, NULL);
    uli_list_init(&gpu->plans);
    comm->gpu = gpu;
    ULI_TRY(find_device(comm));
    uli_place_gpu(comm);
    return make_own_things(comm);
}

/* Makes a row for each rank whose memory can be mapped, this rank included. */
static ulyx_status_t
make_table(ulyx_comm_t *comm)
{
    struct uli_gpu *gpu = comm->gpu;
    void *table = NULL;
    gpu->row = malloc((size_t)comm->nranks * sizeof(*gpu->row));
    if (!gpu->row)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a device's part");
    for (int32_t p = 0; p < comm->nranks; p++)
        gpu->row[p] = comm->peers[p].map_device ? gpu->nrows++ : -1;
    int64_t bytes = gpu->nrows * ROW_BYTES;
    ULI_TRY(gpu->ops->alloc(gpu->device, bytes, &table));
    gpu->table = table;
    return uli_gpu_zero(comm, table, bytes);
}

/* Within a process, plain allocations are reached by address, once the devices'
 * contexts permit access to each other. */
static ulyx_status_t
enable_peers(ulyx_comm_t *comm)
{
    struct uli_gpu *gpu = comm->gpu;
    for (int32_t p = 0; p < comm->nranks; p++) {
        const struct uli_peer *peer = &comm->peers[p];
        if (peer->map_device && peer->same_process)
            ULI_TRY(gpu->ops->peer_enable(gpu->device, peer->identity.device));
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_gpu_connect(ulyx_comm_t *comm)
{
    struct uli_gpu *gpu = comm->gpu;
    const struct uli_identity *me = &comm->peers[comm->rank].identity;
    char why[512], reason[200];
    if (!gpu)
        return ULYX_SUCCESS;
    gpu->sharers = 0;
    for (int32_t p = 0; p < comm->nranks; p++) {
        struct uli_peer *peer = &comm->peers[p];
        peer->map_device = uli_tr_select(&comm->settings, me, &peer->identity,
            ULI_TR_MAP_DEVICE, why, sizeof(why));
        gpu->sharers +=
            peer->node == comm->peers[comm->rank].node &&
            memcmp(peer->identity.gpu, me->gpu, sizeof(me->gpu)) == 0;
        snprintf(
            reason, sizeof(reason), "no way to map rank %d's: %.150s", p, why);
        if (!peer->map_device)
            note_unmapped(gpu, reason);
    }
    ulyx_status_t status = gpu->unmapped[0] ? ULYX_SUCCESS : enable_peers(comm);
    if (status == ULYX_ERR_UNSUPPORTED)
        note_unmapped(gpu, uli_error_text());
    if (gpu->unmapped[0]) {
        memcpy(gpu->refusal, gpu->unmapped, sizeof(gpu->refusal));
        atomic_store(&gpu->refused, true);
        return ULYX_SUCCESS;
    }
    if (status == ULYX_SUCCESS)
        status = make_table(comm);
    atomic_store(&gpu->ready, status == ULYX_SUCCESS);
    uli_residency_warn(comm);
    return status;
}

static bool
is_final(ulyx_status_t status)
{
    return status == ULYX_ERR_TIMEOUT || status == ULYX_ERR_RANK_LOST ||
           status == ULYX_ERR_ABORTED || status == ULYX_ERR_NO_MEMORY;
}

/* Finds a pair that cannot map each other while creation can still spread the
 * reason to all ranks. A failure of the communicator itself is an error. */
ulyx_status_t
uli_gpu_meet(ulyx_comm_t *comm)
{
    struct uli_arena_block block;
    if (!comm->gpu || comm->gpu->unmapped[0])
        return ULYX_SUCCESS;
    ulyx_status_t status =
        uli_gpu_arena_alloc(comm, ULI_GPU_ARENA_LINE, &block);
    if (status == ULYX_SUCCESS)
        uli_gpu_arena_free(comm, &block);
    else if (!is_final(status))
        note_unmapped(comm->gpu, uli_error_text());
    return is_final(status) ? status : ULYX_SUCCESS;
}

static const struct uli_gpu_calls *
gpu_calls(const ulyx_comm_t *comm)
{
    return comm->gpu ? atomic_load(&comm->gpu->calls) : NULL;
}

bool
uli_gpu_in_flight(ulyx_comm_t *comm)
{
    const struct uli_gpu_calls *calls = gpu_calls(comm);
    return calls && calls->in_flight(comm);
}

void
uli_gpu_look(ulyx_comm_t *comm)
{
    const struct uli_gpu_calls *calls = gpu_calls(comm);
    if (calls)
        calls->look(comm);
}

void
uli_gpu_close(ulyx_comm_t *comm)
{
    struct uli_gpu *gpu = comm->gpu;
    if (!gpu)
        return;
    gpu_delist(gpu);
    if (gpu->table)
        (void)gpu->ops->free(gpu->device, gpu->table);
    if (gpu->event)
        (void)gpu->ops->event_destroy(gpu->device, gpu->event);
    if (gpu->stream)
        (void)gpu->ops->stream_destroy(gpu->device, gpu->stream);
    if (gpu->poison)
        (void)gpu->ops->host_free(gpu->device, gpu->poison);
    pthread_mutex_destroy(&gpu->plans_lock);
    pthread_mutex_destroy(&gpu->lock);
    free(gpu->row);
    free(gpu);
    comm->gpu = NULL;
}
