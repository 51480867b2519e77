/* SPDX-License-Identifier: Apache-2.0
 *
 * Window tables: (rank, window id) -> address in this process.
 *
 * Readers take no lock. A slot becomes visible by the release of its base; its
 * chunk was published before and lives until destroy. A reader that meets a
 * slot during its reuse reads base, bytes, base: unequal bases make it read
 * again. Where two lives of a slot have equal bases (one address was attached
 * twice), bytes can only be wrong for a window that its owner has already taken
 * back, which no caller may still use.
 *
 * Writers: this rank writes slots of its own table under comm->lock. A peer of
 * this process writes its own slots here, and the service thread those of other
 * peers, both under the registry's lock. Chunks are published by compare and
 * swap, so the tables need no lock for that. Of remote peers only `bytes` is
 * kept, from their messages.
 *
 * Giving a window to all ranks, and taking it back, holds no lock during a wait
 * for a peer: the id is reserved before, and this rank's own operations find
 * the window after all peers have it.
 */
#include "comm/memory/windows.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/log.h"
#include "comm/device/gpu.h"
#include "comm/record/stand.h"
#include "comm/remote/remote_internal.h"
#include "comm/service/service.h"

enum { RESERVED = -1 };

/* Where a window cannot be given to all ranks, it is taken back from the ranks
 * that have it already. This may take UNDO_S: ranks answer at once unless they
 * are stopped. Where a rank has timed out or the communicator has failed, it
 * may take UNDO_LATE_S, because the call must not outlast its deadline by more
 * than that. */
#define UNDO_S      5.0
#define UNDO_LATE_S 0.1

/* ---- slots --------------------------------------------------------------- */

/* NULL where the window's chunk was never used. */
static struct uli_window *
find_slot(const struct uli_window_table *table, uint32_t window)
{
    if (window >= ULI_WINDOW_CHUNK * ULI_WINDOW_CHUNKS)
        return NULL;
    struct uli_window *chunk = atomic_load_explicit(
        &table->chunks[window / ULI_WINDOW_CHUNK], memory_order_acquire);
    return chunk ? &chunk[window % ULI_WINDOW_CHUNK] : NULL;
}

static void
raise_high(struct uli_window_table *table, uint32_t high)
{
    uint32_t seen = atomic_load(&table->high);
    while (
        seen < high && !atomic_compare_exchange_weak(&table->high, &seen, high))
        ;
}

/* Finds the slot and allocates its chunk if needed. */
static ulyx_status_t
need_slot(
    struct uli_window_table *table, uint32_t window, struct uli_window **slot_p)
{
    if (window >= ULI_WINDOW_CHUNK * ULI_WINDOW_CHUNKS)
        return uli_error(ULYX_ERR_NO_MEMORY,
            "window %u: a rank has at most %d windows", window,
            ULI_WINDOW_CHUNK * ULI_WINDOW_CHUNKS);
    if (!find_slot(table, window)) {
        struct uli_window *none = NULL;
        struct uli_window *chunk = calloc(ULI_WINDOW_CHUNK, sizeof(*chunk));
        if (!chunk)
            return uli_error(ULYX_ERR_NO_MEMORY, "window table: no memory");
        if (!atomic_compare_exchange_strong(
                &table->chunks[window / ULI_WINDOW_CHUNK], &none, chunk))
            free(chunk);
    }
    raise_high(table, window + 1);
    *slot_p = find_slot(table, window);
    return ULYX_SUCCESS;
}

static void
fill_slot(struct uli_window *slot, void *base, int64_t bytes)
{
    atomic_store(&slot->bytes, bytes);
    atomic_store(&slot->base, base);
}

/* Base and bytes of one life of the slot; NULL when free. The loads are
 * sequentially consistent: an operation is counted in nops before it reads a
 * slot, and uli_window_retire clears the slot before it reads nops. */
