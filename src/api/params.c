/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading parameter structs of other versions.
 */
#include "api/params.h"

#include <string.h>
#include "base/status.h"
#include "comm/comm.h"

/* No struct of ours will ever be longer: a size beyond it is garbage. */
enum { ABSURD_BYTES = 1 << 16, MAX_TIMEOUT_S = 86400 };

ulyx_status_t
uli_params_copy(void *own_p, size_t own_bytes, size_t least_bytes,
    const void *given, const void *defaults, const char *name)
{
    size_t size;

    if (given == NULL) {
        memcpy(own_p, defaults, own_bytes);
        return ULYX_SUCCESS;
    }
    memcpy(&size, given, sizeof(size));
    if (size < least_bytes || size > ABSURD_BYTES)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s.size is %zu, expected at least %zu: start from the _INIT macro",
            name, size, least_bytes);
    for (size_t i = own_bytes; i < size; i++)
        if (((const unsigned char *)given)[i] != 0)
            return uli_error(ULYX_ERR_UNSUPPORTED,
                "%s has a non-zero field at byte %zu that this version of the "
                "library (%zu bytes) does not know",
                name, i, own_bytes);
    memset(own_p, 0, own_bytes);
    memcpy(own_p, given, size < own_bytes ? size : own_bytes);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_params_array(const void *array, size_t element_bytes, size_t own_bytes,
    int32_t count, int32_t most, const char *name)
{
    if (count < 1 || count > most)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "n%s is %d, must be 1 to %d", name, count, most);
    if (array == NULL)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT, "%s is NULL", name);
    if (element_bytes < own_bytes || element_bytes > ABSURD_BYTES)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "the size of an element of %s is %zu, expected at least %zu: start "
            "from the _INIT macro",
            name, element_bytes, own_bytes);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_params_element(void *own_p, size_t own_bytes, const void *array,
    size_t element_bytes, int index, const char *name)
{
    const unsigned char *element =
        (const unsigned char *)array + (size_t)index * element_bytes;

    for (size_t i = own_bytes; i < element_bytes; i++)
        if (element[i] != 0)
            return uli_error(ULYX_ERR_UNSUPPORTED,
                "%s[%d] has a non-zero byte at %zu that this version of the "
                "library (%zu bytes) does not know",
                name, index, i, own_bytes);
    memcpy(own_p, element, own_bytes);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_params_timeout(double timeout_s)
{
    if (timeout_s >= 0 && timeout_s <= MAX_TIMEOUT_S)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "timeout_s is %g, must be 0 to %d", timeout_s, MAX_TIMEOUT_S);
}

ulyx_status_t
uli_api_host_only(const ulyx_comm_t *comm, const char *call)
{
    if (comm->memory_kind == ULYX_MEMORY_HOST)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_UNSUPPORTED,
        "%s does not move CUDA memory yet: %.63s is a communicator of it", call,
        comm->name);
}

ulyx_status_t
uli_api_stream(const ulyx_comm_t *comm, const void *stream)
{
    if (!stream || comm->memory_kind != ULYX_MEMORY_HOST)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "stream is %p, must be NULL on the host", stream);
}
