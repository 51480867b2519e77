/* SPDX-License-Identifier: Apache-2.0
 *
 * See mem_device.h.
 */
#include "comm/memory/mem_device.h"

#include <inttypes.h>
#include <stdlib.h>
#include "base/log.h"
#include "comm/device/gpu.h"
#include "comm/memory/windows.h"
#include "device/device.h"

/* ---- allocation ---------------------------------------------------------- */

/* Zeroes on a stream of the library's, so that a capture or a spinning kernel
 * of the caller does not delay the zeros. Where a communicator lives, the
 * stream is there already: making one may wait for kernels that spin. The
 * memory is new, so no other work can use it. */
static ulyx_status_t
mem_device_zero(int32_t device, void *address, int64_t bytes)
{
    const struct uli_device_ops *ops = &uli_device_cuda;
    void *stream;
    ulyx_status_t status = uli_gpu_zero_new(device, address, bytes);
    if (status != ULYX_IN_PROGRESS)
        return status;
    ULI_TRY(ops->stream_create(device, &stream));
    status = ops->zero(device, address, bytes, stream);
    if (status == ULYX_SUCCESS)
        status = ops->stream_wait(device, stream);
    ulyx_status_t destroyed = ops->stream_destroy(device, stream);
    return status != ULYX_SUCCESS ? status : destroyed;
}

ulyx_status_t
uli_mem_device_alloc(
    int64_t bytes, int32_t device, struct uli_share_memory *memory_p)
{
    const struct uli_device_ops *ops = &uli_device_cuda;
    struct uli_share_memory memory;
    ULI_TRY(ops->open());
    if (device < 0)
        ULI_TRY(ops->current(&device));
    ULI_TRY(uli_share_alloc(device, bytes, &memory));
    ulyx_status_t status =
        mem_device_zero(device, memory.address, memory.bytes);
    if (status != ULYX_SUCCESS) {
        ULI_WARN(ULI_LOG_MEM, -1, "device memory could not be zeroed: %s",
            uli_error_text());
        (void)uli_share_free(&memory);
        return status;
    }
    *memory_p = memory;
    return ULYX_SUCCESS;
}

/* ---- memory of the caller ------------------------------------------------ */

static ulyx_status_t
check_place(
    const void *address, const struct uli_device_range *range, int32_t device)
{
    if (range->memory_kind != ULYX_MEMORY_CUDA)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "register: %p is host memory, memory_kind says CUDA", address);
    if (range->managed)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "register: %p is managed memory, which moves: no window", address);
    if (device >= 0 && range->device != device)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "register: %p lies on CUDA device %d, device says %d", address,
            range->device, device);
    return ULYX_SUCCESS;
}

/* A range may cover several allocations, and the driver treats each one
 * separately. */
ulyx_status_t
uli_mem_device_find(
    const void *address, int64_t bytes, int32_t device, int32_t *lies_on_p)
{
    struct uli_device_range range;
    uint64_t begin = (uint64_t)(uintptr_t)address, at = begin;
    while (at < begin + (uint64_t)bytes) {
        ULI_TRY(uli_device_cuda.range((const void *)(uintptr_t)at, &range));
        ULI_TRY(check_place(
            (const void *)(uintptr_t)at, &range, at == begin ? device : -1));
        uint64_t end = (uint64_t)(uintptr_t)range.base + (uint64_t)range.bytes;
        if (at == begin)
            *lies_on_p = range.device;
        else if (range.device != *lies_on_p || range.legacy_ipc)
            return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                "register: %" PRId64
                " bytes at %p extend beyond their allocation",
                bytes, address);
        if (end <= at)
            return uli_error(ULYX_ERR_SYSTEM,
                "register: the driver gives %p an empty allocation", address);
        at = end;
    }
    return ULYX_SUCCESS;
}

/* ---- giving windows ------------------------------------------------------ */

ulyx_status_t
uli_mem_device_fits(const ulyx_comm_t *comm, int32_t device)
{
    if (!comm->gpu)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "attach: the window is CUDA memory, %.63s moves host memory",
            comm->name);
    if (device != comm->gpu->device)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "attach: the window lies on CUDA device %d, rank %d of %.63s is on "
            "device %d",
            device, comm->rank, comm->name, comm->gpu->device);
    return uli_gpu_check_mapped(comm, "attach: ");
}

static ulyx_status_t
mem_device_give(ulyx_comm_t *comm, const struct uli_tr_device_handle *device,
    void *address, uli_deadline_t deadline, uint32_t *window_p)
{
    struct uli_tr_handle handle = {-1, address, device->bytes, device};
    return uli_windows_give(comm, &handle, deadline, window_p);
}

ulyx_status_t
uli_mem_device_give(ulyx_comm_t *comm, void *address, int64_t bytes,
    int32_t device, uli_deadline_t deadline, uint32_t *window_p)
{
    struct uli_tr_device_handle handle = {.device = device,
        .process = comm->peers[comm->rank].identity.process,
        .address = (uint64_t)(uintptr_t)address,
        .bytes = bytes};
    if (comm->one_process)
        return mem_device_give(comm, &handle, address, deadline, window_p);
    struct uli_share *shares = calloc(ULI_SHARE_RUN, sizeof(*shares));
    if (!shares)
        return uli_error(ULYX_ERR_NO_MEMORY, "attach: no memory");
    handle.shares = shares;
    ulyx_status_t status =
        uli_share_export_run(address, bytes, shares, &handle.nshares);
    if (status == ULYX_SUCCESS) {
        status = mem_device_give(comm, &handle, address, deadline, window_p);
        uli_share_close_run(shares, handle.nshares);
    }
    free(shares);
    return status;
}