static char *
read_slot(const struct uli_window *slot, int64_t *bytes_p)
{
    for (;;) {
        char *base = atomic_load(&slot->base);
        *bytes_p = atomic_load(&slot->bytes);
        if (base == atomic_load(&slot->base))
            return base;
    }
}

static struct uli_window_table *
own_table(const ulyx_comm_t *comm)
{
    return &comm->peers[comm->rank].windows;
}

/* ---- look-up ------------------------------------------------------------- */

void *
uli_window_address(const ulyx_comm_t *comm, int32_t rank, uint32_t window,
    int64_t offset, int64_t bytes)
{
    int64_t window_bytes;
    const struct uli_window *slot =
        find_slot(&comm->peers[rank].windows, window);
    char *base = slot ? read_slot(slot, &window_bytes) : NULL;
    if (!base || offset < 0 || bytes < 0 || bytes > window_bytes ||
        offset > window_bytes - bytes)
        return NULL;
    return base + offset;
}

bool
uli_window_at(const ulyx_comm_t *comm, const void *address, int64_t bytes,
    uint32_t window, int64_t *offset_p)
{
    int64_t window_bytes;
    const struct uli_window *slot = find_slot(own_table(comm), window);
    char *base = slot ? read_slot(slot, &window_bytes) : NULL;
    if (!base || (uintptr_t)address < (uintptr_t)base)
        return false;
    uint64_t offset = (uintptr_t)address - (uintptr_t)base;
    if (bytes < 0 || bytes > window_bytes ||
        offset > (uint64_t)(window_bytes - bytes))
        return false;
    *offset_p = (int64_t)offset;
    return true;
}

bool
uli_window_find(const ulyx_comm_t *comm, const void *address, int64_t bytes,
    uint32_t *window_p, int64_t *offset_p)
{
    uint32_t high = atomic_load(&own_table(comm)->high);
    for (uint32_t w = 0; w < high; w++)
        if (uli_window_at(comm, address, bytes, w, offset_p)) {
            *window_p = w;
            return true;
        }
    return false;
}

/* ---- publication --------------------------------------------------------- */

static ulyx_status_t
windows_publish(ulyx_comm_t *comm, int32_t rank, uint32_t window, void *base,
    int64_t bytes, bool mapped)
{
    struct uli_window *slot;
    ULI_TRY(need_slot(&comm->peers[rank].windows, window, &slot));
    if (window == 0)
        comm->peers[rank].control = base;
    atomic_store(&slot->mapped, mapped);
    fill_slot(slot, base, bytes);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_window_publish(
    ulyx_comm_t *comm, int32_t rank, uint32_t window, void *base, int64_t bytes)
{
    return windows_publish(comm, rank, window, base, bytes, false);
}

/* An error is only logged: no kernel may use a window that is taken back, and
 * an error here means that the device runs no kernel at all. At the end of a
 * communicator, when the table is freed as a whole, entries are not cleared. */
static void
clear_entry(ulyx_comm_t *comm, int32_t rank, uint32_t window)
{
    if (!atomic_load(&comm->gpu->ready))
        return;
    if (uli_gpu_table_set(comm, rank, window, NULL) != ULYX_SUCCESS)
        ULI_WARN(ULI_LOG_MEM, comm->rank, "window %u of rank %d: %s", window,
            rank, uli_error_text());
}

/* Unmaps a slot's window after its base was cleared. */
static void
empty_slot(ulyx_comm_t *comm, int32_t rank, uint32_t window,
    struct uli_window *slot, void *base)
{
    int64_t bytes = atomic_exchange(&slot->bytes, 0);
    if (base && atomic_exchange(&slot->mapped, false))
        comm->peers[rank].map->window_unmap(base, bytes);
    if (!base || !atomic_exchange(&slot->on_device, false))
        return;
    clear_entry(comm, rank, window);
    void *mapping = atomic_exchange(&slot->device_mapping, NULL);
    if (mapping)
        comm->peers[rank].map_device->device_unmap(mapping);
}

void
uli_window_withdraw(ulyx_comm_t *comm, int32_t rank, uint32_t window)
{
    struct uli_window *slot = find_slot(&comm->peers[rank].windows, window);
    if (slot)
        empty_slot(
            comm, rank, window, slot, atomic_exchange(&slot->base, NULL));
}

/* If a window has the id already, the answer to its delivery was lost and the
 * owner sends the window again: the first mapping is withdrawn. */
static ulyx_status_t
map_host(ulyx_comm_t *comm, int32_t rank, uint32_t window,
    const struct uli_tr_handle *handle)
{
    const struct uli_tr_ops *map = comm->peers[rank].map;
    void *address;
    if (!map)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "rank %d cannot map memory of rank %d: no transport does",
            uli_comm_number(comm, comm->rank), uli_comm_number(comm, rank));
    ULI_TRY(map->window_map(handle, &address));
    uli_window_withdraw(comm, rank, window);
    ulyx_status_t status =
        windows_publish(comm, rank, window, address, handle->bytes, true);
    if (status != ULYX_SUCCESS)
        map->window_unmap(address, handle->bytes);
    return status;
}

