/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls by which a test in Python controls the emulated machine. The host
 * can read and write device memory as well: a tensor of the host over device
 * memory is valid once its stream has ended.
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

/* Devices have 4 multiprocessors. host_threads is more than ever wait at one
 * time. */
EXPORT int
emulated_open(int devices, int host_threads)
{
    const struct emu_config config = {.devices = devices,
        .sm_count = 4,
        .host_threads = host_threads,
        .wall_time = true};
    return emu_open(&config);
}

/* Returns a stream, or NULL on failure. */
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

/* Begins a capture of the stream. */
EXPORT int
emulated_capture(void *stream)
{
    return (int)cudaStreamBeginCapture(
        stream, cudaStreamCaptureModeThreadLocal);
}

/* Ends the capture and returns its executable graph, or NULL on failure. */
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

/* Sets whether devices cannot map each other's memory, from the next
 * communicator on. */
EXPORT void
emulated_no_peers(int off)
{
    emu_driver_no_peers(off != 0);
}

/* Returns the first fault that the emulator has recorded, or NULL. */
EXPORT const char *
emulated_fault(void)
{
    return emu_fault_count() ? emu_fault_text(0) : NULL;
}
