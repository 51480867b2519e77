/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows in device memory: the part of mem.c and of the arenas that depends on
 * the device. Each attach gets the window's shareable handles from the driver
 * anew, so memory that its owner has freed and allocated again is never given
 * by stale handles.
 */
#ifndef ULI_COMM_MEMORY_MEM_DEVICE_H
#define ULI_COMM_MEMORY_MEM_DEVICE_H

#include "comm/comm.h"
#include "device/share.h"

/* Zeroed memory of a device (an ordinal, -1 = the current one), in an
 * allocation that other processes can map. Errors: see uli_mem_alloc. */
ulyx_status_t uli_mem_device_alloc(
    int64_t bytes, int32_t device, struct uli_share_memory *memory_p);

/* The device that the caller's range lies on. device: the expected one, or -1.
 * Errors: INVALID_ARGUMENT (host memory, another device than expected, a range
 * that leaves its allocation), UNSUPPORTED (managed memory). */
ulyx_status_t uli_mem_device_find(
    const void *address, int64_t bytes, int32_t device, int32_t *lies_on_p);

/* Whether the window may be attached: SUCCESS; INVALID_ARGUMENT (a host
 * communicator, another device); UNSUPPORTED (the communicator maps no device
 * memory, with the reason). */
ulyx_status_t uli_mem_device_fits(const ulyx_comm_t *comm, int32_t device);

/* Gives [address, address + bytes) to all ranks. Ranks of other processes get
 * the allocations that the range lies in. Errors: of uli_share_export_run and
 * of uli_windows_give. */
ulyx_status_t uli_mem_device_give(ulyx_comm_t *comm, void *address,
    int64_t bytes, int32_t device, uli_deadline_t deadline, uint32_t *window_p);

#endif
