/* SPDX-License-Identifier: Apache-2.0
 *
 * What a test in Python asks of the emulated machine. Device memory is memory
 * that the host can read and write as well: a tensor of the host over it is
 * good once its stream has ended.
 */
#include <cuda_runtime.h>
#include "emulate.h"

#define EXPORT __attribute__((visibility("default")))

int emulated_open(int devices, int host_threads);
void *emulated_stream(int device);
int emulated_wait(void *stream);
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

/* The first fault that the emulator has seen, or NULL. */
EXPORT const char *
emulated_fault(void)
{
    return emu_fault_count() ? emu_fault_text(0) : NULL;
}
