/* SPDX-License-Identifier: Apache-2.0
 *
 * Planted faults within a block: barriers, bounds, warp collectives, cp.async.
 * 128 threads reverse an array through shared memory and add their index.
 */
#include "faults.h"
#include "device/cuda/ptx.h"

enum { N = BLOCK_COUNT };

/* Copies the thread's own word asynchronously, in two groups: first a dummy, then the word. */
static __device__ void
copy_in(int fault, int *words, const int *in)
{
    uint32_t place = ptx_smem_addr(words) + threadIdx.x * 4;
    ptx_cp_async_4(place + N * 4, in + threadIdx.x);
    ptx_cp_async_commit();
    ptx_cp_async_4(place, in + threadIdx.x);
    ptx_cp_async_commit();
    if (fault == BLOCK_COPY_GROUP_LEFT)
        ptx_cp_async_wait<1>();
    else if (fault != BLOCK_COPY_NOT_WAITED_FOR)
        ptx_cp_async_wait<0>();
}

static __device__ void
warp_part(int fault)
{
    unsigned i = threadIdx.x, sum = i;
    if (fault == BLOCK_SHUFFLE_BY_HALF) {
        if (i % 32 < 16)
            sum = __shfl_down_sync(0xffffffffu, sum, 1);
        else
            sum = __shfl_up_sync(0xffffffffu, sum, 1);
    } else if (fault == BLOCK_LANE_ENDED) {
        if (i == 70)
            return;
        __syncwarp();
    } else {
        sum = __shfl_down_sync(0xffffffffu, sum, 1);
    }
}

static __device__ void
registers_fault(int fault)
{
#if PTX_SM90
    if (fault == BLOCK_REGISTERS_EXHAUSTED)
        ptx_setmaxnreg_inc<248>();
    else if (fault == BLOCK_REGISTERS_DISAGREE && threadIdx.x % 32 == 3)
        ptx_setmaxnreg_dec<40>();
    else
        ptx_setmaxnreg_dec<48>();
#endif
}

static __device__ void
block_barrier(int fault)
{
    if (fault == BLOCK_NO_BARRIER || fault == BLOCK_COPY_NO_BARRIER)
        return;
    if (fault == BLOCK_BARRIER_COUNTS_DIFFER)
        ptx_bar_sync(1, threadIdx.x < 64 ? N : N - 32);
    else if (fault != BLOCK_BARRIER_MISSED || threadIdx.x >= 32)
        ptx_bar_sync(1, N);
}

__global__ void __launch_bounds__(512, 1)
    block_kernel(int fault, const int *in, int *out)
{
    ULI_SHARED(shared);
    int *words = (int *)shared;
    int i = (int)threadIdx.x;
    registers_fault(fault);
    if (i >= N)
        return;
    if (fault >= BLOCK_COPY_NOT_WAITED_FOR && fault <= BLOCK_COPY_NO_BARRIER)
        copy_in(fault, words, in);
    else
        words[fault == BLOCK_SHARED_BOUNDS && i == 5 ? 2 * N : i] = in[i];
    warp_part(fault);
    if (fault == BLOCK_LANE_ENDED && i == 70)
        return;
    block_barrier(fault);
    int *place = fault == BLOCK_GLOBAL_BOUNDS && i == 127 ? out + N : out + i;
    *place = words[N - 1 - i] + i;
}

cudaError_t
block_launch(int fault, const int *in, int *out)
{
    struct uli_launch_config launch = {dim3(1), dim3(512), 2 * N * 4, nullptr};
    return uli_kernel_launch(launch, block_kernel, fault, in, out);
}
