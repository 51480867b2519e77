/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory of the ranks of one node, mapped for each other's devices:
 * kernels load and store it as their own. Within a process an address is enough
 * once the devices have access to each other; between processes a window
 * arrives as a run of shares and is imported, each allocation once.
 *
 * The transport has the name of the best link. It also works over PCIe, and
 * between ranks of one device, where no byte leaves the device.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "base/size.h"
#include "base/status.h"
#include "device/cuda_driver.h"
#include "device/device.h"
#include "transport/nvlink/imports.h"
#include "transport/transport.h"

/* The ordinal of a device in this process; -1 where the device is hidden from
 * this process (CUDA_VISIBLE_DEVICES). */
static int32_t
ordinal_of(const unsigned char gpu[16])
{
    int32_t count = 0;
    unsigned char uuid[16];
    if (uli_device_cuda.count(&count) != ULYX_SUCCESS)
        return -1;
    for (int32_t d = 0; d < count; d++)
        if (uli_device_cuda.uuid(d, uuid) == ULYX_SUCCESS &&
            memcmp(uuid, gpu, sizeof(uuid)) == 0)
            return d;
    return -1;
}

/* Queries peer access where both devices are visible. A hidden device may be
 * mapped all the same; the first window proves whether that works. */
static bool
devices_reach(const struct uli_identity *me, const struct uli_identity *peer,
    char *why_p, size_t why_bytes)
{
    int32_t mine = ordinal_of(me->gpu), theirs = ordinal_of(peer->gpu);
    uli_cu_device from, to;
    int can = 0;
    if (mine < 0 || theirs < 0 || mine == theirs)
        return true;
    if (ULI_CUDA(cuDeviceGet, (&from, mine)) == ULYX_SUCCESS &&
        ULI_CUDA(cuDeviceGet, (&to, theirs)) == ULYX_SUCCESS &&
        ULI_CUDA(cuDeviceCanAccessPeer, (&can, from, to)) == ULYX_SUCCESS &&
        can)
        return true;
    snprintf(why_p, why_bytes,
        "no peer-to-peer access between CUDA devices %d (rank %d) and %d "
        "(rank %d)",
        mine, me->rank, theirs, peer->rank);
    return false;
}

static bool
nvlink_reaches(const struct uli_identity *me, const struct uli_identity *peer,
    char *why_p, size_t why_bytes)
{
    bool within = memcmp(me->process, peer->process, sizeof(me->process)) == 0;
    return uli_tr_between_devices(me, peer, why_p, why_bytes) &&
           (within ? uli_tr_within_process(me, peer, why_p, why_bytes)
                   : uli_tr_within_node(me, peer, why_p, why_bytes)) &&
           uli_tr_devices_usable(NULL, why_p, why_bytes) &&
           devices_reach(me, peer, why_p, why_bytes);
}

/* The run begins at or before the window and ends at or after it. */
static ulyx_status_t
check_window(const struct uli_tr_device_handle *handle)
{
    const struct uli_share *shares = handle->shares;
    int64_t bytes = 0;
    for (int32_t i = 0; i < handle->nshares; i++)
        bytes = uli_sat_add(bytes, shares[i].bytes);
    uint64_t base = handle->nshares > 0 ? shares[0].base : 0;
    uint64_t offset = handle->address - base;
    if (handle->bytes > 0 && bytes >= handle->bytes &&
        handle->address >= base && offset <= (uint64_t)(bytes - handle->bytes))
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_SYSTEM,
        "a window of %" PRId64 " bytes at 0x%" PRIx64
        " does not lie in the device memory that came with it (%d allocations "
        "from 0x%" PRIx64 ")",
        handle->bytes, handle->address, handle->nshares, base);
}

/* A window of this process: its address is enough, once the device has
 * access. */
static ulyx_status_t
reach_address(int32_t device, const struct uli_tr_device_handle *handle,
    void **address_p, void **mapping_p)
{
    void *address = (void *)(uintptr_t)handle->address;
    if (!address || handle->bytes <= 0)
        return uli_error(ULYX_ERR_SYSTEM,
            "a window of %" PRId64 " bytes at 0x%" PRIx64 " of this process",
            handle->bytes, handle->address);
    if (device != handle->device)
        ULI_TRY(uli_share_access(device, address, handle->bytes));
    *address_p = address;
    *mapping_p = NULL;
    return ULYX_SUCCESS;
}

static ulyx_status_t
device_map(int32_t device, const struct uli_tr_device_handle *handle,
    void **address_p, void **mapping_p)
{
    struct uli_import *import;
    void *base;
    if (!handle->shares)
        return reach_address(device, handle, address_p, mapping_p);
    ULI_TRY(check_window(handle));
    ULI_TRY(uli_import_take(device, handle->process, handle->shares,
        handle->nshares, &import, &base));
    *address_p = (char *)base + (handle->address - handle->shares[0].base);
    *mapping_p = import;
    return ULYX_SUCCESS;
}

/* If the driver refuses to unmap, the mapping stays; there is no remedy. */
static void
device_unmap(void *mapping)
{
    if (mapping && uli_import_drop(mapping) != ULYX_SUCCESS)
        ULI_WARN(ULI_LOG_MEM, -1, "unmapping a peer's device memory: %s",
            uli_error_text());
}

const struct uli_tr_ops uli_tr_nvlink_ops = {
    .name = "nvlink",
    .caps = ULI_TR_MAP_DEVICE,
    .usable = uli_tr_devices_usable,
    .reaches = nvlink_reaches,
    ULI_TR_NO_MAP,
    .device_map = device_map,
    .device_unmap = device_unmap,
    ULI_TR_NO_READ,
};
