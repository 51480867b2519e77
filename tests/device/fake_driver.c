/* SPDX-License-Identifier: Apache-2.0
 *
 * See fake_driver.h. Built three times: with the lookup of 12.0, with that of
 * 11.3, and without any.
 */
#include "device/fake_driver.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "device/cuda_driver.h"
#include "device/fake_memory.h"

#define EXPORT __attribute__((visibility("default")))

static void set_faults(const char *failing, int result, const char *fatal);

extern struct fake_driver fake_driver;
EXPORT struct fake_driver fake_driver = {.devices = 2,
    .faults = set_faults,
    .count = fake_memory_count,
    .forget = fake_memory_forget};

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

char
fake_hold(void)
{
    return (char)pthread_mutex_lock(&lock);
}

void
fake_let_go(char *guard)
{
    *guard = (char)pthread_mutex_unlock(&lock);
}

bool
fake_no_fabric(void)
{
    return fake_driver.no_fabric;
}

static void
set_faults(const char *failing, int result, const char *fatal)
{
    FAKE_GUARD();
    fake_driver.failing = failing;
    fake_driver.result = result;
    fake_driver.fatal = fatal;
}

int
fake_outcome(const char *name)
{
    FAKE_GUARD();
    const char *failing = fake_driver.failing;
    if (fake_driver.fatal && strcmp(fake_driver.fatal, name) == 0)
        raise(SIGKILL);
    return failing && strcmp(failing, name) == 0 ? fake_driver.result : 0;
}

int
do_cuInit(unsigned flags)
{
    return flags ? ULI_CU_INVALID_VALUE : fake_outcome("cuInit");
}

int
do_cuDriverGetVersion(int *version)
{
    *version = 12040;
    return fake_outcome("cuDriverGetVersion");
}

int
do_cuGetErrorName(int error, const char **name)
{
    *name = error == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_FAKE";
    return 0;
}

int
do_cuGetErrorString(int error, const char **text)
{
    *text = "words of the driver";
    return error == 12345 ? ULI_CU_INVALID_VALUE : 0;
}

int
do_cuDeviceGetCount(int *count)
{
    *count = fake_driver.devices;
    return fake_outcome("cuDeviceGetCount");
}

int
do_cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal < fake_driver.devices ? 0 : ULI_CU_INVALID_DEVICE;
}

/* Device n of every process is the same one. */
int
do_cuDeviceGetUuid(void *uuid, int device)
{
    memset(uuid, 0, 16);
    memcpy(uuid, "fake", 4);
    memcpy((char *)uuid + 8, &device, sizeof(device));
    return fake_outcome("cuDeviceGetUuid");
}

int
do_cuDeviceGetPCIBusId(char *text, int bytes, int device)
{
    snprintf(text, (size_t)bytes, "0000:%02x:00.0", device + 1);
    return fake_outcome("cuDeviceGetPCIBusId");
}

int
do_cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer && !fake_driver.no_peers;
    return fake_outcome("cuDeviceCanAccessPeer");
}

int
do_cuDevicePrimaryCtxRetain(void **context, int device)
{
    FAKE_GUARD();
    *context = &fake_driver.devices + device;
    fake_driver.retained++;
    return fake_outcome("cuDevicePrimaryCtxRetain");
}

int
do_cuDevicePrimaryCtxRelease(int device)
{
    (void)device;
    fake_driver.retained--;
    return 0;
}

/* The contexts that a thread has pushed: a context is its device. */
static _Thread_local int pushed[16], npushed;

int
fake_device_now(void)
{
    return npushed ? pushed[npushed - 1] : 0;
}

int
do_cuCtxPushCurrent(void *context)
{
    FAKE_GUARD();
    int outcome = fake_outcome("cuCtxPushCurrent");
    if (outcome != 0)
        return outcome;
    if (npushed < 16)
        pushed[npushed++] = (int)((int *)context - &fake_driver.devices);
    fake_driver.depth += context != NULL;
    return 0;
}

int
do_cuCtxPopCurrent(void **context)
{
    FAKE_GUARD();
    *context = NULL;
    npushed -= npushed > 0;
    fake_driver.depth--;
    return 0;
}

int
do_cuCtxGetDevice(int *device)
{
    *device = fake_driver.current;
    return fake_driver.current < 0 ? ULI_CU_INVALID_CONTEXT
                                   : fake_outcome("cuCtxGetDevice");
}

int
do_cuCtxEnablePeerAccess(void *peer, unsigned flags)
{
    FAKE_GUARD();
    if (flags || !peer)
        return ULI_CU_INVALID_VALUE;
    if (fake_outcome("cuCtxEnablePeerAccess"))
        return fake_outcome("cuCtxEnablePeerAccess");
    return fake_driver.peers++ ? ULI_CU_PEER_ALREADY_ENABLED : 0;
}

