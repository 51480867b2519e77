/* SPDX-License-Identifier: Apache-2.0
 *
 * Planted faults in an exchange between two devices: one writes data into the
 * other's memory, by bulk stores from shared memory or by plain stores, and
 * raises a flag there; the other waits for the flag and reads.
 */
#include "faults.h"
#include "device/cuda/ptx.h"

enum { THREADS = 128, HALF = FLAG_COUNT / 2 };

#if PTX_SM90
/* Two stores of half of the data each, through one stage of shared memory. */
static __device__ void
put_bulk(int fault, int *stage, const int *in, int *data)
{
    uint32_t place = ptx_smem_addr(stage);
    for (int half = 0; half < 2; half++) {
        for (int i = (int)threadIdx.x; i < HALF; i += THREADS)
            stage[i] = in[half * HALF + i] + 1;
        if (fault != FLAG_NO_PROXY_FENCE)
            ptx_fence_proxy_async_shared();
        __syncthreads();
        if (threadIdx.x == 0) {
            ptx_bulk_store(data + half * HALF, place, HALF * 4);
            if (fault != FLAG_NO_COMMIT)
                ptx_bulk_commit();
            if (fault != FLAG_STAGE_OVERWRITTEN)
                ptx_bulk_wait_read<0>();
        }
        __syncthreads();
    }
    if (threadIdx.x == 0 && fault != FLAG_READ_WAIT_ONLY)
        ptx_bulk_wait<0>();
}
#endif

static __device__ void
put_plain(int fault, const int *in, int *data)
{
    for (int i = (int)threadIdx.x; i < FLAG_COUNT; i += THREADS)
        data[i] = in[i] + 1;
    if (fault == FLAG_BYTE_TWICE && threadIdx.x == 9)
        data[9] = in[9] + 1;
    if (fault != FLAG_NO_BLOCK_BARRIER)
        __syncthreads();
}

static __device__ void
raise_flag(int fault, unsigned *flag)
{
    if (fault == FLAG_NEVER_RAISED) {
        return;
    } else if (fault == FLAG_LOST_RELEASE) {
        ptx_st_relaxed_sys_u32(flag, 1);
    } else if (fault == FLAG_SCOPE_TOO_NARROW) {
        ptx_st_release_gpu_u32(flag, 1);
    } else if (fault == FLAG_FENCE_TOO_NARROW) {
        __threadfence();
        ptx_st_volatile_u32(flag, 1);
    } else if (fault == FLAG_RIGHT) {
        __threadfence_system();
        ptx_st_volatile_u32(flag, 1);
    } else {
        ptx_st_release_sys_u32(flag, 1);
    }
}

__global__ void
flag_put_kernel(int fault, int bulk, const int *in, int *data, unsigned *flag)
{
    ULI_SHARED(shared);
#if PTX_SM90
    if (bulk)
        put_bulk(fault, (int *)shared, in, data);
#endif
    if (!bulk)
        put_plain(fault, in, data);
    if (threadIdx.x == 0)
        raise_flag(fault, flag);
}

cudaError_t
flag_put_launch(int fault, int bulk, const int *in, int *data, unsigned *flag)
{
    struct uli_launch_config launch = {dim3(1), dim3(THREADS), HALF * 4, nullptr};
    return uli_kernel_launch(
        launch, flag_put_kernel, fault, bulk, in, data, flag);
}

static __device__ void
await_flag(int fault, unsigned *flag)
{
    if (fault == FLAG_LOST_ACQUIRE)
        while (ptx_ld_relaxed_sys_u32(flag) == 0)
            ;
    else if (fault == FLAG_ACQUIRE_TOO_NARROW)
        while (ptx_ld_acquire_gpu_u32(flag) == 0)
            ;
    else
        while (ptx_ld_acquire_sys_u32(flag) == 0)
            ;
}

#if PTX_SM90
/* Reads through the asynchronous proxy what the peer wrote through the generic one. */
static __device__ void
take_bulk(int fault, unsigned char *shared, const int *data)
{
    uint32_t base = ptx_smem_addr(shared), bar = base + FLAG_COUNT * 4;
    if (threadIdx.x == 0) {
        ptx_mbarrier_init(bar, 1);
        ptx_fence_mbarrier_init();
        if (fault == FLAG_LOAD_FENCE_OF_OTHER_SPACE)
            ptx_fence_proxy_async_shared();
        else if (fault != FLAG_LOAD_NO_PROXY_FENCE)
            ptx_fence_proxy_async_global();
        ptx_mbarrier_arrive_expect_tx(bar, FLAG_COUNT * 4);
        ptx_bulk_load(base, data, FLAG_COUNT * 4, bar);
    }
    __syncthreads();
    ptx_mbarrier_wait(bar, 0);
}
#endif

__global__ void
flag_take_kernel(
    int fault, int bulk, const int *data, unsigned *flag, int *out)
{
    ULI_SHARED(shared);
    const int *from = data;
    if (threadIdx.x == 0)
        await_flag(fault, flag);
    __syncthreads();
#if PTX_SM90
    if (bulk) {
        take_bulk(fault, shared, data);
        from = (const int *)shared;
    }
#endif
    for (int i = (int)threadIdx.x; i < FLAG_COUNT; i += THREADS)
        out[i] = from[i];
}

cudaError_t
flag_take_launch(
    int fault, int bulk, const int *data, unsigned *flag, int *out)
{
    struct uli_launch_config launch
        = { dim3(1), dim3(THREADS), FLAG_COUNT * 4 + 8, nullptr };
    return uli_kernel_launch(
        launch, flag_take_kernel, fault, bulk, data, flag, out);
}