/* The entry on the device is written before the slot can be found. */
static ulyx_status_t
publish_device(ulyx_comm_t *comm, int32_t rank, uint32_t window, void *address,
    int64_t bytes, void *mapping)
{
    struct uli_window *slot;
    uli_window_withdraw(comm, rank, window);
    ULI_TRY(need_slot(&comm->peers[rank].windows, window, &slot));
    ULI_TRY(uli_gpu_table_set(comm, rank, window, address));
    atomic_store(&slot->on_device, true);
    atomic_store(&slot->device_mapping, mapping);
    fill_slot(slot, address, bytes);
    return ULYX_SUCCESS;
}

static ulyx_status_t
map_device(ulyx_comm_t *comm, int32_t rank, uint32_t window,
    const struct uli_tr_device_handle *handle)
{
    const struct uli_tr_ops *map = comm->peers[rank].map_device;
    void *address, *mapping;
    if (!map)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "rank %d cannot map device memory of rank %d: no transport does",
            comm->rank, rank);
    ULI_TRY(map->device_map(comm->gpu->device, handle, &address, &mapping));
    ulyx_status_t status =
        publish_device(comm, rank, window, address, handle->bytes, mapping);
    if (status != ULYX_SUCCESS)
        map->device_unmap(mapping);
    return status;
}

ulyx_status_t
uli_window_map(ulyx_comm_t *comm, int32_t rank, uint32_t window,
    const struct uli_tr_handle *handle)
{
    return handle->device ? map_device(comm, rank, window, handle->device)
                          : map_host(comm, rank, window, handle);
}

/* Whether operations of this rank are in flight; they may use any window. */
static bool
is_in_flight(ulyx_comm_t *comm)
{
    return atomic_load(&comm->nops) != 0 || uli_gpu_in_flight(comm);
}

bool
uli_window_retire(ulyx_comm_t *comm, int32_t rank, uint32_t window)
{
    struct uli_window *slot = find_slot(&comm->peers[rank].windows, window);
    if (!slot || !atomic_load(&slot->base))
        return true;
    if (is_in_flight(comm)) /* an operation in flight must still find the
                             * window */
        return false;
    void *base = atomic_exchange(&slot->base, NULL);
    if (!base)
        return true;
    if (is_in_flight(comm)) { /* an operation has begun */
        atomic_store(&slot->base, base);
        return false;
    }
    empty_slot(comm, rank, window, slot, base);
    return true;
}

/* ---- windows of remote peers --------------------------------------------- */

/* A remote peer's window has no address here: its slot has bytes but no
 * base. */
ulyx_status_t
uli_window_note(ulyx_comm_t *comm, int32_t rank, uint32_t window, int64_t bytes)
{
    struct uli_window *slot;
    if (bytes <= 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "window %u of rank %d has %lld bytes", window, rank,
            (long long)bytes);
    ULI_TRY(need_slot(&comm->peers[rank].windows, window, &slot));
    atomic_store(&slot->bytes, bytes);
    return ULYX_SUCCESS;
}

