/* SPDX-License-Identifier: Apache-2.0
 *
 * Puts ulyx_perf on emulated devices: before main a device is opened, with an
 * imitation of NCCL that has kernels; after main the program ends with 90 if
 * the emulator has recorded a fault or the library has not freed everything.
 * With PERF_TEST_FAULT=element each call leaves a wrong byte (--wrap). The tool
 * itself has no such hooks.
 */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "emulate.h"
#include "emulate/driver/driver.h"
#include "emulate/messages/fake_nccl_kernels.h"
#include "ulyx/ulyx.h"

enum { HOST_THREADS = 16, SPOILT = 90 };

__attribute__((constructor)) static void
open_machine(void)
{
    const struct emu_config config = {.devices = 1,
        .sm_count = 8,
        /* more than there are, so that time follows the wall clock */
        .host_threads = HOST_THREADS,
        .wall_time = true};
    if (emu_open(&config) != 0 || fake_nccl_load() == NULL) {
        fprintf(stderr, "no emulated devices, or no NCCL for them\n");
        _exit(SPOILT);
    }
    setenv("ULYX_NCCL_LIB", FAKE_NCCL_OK, 1);
}

__attribute__((destructor)) static void
close_machine(void)
{
    size_t faults = emu_fault_count();
    int live = emu_driver_live();

    fflush(NULL);
    if (faults > 0)
        fprintf(stderr, "the emulator: %s\n", emu_fault_text(0));
    if (live != 0)
        fprintf(stderr, "the driver: %d objects are left\n", live);
    if (faults > 0 || live != 0)
        _exit(SPOILT);
    emu_close();
}

ulyx_status_t __real_ulyx_reshuffle_execute(ulyx_plan_t *plan,
    ulyx_direction_t direction, const void *const src[], void *const dst[],
    void *stream);
ulyx_status_t __wrap_ulyx_reshuffle_execute(ulyx_plan_t *plan,
    ulyx_direction_t direction, const void *const src[], void *const dst[],
    void *stream);

ulyx_status_t
__wrap_ulyx_reshuffle_execute(ulyx_plan_t *plan, ulyx_direction_t direction,
    const void *const src[], void *const dst[], void *stream)
{
    ulyx_status_t status =
        __real_ulyx_reshuffle_execute(plan, direction, src, dst, stream);
    const char *kind = getenv("PERF_TEST_FAULT");

    if (kind != NULL && strcmp(kind, "element") == 0)
        cudaMemsetAsync(dst[0], 0x5a, 1, stream);
    return status;
}
