/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls of types.h.
 */
#include "ulyx/types.h"

#include <string.h>
#include "base/dtype.h"
#include "base/log.h"
#include "base/params/structs.h"
#include "base/status.h"

ulyx_status_t
ulyx_get_version(int32_t *major_p, int32_t *minor_p, int32_t *patch_p)
{
    if (!major_p || !minor_p || !patch_p)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "ulyx_get_version: a result pointer is NULL");
    *major_p = ULYX_VERSION_MAJOR;
    *minor_p = ULYX_VERSION_MINOR;
    *patch_p = ULYX_VERSION_PATCH;
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_get_struct_size(const char *name, size_t *bytes_p)
{
    if (!name || !bytes_p)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "ulyx_get_struct_size: %s is NULL", name ? "bytes_p" : "name");
    for (int i = 0; i < ULI_STRUCTS; i++)
        if (strcmp(uli_structs[i].name, name) == 0) {
            *bytes_p = uli_structs[i].bytes;
            return ULYX_SUCCESS;
        }
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "ulyx_get_struct_size: there is no struct %s", name);
}

ulyx_status_t
ulyx_log_set(ulyx_log_fn log, void *context, ulyx_log_level_t level)
{
    if (level < ULYX_LOG_DEFAULT || level > ULYX_LOG_TRACE)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "level is %d, must be a ULYX_LOG code", level);
    if (uli_log_redirect(log, context, (enum uli_log_level)level))
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_TIMEOUT,
        "a thread has not yet returned from the previous log function");
}

const char *
ulyx_status_name(ulyx_status_t status)
{
    return uli_status_name(status);
}

const char *
ulyx_status_text(ulyx_status_t status)
{
    return uli_status_text(status);
}

const char *
ulyx_last_error(void)
{
    return uli_error_text();
}

int64_t
ulyx_dtype_size(ulyx_dtype_t dtype)
{
    return uli_dtype_size(dtype);
}