/* Counts threads that are not in the capture mode in which they began. */
int
do_cuThreadExchangeStreamCaptureMode(int *mode)
{
    static _Thread_local int now;
    FAKE_GUARD();
    int before = now;
    now = *mode;
    *mode = before;
    fake_driver.relaxed += (now != 0) - (before != 0);
    return 0;
}

/* Returns the attributes of memory that this driver has made. */
static int
made_attribute(void *value, int attribute, const struct fake_range *range)
{
    if (attribute == 11 || attribute == 19) /* RANGE_START, MAPPING_BASE */
        memcpy(value, &range->base, sizeof(range->base));
    else if (attribute == 12 || attribute == 18) /* their sizes */
        memcpy(value, &range->bytes, sizeof(range->bytes));
    else if (attribute == 7) /* BUFFER_ID */
        memcpy(value, &range->id, sizeof(range->id));
    else {
        /* MEMORY_TYPE, IS_MANAGED, DEVICE_ORDINAL, IS_LEGACY_IPC */
        int result = attribute == 2    ? 2
                     : attribute == 9  ? range->device
                     : attribute == 10 ? range->ipc && !fake_driver.no_ipc
                                       : 0;
        memcpy(value, &result, sizeof(result));
    }
    return 0;
}

int
do_cuPointerGetAttribute(void *value, int attribute, uli_cu_ptr address)
{
    FAKE_GUARD();
    uli_cu_ptr start = (uintptr_t)fake_driver.device_at;
    uli_cu_ptr managed = (uintptr_t)fake_driver.managed_at;
    int of_device = address - start < (uli_cu_ptr)fake_driver.device_bytes;
    if (fake_outcome("cuPointerGetAttribute"))
        return fake_outcome("cuPointerGetAttribute");
    struct fake_range made;
    if (fake_memory_find(address, &made))
        return made_attribute(value, attribute, &made);
    if (!of_device && address != managed)
        return ULI_CU_INVALID_VALUE;
    if (attribute == 11) { /* RANGE_START_ADDR */
        memcpy(value, of_device ? &start : &managed, sizeof(start));
        return 0;
    }
    if (attribute == 12) { /* RANGE_SIZE */
        size_t bytes = of_device ? (size_t)fake_driver.device_bytes : 1;
        memcpy(value, &bytes, sizeof(bytes));
        return 0;
    }
    /* MEMORY_TYPE, IS_MANAGED, DEVICE_ORDINAL, IS_LEGACY_CUDA_IPC_CAPABLE */
    int result = attribute == 2   ? of_device ? 2 : 4
                 : attribute == 8 ? !of_device
                                  : of_device;
    memcpy(value, &result, sizeof(result));
    return 0;
}

int
do_cuMemcpyAsync(uli_cu_ptr dst, uli_cu_ptr src, size_t bytes, void *stream)
{
    (void)stream;
    memcpy((void *)(uintptr_t)dst, (void *)(uintptr_t)src, bytes);
    return fake_outcome("cuMemcpyAsync");
}

static void
copy_rows(const struct uli_cu_copy2d *copy, size_t src_from, size_t dst_from)
{
    for (size_t y = 0; y < copy->height; y++)
        memcpy((char *)(uintptr_t)copy->dst.device + dst_from +
                   y * copy->dst.pitch,
            (char *)(uintptr_t)copy->src.device + src_from +
                y * copy->src.pitch,
            copy->width_bytes);
}

int
do_cuMemcpy2DAsync(const struct uli_cu_copy2d *copy, void *stream)
{
    (void)stream;
    copy_rows(copy, 0, 0);
    return fake_outcome("cuMemcpy2DAsync");
}

int
do_cuMemcpy3DAsync(const struct uli_cu_copy3d *copy, void *stream)
{
    struct uli_cu_copy2d plane = {.width_bytes = copy->width_bytes,
        .height = copy->height,
        .src = {.device = copy->src.device, .pitch = copy->src.pitch},
        .dst = {.device = copy->dst.device, .pitch = copy->dst.pitch}};
    (void)stream;
    for (size_t z = 0; z < copy->depth; z++)
        copy_rows(&plane, z * copy->src.height * copy->src.pitch,
            z * copy->dst.height * copy->dst.pitch);
    return fake_outcome("cuMemcpy3DAsync");
}

int
do_cuMemsetD8Async(
    uli_cu_ptr address, unsigned char value, size_t bytes, void *stream)
{
    (void)stream;
    memset((void *)(uintptr_t)address, value, bytes);
    return fake_outcome("cuMemsetD8Async");
}