int64_t
uli_window_unnote(ulyx_comm_t *comm, int32_t rank, uint32_t window)
{
    struct uli_window *slot = find_slot(&comm->peers[rank].windows, window);
    return slot ? atomic_exchange(&slot->bytes, 0) : 0;
}

bool
uli_remote_window_holds(const ulyx_comm_t *comm, int32_t rank, uint32_t window,
    int64_t offset, int64_t bytes)
{
    const struct uli_window *slot =
        find_slot(&comm->peers[rank].windows, window);
    int64_t window_bytes = slot ? atomic_load(&slot->bytes) : 0;
    return offset >= 0 && bytes >= 0 && bytes <= window_bytes &&
           offset <= window_bytes - bytes;
}

/* ---- slots of this rank -------------------------------------------------- */

static ulyx_status_t
window_reserve(ulyx_comm_t *comm, uint32_t *window_p)
{
    struct uli_window *slot = NULL;
    ulyx_status_t status = ULYX_SUCCESS;
    uint32_t w = 1; /* 0 is the control segment */
    pthread_mutex_lock(&comm->lock);
    while ((slot = find_slot(own_table(comm), w)) &&
           (atomic_load(&slot->base) || atomic_load(&slot->bytes)))
        w++;
    status = need_slot(own_table(comm), w, &slot);
    if (status == ULYX_SUCCESS) {
        atomic_store(&slot->bytes, RESERVED);
        *window_p = w;
    }
    pthread_mutex_unlock(&comm->lock);
    return status;
}

static ulyx_status_t
window_show(
    ulyx_comm_t *comm, uint32_t window, const struct uli_tr_handle *handle)
{
    struct uli_window *slot = find_slot(own_table(comm), window);
    if (handle->device)
        ULI_TRY(uli_gpu_table_set(comm, comm->rank, window, handle->address));
    pthread_mutex_lock(&comm->lock);
    atomic_store(&slot->on_device, handle->device != NULL);
    fill_slot(slot, handle->address, handle->bytes);
    pthread_mutex_unlock(&comm->lock);
    return ULYX_SUCCESS;
}

static void
window_hide(ulyx_comm_t *comm, uint32_t window)
{
    struct uli_window *slot = find_slot(own_table(comm), window);
    pthread_mutex_lock(&comm->lock);
    atomic_store(&slot->base, NULL);
    atomic_store(&slot->bytes, RESERVED);
    bool on_device = atomic_exchange(&slot->on_device, false);
    pthread_mutex_unlock(&comm->lock);
    if (on_device)
        clear_entry(comm, comm->rank, window);
}

/* ---- giving to all ranks, and taking back -------------------------------- */

static bool
is_gone(ulyx_comm_t *comm, int32_t rank)
{
    return atomic_load(&comm->peers[rank].dead) ||
           atomic_load(&comm->control->left[rank]);
}

/* Maps a window at a peer of this process. Device memory needs no shareable
 * handles within a process. */
static ulyx_status_t
map_within(ulyx_comm_t *peer, int32_t rank, uint32_t window,
    const struct uli_tr_handle *handle)
{
    struct uli_tr_handle within = *handle;
    struct uli_tr_device_handle device;
    if (handle->device) {
        device = *handle->device;
        device.shares = NULL;
        device.nshares = 0;
        within.device = &device;
    }
    return uli_window_map(peer, rank, window, &within);
}

/* IN_PROGRESS: the peer has not reached this step of its creation yet. */
static ulyx_status_t
try_map(ulyx_comm_t *peer, int32_t rank, uint32_t window,
    const struct uli_tr_handle *handle)
{
    if (!peer || !atomic_load(&peer->connected))
        return ULYX_IN_PROGRESS;
    ulyx_status_t status = handle->device ? uli_gpu_admit(peer) : ULYX_SUCCESS;
    return status == ULYX_SUCCESS ? map_within(peer, rank, window, handle)
                                  : status;
}

