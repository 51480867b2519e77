/* SPDX-License-Identifier: Apache-2.0
 *
 * See share.h. Memory handed to others, and the origin of the caller's.
 */
#include "device/share.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include "base/status.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"
#include "device/device.h"

enum {
    HAS_VIRTUAL_MEMORY = 102, /* attributes of a device */
    HAS_DESCRIPTORS = 103,
    BUFFER_ID = 7, /* attributes of a pointer */
    MAPPING_BYTES = 18,
    MAPPING_BASE = 19,
    GRANULARITY_MINIMUM = 0,
};

static uli_cu_ptr
pointer(const void *address)
{
    return (uli_cu_ptr)(uintptr_t)address;
}

/* ---- memory of our own --------------------------------------------------- */

static ulyx_status_t
check_device(int32_t device)
{
    static const int needed[] = {HAS_VIRTUAL_MEMORY, HAS_DESCRIPTORS};
    uli_cu_device handle;
    ULI_TRY(ULI_CUDA(cuDeviceGet, (&handle, device)));
    for (int i = 0; i < 2; i++) {
        int has = 0;
        ULI_TRY(ULI_CUDA(cuDeviceGetAttribute, (&has, needed[i], handle)));
        if (!has)
            return uli_error(ULYX_ERR_UNSUPPORTED,
                "CUDA device %d has no %s: its memory cannot be shared as a "
                "descriptor",
                device,
                i == 0 ? "virtual memory management"
                       : "export of memory as a file descriptor");
    }
    return ULYX_SUCCESS;
}

/* Puts physical memory at an address of its own, readable and writable by the
 * device. On error nothing is left but the handle. */
static ulyx_status_t
place(uli_cu_memory memory, int32_t device, size_t bytes, uli_cu_ptr *at_p)
{
    const struct uli_cu_access access = {
        ULI_CU_ON_DEVICE, device, ULI_CU_READ_WRITE};
    uli_cu_ptr at = 0;
    ULI_TRY(ULI_CUDA(cuMemAddressReserve, (&at, bytes, 0, 0, 0)));
    ulyx_status_t status = ULI_CUDA(cuMemMap, (at, bytes, 0, memory, 0));
    if (status != ULYX_SUCCESS)
        goto err_reserve;
    status = ULI_CUDA(cuMemSetAccess, (at, bytes, &access, 1));
    if (status != ULYX_SUCCESS)
        goto err_map;
    *at_p = at;
    return ULYX_SUCCESS;
err_map:
    uli_cuda_calls()->cuMemUnmap(at, bytes);
err_reserve:
    uli_cuda_calls()->cuMemAddressFree(at, bytes);
    return status;
}

/* The reverse of place, and of what made the handle: all steps, the first
 * error. */
static ulyx_status_t
displace(const void *address, int64_t bytes, uli_cu_memory memory)
{
    const struct uli_cu_calls *calls = uli_cuda_calls();
    size_t size = (size_t)bytes;
    uli_cu_result unmap = calls->cuMemUnmap(pointer(address), size);
    uli_cu_result reserve = calls->cuMemAddressFree(pointer(address), size);
    uli_cu_result release = calls->cuMemRelease(memory);
    ULI_TRY(uli_cuda_status(unmap, "cuMemUnmap"));
    ULI_TRY(uli_cuda_status(reserve, "cuMemAddressFree"));
    return uli_cuda_status(release, "cuMemRelease");
}

