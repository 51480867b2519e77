/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory, streams, events and graphs of CUDA devices, by calls of the CUDA
 * driver. All work is in the device's primary context, which the CUDA runtime
 * and the frameworks share. Each call pushes this context and pops it again, so
 * the caller's current context does not change. A context is retained once per
 * device and kept until the process ends. While a context is pushed, the thread
 * is in relaxed capture mode: the calls of this file belong to no graph that
 * any thread captures, so they must not invalidate a capture.
 */
#include <pthread.h>
#include <stddef.h>
#include "base/status.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"
#include "device/device.h"

enum {
    DEVICES = 64,
    MEMORY_TYPE = 2, /* attributes of a pointer */
    IS_MANAGED = 8,
    DEVICE_ORDINAL = 9,
    IS_LEGACY_IPC = 10,
    RANGE_START = 11,
    RANGE_SIZE = 12,
    TYPE_DEVICE = 2, /* a memory type */
    CAPTURE_RELAXED = 2,
    HOST_ANY_DEVICE = 1 | 2, /* portable, mapped */
    STREAM_NON_BLOCKING = 1,
    EVENT_DISABLE_TIMING = 2,
    EVENT_TIMED = 0,
    CAPTURE_OF_THREAD = 1,
    CONTEXTS_DEEP = 16, /* nested calls of uli_cuda_enter */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uli_cu_handle contexts[DEVICES];

/* The devices whose contexts this thread has entered, the innermost last, and
 * the capture mode that the caller had set. Entering the innermost context
 * again needs no call of the driver. */
static _Thread_local struct {
    int32_t devices[CONTEXTS_DEEP], depth;
    int capture_mode;
} inside;

static ulyx_status_t
cuda_open(void)
{
    return uli_cuda_open(NULL);
}

static ulyx_status_t
cuda_count(int32_t *count_p)
{
    int count = 0;
    ULI_TRY(cuda_open());
    ULI_TRY(ULI_CUDA(cuDeviceGetCount, (&count)));
    *count_p = count;
    return ULYX_SUCCESS;
}

static ulyx_status_t
cuda_current(int32_t *device_p)
{
    uli_cu_device device = 0;
    ULI_TRY(cuda_open());
    uli_cu_result result = uli_cuda_calls()->cuCtxGetDevice(&device);
    if (result != ULI_CU_INVALID_CONTEXT)
        ULI_TRY(uli_cuda_status(result, "cuCtxGetDevice"));
    *device_p = result == ULI_CU_SUCCESS ? device : 0;
    return ULYX_SUCCESS;
}

static ulyx_status_t
cuda_uuid(int32_t device, unsigned char uuid_p[16])
{
    uli_cu_device handle;
    ULI_TRY(cuda_open());
    ULI_TRY(ULI_CUDA(cuDeviceGet, (&handle, device)));
    return ULI_CUDA(cuDeviceGetUuid, (uuid_p, handle));
}

static ulyx_status_t
cuda_bus_id(int32_t device, char text_p[32])
{
    uli_cu_device handle;
    ULI_TRY(cuda_open());
    ULI_TRY(ULI_CUDA(cuDeviceGet, (&handle, device)));
    return ULI_CUDA(cuDeviceGetPCIBusId, (text_p, 32, handle));
}

static ulyx_status_t
cuda_retain(int32_t device, uli_cu_handle *context_p)
{
    uli_cu_device handle;
    ULI_TRY(ULI_CUDA(cuDeviceGet, (&handle, device)));
    return ULI_CUDA(cuDevicePrimaryCtxRetain, (context_p, handle));
}

/* Is the thread's innermost context that of the device? */
static bool
is_inside(int32_t device)
{
    return inside.depth > 0 && inside.devices[inside.depth - 1] == device;
}

static ulyx_status_t
push_context(int32_t device)
{
    ulyx_status_t status = ULYX_SUCCESS;
    ULI_TRY(cuda_open());
    if (device < 0 || device >= DEVICES)
        return uli_error(
            ULYX_ERR_INVALID_ARGUMENT, "CUDA device %d does not exist", device);
    pthread_mutex_lock(&lock);
    if (!contexts[device])
        status = cuda_retain(device, &contexts[device]);
    pthread_mutex_unlock(&lock);
    if (status != ULYX_SUCCESS)
        return status;
    return ULI_CUDA(cuCtxPushCurrent, (contexts[device]));
}

ulyx_status_t
uli_cuda_enter(int32_t device)
{
    if (inside.depth == CONTEXTS_DEEP)
        return uli_error(ULYX_ERR_INTERNAL, "too many contexts entered");
    if (!is_inside(device))
        ULI_TRY(push_context(device));
    /* Only the outermost enter replaces the caller's mode, so it saves it. */
    if (inside.depth == 0) {
        inside.capture_mode = CAPTURE_RELAXED;
        uli_cuda_calls()->cuThreadExchangeStreamCaptureMode(
            &inside.capture_mode);
    }
    inside.devices[inside.depth++] = device;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_cuda_leave(ulyx_status_t status)
{
    uli_cu_handle popped;
    ulyx_status_t pop = ULYX_SUCCESS;
    if (is_inside(inside.devices[--inside.depth]))
        return status;
    if (inside.depth == 0)
        uli_cuda_calls()->cuThreadExchangeStreamCaptureMode(
            &inside.capture_mode);
    if (uli_cuda_calls()->cuCtxPopCurrent(&popped) != ULI_CU_SUCCESS)
        pop = uli_error(ULYX_ERR_INTERNAL,
            "cuCtxPopCurrent: the context pushed before is gone");
    return status < 0 ? status : pop < 0 ? pop : status;
}

static ulyx_status_t
enable_peer(uli_cu_handle peer)
{
    uli_cu_result result = uli_cuda_calls()->cuCtxEnablePeerAccess(peer, 0);
    return result == ULI_CU_PEER_ALREADY_ENABLED
               ? ULYX_SUCCESS
               : uli_cuda_status(result, "cuCtxEnablePeerAccess");
}

static ulyx_status_t
cuda_peer_enable(int32_t device, int32_t peer)
{
    uli_cu_device from, to;
    int can = 0;
    if (device == peer)
        return ULYX_SUCCESS;
    ULI_TRY(uli_cuda_enter(peer)); /* creates the peer's context */
    ULI_TRY(uli_cuda_leave(ULYX_SUCCESS));
    ULI_TRY(ULI_CUDA(cuDeviceGet, (&from, device)));
    ULI_TRY(ULI_CUDA(cuDeviceGet, (&to, peer)));
    ULI_TRY(ULI_CUDA(cuDeviceCanAccessPeer, (&can, from, to)));
    if (!can)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "CUDA device %d cannot reach the memory of device %d (no "
            "peer-to-peer access between them)",
            device, peer);
    ULI_TRY(uli_cuda_enter(device));
    return uli_cuda_leave(enable_peer(contexts[peer]));
}

/* Makes a driver call in the device's context; the arguments are in
 * parentheses. */
#define IN_CONTEXT(device, call, arguments)                                    \
    do {                                                                       \
        ULI_TRY(uli_cuda_enter(device));                                       \
        return uli_cuda_leave(ULI_CUDA(call, arguments));                      \
    } while (0)

/* ---- memory -------------------------------------------------------------- */

static ulyx_status_t
cuda_attribute(const void *address, int which, void *value)
{
    return ULI_CUDA(
        cuPointerGetAttribute, (value, which, (uli_cu_ptr)(uintptr_t)address));
}

/* The range of an address in memory of the driver. */
static ulyx_status_t
fill_range(const void *address, bool managed, struct uli_device_range *range)
{
    int ordinal = -1, ipc = 0;
    uli_cu_ptr start = 0;
    size_t bytes = 0;
    ULI_TRY(cuda_attribute(address, DEVICE_ORDINAL, &ordinal));
    ULI_TRY(cuda_attribute(address, RANGE_START, &start));
    ULI_TRY(cuda_attribute(address, RANGE_SIZE, &bytes));
    ULI_TRY(cuda_attribute(address, IS_LEGACY_IPC, &ipc));
    range->memory_kind = ULYX_MEMORY_CUDA;
    range->device = ordinal;
    range->base = (void *)(uintptr_t)start;
    range->bytes = (int64_t)bytes;
    range->managed = managed;
    range->legacy_ipc = ipc != 0;
    return ULYX_SUCCESS;
}

/* A pointer to memory that is not the driver's, and pinned host memory, count
 * as host memory. */
static ulyx_status_t
cuda_range(const void *address, struct uli_device_range *range_p)
{
    struct uli_device_range range = {.memory_kind = ULYX_MEMORY_HOST,
        .device = -1,
        .base = (void *)(uintptr_t)address};
    unsigned type = 0, managed = 0;
    ULI_TRY(cuda_open());
    uli_cu_result result = uli_cuda_calls()->cuPointerGetAttribute(
        &type, MEMORY_TYPE, (uli_cu_ptr)(uintptr_t)address);
    if (result != ULI_CU_SUCCESS && result != ULI_CU_INVALID_VALUE)
        return uli_cuda_status(result, "cuPointerGetAttribute");
    if (result == ULI_CU_SUCCESS)
        ULI_TRY(cuda_attribute(address, IS_MANAGED, &managed));
    if (result == ULI_CU_SUCCESS && (type == TYPE_DEVICE || managed))
        ULI_TRY(fill_range(address, managed != 0, &range));
    *range_p = range;
    return ULYX_SUCCESS;
}

static ulyx_status_t
cuda_alloc(int32_t device, int64_t bytes, void **address_p)
{
    uli_cu_ptr address = 0;
    ULI_TRY(uli_cuda_enter(device));
    ULI_TRY(uli_cuda_leave(ULI_CUDA(cuMemAlloc, (&address, (size_t)bytes))));
    *address_p = (void *)(uintptr_t)address;
    return ULYX_SUCCESS;
}

static ulyx_status_t
cuda_free(int32_t device, void *address)
{
    IN_CONTEXT(device, cuMemFree, ((uli_cu_ptr)(uintptr_t)address));
}

static ulyx_status_t
cuda_copy(
    int32_t device, void *dst, const void *src, int64_t bytes, void *stream)
{
    IN_CONTEXT(device, cuMemcpyAsync,
        ((uli_cu_ptr)(uintptr_t)dst, (uli_cu_ptr)(uintptr_t)src, (size_t)bytes,
            stream));
}

static ulyx_status_t
copy_plane(int32_t device, void *dst, const void *src,
    const struct uli_device_rect *rect, void *stream)
{
    const struct uli_cu_copy2d copy = {.src = {.memory_type = ULI_CU_UNIFIED,
                                           .device = (uli_cu_ptr)(uintptr_t)src,
                                           .pitch = (size_t)rect->src_pitch},
        .dst = {.memory_type = ULI_CU_UNIFIED,
            .device = (uli_cu_ptr)(uintptr_t)dst,
            .pitch = (size_t)rect->dst_pitch},
        .width_bytes = (size_t)rect->width,
        .height = (size_t)rect->height};
    IN_CONTEXT(device, cuMemcpy2DAsync, (&copy, stream));
}

static ulyx_status_t
cuda_copy_rect(int32_t device, void *dst, const void *src,
    const struct uli_device_rect *rect, void *stream)
{
    if (rect->depth == 1)
        return rect->height == 1
                   ? cuda_copy(device, dst, src, rect->width, stream)
                   : copy_plane(device, dst, src, rect, stream);
    const struct uli_cu_copy3d copy = {
        .src = {.memory_type = ULI_CU_UNIFIED,
            .device = (uli_cu_ptr)(uintptr_t)src,
            .pitch = (size_t)rect->src_pitch,
            .height = (size_t)(rect->src_slice / rect->src_pitch)},
        .dst = {.memory_type = ULI_CU_UNIFIED,
            .device = (uli_cu_ptr)(uintptr_t)dst,
            .pitch = (size_t)rect->dst_pitch,
            .height = (size_t)(rect->dst_slice / rect->dst_pitch)},
        .width_bytes = (size_t)rect->width,
        .height = (size_t)rect->height,
        .depth = (size_t)rect->depth};
    IN_CONTEXT(device, cuMemcpy3DAsync, (&copy, stream));
}

static ulyx_status_t
cuda_zero(int32_t device, void *address, int64_t bytes, void *stream)
{
    IN_CONTEXT(device, cuMemsetD8Async,
        ((uli_cu_ptr)(uintptr_t)address, 0, (size_t)bytes, stream));
}

static ulyx_status_t
alloc_on_host(int64_t bytes, void **address_p, uli_cu_ptr *mapped_p)
{
    void *address = NULL;
    ULI_TRY(
        ULI_CUDA(cuMemHostAlloc, (&address, (size_t)bytes, HOST_ANY_DEVICE)));
    ulyx_status_t status =
        ULI_CUDA(cuMemHostGetDevicePointer, (mapped_p, address, 0));
    if (status != ULYX_SUCCESS)
        uli_cuda_calls()->cuMemFreeHost(address);
    else
        *address_p = address;
    return status;
}

static ulyx_status_t
cuda_host_alloc(
    int32_t device, int64_t bytes, void **address_p, void **device_address_p)
{
    uli_cu_ptr mapped = 0;
    ULI_TRY(uli_cuda_enter(device));
    ULI_TRY(uli_cuda_leave(alloc_on_host(bytes, address_p, &mapped)));
    *device_address_p = (void *)(uintptr_t)mapped;
    return ULYX_SUCCESS;
}

static ulyx_status_t
cuda_host_free(int32_t device, void *address)
{
    IN_CONTEXT(device, cuMemFreeHost, (address));
}

/* ---- streams and events -------------------------------------------------- */

/* Creates a stream of the highest priority. Streams of one priority may share a
 * hardware queue, in which work of the library could be queued behind a kernel
 * of the caller that waits for another rank. */
static ulyx_status_t
create_stream(uli_cu_handle *stream_p)
{
    int least = 0, greatest = 0;
    ULI_TRY(ULI_CUDA(cuCtxGetStreamPriorityRange, (&least, &greatest)));
    return ULI_CUDA(
        cuStreamCreateWithPriority, (stream_p, STREAM_NON_BLOCKING, greatest));
}

static ulyx_status_t
cuda_stream_create(int32_t device, void **stream_p)
{
    uli_cu_handle stream = NULL;
    ULI_TRY(uli_cuda_enter(device));
    ULI_TRY(uli_cuda_leave(create_stream(&stream)));
    *stream_p = stream;
    return ULYX_SUCCESS;
}

static ulyx_status_t
cuda_stream_destroy(int32_t device, void *stream)
{
    IN_CONTEXT(device, cuStreamDestroy, (stream));
}

static ulyx_status_t
cuda_stream_wait(int32_t device, void *stream)
{
    IN_CONTEXT(device, cuStreamSynchronize, (stream));
}

static ulyx_status_t
cuda_stream_capturing(int32_t device, void *stream, bool *capturing_p)
{
    int status = 0;
    ULI_TRY(uli_cuda_enter(device));
    ULI_TRY(uli_cuda_leave(ULI_CUDA(cuStreamIsCapturing, (stream, &status))));
    *capturing_p = status != 0;
    return ULYX_SUCCESS;
}

static ulyx_status_t
cuda_host_call(
    int32_t device, void *stream, void (*call)(void *data), void *data)
{
    IN_CONTEXT(device, cuLaunchHostFunc, (stream, call, data));
}

static ulyx_status_t
cuda_event_create(int32_t device, void **event_p)
{
    uli_cu_handle event = NULL;
    ULI_TRY(uli_cuda_enter(device));
    ULI_TRY(uli_cuda_leave(
        ULI_CUDA(cuEventCreate, (&event, EVENT_DISABLE_TIMING))));
    *event_p = event;
    return ULYX_SUCCESS;
}

static ulyx_status_t
cuda_event_destroy(int32_t device, void *event)
{
    IN_CONTEXT(device, cuEventDestroy, (event));
}

static ulyx_status_t
cuda_event_record(int32_t device, void *event, void *stream)
{
    IN_CONTEXT(device, cuEventRecord, (event, stream));
}

static ulyx_status_t
cuda_event_order(int32_t device, void *event, void *stream)
{
    IN_CONTEXT(device, cuStreamWaitEvent, (stream, event, 0));
}

static ulyx_status_t
cuda_event_test(int32_t device, void *event)
{
    IN_CONTEXT(device, cuEventQuery, (event));
}

/* ---- timers and graphs --------------------------------------------------- */

/* For measurements. Graphs are captured in thread-local mode, so calls of other
 * threads are not restricted meanwhile. */
static ulyx_status_t
cuda_timer_create(int32_t device, void **event_p)
{
    uli_cu_handle event = NULL;
    ULI_TRY(uli_cuda_enter(device));
    ULI_TRY(uli_cuda_leave(ULI_CUDA(cuEventCreate, (&event, EVENT_TIMED))));
    *event_p = event;
    return ULYX_SUCCESS;
}

static ulyx_status_t
cuda_timer_elapsed(int32_t device, void *from, void *to, double *seconds_p)
{
    float ms = 0;
    ULI_TRY(uli_cuda_enter(device));
    ULI_TRY(uli_cuda_leave(ULI_CUDA(cuEventElapsedTime, (&ms, from, to))));
    *seconds_p = (double)ms * 1e-3;
    return ULYX_SUCCESS;
}

static ulyx_status_t
cuda_graph_begin(int32_t device, void *stream)
{
    ULI_TRY(uli_cuda_enter(device));
    return uli_cuda_leave(
        ULI_CUDA(cuStreamBeginCapture, (stream, CAPTURE_OF_THREAD)));
}

static ulyx_status_t
graph_finish(void *stream, uli_cu_handle *exec_p)
{
    uli_cu_handle graph = NULL;
    ULI_TRY(ULI_CUDA(cuStreamEndCapture, (stream, &graph)));
    ulyx_status_t status =
        ULI_CUDA(cuGraphInstantiate, (exec_p, graph, NULL, NULL, 0));
    uli_cuda_calls()->cuGraphDestroy(graph);
    return status;
}

static ulyx_status_t
cuda_graph_end(int32_t device, void *stream, void **graph_p)
{
    uli_cu_handle exec = NULL;
    ULI_TRY(uli_cuda_enter(device));
    ULI_TRY(uli_cuda_leave(graph_finish(stream, &exec)));
    *graph_p = exec;
    return ULYX_SUCCESS;
}

static ulyx_status_t
cuda_graph_launch(int32_t device, void *graph, void *stream)
{
    ULI_TRY(uli_cuda_enter(device));
    return uli_cuda_leave(ULI_CUDA(cuGraphLaunch, (graph, stream)));
}

static ulyx_status_t
cuda_graph_destroy(int32_t device, void *graph)
{
    ULI_TRY(uli_cuda_enter(device));
    return uli_cuda_leave(ULI_CUDA(cuGraphExecDestroy, (graph)));
}

const struct uli_device_ops uli_device_cuda = {
    .name = "cuda",
    .memory_kind = ULYX_MEMORY_CUDA,
    .open = cuda_open,
    .count = cuda_count,
    .current = cuda_current,
    .uuid = cuda_uuid,
    .bus_id = cuda_bus_id,
    .peer_enable = cuda_peer_enable,
    .range = cuda_range,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .copy = cuda_copy,
    .copy_rect = cuda_copy_rect,
    .zero = cuda_zero,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_wait = cuda_stream_wait,
    .stream_capturing = cuda_stream_capturing,
    .host_call = cuda_host_call,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_order = cuda_event_order,
    .event_test = cuda_event_test,
    .timer_create = cuda_timer_create,
    .timer_elapsed = cuda_timer_elapsed,
    .graph_begin = cuda_graph_begin,
    .graph_end = cuda_graph_end,
    .graph_launch = cuda_graph_launch,
    .graph_destroy = cuda_graph_destroy,
};
