/* SPDX-License-Identifier: Apache-2.0
 *
 * See probe_kernels.h.
 */
#include "emulate/card/probe_kernels.h"
#include "device/cuda/kernel.h"
#include "device/cuda/ptx.h"

static __global__ void
spin_kernel(uint32_t *running, const uint64_t *stop, uint64_t ns)
{
    uint64_t start = ptx_globaltimer_ns();
    (void)ptx_atom_add_relaxed_gpu_u32(running, 1);
    while (ptx_ld_relaxed_sys_u64(stop) == 0 &&
           ptx_globaltimer_ns() - start < ns)
        ptx_nanosleep(200);
}

static __global__ void
nothing_kernel(void)
{
}

static __global__ void
loads_kernel(const uint64_t *word, int32_t count, uint64_t *ns_p)
{
    uint64_t start = ptx_globaltimer_ns(), at = 0;
    for (int32_t i = 0; i < count; i++)
        at += ptx_ld_relaxed_sys_u64(word + at); /* always adds 0 */
    *ns_p = ptx_globaltimer_ns() - start + at;
}

static __global__ void
stores_kernel(
    uint64_t *own, uint64_t *word, int32_t count, int32_t release, uint64_t *ns_p)
{
    uint64_t start = ptx_globaltimer_ns();
    for (int32_t i = 0; i < count; i++) {
        ptx_st_relaxed_gpu_u64(own, (uint64_t)i);
        if (release)
            ptx_st_release_sys_u64(word, (uint64_t)i);
        else
            ptx_st_relaxed_sys_u64(word, (uint64_t)i);
    }
    *ns_p = ptx_globaltimer_ns() - start;
}

/* ---- host ---------------------------------------------------------------- */

static struct uli_launch_config
one_thread(void *stream)
{
    return {dim3(1), dim3(1), 0, (cudaStream_t)stream};
}

int
probe_spin_launch(
    uint32_t *running, const uint64_t *stop, uint64_t ns, void *stream)
{
    return uli_kernel_launch(
        one_thread(stream), spin_kernel, running, stop, ns);
}

int
probe_nothing_launch(void *stream)
{
    return uli_kernel_launch(one_thread(stream), nothing_kernel);
}

int
probe_loads_launch(
    const uint64_t *word, int32_t count, uint64_t *ns_p, void *stream)
{
    return uli_kernel_launch(
        one_thread(stream), loads_kernel, word, count, ns_p);
}

int
probe_stores_launch(uint64_t *own, uint64_t *word, int32_t count,
    int32_t release, uint64_t *ns_p, void *stream)
{
    return uli_kernel_launch(
        one_thread(stream), stores_kernel, own, word, count, release, ns_p);
}

int
probe_prepare(void)
{
    cudaError_t error = uli_kernel_prepare(spin_kernel, 0);
    if (error == cudaSuccess)
        error = uli_kernel_prepare(nothing_kernel, 0);
    if (error == cudaSuccess)
        error = uli_kernel_prepare(loads_kernel, 0);
    if (error == cudaSuccess)
        error = uli_kernel_prepare(stores_kernel, 0);
    return error;
}