static ulyx_status_t
alloc(int32_t device, int64_t bytes, struct uli_share_memory *memory_p)
{
    const struct uli_cu_memory_props props = {.type = ULI_CU_PINNED,
        .handle_types = ULI_CU_DESCRIPTOR,
        .location_type = ULI_CU_ON_DEVICE,
        .location = device};
    uli_cu_memory memory = 0;
    uli_cu_ptr at = 0;
    size_t unit = 1;
    ULI_TRY(check_device(device));
    ULI_TRY(ULI_CUDA(
        cuMemGetAllocationGranularity, (&unit, &props, GRANULARITY_MINIMUM)));
    if ((uint64_t)bytes > (uint64_t)INT64_MAX - unit)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%" PRId64 " bytes of CUDA device %d are out of range", bytes,
            device);
    size_t size = ((size_t)bytes + unit - 1) / unit * unit;
    ULI_TRY(ULI_CUDA(cuMemCreate, (&memory, size, &props, 0)));
    ulyx_status_t status = place(memory, device, size, &at);
    if (status != ULYX_SUCCESS) {
        uli_cuda_calls()->cuMemRelease(memory);
        return status;
    }
    *memory_p = (struct uli_share_memory){
        device, (void *)(uintptr_t)at, (int64_t)size, memory};
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_share_alloc(
    int32_t device, int64_t bytes, struct uli_share_memory *memory_p)
{
    if (bytes < 1)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%" PRId64 " bytes of CUDA device %d: at least 1", bytes, device);
    ULI_TRY(uli_cuda_enter(device));
    return uli_cuda_leave(alloc(device, bytes, memory_p));
}

ulyx_status_t
uli_share_free(const struct uli_share_memory *memory)
{
    ULI_TRY(uli_cuda_enter(memory->device));
    return uli_cuda_leave(
        displace(memory->address, memory->bytes, memory->handle));
}

/* ---- export -------------------------------------------------------------- */

/* The handle of a virtual-memory allocation that can be exported. */
static ulyx_status_t
retain_exportable(const void *address, uli_cu_memory *memory_p)
{
    struct uli_cu_memory_props props;
    uli_cu_memory memory = 0;
    memset(&props, 0, sizeof(props));
    uli_cu_result result = uli_cuda_calls()->cuMemRetainAllocationHandle(
        &memory, (void *)(uintptr_t)address);
    if (result == ULI_CU_INVALID_VALUE || result == ULI_CU_NOT_SUPPORTED)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "device memory at %p: neither legacy IPC nor a virtual-memory "
            "handle (stream-ordered memory of cudaMallocAsync has none)",
            address);
    ULI_TRY(uli_cuda_status(result, "cuMemRetainAllocationHandle"));
    ulyx_status_t status =
        ULI_CUDA(cuMemGetAllocationPropertiesFromHandle, (&props, memory));
    if (status == ULYX_SUCCESS && !(props.handle_types & ULI_CU_DESCRIPTOR))
        status = uli_error(ULYX_ERR_UNSUPPORTED,
            "device memory at %p: a virtual-memory allocation made without "
            "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR cannot be exported",
            address);
    if (status != ULYX_SUCCESS) {
        uli_cuda_calls()->cuMemRelease(memory);
        return status;
    }
    *memory_p = memory;
    return ULYX_SUCCESS;
}

/* Base and size of the one mapping that address lies in: a range of mappings
 * side by side (an expandable segment) is a handle each. Drivers before the
 * two attributes answer with the range. */
static void
narrow_to_mapping(const void *address, struct uli_share *share)
{
    const struct uli_cu_calls *calls = uli_cuda_calls();
    uli_cu_ptr base = 0;
    size_t bytes = 0;
    if (calls->cuPointerGetAttribute(&base, MAPPING_BASE, pointer(address)) !=
            ULI_CU_SUCCESS ||
        calls->cuPointerGetAttribute(&bytes, MAPPING_BYTES, pointer(address)) !=
            ULI_CU_SUCCESS)
        return;
    share->base = base;
    share->bytes = (int64_t)bytes;
}

static ulyx_status_t
export_mapping(const void *address, struct uli_share *share)
{
    uli_cu_memory memory = 0;
    int fd = -1;
    ULI_TRY(retain_exportable(address, &memory));
    narrow_to_mapping(address, share);
    ulyx_status_t status = ULI_CUDA(
        cuMemExportToShareableHandle, (&fd, memory, ULI_CU_DESCRIPTOR, 0));
    uli_cuda_calls()->cuMemRelease(memory);
    if (status != ULYX_SUCCESS)
        return status;
    if (fcntl(fd, F_SETFD, FD_CLOEXEC)) {
        status = uli_error_errno("a descriptor of device memory: FD_CLOEXEC");
        close(fd);
        return status;
    }
    share->form = ULI_SHARE_DESCRIPTOR;
    share->fd = fd;
    return ULYX_SUCCESS;
}

