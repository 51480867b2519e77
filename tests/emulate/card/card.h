/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of emulate.h for a card: no byte is tracked and no race is
 * detected, so the only faults are errors of the runtime.
 */
#ifndef TESTS_EMULATE_CARD_CARD_H
#define TESTS_EMULATE_CARD_CARD_H

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "support/test.h"

struct emu_config {
    int devices, sm_count;
    uint64_t seed;
    int host_threads;
    bool quiet;
};

/* Returns how many of the requested devices there are. Skips the test where
 * there is none. */
static inline int
card_devices(int wanted)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0)
        test_skip("no CUDA device");
    return wanted < count ? wanted : count;
}

static inline int
emu_open(const struct emu_config *config)
{
    return config->devices == card_devices(config->devices) ? 0 : -1;
}

/* Waits for all devices. Unlike the emulator, resets none: the library keeps a
 * device's context, and making a new one takes a third of a second. Memory is
 * freed by the code that allocated it, or when the process ends. */
static inline void
emu_close(void)
{
    int count = 0;
    cudaGetDeviceCount(&count);
    for (int d = 0; d < count; d++) {
        cudaSetDevice(d);
        cudaDeviceSynchronize();
    }
}

static inline size_t
emu_fault_count(void)
{
    return cudaGetLastError() != cudaSuccess;
}

#endif
