/* SPDX-License-Identifier: Apache-2.0
 *
 * See library.h. The caller owns the table, so nothing here is shared between
 * threads.
 */
#include "transport/nccl/library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* A pointer to a function is copied as bytes, because ISO C does not convert
 * it. */
static bool
library_find(void *library, const char *name, void *function_p)
{
    void *found = dlsym(library, name);
    memcpy(function_p, &found, sizeof(found));
    return found != NULL;
}

static bool
find_all(void *library, struct uli_nccl_calls *calls, const char **missing_p)
{
#define ULI_NCCL_FIND(name, parameters)                                        \
    *missing_p = "nccl" #name;                                                 \
    if (!library_find(library, *missing_p, &calls->name))                      \
        return false;
    ULI_NCCL_CALLS(ULI_NCCL_FIND)
    ULI_NCCL_FIND(GetErrorString, )
    ULI_NCCL_FIND(GetLastError, )
    return true;
}

/* Version numbers: 2.18.3 is 21803; before 2.9, 2.8.4 was 2804. */
static bool
is_new_enough(
    struct uli_nccl_calls *calls, const char *name, char *why_p, size_t bytes)
{
    if (calls->GetVersion(&calls->version) != ULI_NCCL_SUCCESS) {
        snprintf(why_p, bytes, "%s: ncclGetVersion failed", name);
        return false;
    }
    if (calls->version >= ULI_NCCL_OLDEST)
        return true;
    int unit = calls->version < 10000 ? 1000 : 10000;
    snprintf(why_p, bytes, "%s is NCCL %d.%d: 2.18 or later is needed", name,
        calls->version / unit, calls->version % unit / 100);
    return false;
}

ulyx_status_t
uli_nccl_open(const char *name, struct uli_nccl_calls *calls_p, char *why_p,
    size_t why_bytes)
{
    struct uli_nccl_calls calls;
    const char *missing = NULL;
    int version = 0, (*get_version)(int *) = NULL;
    name = *name ? name : "libnccl.so.2";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        snprintf(why_p, why_bytes,
            "%s; install NCCL 2.18 or later, or name it by ULYX_NCCL_LIB",
            dlerror());
        return ULYX_ERR_UNSUPPORTED;
    }
    /* A library that lacks calls because it is old gets the error about its
     * version instead. */
    if (!find_all(library, &calls, &missing) &&
        (!library_find(library, "ncclGetVersion", &get_version) ||
            get_version(&version) != ULI_NCCL_SUCCESS ||
            version >= ULI_NCCL_OLDEST)) {
        snprintf(why_p, why_bytes, "%s has no %s", name, missing);
        goto err_close;
    }
    library_find(library, "ncclGetVersion", &calls.GetVersion);
    if (!is_new_enough(&calls, name, why_p, why_bytes))
        goto err_close;
    dlclose(library); /* gives back one count; the library stays loaded */
    *calls_p = calls;
    return ULYX_SUCCESS;
err_close:
    dlclose(library);
    return ULYX_ERR_UNSUPPORTED;
}
