/* SPDX-License-Identifier: Apache-2.0
 *
 * See driver.h. Lookup, errors, devices and contexts. A context is a device;
 * the current context belongs to the thread and is the runtime's current
 * device.
 */
#include "emulate/driver/driver.h"

enum { CONTEXTS_DEEP = 32, SMS = 16, CAPABILITY_MAJOR = 75, VERSION = 12040 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *failing;
static int failing_result, failing_after, live;
static bool no_peers;
static char contexts[EMU_DEVICES]; /* the address of an element is a context */
static _Thread_local struct {
    int device[CONTEXTS_DEEP]; /* the current device before each push */
    int depth, capture_mode;
    long calls;
} thread;

/* ---- for tests ----------------------------------------------------------- */

void
emu_driver_fail(const char *call, int result, int n)
{
    pthread_mutex_lock(&lock);
    failing = call;
    failing_result = result;
    failing_after = n;
    pthread_mutex_unlock(&lock);
}

void
emu_driver_no_peers(bool off)
{
    no_peers = off;
}

int
emu_driver_live(void)
{
    pthread_mutex_lock(&lock);
    int count = live;
    pthread_mutex_unlock(&lock);
    return count;
}

int
emu_driver_outcome(const char *name)
{
    int result = 0;
    thread.calls++;
    pthread_mutex_lock(&lock);
    if (failing && strcmp(failing, name) == 0 && failing_after-- <= 0)
        result = failing_result;
    pthread_mutex_unlock(&lock);
    return result;
}

long
emu_driver_calls(void)
{
    return thread.calls;
}

void
emu_driver_count(int change)
{
    pthread_mutex_lock(&lock);
    live += change;
    pthread_mutex_unlock(&lock);
}

int
emu_driver_allocated(int result)
{
    emu_driver_count(result == 0);
    return result;
}

int
emu_driver_freed(int result)
{
    emu_driver_count(result == 0 ? -1 : 0);
    return result;
}

int
emu_driver_capture_mode(void)
{
    return thread.capture_mode;
}

/* ---- lookup and errors --------------------------------------------------- */

__attribute__((visibility("default"))) int
emu_driver_lookup(const char *name, void **function, int version)
{
    *function = NULL;
#define EMU_DRIVER_TAKE(call, since, parameters)                               \
    if (strcmp(name, #call) == 0 && version == since) {                        \
        uli_cu_result(*found) parameters = do_##call;                          \
        memcpy(function, &found, sizeof found);                                \
    }
    ULI_CU_CALLS(EMU_DRIVER_TAKE)
    return *function == NULL;
}

int
do_cuInit(unsigned flags)
{
    EMU_DRIVER_MAY_FAIL();
    return flags ? ULI_CU_INVALID_VALUE : 0;
}

int
do_cuDriverGetVersion(int *version)
{
    EMU_DRIVER_MAY_FAIL();
    *version = VERSION;
    return 0;
}

/* The numbers of errors are those of the runtime. */
int
do_cuGetErrorName(int error, const char **name)
{
    *name = cudaGetErrorName((cudaError_t)error);
    return 0;
}

int
do_cuGetErrorString(int error, const char **text)
{
    *text = cudaGetErrorString((cudaError_t)error);
    return 0;
}

/* ---- devices ------------------------------------------------------------- */

static int
device_count(void)
{
    int count = 0;
    cudaGetDeviceCount(&count);
    return count;
}

int
do_cuDeviceGetCount(int *count)
{
    EMU_DRIVER_MAY_FAIL();
    *count = device_count();
    return 0;
}

int
do_cuDeviceGet(int *device, int ordinal)
{
    EMU_DRIVER_MAY_FAIL();
    if (ordinal < 0 || ordinal >= device_count())
        return ULI_CU_INVALID_DEVICE;
    *device = ordinal;
    return 0;
}

int
do_cuDeviceGetUuid(void *uuid, int device)
{
    EMU_DRIVER_MAY_FAIL();
    memset(uuid, 0, 16);
    memcpy(uuid, "emulated", 8);
    memcpy((char *)uuid + 8, &device, sizeof device);
    return 0;
}

int
do_cuDeviceGetPCIBusId(char *text, int bytes, int device)
{
    EMU_DRIVER_MAY_FAIL();
    snprintf(text, (size_t)bytes, "0000:%02x:00.0", device + 1);
    return 0;
}

/* Reports that virtual memory and its export are supported. All other
 * properties of a device are those of the runtime. */
int
do_cuDeviceGetAttribute(int *value, int attribute, int device)
{
    EMU_DRIVER_MAY_FAIL();
    if (device < 0 || device >= device_count())
        return ULI_CU_INVALID_DEVICE;
    if (cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)attribute, device) !=
        cudaSuccess)
        *value = attribute == 102 || attribute == 103;
    return 0;
}

int
do_cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    EMU_DRIVER_MAY_FAIL();
    *can = device != peer && !no_peers;
    return 0;
}

/* ---- contexts ------------------------------------------------------------ */

int
do_cuDevicePrimaryCtxRetain(void **context, int device)
{
    EMU_DRIVER_MAY_FAIL();
    if (device < 0 || device >= device_count())
        return ULI_CU_INVALID_DEVICE;
    *context = &contexts[device];
    return 0;
}

int
do_cuDevicePrimaryCtxRelease(int device)
{
    return device < 0 || device >= device_count() ? ULI_CU_INVALID_DEVICE : 0;
}

int
do_cuCtxPushCurrent(void *context)
{
    EMU_DRIVER_MAY_FAIL();
    size_t device = (size_t)((char *)context - contexts);
    if (device >= EMU_DEVICES || thread.depth == CONTEXTS_DEEP)
        return ULI_CU_INVALID_CONTEXT;
    thread.device[thread.depth++] = emu_current_device();
    emu_set_device((int)device);
    return 0;
}

int
do_cuCtxPopCurrent(void **context)
{
    EMU_DRIVER_MAY_FAIL();
    if (!thread.depth)
        return ULI_CU_INVALID_CONTEXT;
    *context = &contexts[emu_current_device()];
    emu_set_device(thread.device[--thread.depth]);
    return 0;
}

int
do_cuCtxGetDevice(int *device)
{
    EMU_DRIVER_MAY_FAIL();
    *device = emu_current_device();
    return 0;
}

int
do_cuCtxEnablePeerAccess(void *peer, unsigned flags)
{
    EMU_DRIVER_MAY_FAIL();
    size_t device = (size_t)((char *)peer - contexts);
    if (flags || device >= EMU_DEVICES)
        return ULI_CU_INVALID_VALUE;
    if (no_peers)
        return 217; /* CUDA_ERROR_PEER_ACCESS_UNSUPPORTED */
    return cudaDeviceEnablePeerAccess((int)device, 0);
}

int
do_cuThreadExchangeStreamCaptureMode(int *mode)
{
    EMU_DRIVER_MAY_FAIL();
    int before = thread.capture_mode;
    thread.capture_mode = *mode;
    *mode = before;
    return 0;
}
