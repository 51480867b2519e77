/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading parameter structs of other versions.
 */
#include "api/params.h"

#include <string.h>
#include "base/status.h"

/* No struct of ours will ever be longer: a size beyond it is garbage. */
enum { ABSURD_BYTES = 1 << 16 };

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
