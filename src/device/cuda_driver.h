/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA driver, opened at run time, so that the library loads and runs on
 * machines without a driver. Entry points are looked up by name and the version
 * of their signature (cuGetProcAddress), so that one build works with old and
 * new drivers. The few types are declared here, so that no header of a toolkit
 * is needed.
 */
#ifndef ULI_DEVICE_CUDA_DRIVER_H
#define ULI_DEVICE_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ulyx/types.h"

typedef int uli_cu_result;
typedef int uli_cu_device;
typedef unsigned long long uli_cu_ptr;
typedef void *uli_cu_handle;              /* of a context, stream, event or
                                           * graph */
typedef unsigned long long uli_cu_memory; /* handle of physical memory */

/* CUmemAllocationProp, CUmemAccessDesc and CUipcMemHandle of cuda.h. */
struct uli_cu_memory_props {
    int type, handle_types; /* type of allocation; bits of the handle types as
                             * which it can be exported */
    int location_type, location;
    void *win32;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
};
struct uli_cu_access {
    int location_type, location, flags;
};
struct uli_cu_ipc {
    unsigned char bytes[64];
};

/* CUDA_MEMCPY2D and CUDA_MEMCPY3D of cuda.h, each after the fields of one
 * side. */
struct uli_cu_plane {
    size_t x_bytes, y;
    int memory_type;
    const void *host;
    uli_cu_ptr device;
    void *array;
    size_t pitch;
};
struct uli_cu_copy2d {
    struct uli_cu_plane src, dst;
    size_t width_bytes, height;
};
struct uli_cu_space {
    size_t x_bytes, y, z, lod;
    int memory_type;
    const void *host;
    uli_cu_ptr device;
    void *array, *reserved;
    size_t pitch, height;
};
struct uli_cu_copy3d {
    struct uli_cu_space src, dst;
    size_t width_bytes, height, depth;
};
enum {
    ULI_CU_PINNED = 1,     /* a type */
    ULI_CU_ON_DEVICE = 1,  /* a location type */
    ULI_CU_DESCRIPTOR = 1, /* handle types */
    ULI_CU_FABRIC = 8,
    ULI_CU_READ_WRITE = 3, /* access flags */
    ULI_CU_UNIFIED = 4,    /* a memory type: the address decides */
};

enum {
    ULI_CU_SUCCESS = 0,
    ULI_CU_INVALID_VALUE = 1,
    ULI_CU_OUT_OF_MEMORY = 2,
    ULI_CU_STUB_LIBRARY = 34,
    ULI_CU_INSUFFICIENT_DRIVER = 35,
    ULI_CU_NO_DEVICE = 100,
    ULI_CU_INVALID_DEVICE = 101,
    ULI_CU_INVALID_CONTEXT = 201,
    ULI_CU_INVALID_HANDLE = 400,
    ULI_CU_NOT_READY = 600,
    ULI_CU_PEER_ALREADY_ENABLED = 704,
    ULI_CU_NO_IMAGE = 209, /* the build has neither code nor PTX for the
                            * device */
    ULI_CU_UNSUPPORTED_PTX = 222,
    ULI_CU_HOST_ALREADY_REGISTERED = 712,
    ULI_CU_HOST_NOT_REGISTERED = 713,
    ULI_CU_NOT_PERMITTED = 800,
    ULI_CU_NOT_SUPPORTED = 801,
    ULI_CU_SYSTEM_NOT_READY = 802,
    ULI_CU_SYSTEM_DRIVER_MISMATCH = 803,
    ULI_CU_COMPAT_NOT_SUPPORTED = 804,
};

