/* SPDX-License-Identifier: Apache-2.0
 *
 * Giving a window to all ranks, and taking it back. No lock is held while a
 * peer is waited for: the id is reserved before, and shown to this rank's own
 * operations after all peers have the window.
 */
#include <stdio.h>
#include "comm/device/gpu.h"
#include "comm/remote/remote_internal.h"
#include "comm/service/service.h"
#include "comm/memory/windows.h"

/* How long a window that could not be given is taken back from those who had
 * it already: they answer at once unless they are stopped. Where the time of
 * the call is over, or the communicator has failed, that is why, and the call
 * must not outlast its deadline by more than this. */
#define UNDO_S      5.0
#define UNDO_LATE_S 0.1

static bool
is_gone(ulyx_comm_t *comm, int32_t rank)
{
    return atomic_load(&comm->peers[rank].dead) ||
           atomic_load(&comm->control->left[rank]);
}

/* At a rank of this process: device memory needs no shares. */
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

/* IN_PROGRESS: it has not got there yet. */
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

/* A rank of this process that is not in the registry has not got there yet,
 * or has left. */
static ulyx_status_t
give_within(ulyx_comm_t *comm, int32_t rank, uint32_t window,
    const struct uli_tr_handle *handle, uli_deadline_t deadline)
{
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

/* Peers are gone through from the next rank on, so that not everybody begins
 * with rank 0: the i-th, i = 0 .. nranks - 2. */
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
    struct uli_late late = uli_late_none(phase);
    uli_late_add(&late, rank);
    return uli_comm_fail_late(comm, &late, "%s of window %u",
        phase == ULI_LATE_MAP ? "attach" : "detach", window);
}

static ulyx_status_t
windows_give_give(ulyx_comm_t *comm, int32_t rank, uint32_t window,
    const struct uli_tr_handle *handle, uli_deadline_t deadline)
{
    ulyx_status_t status =
        comm->peers[rank].same_process
            ? give_within(comm, rank, window, handle, deadline)
            : uli_service_deliver(comm, rank, window, handle, deadline);
    if (status == ULYX_ERR_TIMEOUT)
        return fail_late(comm, rank, ULI_LATE_MAP, window);
    return status;
}

static ulyx_status_t
windows_give_take(
    ulyx_comm_t *comm, int32_t rank, uint32_t window, uli_deadline_t deadline)
{
    if (comm->peers[rank].same_process) {
        withdraw_within(comm, rank, window);
        return ULYX_SUCCESS;
    }
    return uli_service_withdraw(comm, rank, window, deadline);
}

/* Here: by my operations, and by what still comes from remote peers. */
void
uli_windows_forget(ulyx_comm_t *comm, uint32_t window)
{
    if (comm->net)
        comm->remote->ops->window_remove(comm->net, window);
    pthread_mutex_lock(&comm->lock);
    uli_window_withdraw(comm, comm->rank, window);
    pthread_mutex_unlock(&comm->lock);
}

/* Takes it back from the first `count` peers and, where it had come to them,
 * from remote ones, also where the communicator has failed. The id stays taken
 * when one did not let go. One that timed out is not asked: it finds the
 * request's connection closed when it comes to it. */
static void
windows_give_undo(ulyx_comm_t *comm, uint32_t window, int32_t count, bool told,
    ulyx_status_t status)
{
    char cause[512];
    bool all = status != ULYX_ERR_TIMEOUT || told;
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
    for (int32_t p = 0; told && p < comm->nranks; p++)
        if (uli_comm_is_remote(comm, p))
            all &= uli_remote_window_retire(comm, p, window, deadline);
    if (all)
        uli_windows_forget(comm, window);
    uli_error_pass(ULYX_SUCCESS, cause);
}

