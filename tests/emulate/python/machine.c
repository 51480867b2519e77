/* SPDX-License-Identifier: Apache-2.0
 *
 * What a test in Python asks of the emulated machine. Device memory is memory
 * that the host can read and write as well: a tensor of the host over it is
 * good once its stream has ended.
 */
#include <cuda_runtime.h>
#include <stdbool.h>
#include "emulate.h"
#include "emulate/driver/driver.h"

#define EXPORT __attribute__((visibility("default")))

int emulated_open(int devices, int host_threads);
void *emulated_stream(int device);
int emulated_wait(void *stream);
int emulated_capture(void *stream);
void *emulated_captured(void *stream);
int emulated_launch(void *graph, void *stream);
void emulated_no_peers(int off);
const char *emulated_fault(void);

/* Devices of 4 multiprocessors; host_threads: more than ever wait at once. */
EXPORT int
emulated_open(int devices, int host_threads)
{
    const struct emu_config config = {.devices = devices,
        .sm_count = 4,
        .host_threads = host_threads,
        .wall_time = true};
    return emu_open(&config);
}

/* NULL where there is none to be had. */
EXPORT void *
emulated_stream(int device)
{
    cudaStream_t stream = NULL;
    if (cudaSetDevice(device) != cudaSuccess ||
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) !=
            cudaSuccess)
        return NULL;
    return stream;
}

EXPORT int
emulated_wait(void *stream)
{
    return (int)cudaStreamSynchronize(stream);
}

/* From here on the stream's work becomes a graph. */
EXPORT int
emulated_capture(void *stream)
{
    return (int)cudaStreamBeginCapture(
        stream, cudaStreamCaptureModeThreadLocal);
}

/* The graph, to be launched; NULL where there is none to be had. */
EXPORT void *
emulated_captured(void *stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec = NULL;
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess)
        return NULL;
    if (cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess)
        exec = NULL;
    (void)cudaGraphDestroy(graph);
    return exec;
}

EXPORT int
emulated_launch(void *graph, void *stream)
{
    return (int)cudaGraphLaunch(graph, stream);
}

/* Whether devices can map each other, from the next communicator on. */
EXPORT void
emulated_no_peers(int off)
{
    emu_driver_no_peers(off != 0);
}

/* The first fault that the emulator has seen, or NULL. */
EXPORT const char *
emulated_fault(void)
{
    return emu_fault_count() ? emu_fault_text(0) : NULL;
}