/* Gives a window to a rank of this process. A rank that is not in the registry
 * has not been added yet, or has left. */
static ulyx_status_t
give_within(struct uli_stand *stand, uint32_t window,
    const struct uli_tr_handle *handle, uli_deadline_t deadline)
{
    ulyx_comm_t *comm = stand->comm;
    int32_t rank = stand->rank;
    for (;;) {
        ulyx_comm_t *peer =
            uli_service_find(comm->peers[rank].identity.endpoint);
        ulyx_status_t status = try_map(peer, comm->rank, window, handle);
        if (peer)
            uli_service_unlock();
        if (status != ULYX_IN_PROGRESS)
            return status;
        if (is_gone(comm, rank))
            return ULYX_SUCCESS;
        uli_stand_look(stand);
        ULI_TRY(uli_comm_check(comm));
        if (uli_deadline_over(deadline))
            return ULYX_ERR_TIMEOUT;
        uli_clock_sleep_ns(1000000);
    }
}

static void
withdraw_within(ulyx_comm_t *comm, int32_t rank, uint32_t window)
{
    ulyx_comm_t *peer = uli_service_find(comm->peers[rank].identity.endpoint);
    if (!peer)
        return;
    uli_window_withdraw(peer, comm->rank, window);
    uli_service_unlock();
}

/* The i-th peer, i = 0 .. nranks - 2, from the next rank on, so that the ranks
 * do not all begin with rank 0. */
static int32_t
peer_at(const ulyx_comm_t *comm, int32_t i)
{
    return (comm->rank + 1 + i) % comm->nranks;
}

static bool
takes_windows(const ulyx_comm_t *comm, int32_t rank)
{
    return comm->peers[rank].map;
}

static ulyx_status_t
fail_late(
    ulyx_comm_t *comm, int32_t rank, enum uli_late_phase phase, uint32_t window)
{
    struct uli_late late = uli_late_one(phase, rank);
    return uli_comm_fail_late(comm, &late, "%s of window %u",
        phase == ULI_LATE_MAP ? "attach" : "detach", window);
}

/* Gives the window to stand->rank. */
static ulyx_status_t
peer_give(struct uli_stand *stand, uint32_t window,
    const struct uli_tr_handle *handle, uli_deadline_t deadline)
{
    ulyx_status_t status =
        stand->comm->peers[stand->rank].same_process
            ? give_within(stand, window, handle, deadline)
            : uli_service_deliver(stand, window, handle, deadline);
    if (status == ULYX_ERR_TIMEOUT)
        return fail_late(stand->comm, stand->rank, ULI_LATE_MAP, window);
    return status;
}

static ulyx_status_t
peer_take(struct uli_stand *stand, uint32_t window, uli_deadline_t deadline)
{
    if (stand->comm->peers[stand->rank].same_process) {
        withdraw_within(stand->comm, stand->rank, window);
        return ULYX_SUCCESS;
    }
    return uli_service_withdraw(stand, window, deadline);
}

/* Removes the window for this rank's operations, and for data that may still
 * arrive from remote peers. */
void
uli_windows_forget(ulyx_comm_t *comm, uint32_t window)
{
    if (comm->net)
        comm->remote->ops->window_remove(comm->net, window);
    pthread_mutex_lock(&comm->lock);
    uli_window_withdraw(comm, comm->rank, window);
    pthread_mutex_unlock(&comm->lock);
}

/* Takes the window back from the first `count` peers and, with given_remote,
 * from the remote peers. Works for a failed communicator too. If a peer does
 * not release the window, its id stays in use. The peer of this node that timed
 * out, the last of the `count`, gets no request: it finds the connection closed
 * and withdraws the window itself. */