/* Puts may come as soon as a remote peer knows it. */
static ulyx_status_t
give_remote(ulyx_comm_t *comm, uint32_t window,
    const struct uli_tr_handle *handle, uli_deadline_t deadline)
{
    struct uli_late late = uli_late_none(ULI_LATE_NOTE);
    if (!comm->net)
        return ULYX_SUCCESS;
    ULI_TRY(comm->remote->ops->window_add(
        comm->net, window, handle->address, handle->bytes));
    ulyx_status_t status =
        uli_remote_windows_give(comm, window, handle->bytes, deadline, &late);
    if (status == ULYX_ERR_TIMEOUT && late.count > 0)
        return uli_comm_fail_late(comm, &late, "attach of window %u", window);
    return status;
}

static ulyx_status_t
give_window(ulyx_comm_t *comm, const struct uli_tr_handle *handle, bool remote,
    uli_deadline_t deadline, uint32_t *window_p)
{
    uint32_t window;
    ULI_TRY(uli_window_reserve(comm, &window));
    for (int32_t i = 0; i < comm->nranks - 1; i++) {
        int32_t p = peer_at(comm, i);
        if (!takes_windows(comm, p))
            continue;
        ulyx_status_t status =
            windows_give_give(comm, p, window, handle, deadline);
        if (status != ULYX_SUCCESS) {
            windows_give_undo(comm, window, i + 1, false, status);
            return status;
        }
    }
    ulyx_status_t status =
        remote ? give_remote(comm, window, handle, deadline) : ULYX_SUCCESS;
    if (status != ULYX_SUCCESS) {
        windows_give_undo(comm, window, comm->nranks - 1, true, status);
        return status;
    }
    /* Last: my operations find it only when all peers can. */
    status = uli_window_show(comm, window, handle);
    if (status != ULYX_SUCCESS) {
        windows_give_undo(comm, window, comm->nranks - 1, remote, status);
        return status;
    }
    *window_p = window;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_windows_give(ulyx_comm_t *comm, const struct uli_tr_handle *handle,
    uli_deadline_t deadline, uint32_t *window_p)
{
    struct uli_recorder *recorder = &comm->control->recorder;
    uint64_t recorded = uli_recorder_begin(
        recorder, &(struct uli_recorder_entry){.call = ULI_CALL_ATTACH,
                      .direction = -1,
                      .begun_ns = uli_clock_ns()});
    ulyx_status_t status = give_window(comm, handle, true, deadline, window_p);

    uli_recorder_end(recorder, recorded, status);
    return status;
}

ulyx_status_t
uli_windows_give_node(ulyx_comm_t *comm, const struct uli_tr_handle *handle,
    uli_deadline_t deadline, uint32_t *window_p)
{
    return give_window(comm, handle, false, deadline, window_p);
}

static ulyx_status_t
take_remote(ulyx_comm_t *comm, uint32_t window, uli_deadline_t deadline)
{
    struct uli_late late = uli_late_none(ULI_LATE_LET_GO);
    ulyx_status_t status =
        uli_remote_windows_take(comm, window, deadline, &late);
    if (status == ULYX_ERR_TIMEOUT && late.count > 0)
        return uli_comm_fail_late(comm, &late, "detach of window %u", window);
    return status;
}

ulyx_status_t
uli_windows_take_back(
    ulyx_comm_t *comm, uint32_t window, uli_deadline_t deadline)
{
    uli_window_hide(comm, window);
    for (int32_t i = 0; i < comm->nranks - 1; i++) {
        int32_t p = peer_at(comm, i);
        if (!takes_windows(comm, p))
            continue;
        ulyx_status_t status = windows_give_take(comm, p, window, deadline);
        if (status == ULYX_ERR_TIMEOUT)
            return fail_late(comm, p, ULI_LATE_LET_GO, window);
        ULI_TRY(status);
    }
    ULI_TRY(take_remote(comm, window, deadline));
    uli_windows_forget(comm, window);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_windows_deliver_control(ulyx_comm_t *comm, uli_deadline_t deadline)
{
    struct uli_tr_handle handle = {
        comm->segment.fd, comm->segment.address, comm->segment.bytes, NULL};
    for (int32_t i = 0; i < comm->nranks - 1; i++) {
        int32_t p = peer_at(comm, i);
        if (takes_windows(comm, p))
            ULI_TRY(windows_give_give(comm, p, 0, &handle, deadline));
    }
    return ULYX_SUCCESS;
}
