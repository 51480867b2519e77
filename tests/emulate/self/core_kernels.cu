/* SPDX-License-Identifier: Apache-2.0
 *
 * Small kernels for the emulator's own core: indices, barriers, shuffles,
 * atomics, flags between devices, deadlines, and one that hangs.
 */
#include "core_kernels.h"
#include "device/cuda/ptx.h"

__global__ void
index_kernel(int *out, int add)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = (int)i + add;
}

cudaError_t
core_index_launch(
    int *out, int add, unsigned blocks, unsigned threads, cudaStream_t stream)
{
    struct uli_launch_config launch = {dim3(blocks), dim3(threads), 0, stream};
    return uli_kernel_launch(launch, index_kernel, out, add);
}

__global__ void
sum_kernel(const int *in, int *out)
{
    ULI_SHARED(shared);
    int *partial = (int *)shared;
    int v = in[blockIdx.x * blockDim.x + threadIdx.x];
    for (int step = 16; step; step /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, step);
    if (threadIdx.x % 32 == 0)
        partial[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (unsigned w = 0; w < blockDim.x / 32; w++)
            sum += partial[w];
        out[blockIdx.x] = sum;
    }
}

cudaError_t
core_sum_launch(const int *in, int *out, unsigned blocks, cudaStream_t stream)
{
    struct uli_launch_config launch = {dim3(blocks), dim3(256), 32, stream};
    return uli_kernel_launch(launch, sum_kernel, in, out);
}

__global__ void
count_kernel(unsigned *counter)
{
    atomicAdd(counter, 1u);
}

cudaError_t
core_count_launch(unsigned *counter, unsigned blocks, cudaStream_t stream)
{
    struct uli_launch_config launch = {dim3(blocks), dim3(64), 0, stream};
    return uli_kernel_launch(launch, count_kernel, counter);
}

__global__ void
wait_kernel(unsigned *flag, unsigned value, uint64_t limit_ns, unsigned *result)
{
    uint64_t end = ptx_globaltimer_ns() + limit_ns;
    unsigned seen = 2;
    do {
        if (ptx_ld_acquire_sys_u32(flag) >= value)
            seen = 1;
        else
            ptx_nanosleep(100);
    } while (seen == 2 && ptx_globaltimer_ns() < end);
    *result = seen;
}

cudaError_t
core_wait_launch(unsigned *flag, unsigned value, uint64_t limit_ns,
    unsigned *result, cudaStream_t stream)
{
    struct uli_launch_config launch = {dim3(1), dim3(1), 0, stream};
    return uli_kernel_launch(
        launch, wait_kernel, flag, value, limit_ns, result);
}

/* words[0]: thread 0 may raise words[2]. words[2]: it has done so. words[4 + i]: result of thread
 * i. The other threads look at two words in turn, so that none loads the same word twice in a
 * row. */
__global__ void
crowd_kernel(unsigned *words, uint64_t limit_ns)
{
    uint64_t end = ptx_globaltimer_ns() + limit_ns;
    unsigned seen = 2;
    if (threadIdx.x == 0 && ptx_ld_relaxed_sys_u32(words) != 0) {
        (void)ptx_ld_acquire_sys_u32(words);
        ptx_st_release_sys_u32(words + 2, 1);
    }
    while (seen == 2 && ptx_globaltimer_ns() < end) {
        if (ptx_ld_acquire_sys_u32(words + 2) != 0)
            seen = 1;
        else if (ptx_ld_relaxed_sys_u32(words) <= 1)
            ptx_nanosleep(100);
    }
    words[4 + threadIdx.x] = seen;
}

cudaError_t
core_crowd_launch(
    unsigned *words, unsigned threads, uint64_t limit_ns, cudaStream_t stream)
{
    struct uli_launch_config launch = {dim3(1), dim3(threads), 0, stream};
    return uli_kernel_launch(launch, crowd_kernel, words, limit_ns);
}

__global__ void
put_kernel(int *data, int count, int value, unsigned *flag, unsigned epoch)
{
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x)
        data[i] = value + i;
    __syncthreads();
    if (threadIdx.x == 0)
        ptx_st_release_sys_u32(flag, epoch);
}

cudaError_t
core_put_launch(int *data, int count, int value, unsigned *flag, unsigned epoch,
    cudaStream_t stream)
{
    struct uli_launch_config launch = {dim3(1), dim3(128), 0, stream};
    return uli_kernel_launch(
        launch, put_kernel, data, count, value, flag, epoch);
}

__global__ void
take_kernel(
    const int *data, int count, unsigned *flag, unsigned epoch, int *out)
{
    if (threadIdx.x == 0)
        while (ptx_ld_acquire_sys_u32(flag) < epoch)
            ;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x)
        out[i] = data[i];
}

cudaError_t
core_take_launch(const int *data, int count, unsigned *flag, unsigned epoch,
    int *out, cudaStream_t stream)
{
    struct uli_launch_config launch = {dim3(1), dim3(128), 0, stream};
    return uli_kernel_launch(
        launch, take_kernel, data, count, flag, epoch, out);
}

__global__ void
hang_kernel(void)
{
    if (threadIdx.x < 32)
        ptx_bar_sync(1, 64);
}

cudaError_t
core_hang_launch(cudaStream_t stream)
{
    struct uli_launch_config launch = {dim3(1), dim3(64), 0, stream};
    return uli_kernel_launch(launch, hang_kernel);
}

static __device__ __noinline__ int
depth_recurse(int depth)
{
    volatile char room[1024];
    room[depth] = (char)depth;
    return depth ? depth_recurse(depth - 1) + 1 + (room[depth] != (char)depth) : 0;
}

__global__ void
recurse_kernel(int depth, int *out)
{
    *out = depth_recurse(depth);
}

cudaError_t
core_recurse_launch(int depth, int *out, cudaStream_t stream)
{
    struct uli_launch_config launch = { dim3(1), dim3(1), 0, stream };
    return uli_kernel_launch(launch, recurse_kernel, depth, out);
}
