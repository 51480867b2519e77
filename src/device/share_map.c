/* SPDX-License-Identifier: Apache-2.0
 *
 * See share.h. Maps memory of other processes. A peer's description of its
 * memory is checked for everything that could make this process fail; the
 * driver checks that the memory is as large as described, because it maps no
 * more than exists. The handles are released as soon as they are mapped,
 * because a mapping keeps its memory alive.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"
#include "device/share.h"

/* ---- checks -------------------------------------------------------------- */

static bool
makes_a_run(const struct uli_share *shares, int32_t count)
{
    uint64_t at = count > 0 ? shares[0].base : 0;
    for (int32_t i = 0; i < count; i++) {
        bool known = shares[i].form == ULI_SHARE_DESCRIPTOR ||
                     shares[i].form == ULI_SHARE_FABRIC ||
                     (shares[i].form == ULI_SHARE_IPC && count == 1);
        if (!known || shares[i].bytes < 1 || shares[i].base != at ||
            shares[i].bytes > INT64_MAX / ULI_SHARE_RUN ||
            (uint64_t)shares[i].bytes > UINT64_MAX - at)
            return false;
        at += (uint64_t)shares[i].bytes;
    }
    return count > 0 && count <= ULI_SHARE_RUN;
}

static ulyx_status_t
check_run(const struct uli_share *shares, int32_t count)
{
    if (makes_a_run(shares, count))
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_SYSTEM,
        "a peer's device memory: %d shares, the first of form %d and %" PRId64
        " bytes, make no run",
        count, count > 0 ? shares[0].form : 0,
        count > 0 ? shares[0].bytes : INT64_C(0));
}

/* ---- mapped allocations -------------------------------------------------- */

static ulyx_status_t
take_handle(const struct uli_share *share, uli_cu_memory *memory_p)
{
    unsigned char token[sizeof(share->token)];
    memcpy(token, share->token, sizeof(token));
    if (share->form == ULI_SHARE_FABRIC)
        return ULI_CUDA(
            cuMemImportFromShareableHandle, (memory_p, token, ULI_CU_FABRIC));
    return ULI_CUDA(cuMemImportFromShareableHandle,
        (memory_p, (void *)(intptr_t)share->fd, ULI_CU_DESCRIPTOR));
}

static ulyx_status_t
map_share(const struct uli_share *share, uli_cu_ptr at)
{
    uli_cu_memory memory = 0;
    ULI_TRY(take_handle(share, &memory));
    ulyx_status_t status =
        ULI_CUDA(cuMemMap, (at, (size_t)share->bytes, 0, memory, 0));
    uli_cuda_calls()->cuMemRelease(memory);
    return status;
}

/* Unmaps `count` shares and frees the addresses. Takes all steps, even after an
 * error, and returns the first error. */
static ulyx_status_t
take_down(const struct uli_share_import *import, int32_t count)
{
    const struct uli_cu_calls *calls = uli_cuda_calls();
    uli_cu_ptr base = (uli_cu_ptr)(uintptr_t)import->address, at = base;
    uli_cu_result first = ULI_CU_SUCCESS;
    for (int32_t i = 0; i < count; i++) {
        uli_cu_result result =
            calls->cuMemUnmap(at, (size_t)import->share_bytes[i]);
        first = first == ULI_CU_SUCCESS ? result : first;
        at += (uli_cu_ptr)import->share_bytes[i];
    }
    uli_cu_result freed = calls->cuMemAddressFree(base, (size_t)import->bytes);
    ULI_TRY(uli_cuda_status(first, "cuMemUnmap"));
    return uli_cuda_status(freed, "cuMemAddressFree");
}

static ulyx_status_t
map_shares(const struct uli_share *shares, struct uli_share_import *import)
{
    const struct uli_cu_access access = {
        ULI_CU_ON_DEVICE, import->device, ULI_CU_READ_WRITE};
    ulyx_status_t status = ULYX_SUCCESS;
    uli_cu_ptr base = 0;
    int32_t mapped = 0;
    ULI_TRY(
        ULI_CUDA(cuMemAddressReserve, (&base, (size_t)import->bytes, 0, 0, 0)));
    import->address = (void *)(uintptr_t)base;
    uli_cu_ptr at = base;
    while (status == ULYX_SUCCESS && mapped < import->nshares) {
        status = map_share(&shares[mapped], at);
        at += (uli_cu_ptr)shares[mapped].bytes;
        mapped += status == ULYX_SUCCESS;
    }
    if (status == ULYX_SUCCESS)
        status =
            ULI_CUDA(cuMemSetAccess, (base, (size_t)import->bytes, &access, 1));
    if (status != ULYX_SUCCESS) {
        char cause[512];
        strncpy(cause, uli_error_text(), sizeof(cause) - 1);
        cause[sizeof(cause) - 1] = 0;
        (void)take_down(import, mapped);
        return uli_error_pass(status, cause);
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
map_run(const struct uli_share *shares, int32_t count,
    struct uli_share_import *import)
{
    import->share_bytes = calloc((size_t)count, sizeof(int64_t));
    if (!import->share_bytes)
        return uli_error(
            ULYX_ERR_NO_MEMORY, "an import of device memory: no memory");
    import->nshares = count;
    for (int32_t i = 0; i < count; i++) {
        import->share_bytes[i] = shares[i].bytes;
        import->bytes += shares[i].bytes;
    }
    ulyx_status_t status = map_shares(shares, import);
    if (status != ULYX_SUCCESS)
        free(import->share_bytes);
    return status;
}

/* ---- plain allocations --------------------------------------------------- */

static ulyx_status_t
map_ipc(const struct uli_share *share, struct uli_share_import *import)
{
    struct uli_cu_ipc ipc;
    uli_cu_ptr at = 0;
    memcpy(ipc.bytes, share->token, sizeof(ipc.bytes));
    ULI_TRY(ULI_CUDA(cuIpcOpenMemHandle, (&at, ipc, 1 /* peer access */)));
    import->address = (void *)(uintptr_t)at;
    import->bytes = share->bytes;
    return ULYX_SUCCESS;
}

/* ---- either -------------------------------------------------------------- */

ulyx_status_t
uli_share_map(int32_t device, const struct uli_share *shares, int32_t count,
    struct uli_share_import *import_p)
{
    ULI_TRY(check_run(shares, count));
    struct uli_share_import import = {.form = shares[0].form, .device = device};
    ULI_TRY(uli_cuda_enter(device));
    ULI_TRY(uli_cuda_leave(import.form == ULI_SHARE_IPC
                               ? map_ipc(shares, &import)
                               : map_run(shares, count, &import)));
    *import_p = import;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_share_unmap(const struct uli_share_import *import)
{
    ulyx_status_t status = uli_cuda_enter(import->device);
    if (status == ULYX_SUCCESS)
        status =
            uli_cuda_leave(import->form == ULI_SHARE_IPC
                               ? ULI_CUDA(cuIpcCloseMemHandle,
                                     ((uli_cu_ptr)(uintptr_t)import->address))
                               : take_down(import, import->nshares));
    free(import->share_bytes);
    return status;
}