static int
object_make(void **object)
{
    *object = malloc(1);
    return 0;
}

int
do_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return 0;
}

/* Non-blocking, and of the highest priority. */
int
do_cuStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
    int outcome = fake_outcome("cuStreamCreateWithPriority");
    if (outcome)
        return outcome;
    return flags == 1 && priority == -5 ? object_make(stream)
                                        : ULI_CU_INVALID_VALUE;
}

int
do_cuStreamDestroy(void *stream)
{
    free(stream);
    return 0;
}

int
do_cuStreamSynchronize(void *stream)
{
    (void)stream;
    return fake_outcome("cuStreamSynchronize");
}

int
do_cuStreamIsCapturing(void *stream, int *status)
{
    (void)stream;
    *status = fake_driver.capturing;
    return 0;
}

int
do_cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    return stream && event && !flags ? 0 : ULI_CU_INVALID_HANDLE;
}

int
do_cuLaunchHostFunc(void *stream, void (*call)(void *data), void *data)
{
    (void)stream;
    int result = fake_outcome("cuLaunchHostFunc");
    if (!result)
        call(data);
    return result;
}

int
do_cuEventCreate(void **event, unsigned flags)
{
    return flags == 2 || flags == 0 ? object_make(event) : ULI_CU_INVALID_VALUE;
}

int
do_cuEventDestroy(void *event)
{
    free(event);
    return 0;
}

int
do_cuEventRecord(void *event, void *stream)
{
    return event && stream ? 0 : ULI_CU_INVALID_HANDLE;
}

int
do_cuEventQuery(void *event)
{
    (void)event;
    return fake_driver.pending ? ULI_CU_NOT_READY : 0;
}

int
do_cuEventElapsedTime(float *ms, void *from, void *to)
{
    *ms = 1.5F;
    return !from || !to          ? ULI_CU_INVALID_HANDLE
           : fake_driver.pending ? ULI_CU_NOT_READY
                                 : 0;
}

int
do_cuStreamBeginCapture(void *stream, int mode)
{
    if (!stream || mode != 1)
        return ULI_CU_INVALID_VALUE;
    fake_driver.capturing = 1;
    return fake_outcome("cuStreamBeginCapture");
}

int
do_cuStreamEndCapture(void *stream, void **graph)
{
    if (!stream || !fake_driver.capturing)
        return ULI_CU_INVALID_VALUE;
    fake_driver.capturing = 0;
    fake_driver.graphs++;
    return object_make(graph);
}

int
do_cuGraphInstantiate(
    void **exec, void *graph, void **node, char *text, size_t bytes)
{
    int result = fake_outcome("cuGraphInstantiate");
    if (result)
        return result;
    fake_driver.graphs++;
    return graph && !node && !text && !bytes ? object_make(exec)
                                             : ULI_CU_INVALID_VALUE;
}

int
do_cuGraphDestroy(void *graph)
{
    fake_driver.graphs--;
    free(graph);
    return 0;
}

int
do_cuGraphLaunch(void *exec, void *stream)
{
    return exec && stream ? 0 : ULI_CU_INVALID_HANDLE;
}

int
do_cuGraphExecDestroy(void *exec)
{
    return do_cuGraphDestroy(exec);
}

int
do_cuDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = attribute != fake_driver.lacks;
    return device < fake_driver.devices ? fake_outcome("cuDeviceGetAttribute")
                                        : ULI_CU_INVALID_DEVICE;
}

/* Newer entry points than requested would have another signature. */
static int
function_lookup(const char *name, void **function, int version)
{
    *function = NULL;
    if (fake_driver.missing && strcmp(fake_driver.missing, name) == 0)
        return 500;
#define TAKE(call, since, parameters)                                          \
    if (strcmp(name, #call) == 0 && version == since) {                        \
        int(*found) parameters = do_##call;                                    \
        memcpy(function, &found, sizeof(found));                               \
    }
    ULI_CU_CALLS(TAKE)
    return *function ? 0 : 500;
}

#if FAKE_LOOKUP == 12
int cuGetProcAddress_v2(const char *name, void **function, int version,
    uint64_t flags, int *status);
EXPORT int
cuGetProcAddress_v2(
    const char *name, void **function, int version, uint64_t flags, int *status)
{
    *status = function_lookup(name, function, version) != 0;
    return flags ? ULI_CU_INVALID_VALUE : *status ? 500 : 0;
}
#elif FAKE_LOOKUP == 11
int cuGetProcAddress(
    const char *name, void **function, int version, uint64_t flags);
EXPORT int
cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    return flags ? ULI_CU_INVALID_VALUE
                 : function_lookup(name, function, version);
}
#else
const void *const fake_unused = (const void *)function_lookup;
#endif