static ulyx_status_t
export_ipc(struct uli_share *share)
{
    struct uli_cu_ipc ipc;
    ULI_TRY(ULI_CUDA(cuIpcGetMemHandle, (&ipc, share->base)));
    memcpy(share->ipc, ipc.bytes, sizeof(share->ipc));
    share->form = ULI_SHARE_IPC;
    return ULYX_SUCCESS;
}

static ulyx_status_t
export_range(const void *address, const struct uli_device_range *range,
    struct uli_share *share)
{
    unsigned long long id = 0;
    ULI_TRY(
        ULI_CUDA(cuPointerGetAttribute, (&id, BUFFER_ID, pointer(address))));
    share->buffer_id = id;
    return range->legacy_ipc ? export_ipc(share)
                             : export_mapping(address, share);
}

ulyx_status_t
uli_share_export(const void *address, struct uli_share *share_p)
{
    struct uli_device_range range;
    ULI_TRY(uli_device_cuda.range(address, &range));
    if (range.memory_kind != ULYX_MEMORY_CUDA)
        return uli_error(
            ULYX_ERR_UNSUPPORTED, "%p is not device memory", address);
    if (range.managed)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "device memory at %p is managed: it moves, and cannot be shared",
            address);
    struct uli_share share = {.device = range.device,
        .fd = -1,
        .base = pointer(range.base),
        .bytes = range.bytes};
    ULI_TRY(uli_cuda_enter(range.device));
    ULI_TRY(uli_cuda_leave(export_range(address, &range, &share)));
    *share_p = share;
    return ULYX_SUCCESS;
}

void
uli_share_close(struct uli_share *share)
{
    if (share->fd >= 0)
        close(share->fd);
    share->fd = -1;
}

/* ---- import -------------------------------------------------------------- */

static ulyx_status_t
map_descriptor(int32_t device, const struct uli_share *share, uli_cu_ptr *at_p,
    uli_cu_memory *memory_p)
{
    uli_cu_memory memory = 0;
    ULI_TRY(ULI_CUDA(cuMemImportFromShareableHandle,
        (&memory, (void *)(intptr_t)share->fd, ULI_CU_DESCRIPTOR)));
    ulyx_status_t status = place(memory, device, (size_t)share->bytes, at_p);
    if (status != ULYX_SUCCESS) {
        uli_cuda_calls()->cuMemRelease(memory);
        return status;
    }
    *memory_p = memory;
    return ULYX_SUCCESS;
}

static ulyx_status_t
map_ipc(const struct uli_share *share, uli_cu_ptr *at_p)
{
    struct uli_cu_ipc ipc;
    memcpy(ipc.bytes, share->ipc, sizeof(ipc.bytes));
    return ULI_CUDA(cuIpcOpenMemHandle, (at_p, ipc, 1 /* peer access */));
}

ulyx_status_t
uli_share_map(int32_t device, const struct uli_share *share,
    struct uli_share_import *import_p)
{
    uli_cu_memory memory = 0;
    uli_cu_ptr at = 0;
    if (share->bytes < 1 ||
        (share->form != ULI_SHARE_DESCRIPTOR && share->form != ULI_SHARE_IPC))
        return uli_error(ULYX_ERR_SYSTEM,
            "a peer's device memory: form %d, %" PRId64 " bytes make no share",
            share->form, share->bytes);
    ULI_TRY(uli_cuda_enter(device));
    ULI_TRY(uli_cuda_leave(share->form == ULI_SHARE_IPC
                               ? map_ipc(share, &at)
                               : map_descriptor(device, share, &at, &memory)));
    *import_p = (struct uli_share_import){
        share->form, device, (void *)(uintptr_t)at, share->bytes, memory};
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_share_unmap(const struct uli_share_import *import)
{
    ULI_TRY(uli_cuda_enter(import->device));
    if (import->form == ULI_SHARE_IPC)
        return uli_cuda_leave(
            ULI_CUDA(cuIpcCloseMemHandle, (pointer(import->address))));
    return uli_cuda_leave(
        displace(import->address, import->bytes, import->handle));
}