/* name, version of the signature, parameters */
#define ULI_CU_CALLS(X)                                                        \
    X(cuInit, 2000, (unsigned flags))                                          \
    X(cuDriverGetVersion, 2020, (int *version))                                \
    X(cuGetErrorName, 6000, (uli_cu_result error, const char **name))          \
    X(cuGetErrorString, 6000, (uli_cu_result error, const char **text))        \
    X(cuDeviceGetCount, 2000, (int *count))                                    \
    X(cuDeviceGet, 2000, (uli_cu_device * device, int ordinal))                \
    X(cuDeviceGetUuid, 9020, (void *uuid, uli_cu_device device))               \
    X(cuDeviceGetPCIBusId, 4010,                                               \
        (char *text, int bytes, uli_cu_device device))                         \
    X(cuDeviceCanAccessPeer, 4000,                                             \
        (int *can, uli_cu_device device, uli_cu_device peer))                  \
    X(cuDevicePrimaryCtxRetain, 7000,                                          \
        (uli_cu_handle * context, uli_cu_device device))                       \
    X(cuDevicePrimaryCtxRelease, 11000, (uli_cu_device device))                \
    X(cuCtxPushCurrent, 4000, (uli_cu_handle context))                         \
    X(cuCtxPopCurrent, 4000, (uli_cu_handle * context))                        \
    X(cuCtxGetDevice, 2000, (uli_cu_device * device))                          \
    X(cuCtxEnablePeerAccess, 4000, (uli_cu_handle peer, unsigned flags))       \
    X(cuThreadExchangeStreamCaptureMode, 10010, (int *mode))                   \
    X(cuPointerGetAttribute, 4000,                                             \
        (void *value, int attribute, uli_cu_ptr address))                      \
    X(cuDeviceGetAttribute, 2000,                                              \
        (int *value, int attribute, uli_cu_device device))                     \
    X(cuMemGetAllocationGranularity, 10020,                                    \
        (size_t * bytes, const struct uli_cu_memory_props *props, int option)) \
    X(cuMemCreate, 10020,                                                      \
        (uli_cu_memory * memory, size_t bytes,                                 \
            const struct uli_cu_memory_props *props,                           \
            unsigned long long flags))                                         \
    X(cuMemRelease, 10020, (uli_cu_memory memory))                             \
    X(cuMemAddressReserve, 10020,                                              \
        (uli_cu_ptr * address, size_t bytes, size_t alignment,                 \
            uli_cu_ptr preference, unsigned long long flags))                  \
    X(cuMemAddressFree, 10020, (uli_cu_ptr address, size_t bytes))             \
    X(cuMemMap, 10020,                                                         \
        (uli_cu_ptr address, size_t bytes, size_t offset,                      \
            uli_cu_memory memory, unsigned long long flags))                   \
    X(cuMemUnmap, 10020, (uli_cu_ptr address, size_t bytes))                   \
    X(cuMemSetAccess, 10020,                                                   \
        (uli_cu_ptr address, size_t bytes, const struct uli_cu_access *access, \
            size_t count))                                                     \
    X(cuMemExportToShareableHandle, 10020,                                     \
        (void *handle, uli_cu_memory memory, int handle_type,                  \
            unsigned long long flags))                                         \
    X(cuMemImportFromShareableHandle, 10020,                                   \
        (uli_cu_memory * memory, void *handle, int handle_type))               \
    X(cuMemRetainAllocationHandle, 11000,                                      \
        (uli_cu_memory * memory, void *address))                               \
    X(cuMemGetAllocationPropertiesFromHandle, 10020,                           \
        (struct uli_cu_memory_props * props, uli_cu_memory memory))            \
    X(cuIpcGetMemHandle, 4010, (struct uli_cu_ipc * ipc, uli_cu_ptr address))  \
    X(cuIpcOpenMemHandle, 11000,                                               \
        (uli_cu_ptr * address, struct uli_cu_ipc ipc, unsigned flags))         \
    X(cuIpcCloseMemHandle, 4010, (uli_cu_ptr address))                         \
    X(cuMemAlloc, 3020, (uli_cu_ptr * address, size_t bytes))                  \
    X(cuMemFree, 3020, (uli_cu_ptr address))                                   \
    X(cuMemHostAlloc, 2020, (void **address, size_t bytes, unsigned flags))    \
    X(cuMemFreeHost, 2000, (void *address))                                    \
    X(cuMemHostGetDevicePointer, 3020,                                         \
        (uli_cu_ptr * address, void *host, unsigned flags))                    \
    X(cuMemHostRegister, 6050, (void *address, size_t bytes, unsigned flags))  \
    X(cuMemHostUnregister, 4000, (void *address))                              \
    X(cuMemsetD8Async, 3020,                                                   \
        (uli_cu_ptr address, unsigned char value, size_t bytes,                \
            uli_cu_handle stream))                                             \
    X(cuMemcpyAsync, 4000,                                                     \
        (uli_cu_ptr dst, uli_cu_ptr src, size_t bytes, uli_cu_handle stream))  \
    X(cuMemcpy2DAsync, 3020,                                                   \
        (const struct uli_cu_copy2d *copy, uli_cu_handle stream))              \
    X(cuMemcpy3DAsync, 3020,                                                   \
        (const struct uli_cu_copy3d *copy, uli_cu_handle stream))              \
    X(cuCtxGetStreamPriorityRange, 5050, (int *least, int *greatest))          \
    X(cuStreamCreateWithPriority, 5050,                                        \
        (uli_cu_handle * stream, unsigned flags, int priority))                \
    X(cuStreamDestroy, 4000, (uli_cu_handle stream))                           \
    X(cuStreamSynchronize, 2000, (uli_cu_handle stream))                       \
    X(cuStreamIsCapturing, 10000, (uli_cu_handle stream, int *status))         \
    X(cuStreamWaitEvent, 3020,                                                 \
        (uli_cu_handle stream, uli_cu_handle event, unsigned flags))           \
    X(cuLaunchHostFunc, 10000,                                                 \
        (uli_cu_handle stream, void (*call)(void *data), void *data))          \
    X(cuEventCreate, 2000, (uli_cu_handle * event, unsigned flags))            \
    X(cuEventDestroy, 4000, (uli_cu_handle event))                             \
    X(cuEventRecord, 2000, (uli_cu_handle event, uli_cu_handle stream))        \
    X(cuEventQuery, 2000, (uli_cu_handle event))                               \
    X(cuEventElapsedTime, 2000,                                                \
        (float *ms, uli_cu_handle from, uli_cu_handle to))                     \
    X(cuStreamBeginCapture, 10010, (uli_cu_handle stream, int mode))           \
    X(cuStreamEndCapture, 10000,                                               \
        (uli_cu_handle stream, uli_cu_handle * graph))                         \
    X(cuGraphInstantiate, 11000,                                               \
        (uli_cu_handle * exec, uli_cu_handle graph, uli_cu_handle * node,      \
            char *text, size_t bytes))                                         \
    X(cuGraphDestroy, 10000, (uli_cu_handle graph))                            \
    X(cuGraphLaunch, 10000, (uli_cu_handle exec, uli_cu_handle stream))        \
    X(cuGraphExecDestroy, 10000, (uli_cu_handle exec))

