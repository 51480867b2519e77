/* SPDX-License-Identifier: Apache-2.0
 *
 * See cuda_driver.h. The table is published by one release store and never
 * changes after it; the library stays open until the process ends, because the
 * driver cannot be unloaded.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "base/status.h"
#include "device/cuda_driver.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct uli_cu_calls calls;
static _Atomic bool is_open;

/* Both forms of cuGetProcAddress. Function pointers are copied with memcpy,
 * because ISO C does not convert void * to them. */
struct lookup {
    uli_cu_result (*with_status)(const char *name, void **function, int version,
        uint64_t flags, int *status);
    uli_cu_result (*plain)(
        const char *name, void **function, int version, uint64_t flags);
};

static bool
cuda_driver_symbol(void *library, const char *name, void *function_p)
{
    void *found = dlsym(library, name);
    memcpy(function_p, &found, sizeof(found));
    return found != NULL;
}

static bool
lookup_find(const struct lookup *lookup, const char *name, int version,
    void *function_p)
{
    void *found = NULL;
    int status = 0;
    uli_cu_result result =
        lookup->with_status
            ? lookup->with_status(name, &found, version, 0, &status)
            : lookup->plain(name, &found, version, 0);
    memcpy(function_p, &found, sizeof(found));
    return result == ULI_CU_SUCCESS && found;
}

static ulyx_status_t
find_all(
    const struct lookup *lookup, const char *library, struct uli_cu_calls *to)
{
#define ULI_CU_FIND(name, version, parameters)                                 \
    if (!lookup_find(lookup, #name, version, &to->name))                       \
        return uli_error(ULYX_ERR_UNSUPPORTED,                                 \
            "CUDA driver %s: it has no %s of version %d", library, #name,      \
            version);
    ULI_CU_CALLS(ULI_CU_FIND)
    return ULYX_SUCCESS;
}

/* Reports a driver error with its name and text, which come from the calls of
 * `with`. */
static ulyx_status_t
cu_calls_report(const struct uli_cu_calls *with, ulyx_status_t status,
    uli_cu_result result, const char *call)
{
    const char *name = NULL, *text = NULL;
    if (with->cuGetErrorName(result, &name) != ULI_CU_SUCCESS || !name)
        name = "unknown error";
    if (with->cuGetErrorString(result, &text) != ULI_CU_SUCCESS || !text)
        text = "no text";
    return uli_error(status, "%s: %s (%d): %s", call, name, result, text);
}

static ulyx_status_t
cu_calls_start(const struct uli_cu_calls *with, const char *library)
{
    int version = 0, count = 0;
    uli_cu_result result = with->cuInit(0);
    if (result != ULI_CU_SUCCESS)
        return cu_calls_report(with, ULYX_ERR_UNSUPPORTED, result, "cuInit");
    result = with->cuDriverGetVersion(&version);
    if (result != ULI_CU_SUCCESS)
        return cu_calls_report(
            with, ULYX_ERR_UNSUPPORTED, result, "cuDriverGetVersion");
    result = with->cuDeviceGetCount(&count);
    if (result != ULI_CU_SUCCESS)
        return cu_calls_report(
            with, ULYX_ERR_UNSUPPORTED, result, "cuDeviceGetCount");
    if (count == 0)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "CUDA driver %s of version %d.%d: no device", library,
            version / 1000, version % 1000 / 10);
    return ULYX_SUCCESS;
}

static ulyx_status_t
open_library(const char *name)
{
    struct uli_cu_calls found;
    struct lookup lookup = {NULL, NULL};
    ulyx_status_t status;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return uli_error(ULYX_ERR_UNSUPPORTED, "CUDA driver: %s", dlerror());
    if (!cuda_driver_symbol(
            library, "cuGetProcAddress_v2", &lookup.with_status) &&
        !cuda_driver_symbol(library, "cuGetProcAddress", &lookup.plain)) {
        status = uli_error(ULYX_ERR_UNSUPPORTED,
            "CUDA driver %s: older than 11.3 (no cuGetProcAddress)", name);
        goto err_close;
    }
    status = find_all(&lookup, name, &found);
    if (status == ULYX_SUCCESS)
        status = cu_calls_start(&found, name);
    if (status != ULYX_SUCCESS)
        goto err_close;
    calls = found;
    atomic_store_explicit(&is_open, true, memory_order_release);
    return ULYX_SUCCESS;
err_close:
    dlclose(library);
    return status;
}

ulyx_status_t
uli_cuda_open(const char *library)
{
    ulyx_status_t status = ULYX_SUCCESS;
    if (atomic_load_explicit(&is_open, memory_order_acquire))
        return ULYX_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!atomic_load_explicit(&is_open, memory_order_relaxed))
        status = open_library(library ? library : "libcuda.so.1");
    pthread_mutex_unlock(&lock);
    return status;
}

bool
uli_cuda_present(char *why_p, size_t why_bytes)
{
    if (atomic_load_explicit(&is_open, memory_order_acquire))
        return true;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library)
        dlclose(library);
    else
        snprintf(why_p, why_bytes, "no CUDA driver: %s", dlerror());
    return library != NULL;
}

const struct uli_cu_calls *
uli_cuda_calls(void)
{
    return &calls;
}

bool
uli_cuda_no_image(uli_cu_result result)
{
    return result == ULI_CU_NO_IMAGE || result == ULI_CU_UNSUPPORTED_PTX;
}

ulyx_status_t
uli_cuda_status(uli_cu_result result, const char *call)
{
    if (uli_cuda_no_image(result))
        return uli_error(ULYX_ERR_UNSUPPORTED, "%s: " ULI_CUDA_NO_IMAGE, call);
    switch (result) {
    case ULI_CU_SUCCESS:
        return ULYX_SUCCESS;
    case ULI_CU_NOT_READY:
        return ULYX_IN_PROGRESS;
    case ULI_CU_OUT_OF_MEMORY:
        return cu_calls_report(&calls, ULYX_ERR_NO_MEMORY, result, call);
    case ULI_CU_INVALID_VALUE:
    case ULI_CU_INVALID_DEVICE:
    case ULI_CU_INVALID_HANDLE:
        return cu_calls_report(&calls, ULYX_ERR_INVALID_ARGUMENT, result, call);
    case ULI_CU_STUB_LIBRARY:
    case ULI_CU_INSUFFICIENT_DRIVER:
    case ULI_CU_NO_DEVICE:
    case ULI_CU_NOT_SUPPORTED:
    case ULI_CU_SYSTEM_NOT_READY:
    case ULI_CU_SYSTEM_DRIVER_MISMATCH:
    case ULI_CU_COMPAT_NOT_SUPPORTED:
        return cu_calls_report(&calls, ULYX_ERR_UNSUPPORTED, result, call);
    default:
        return cu_calls_report(&calls, ULYX_ERR_SYSTEM, result, call);
    }
}
