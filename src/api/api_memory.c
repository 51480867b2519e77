/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls of memory.h.
 */
#include "ulyx/memory.h"

#include <inttypes.h>
#include "api/params.h"
#include "base/status.h"
#include "comm/memory/mem.h"

#define MEM(member)                                                            \
    ULI_FIELD(ulyx_mem_params_t, member, ulyx_mem_params_t, member)
static const struct uli_field mem_rows[] = {
    {MEM(memory_kind), ULYX_MEMORY_HOST, ULYX_MEMORY_CUDA,
        .rule = "a ULYX_MEMORY code"},
    {MEM(device), ULI_AT_LEAST(-1), .rule = "an ordinal, or -1"},
    {MEM(flags), 0, ULYX_MEM_HUGEPAGES},
};
static const struct uli_fields mem_fields = ULI_FIELDS(mem_rows);

static ulyx_status_t
take_params(const ulyx_mem_params_t *given, ulyx_mem_params_t *own_p)
{
    ULI_TRY(uli_struct_take_or_default(
        &uli_structs[ULI_STRUCT_MEM_PARAMS], given, own_p));
    return uli_fields_check(&mem_fields, own_p);
}

static ulyx_status_t
check_bytes(int64_t bytes)
{
    if (bytes <= 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "bytes is %" PRId64 ", must be at least 1", bytes);
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_mem_alloc(int64_t bytes, const ulyx_mem_params_t *params,
    ulyx_mem_t **mem_p, void **address_p)
{
    ulyx_mem_params_t own;
    ulyx_mem_t *mem;
    int64_t size;
    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(mem_p);
    ULI_CHECK_POINTER(address_p);
    ULI_TRY(check_bytes(bytes));
    ULI_TRY(take_params(params, &own));
    ULI_TRY(uli_mem_alloc(bytes, own.memory_kind, own.device,
        own.flags & ULYX_MEM_HUGEPAGES, &mem));
    uli_mem_range(mem, address_p, &size);
    *mem_p = mem;
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_mem_register(void *address, int64_t bytes, const ulyx_mem_params_t *params,
    ulyx_mem_t **mem_p)
{
    ulyx_mem_params_t own;
    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(address);
    ULI_CHECK_POINTER(mem_p);
    ULI_TRY(check_bytes(bytes));
    ULI_TRY(take_params(params, &own));
    if ((uint64_t)bytes > UINTPTR_MAX - (uintptr_t)address)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "bytes is %" PRId64 ": from %p on, this exceeds the address space",
            bytes, address);
    return uli_mem_register(address, bytes, own.memory_kind, own.device, mem_p);
}

ulyx_status_t
ulyx_mem_attach(ulyx_comm_t *comm, ulyx_mem_t *mem)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    ULI_ENTER(ULI_HANDLE_MEM, mem);
    return uli_mem_attach(comm, mem);
}

ulyx_status_t
ulyx_mem_detach(ulyx_comm_t *comm, ulyx_mem_t *mem)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    ULI_ENTER(ULI_HANDLE_MEM, mem);
    return uli_mem_detach(comm, mem);
}

ulyx_status_t
ulyx_mem_free(ulyx_mem_t *mem)
{
    ULI_TRY(uli_api_enter());
    if (!mem)
        return ULYX_SUCCESS;
    ULI_TRY(uli_handle_close(ULI_HANDLE_MEM, mem, "mem"));
    return uli_handle_closed(mem, uli_mem_free(mem));
}

ulyx_status_t
ulyx_mem_get_range(const ulyx_mem_t *mem, void **address_p, int64_t *bytes_p)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_MEM, mem);
    ULI_CHECK_POINTER(address_p);
    ULI_CHECK_POINTER(bytes_p);
    uli_mem_range(mem, address_p, bytes_p);
    return ULYX_SUCCESS;
}