#define ULI_CU_MEMBER(name, version, parameters)                               \
    uli_cu_result(*name) parameters;
struct uli_cu_calls {
    ULI_CU_CALLS(ULI_CU_MEMBER)
};

/* Opens the driver once per process; later calls do nothing. library: NULL =
 * libcuda.so.1. A failure changes nothing, and the call may be made again.
 * returns SUCCESS; ERR_UNSUPPORTED with the reason (not found, too old, a
 * missing entry point, no device). */
ulyx_status_t uli_cuda_open(const char *library);

/* Is there a driver that can be opened? If not, why_p has the system's reason.
 * Changes nothing and reports no error. */
bool uli_cuda_present(char *why_p, size_t why_bytes);

/* The driver's calls. To be called after a successful uli_cuda_open. */
const struct uli_cu_calls *uli_cuda_calls(void);

/* Translates driver errors: SUCCESS; IN_PROGRESS for "not ready", without a
 * text; otherwise an error whose text has the call, and the driver's name and
 * text of the error. */
ulyx_status_t uli_cuda_status(uli_cu_result result, const char *call);

/* Does the error, of the driver or the runtime, mean that this build has no
 * code for the device? */
bool uli_cuda_no_image(uli_cu_result result);
#define ULI_CUDA_NO_IMAGE                                                      \
    "this build has no code for the device: CMAKE_CUDA_ARCHITECTURES names "   \
    "those it was made for"

/* ULI_CUDA(cuMemFree, (address)): makes the driver call and translates its
 * error. */
#define ULI_CUDA(call, arguments)                                              \
    uli_cuda_status(uli_cuda_calls()->call arguments, #call)

#endif
