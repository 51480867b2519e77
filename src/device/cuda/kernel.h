/* SPDX-License-Identifier: Apache-2.0
 *
 * The first header of every .cu file: the CUDA runtime (or, with ULI_EMULATE,
 * its replacement in tests/emulate), and the only ways to use shared memory and
 * to launch a kernel. A .cu file keeps three rules, checked by
 * scripts/check_cuda_rules: no asm (ptx.h has all of it), ULI_SHARED instead of
 * __shared__, and uli_kernel_launch instead of <<< >>>.
 */
#ifndef DEVICE_CUDA_KERNEL_H
#define DEVICE_CUDA_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <cuda.h>
#include <cuda_runtime.h>

/* The block's dynamic shared memory, at a multiple of 1024 bytes: the only
 * shared memory of a kernel, carved by offsets. */
#ifdef ULI_EMULATE
#define ULI_SHARED(name) unsigned char *const name = emu_shared_base()
#else
#define ULI_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]
#endif

/* Dynamic shared memory that needs no uli_kernel_prepare. */
#define ULI_SHARED_DEFAULT_BYTES 49152

struct uli_launch_config {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
    unsigned cluster_blocks = 0; /* along x; 0 and 1 = no cluster */
};

/* Loads the kernel on the current device and allows it this much dynamic shared
 * memory. To be called once per kernel and device, outside of any capture. */
template <typename... P>
static inline cudaError_t
uli_kernel_prepare(void (*kernel)(P...), size_t shared_bytes)
{
    return cudaFuncSetAttribute((const void *)kernel,
        cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
}

#ifdef ULI_EMULATE
#include "emulate_launch.h"
#else

/* Enqueues the kernel; arguments are converted to its parameter types. */
template <typename... P>
static inline cudaError_t
uli_kernel_launch_exact(
    const struct uli_launch_config &launch, void (*kernel)(P...), P... args)
{
    void *pointers[] = {(void *)&args..., nullptr};
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = launch.cluster_blocks;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = launch.grid;
    config.blockDim = launch.block;
    config.dynamicSmemBytes = launch.shared_bytes;
    config.stream = launch.stream;
    config.attrs = &cluster;
    config.numAttrs = launch.cluster_blocks > 1;
    return cudaLaunchKernelExC(&config, (const void *)kernel, pointers);
}

template <typename... P, typename... A>
static inline cudaError_t
uli_kernel_launch(
    const struct uli_launch_config &launch, void (*kernel)(P...), const A &...args)
{
    return uli_kernel_launch_exact<P...>(launch, kernel, args...);
}
#endif

#endif
