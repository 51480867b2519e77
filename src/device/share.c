/* SPDX-License-Identifier: Apache-2.0
 *
 * See share.h. Allocates device memory of the library, and exports device
 * memory of all three origins.
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
    HAS_FABRIC = 128,
    BUFFER_ID = 7, /* attributes of a pointer */
    MAPPING_BYTES = 18,
    MAPPING_BASE = 19,
    GRANULARITY_MINIMUM = 0,
};

static uli_cu_ptr
share_pointer(const void *address)
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

/* Maps physical memory at a new address, readable and writable by the device.
 * On error only the handle of the memory is left. */
static ulyx_status_t
share_place(
    uli_cu_memory memory, int32_t device, size_t bytes, uli_cu_ptr *at_p)
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

/* Undoes share_place and releases the handle. Takes all steps, even after an
 * error, and returns the first error. */
static ulyx_status_t
share_displace(const void *address, int64_t bytes, uli_cu_memory memory)
{
    const struct uli_cu_calls *calls = uli_cuda_calls();
    size_t size = (size_t)bytes;
    uli_cu_result unmap = calls->cuMemUnmap(share_pointer(address), size);
    uli_cu_result reserve =
        calls->cuMemAddressFree(share_pointer(address), size);
    uli_cu_result release = calls->cuMemRelease(memory);
    ULI_TRY(uli_cuda_status(unmap, "cuMemUnmap"));
    ULI_TRY(uli_cuda_status(reserve, "cuMemAddressFree"));
    return uli_cuda_status(release, "cuMemRelease");
}

/* Creates memory that can be exported as a descriptor and, if the device
 * supports it and the process is allowed to (the fabric daemon runs, its
 * channel is open), as a fabric handle too. */
static ulyx_status_t
share_create(size_t bytes, const struct uli_cu_memory_props *props,
    uli_cu_memory *memory_p)
{
    struct uli_cu_memory_props both = *props;
    int fabric = 0;
    if (uli_cuda_calls()->cuDeviceGetAttribute(
            &fabric, HAS_FABRIC, props->location) == ULI_CU_SUCCESS &&
        fabric) {
        both.handle_types |= ULI_CU_FABRIC;
        if (uli_cuda_calls()->cuMemCreate(memory_p, bytes, &both, 0) ==
            ULI_CU_SUCCESS)
            return ULYX_SUCCESS;
    }
    return ULI_CUDA(cuMemCreate, (memory_p, bytes, props, 0));
}

static ulyx_status_t
share_alloc(int32_t device, int64_t bytes, struct uli_share_memory *memory_p)
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
    ULI_TRY(share_create(size, &props, &memory));
    ulyx_status_t status = share_place(memory, device, size, &at);
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
    return uli_cuda_leave(share_alloc(device, bytes, memory_p));
}

ulyx_status_t
uli_share_free(const struct uli_share_memory *memory)
{
    ULI_TRY(uli_cuda_enter(memory->device));
    return uli_cuda_leave(
        share_displace(memory->address, memory->bytes, memory->handle));
}

/* ---- export -------------------------------------------------------------- */

/* Retains the handle of a virtual-memory allocation. *type_p: the type as which
 * it can be exported. */
static ulyx_status_t
retain_exportable(const void *address, uli_cu_memory *memory_p, int *type_p)
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
    int types = props.handle_types & (ULI_CU_DESCRIPTOR | ULI_CU_FABRIC);
    if (status == ULYX_SUCCESS && !types)
        status = uli_error(ULYX_ERR_UNSUPPORTED,
            "device memory at %p: a virtual-memory allocation made without "
            "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR or _FABRIC cannot be "
            "exported",
            address);
    if (status != ULYX_SUCCESS) {
        uli_cuda_calls()->cuMemRelease(memory);
        return status;
    }
    *memory_p = memory;
    *type_p = types & ULI_CU_DESCRIPTOR ? ULI_CU_DESCRIPTOR : ULI_CU_FABRIC;
    return ULYX_SUCCESS;
}

/* Sets base and size to those of the mapping in which address lies. In a range
 * of adjacent mappings (an expandable segment) each mapping has a handle of its
 * own. Older drivers do not have the two attributes; the share then keeps base
 * and size of the range. */
static void
narrow_to_mapping(const void *address, struct uli_share *share)
{
    const struct uli_cu_calls *calls = uli_cuda_calls();
    uli_cu_ptr base = 0;
    size_t bytes = 0;
    if (calls->cuPointerGetAttribute(
            &base, MAPPING_BASE, share_pointer(address)) != ULI_CU_SUCCESS ||
        calls->cuPointerGetAttribute(
            &bytes, MAPPING_BYTES, share_pointer(address)) != ULI_CU_SUCCESS)
        return;
    share->base = base;
    share->bytes = (int64_t)bytes;
}

static ulyx_status_t
take_descriptor(int fd, struct uli_share *share)
{
    if (fcntl(fd, F_SETFD, FD_CLOEXEC)) {
        ulyx_status_t status =
            uli_error_errno("a descriptor of device memory: FD_CLOEXEC");
        close(fd);
        return status;
    }
    share->form = ULI_SHARE_DESCRIPTOR;
    share->fd = fd;
    return ULYX_SUCCESS;
}

