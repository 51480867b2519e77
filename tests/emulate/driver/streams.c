/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulated driver's streams, events, graphs, copies and fills: the
 * runtime's, for a CUstream is a cudaStream_t. What a capture would forbid is
 * refused, but for calls on the captured stream itself, which the runtime's own
 * refuse.
 */
#include "emulate/driver/driver.h"

int
do_cuMemcpyAsync(uli_cu_ptr dst, uli_cu_ptr src, size_t bytes, void *stream)
{
    EMU_DRIVER_MAY_FAIL();
    return cudaMemcpyAsync((void *)(uintptr_t)dst, (void *)(uintptr_t)src,
        bytes, cudaMemcpyDefault, stream);
}

/* Returns false for copies that a driver refuses: arrays, offsets that are not
 * given as addresses, rows that overlap. */
static bool
plane_is_good(const struct uli_cu_plane *plane, size_t width)
{
    return plane->memory_type == ULI_CU_UNIFIED && plane->device &&
           !plane->host && !plane->array && plane->pitch >= width &&
           plane->pitch <= 0x7FFFFFFF;
}

static bool
space_is_good(
    const struct uli_cu_space *space, const struct uli_cu_copy3d *copy)
{
    const struct uli_cu_plane plane = {.memory_type = space->memory_type,
        .host = space->host,
        .device = space->device,
        .array = space->array,
        .pitch = space->pitch};
    return plane_is_good(&plane, copy->width_bytes) && !space->reserved &&
           space->height >= copy->height;
}

int
do_cuMemcpy2DAsync(const struct uli_cu_copy2d *copy, void *stream)
{
    EMU_DRIVER_MAY_FAIL();
    const struct emu_rect rows = {.height = copy->height,
        .dst_pitch = copy->dst.pitch,
        .src_pitch = copy->src.pitch};
    if (!copy->width_bytes || !copy->height ||
        !plane_is_good(&copy->src, copy->width_bytes) ||
        !plane_is_good(&copy->dst, copy->width_bytes))
        return ULI_CU_INVALID_VALUE;
    emu_copy_rows((char *)(uintptr_t)copy->dst.device + copy->dst.x_bytes +
                      copy->dst.y * copy->dst.pitch,
        (char *)(uintptr_t)copy->src.device + copy->src.x_bytes +
            copy->src.y * copy->src.pitch,
        copy->width_bytes, &rows, stream);
    return 0;
}

static char *
first_row(const struct uli_cu_space *space)
{
    return (char *)(uintptr_t)space->device + space->x_bytes +
           (space->z * space->height + space->y) * space->pitch;
}

int
do_cuMemcpy3DAsync(const struct uli_cu_copy3d *copy, void *stream)
{
    EMU_DRIVER_MAY_FAIL();
    const struct emu_rect rows = {.height = copy->height,
        .depth = copy->depth,
        .dst_pitch = copy->dst.pitch,
        .dst_slice = copy->dst.pitch * copy->dst.height,
        .src_pitch = copy->src.pitch,
        .src_slice = copy->src.pitch * copy->src.height};
    if (!copy->width_bytes || !copy->height || !copy->depth ||
        !space_is_good(&copy->src, copy) || !space_is_good(&copy->dst, copy))
        return ULI_CU_INVALID_VALUE;
    emu_copy_rows(first_row(&copy->dst), first_row(&copy->src),
        copy->width_bytes, &rows, stream);
    return 0;
}

int
do_cuMemsetD8Async(
    uli_cu_ptr address, unsigned char value, size_t bytes, void *stream)
{
    EMU_DRIVER_MAY_FAIL();
    return cudaMemsetAsync((void *)(uintptr_t)address, value, bytes, stream);
}

int
do_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = *greatest = 0; /* priorities have no effect here */
    return 0;
}

