/* SPDX-License-Identifier: Apache-2.0
 *
 * See gate.h.
 */
#include "emulate/plan/gate.h"
#include "device/cuda/kernel.h"
#include "device/cuda/ptx.h"

enum { SLEEP_NS = 1000 };

__global__ void
gate_kernel(const uint32_t *open)
{
    while (!ptx_ld_acquire_sys_u32(open))
        ptx_nanosleep(SLEEP_NS);
}

__global__ void
gate_open_kernel(uint32_t *open)
{
    ptx_st_release_sys_u32(open, 1);
}

int
gate_open_launch(uint32_t *open, void *stream)
{
    return uli_kernel_launch(
        {dim3(1), dim3(1), 0, (cudaStream_t)stream}, gate_open_kernel, open);
}

int
gate_launch(const uint32_t *open, void *stream)
{
    return uli_kernel_launch(
        {dim3(1), dim3(1), 0, (cudaStream_t)stream}, gate_kernel, open);
}
