/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators of CUDA memory over the tests' driver, whose device memory is
 * memfds: the host reads and writes it through the addresses that a device
 * would use.
 */
#ifndef TESTS_COMM_DEVICE_GPU_SCENE_H
#define TESTS_COMM_DEVICE_GPU_SCENE_H

#include <stdbool.h>
#include "comm/device/gpu.h"
#include "comm/memory/mem.h"
#include "device/fake_driver.h"

extern struct fake_driver *gpu_driver;

/* Opens the driver, once per process; cmocka's set-up. */
int gpu_open(void **state);
/* Whether no object of the driver, context or import is left. */
bool gpu_nothing_left(void);
/* cmocka's tear-down: resets the driver; fails if something is left. */
int gpu_close(void **state);

enum { GPU_RANKS = 8 };

/* Makes ranks by threads of this process, rank r on devices[r]; any thread may
 * use them afterwards. On error none is kept, and the text is that of one
 * rank. */
ulyx_status_t gpu_threads(
    int nranks, const int32_t *devices, double timeout_s, ulyx_comm_t **comms);

/* A window of `bytes` of a device, made by the library. */
ulyx_mem_t *gpu_alloc(int32_t device, int64_t bytes, char **address_p);
/* Registers memory of the caller. */
ulyx_mem_t *gpu_register(void *address, int64_t bytes);

/* The address at which kernels of comm would find a rank's window. */
void *gpu_entry(const ulyx_comm_t *comm, int32_t rank, uint32_t window);

/* The poison that kernels of comm read; and whether it arrives within 10 s. No
 * host thread waits: the service thread checks. */
uint64_t gpu_poison_of(const ulyx_comm_t *comm);
bool gpu_poison_comes(const ulyx_comm_t *comm);

/* For comm->gpu->calls: the test sets whether the device has work. */
struct uli_gpu_calls;
extern bool gpu_busy;
extern const struct uli_gpu_calls gpu_busy_calls;

/* A segment of `npieces` allocations side by side on a device, as caching
 * allocators grow them; freed by gpu_segment_free. */
char *gpu_segment(int32_t device, int npieces);
void gpu_segment_free(char *base, int npieces);

#endif
