/* SPDX-License-Identifier: Apache-2.0
 *
 * Timers and graphs of CUDA devices, for who measures. A graph is captured in
 * the thread's own mode: other threads may go on with whatever they do.
 */
#include "base/status.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"
#include "device/device.h"

enum { TIMED = 0, CAPTURE_OF_THREAD = 1 };

ulyx_status_t
uli_cuda_timer_create(int32_t device, void **event_p)
{
    uli_cu_handle event = NULL;
    ULI_TRY(uli_cuda_enter(device));
    ULI_TRY(uli_cuda_leave(ULI_CUDA(cuEventCreate, (&event, TIMED))));
    *event_p = event;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_cuda_timer_elapsed(int32_t device, void *from, void *to, double *seconds_p)
{
    float ms = 0;
    ULI_TRY(uli_cuda_enter(device));
    ULI_TRY(uli_cuda_leave(ULI_CUDA(cuEventElapsedTime, (&ms, from, to))));
    *seconds_p = (double)ms * 1e-3;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_cuda_graph_begin(int32_t device, void *stream)
{
    ULI_TRY(uli_cuda_enter(device));
    return uli_cuda_leave(
        ULI_CUDA(cuStreamBeginCapture, (stream, CAPTURE_OF_THREAD)));
}

static ulyx_status_t
cuda_graph_end(void *stream, uli_cu_handle *exec_p)
{
    uli_cu_handle graph = NULL;
    ULI_TRY(ULI_CUDA(cuStreamEndCapture, (stream, &graph)));
    ulyx_status_t status =
        ULI_CUDA(cuGraphInstantiate, (exec_p, graph, NULL, NULL, 0));
    uli_cuda_calls()->cuGraphDestroy(graph);
    return status;
}

ulyx_status_t
uli_cuda_graph_end(int32_t device, void *stream, void **graph_p)
{
    uli_cu_handle exec = NULL;
    ULI_TRY(uli_cuda_enter(device));
    ULI_TRY(uli_cuda_leave(cuda_graph_end(stream, &exec)));
    *graph_p = exec;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_cuda_graph_launch(int32_t device, void *graph, void *stream)
{
    ULI_TRY(uli_cuda_enter(device));
    return uli_cuda_leave(ULI_CUDA(cuGraphLaunch, (graph, stream)));
}

ulyx_status_t
uli_cuda_graph_destroy(int32_t device, void *graph)
{
    ULI_TRY(uli_cuda_enter(device));
    return uli_cuda_leave(ULI_CUDA(cuGraphExecDestroy, (graph)));
}