static void
give_undo(ulyx_comm_t *comm, uint32_t window, int32_t count, bool given_remote,
    ulyx_status_t status)
{
    char cause[512];
    bool all = status != ULYX_ERR_TIMEOUT || given_remote;
    count -= !all;
    bool late = status == ULYX_ERR_TIMEOUT || atomic_load(&comm->failed);
    uli_deadline_t deadline = uli_deadline_in(late ? UNDO_LATE_S : UNDO_S);
    snprintf(cause, sizeof(cause), "%s", uli_error_text());
    for (int32_t i = 0; i < count; i++) {
        int32_t p = peer_at(comm, i);
        if (!takes_windows(comm, p))
            continue;
        if (comm->peers[p].same_process)
            withdraw_within(comm, p, window);
        else
            all &= uli_service_recall(
                &comm->peers[p].identity, comm->rank, window, false, deadline);
    }
    for (int32_t p = 0; given_remote && p < comm->nranks; p++)
        if (uli_comm_is_remote(comm, p))
            all &= uli_remote_window_retire(comm, p, window, deadline);
    if (all)
        uli_windows_forget(comm, window);
    uli_error_pass(ULYX_SUCCESS, cause);
}

/* Puts may arrive as soon as a remote peer has the window. */
static ulyx_status_t
give_remote(ulyx_comm_t *comm, uint32_t window,
    const struct uli_tr_handle *handle, uint64_t recorded,
    uli_deadline_t deadline)
{
    struct uli_late late = uli_late_none(ULI_LATE_NOTE);
    if (!comm->net)
        return ULYX_SUCCESS;
    ULI_TRY(comm->remote->ops->window_add(
        comm->net, window, handle->address, handle->bytes));
    ulyx_status_t status = uli_remote_windows_give(
        comm, window, handle->bytes, recorded, deadline, &late);
    if (status == ULYX_ERR_TIMEOUT && late.count > 0)
        return uli_comm_fail_late(comm, &late, "attach of window %u", window);
    return status;
}

/* recorded: the number of the call in the flight recorder. */
static ulyx_status_t
give_window(ulyx_comm_t *comm, const struct uli_tr_handle *handle, bool remote,
    uint64_t recorded, uli_deadline_t deadline, uint32_t *window_p)
{
    struct uli_stand stand = {.comm = comm, .recorded = recorded};
    uint32_t window;
    ULI_TRY(window_reserve(comm, &window));
    for (int32_t i = 0; i < comm->nranks - 1; i++) {
        int32_t p = peer_at(comm, i);
        if (!takes_windows(comm, p))
            continue;
        uli_stand_begin(&stand, p);
        uli_comm_notify_meeting(comm, p);
        ulyx_status_t status = peer_give(&stand, window, handle, deadline);
        if (status != ULYX_SUCCESS) {
            give_undo(comm, window, i + 1, false, status);
            return status;
        }
    }
    uli_stand_end(&stand);
    ulyx_status_t status =
        remote ? give_remote(comm, window, handle, recorded, deadline)
               : ULYX_SUCCESS;
    if (status != ULYX_SUCCESS) {
        give_undo(comm, window, comm->nranks - 1, true, status);
        return status;
    }
    /* Last: own operations find the window only after all peers have it. */
    status = window_show(comm, window, handle);
    if (status != ULYX_SUCCESS) {
        give_undo(comm, window, comm->nranks - 1, remote, status);
        return status;
    }
    *window_p = window;
    return ULYX_SUCCESS;
}

static uint64_t
call_record(ulyx_comm_t *comm, enum uli_call call)
{
    return uli_recorder_begin(&comm->control->recorder,
        &(struct uli_recorder_entry){
            .call = call, .direction = -1, .begun_ns = uli_clock_ns()});
}

ulyx_status_t
uli_windows_give(ulyx_comm_t *comm, const struct uli_tr_handle *handle,
    uli_deadline_t deadline, uint32_t *window_p)
{
    uint64_t recorded = call_record(comm, ULI_CALL_ATTACH);
    ulyx_status_t status =
        give_window(comm, handle, true, recorded, deadline, window_p);

    uli_recorder_end(
        &comm->control->recorder, recorded, status, uli_clock_ns());
    return status;
}

