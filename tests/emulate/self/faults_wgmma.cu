/* SPDX-License-Identifier: Apache-2.0
 *
 * Planted faults around wgmma: m64n64k16, two k16 steps, operands as core
 * matrices without swizzle, written by the block's own threads.
 */
#include "faults.h"
#include "device/cuda/ptx.h"

#if PTX_SM90
enum { ROWS = 64, DEPTH = 32, OPERAND_BYTES = ROWS * DEPTH * 2 };

/* Returns the byte of element (row, k). Core matrices have 8 rows x 16 bytes, and neighbours in K
 * come first. */
static __device__ uint32_t
core_offset(uint32_t row, uint32_t k)
{
    return row / 8 * (DEPTH / 8 * 128) + k / 8 * 128 + row % 8 * 16 + k % 8 * 2;
}

static __device__ void
write_operand(unsigned char *place, const uint16_t *rows)
{
    for (uint32_t i = threadIdx.x; i < ROWS * DEPTH; i += 128)
        *(uint16_t *)(place + core_offset(i / DEPTH, i % DEPTH)) = rows[i];
}

static __device__ uint64_t
operand_descriptor(int fault, uint32_t start)
{
    uint32_t leading = 128, stride = DEPTH / 8 * 128;
    if (fault == WGMMA_LBO_SBO_EXCHANGED)
        return ptx_wgmma_descriptor(start, stride, leading, 0);
    return ptx_wgmma_descriptor(start, leading, stride, 0);
}

static __device__ void
acc_store(const float (&acc)[32], float *d)
{
    uint32_t w = threadIdx.x / 32, l = threadIdx.x % 32;
    for (uint32_t i = 0; i < 32; i++)
        d[(16 * w + l / 4 + 8 * (i / 2 & 1)) * 64 + 8 * (i / 4) + 2 * (l % 4) +
            (i & 1)] = acc[i];
}

static __device__ void
acc_multiply(int fault, uint32_t base, float (&acc)[32])
{
    for (uint32_t s = 0; s < DEPTH / 16; s++) {
        uint64_t a = operand_descriptor(fault, base + s * 256);
        uint64_t b = operand_descriptor(fault, base + OPERAND_BYTES + s * 256);
        if (fault == WGMMA_LANES_DISAGREE && threadIdx.x == 40)
            b += 1;
        if (fault == WGMMA_ONE_WARP_SHORT && threadIdx.x / 32 == 2 && s)
            break;
        ptx_wgmma_bf16<0, 0>(acc, a, b, 1);
        if (fault == WGMMA_WAITS_FOR_ALL_BUT_ONE && s == 0)
            ptx_wgmma_commit();
    }
}
#endif

__global__ void __launch_bounds__(128, 1)
    wgmma_kernel(int fault, const uint16_t *a, const uint16_t *b, float *d)
{
#if PTX_SM90
    ULI_SHARED(shared);
    float acc[32];
    write_operand(shared, a);
    write_operand(shared + OPERAND_BYTES, b);
    if (fault != WGMMA_NO_PROXY_FENCE)
        ptx_fence_proxy_async_shared();
    if (fault != WGMMA_NO_BARRIER)
        __syncthreads();
    for (int i = 0; i < 32; i++)
        acc[i] = 0;
    if (fault != WGMMA_NO_FENCE)
        ptx_wgmma_fence();
    acc_multiply(fault, ptx_smem_addr(shared), acc);
    if (fault != WGMMA_NO_COMMIT)
        ptx_wgmma_commit();
    if (fault == WGMMA_OPERAND_OVERWRITTEN)
        shared[threadIdx.x] = 0;
    if (fault == WGMMA_WAITS_FOR_ALL_BUT_ONE)
        ptx_wgmma_wait<1>();
    else if (fault != WGMMA_NO_WAIT)
        ptx_wgmma_wait<0>();
    ptx_wgmma_touch(acc);
    acc_store(acc, d);
#endif
}

cudaError_t
wgmma_launch(int fault, const uint16_t *a, const uint16_t *b, float *d)
{
#if PTX_SM90
    struct uli_launch_config launch = {dim3(1), dim3(128), 2 * OPERAND_BYTES, nullptr};
    return uli_kernel_launch(launch, wgmma_kernel, fault, a, b, d);
#else
    return cudaErrorNotSupported;
#endif
}