int
do_cuStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
    (void)priority;
    EMU_DRIVER_MAY_FAIL();
    EMU_DRIVER_NOT_IN_CAPTURE();
    int result = cudaStreamCreateWithFlags((cudaStream_t *)stream, flags);
    emu_driver_count(result == 0);
    return result;
}

int
do_cuStreamDestroy(void *stream)
{
    EMU_DRIVER_MAY_FAIL();
    emu_driver_count(-1);
    return cudaStreamDestroy(stream);
}

int
do_cuStreamSynchronize(void *stream)
{
    EMU_DRIVER_MAY_FAIL();
    EMU_DRIVER_NOT_IN_CAPTURE();
    return cudaStreamSynchronize(stream);
}

int
do_cuStreamIsCapturing(void *stream, int *status)
{
    EMU_DRIVER_MAY_FAIL();
    enum cudaStreamCaptureStatus capturing;
    cudaStreamIsCapturing(stream, &capturing);
    *status = (int)capturing;
    return 0;
}

int
do_cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    EMU_DRIVER_MAY_FAIL();
    return event ? (int)cudaStreamWaitEvent(stream, event, flags)
                 : ULI_CU_INVALID_HANDLE;
}

int
do_cuLaunchHostFunc(void *stream, void (*call)(void *data), void *data)
{
    EMU_DRIVER_MAY_FAIL();
    return cudaLaunchHostFunc(stream, call, data);
}

int
do_cuEventCreate(void **event, unsigned flags)
{
    EMU_DRIVER_MAY_FAIL();
    int result = cudaEventCreateWithFlags((cudaEvent_t *)event, flags);
    emu_driver_count(result == 0);
    return result;
}

int
do_cuEventDestroy(void *event)
{
    EMU_DRIVER_MAY_FAIL();
    emu_driver_count(-1);
    return cudaEventDestroy(event);
}

int
do_cuEventRecord(void *event, void *stream)
{
    EMU_DRIVER_MAY_FAIL();
    return event ? (int)cudaEventRecord(event, stream) : ULI_CU_INVALID_HANDLE;
}

int
do_cuEventQuery(void *event)
{
    EMU_DRIVER_MAY_FAIL();
    EMU_DRIVER_NOT_IN_CAPTURE();
    return cudaEventQuery(event);
}

int
do_cuEventElapsedTime(float *ms, void *from, void *to)
{
    EMU_DRIVER_MAY_FAIL();
    return cudaEventElapsedTime(ms, from, to);
}

/* ---- graphs -------------------------------------------------------------- */

int
do_cuStreamBeginCapture(void *stream, int mode)
{
    EMU_DRIVER_MAY_FAIL();
    return cudaStreamBeginCapture(stream, (enum cudaStreamCaptureMode)mode);
}

int
do_cuStreamEndCapture(void *stream, void **graph)
{
    EMU_DRIVER_MAY_FAIL();
    int result = cudaStreamEndCapture(stream, (cudaGraph_t *)graph);
    emu_driver_count(result == 0);
    return result;
}

int
do_cuGraphInstantiate(
    void **exec, void *graph, void **node, char *text, size_t bytes)
{
    EMU_DRIVER_MAY_FAIL();
    if (node || text || bytes)
        /* the library never queries the error node and text */
        return ULI_CU_INVALID_VALUE;
    int result = cudaGraphInstantiate((cudaGraphExec_t *)exec, graph, 0);
    emu_driver_count(result == 0);
    return result;
}

int
do_cuGraphDestroy(void *graph)
{
    EMU_DRIVER_MAY_FAIL();
    emu_driver_count(-1);
    return cudaGraphDestroy(graph);
}

int
do_cuGraphLaunch(void *exec, void *stream)
{
    EMU_DRIVER_MAY_FAIL();
    return cudaGraphLaunch(exec, stream);
}

int
do_cuGraphExecDestroy(void *exec)
{
    EMU_DRIVER_MAY_FAIL();
    emu_driver_count(-1);
    return cudaGraphExecDestroy(exec);
}