ulyx_status_t
uli_windows_give_node(ulyx_comm_t *comm, const struct uli_tr_handle *handle,
    uli_deadline_t deadline, uint32_t *window_p)
{
    return give_window(comm, handle, false, 0, deadline, window_p);
}

static ulyx_status_t
take_remote(ulyx_comm_t *comm, uint32_t window, uint64_t recorded,
    uli_deadline_t deadline)
{
    struct uli_late late = uli_late_none(ULI_LATE_LET_GO);
    ulyx_status_t status =
        uli_remote_windows_take(comm, window, recorded, deadline, &late);
    if (status == ULYX_ERR_TIMEOUT && late.count > 0)
        return uli_comm_fail_late(comm, &late, "detach of window %u", window);
    return status;
}

static ulyx_status_t
take_window(ulyx_comm_t *comm, uint32_t window, uint64_t recorded,
    uli_deadline_t deadline)
{
    struct uli_stand stand = {.comm = comm, .recorded = recorded};
    window_hide(comm, window);
    for (int32_t i = 0; i < comm->nranks - 1; i++) {
        int32_t p = peer_at(comm, i);
        if (!takes_windows(comm, p))
            continue;
        uli_stand_begin(&stand, p);
        ulyx_status_t status = peer_take(&stand, window, deadline);
        if (status == ULYX_ERR_TIMEOUT)
            return fail_late(comm, p, ULI_LATE_LET_GO, window);
        ULI_TRY(status);
    }
    uli_stand_end(&stand);
    ULI_TRY(take_remote(comm, window, recorded, deadline));
    uli_windows_forget(comm, window);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_windows_take_back(
    ulyx_comm_t *comm, uint32_t window, uli_deadline_t deadline)
{
    uint64_t recorded = call_record(comm, ULI_CALL_DETACH);
    ulyx_status_t status = take_window(comm, window, recorded, deadline);

    uli_recorder_end(
        &comm->control->recorder, recorded, status, uli_clock_ns());
    return status;
}

ulyx_status_t
uli_windows_deliver_control(ulyx_comm_t *comm, uli_deadline_t deadline)
{
    struct uli_tr_handle handle = {
        comm->segment.fd, comm->segment.address, comm->segment.bytes, NULL};
    struct uli_stand stand = {.comm = comm};
    for (int32_t i = 0; i < comm->nranks - 1; i++) {
        int32_t p = peer_at(comm, i);
        if (!takes_windows(comm, p))
            continue;
        uli_stand_begin(&stand, p);
        uli_comm_notify_meeting(comm, p);
        ULI_TRY(peer_give(&stand, 0, &handle, deadline));
    }
    return ULYX_SUCCESS;
}

/* ---- end ----------------------------------------------------------------- */

static void
close_table(ulyx_comm_t *comm, int32_t rank)
{
    struct uli_window_table *table = &comm->peers[rank].windows;
    uint32_t high = atomic_load(&table->high);
    for (uint32_t w = 0; w < high; w++)
        uli_window_withdraw(comm, rank, w);
    for (int c = 0; c < ULI_WINDOW_CHUNKS; c++) {
        free(atomic_load(&table->chunks[c]));
        atomic_store(&table->chunks[c], NULL);
    }
    atomic_store(&table->high, 0);
}

void
uli_windows_close(ulyx_comm_t *comm)
{
    uli_service_remove(comm);
    if (!comm->peers)
        return;
    uli_mem_close(comm);
    if (comm->gpu)
        atomic_store(&comm->gpu->ready, false);
    for (int32_t p = 0; p < comm->nranks; p++) {
        if (p != comm->rank)
            comm->peers[p].control = NULL;
        close_table(comm, p);
    }
    uli_arena_close(comm);
    uli_gpu_arena_close(comm);
}