static ulyx_status_t
export_mapping(const void *address, struct uli_share *share)
{
    uli_cu_memory memory = 0;
    int fd = -1, type = 0;
    ULI_TRY(retain_exportable(address, &memory, &type));
    narrow_to_mapping(address, share);
    void *handle = type == ULI_CU_DESCRIPTOR ? (void *)&fd : share->token;
    ulyx_status_t status =
        ULI_CUDA(cuMemExportToShareableHandle, (handle, memory, type, 0));
    uli_cuda_calls()->cuMemRelease(memory);
    if (status != ULYX_SUCCESS)
        return status;
    if (type == ULI_CU_DESCRIPTOR)
        return take_descriptor(fd, share);
    share->form = ULI_SHARE_FABRIC;
    return ULYX_SUCCESS;
}

static ulyx_status_t
export_ipc(struct uli_share *share)
{
    struct uli_cu_ipc ipc;
    ULI_TRY(ULI_CUDA(cuIpcGetMemHandle, (&ipc, share->base)));
    memcpy(share->token, ipc.bytes, sizeof(share->token));
    share->form = ULI_SHARE_IPC;
    return ULYX_SUCCESS;
}

static ulyx_status_t
export_range(const void *address, const struct uli_device_range *range,
    struct uli_share *share)
{
    unsigned long long id = 0;
    ULI_TRY(ULI_CUDA(
        cuPointerGetAttribute, (&id, BUFFER_ID, share_pointer(address))));
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
    struct uli_share share;
    memset(&share, 0, sizeof(share)); /* padding travels too */
    share.device = range.device;
    share.fd = -1;
    share.base = share_pointer(range.base);
    share.bytes = range.bytes;
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

void
uli_share_close_run(struct uli_share *shares, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        uli_share_close(&shares[i]);
}

/* Each share of a run after the first must begin where the last one ended. Only
 * mappings can lie like this. */
static ulyx_status_t
check_next(const struct uli_share *shares, int32_t i, uint64_t at)
{
    if (i == 0 || (shares[i].base == at && shares[0].form != ULI_SHARE_IPC &&
                      shares[i].form != ULI_SHARE_IPC))
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_UNSUPPORTED,
        "device memory at 0x%" PRIx64
        ": the range extends beyond its allocation of %" PRId64 " bytes",
        shares[0].base, shares[0].bytes);
}

ulyx_status_t
uli_share_export_run(const void *address, int64_t bytes,
    struct uli_share *shares_p, int32_t *count_p)
{
    uint64_t at = share_pointer(address), end = at + (uint64_t)bytes;
    ulyx_status_t status = ULYX_SUCCESS;
    int32_t count = 0;
    while (status == ULYX_SUCCESS && at < end) {
        if (count == ULI_SHARE_RUN) {
            status = uli_error(ULYX_ERR_UNSUPPORTED,
                "device memory at %p: %" PRId64
                " bytes lie in more than %d allocations",
                address, bytes, ULI_SHARE_RUN);
            break;
        }
        status = uli_share_export((void *)(uintptr_t)at, &shares_p[count]);
        if (status != ULYX_SUCCESS)
            break;
        status = check_next(shares_p, count, at);
        at = shares_p[count].base + (uint64_t)shares_p[count].bytes;
        count++;
    }
    if (status != ULYX_SUCCESS)
        uli_share_close_run(shares_p, count);
    else
        *count_p = count;
    return status;
}

/* ---- access within the process ------------------------------------------- */

/* A plain allocation is accessible after peer_enable of the two devices. A
 * mapping has a list of its own of devices that may access it, which this
 * function extends. */
ulyx_status_t
uli_share_access(int32_t device, const void *address, int64_t bytes)
{
    const struct uli_cu_access access = {
        ULI_CU_ON_DEVICE, device, ULI_CU_READ_WRITE};
    uli_cu_ptr at = share_pointer(address), end = at + (uli_cu_ptr)bytes;
    while (at < end) {
        struct uli_device_range range;
        void *here = (void *)(uintptr_t)at;
        ULI_TRY(uli_device_cuda.range(here, &range));
        struct uli_share share = {
            .base = share_pointer(range.base), .bytes = range.bytes};
        if (range.memory_kind != ULYX_MEMORY_CUDA || range.bytes < 1)
            return uli_error(
                ULYX_ERR_UNSUPPORTED, "%p is not device memory", here);
        if (!range.legacy_ipc && range.device != device) {
            ULI_TRY(uli_cuda_enter(range.device));
            narrow_to_mapping(here, &share);
            ULI_TRY(uli_cuda_leave(ULI_CUDA(cuMemSetAccess,
                (share.base, (size_t)share.bytes, &access, 1))));
        }
        at = share.base + (uli_cu_ptr)share.bytes;
    }
    return ULYX_SUCCESS;
}
