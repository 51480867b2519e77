/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls of pool.h.
 */
#include "ulyx/pool.h"

#include <inttypes.h>
#include "api/params.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/memory/pool.h"

ulyx_status_t
ulyx_pool_attach(ulyx_comm_t *comm)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    return uli_pool_attach(comm);
}

ulyx_status_t
ulyx_pool_detach(ulyx_comm_t *comm)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    return uli_pool_detach(comm);
}

static ulyx_status_t
check_size(size_t bytes, int device)
{
    if (bytes == 0 || bytes > (size_t)INT64_MAX)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "pool: bytes is %zu, must be 1 to %" PRId64, bytes, INT64_MAX);
    if (device < 0 || device == INT32_MAX)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "pool: device is %d, must be an ordinal, 0 or more", device);
    return ULYX_SUCCESS;
}

void *
ulyx_pool_malloc(size_t bytes, int device, void *stream)
{
    void *address = NULL;
    (void)stream; /* no earlier work uses a new allocation */
    if (uli_api_enter() != ULYX_SUCCESS ||
        check_size(bytes, device) != ULYX_SUCCESS ||
        uli_pool_malloc((int64_t)bytes, device, &address) != ULYX_SUCCESS)
        return NULL;
    return address;
}

/* The signature has no place for an error, so an error is logged. */
void
ulyx_pool_free(void *address, size_t bytes, int device, void *stream)
{
    (void)bytes, (void)device; /* the pool knows both */
    if (address && (uli_api_enter() != ULYX_SUCCESS ||
                       uli_pool_free(address, stream) != ULYX_SUCCESS))
        ULI_WARN(ULI_LOG_MEM, -1, "%s", uli_error_text());
}

void *
ulyx_pool_malloc_host(size_t bytes)
{
    void *address = NULL;
    if (uli_api_enter() != ULYX_SUCCESS ||
        check_size(bytes, 0) != ULYX_SUCCESS ||
        uli_pool_malloc_host((int64_t)bytes, &address) != ULYX_SUCCESS)
        return NULL;
    return address;
}

void
ulyx_pool_free_host(void *address)
{
    if (address && (uli_api_enter() != ULYX_SUCCESS ||
                       uli_pool_free_host(address) != ULYX_SUCCESS))
        ULI_WARN(ULI_LOG_MEM, -1, "%s", uli_error_text());
}

ulyx_status_t
ulyx_pool_get_counts(int64_t *allocations_p, int64_t *quarantined_p)
{
    int64_t allocations, quarantined;
    ULI_TRY(uli_api_enter());
    uli_pool_counts(&allocations, &quarantined);
    if (allocations_p)
        *allocations_p = allocations;
    if (quarantined_p)
        *quarantined_p = quarantined;
    return ULYX_SUCCESS;
}
