/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of units_test.c.
 */
#include "units_kernels.h"
#include "device/cuda/ptx.h"

static struct uli_launch_config
one_block(unsigned threads, size_t shared_bytes)
{
    return { dim3(1), dim3(threads), shared_bytes, nullptr, 0 };
}

/* Stores rows of 16-bit elements to shared memory, with a pitch of 48 bytes. */
static __device__ void
rows_stage(unsigned char *place, const uint16_t *rows, int count, int columns)
{
    for (int i = (int)threadIdx.x; i < count * columns; i += 32)
        *(uint16_t *)(place + i / columns * 48 + i % columns * 2) = rows[i];
}

__global__ void
mma_kernel(int f16, int trans, const uint16_t *a, const uint16_t *b, float *d)
{
    ULI_SHARED(shared);
    uint32_t base = ptx_smem_addr(shared), l = threadIdx.x;
    uint32_t ra[4], rb[2];
    float acc[4] = { 0 };
    rows_stage(shared, a, 16, 16);
    rows_stage(shared + 1024, b, trans ? 16 : 8, trans ? 8 : 16);
    __syncwarp();
    ptx_ldmatrix(ra, base + (l % 16) * 48 + l / 16 * 16);
    if (trans)
        ptx_ldmatrix_trans(rb, base + 1024 + (l % 16) * 48);
    else
        ptx_ldmatrix(rb, base + 1024 + (l % 8) * 48 + l / 8 % 2 * 16);
    if (f16)
        ptx_mma_f16(acc, ra, rb[0], rb[1]);
    else
        ptx_mma_bf16(acc, ra, rb[0], rb[1]);
    for (uint32_t i = 0; i < 4; i++)
        d[(l / 4 + 8 * (i / 2)) * 8 + 2 * (l % 4) + (i & 1)] = acc[i];
}

cudaError_t
units_mma_launch(int f16, const uint16_t *a, const uint16_t *b, float *d)
{
    return uli_kernel_launch(one_block(32, 2048), mma_kernel, f16, 0, a, b, d);
}

cudaError_t
units_mma_trans_launch(const uint16_t *a, const uint16_t *b, float *d)
{
    return uli_kernel_launch(one_block(32, 2048), mma_kernel, 0, 1, a, b, d);
}

__global__ void
tf32_kernel(const float *a, const float *b, float *d)
{
    uint32_t l = threadIdx.x, g = l / 4, t = l % 4, ra[4];
    float acc[4] = { 0 };
    for (uint32_t j = 0; j < 4; j++)
        ra[j] = __float_as_uint(a[(g + 8 * (j & 1)) * 8 + t + 4 * (j / 2)]);
    ptx_mma_tf32(acc, ra, __float_as_uint(b[g * 8 + t]),
        __float_as_uint(b[g * 8 + t + 4]));
    for (uint32_t i = 0; i < 4; i++)
        d[(g + 8 * (i / 2)) * 8 + 2 * t + (i & 1)] = acc[i];
}

cudaError_t
units_tf32_launch(const float *a, const float *b, float *d)
{
    return uli_kernel_launch(one_block(32, 0), tf32_kernel, a, b, d);
}

__global__ void
stmatrix_kernel(const uint16_t *in, uint16_t *out)
{
#if PTX_SM90
    ULI_SHARED(shared);
    uint32_t base = ptx_smem_addr(shared), l = threadIdx.x;
    uint32_t r[1] = { (uint32_t)in[l * 2 + 1] << 16 | in[l * 2] };
    ptx_stmatrix_trans(base + l % 8 * 16, r);
    __syncwarp();
    for (int i = (int)l; i < 64; i += 32)
        out[i] = ((uint16_t *)shared)[i];
#endif
}

cudaError_t
units_stmatrix_launch(const uint16_t *in, uint16_t *out)
{
    return uli_kernel_launch(one_block(32, 1024), stmatrix_kernel, in, out);
}

__global__ void
warp_kernel(uint32_t *out)
{
    const uint32_t all = 0xffffffffu;
    uint32_t l = threadIdx.x % 32, r[12];
    r[0] = __ballot_sync(all, l % 3 == 0);
    r[1] = (uint32_t)__any_sync(all, l == 31);
    r[2] = (uint32_t)__all_sync(all, l < 31);
    r[3] = __shfl_sync(all, l * 10, 7);
    r[4] = __shfl_up_sync(all, l, 3);
    r[5] = __shfl_down_sync(all, l, 5, 8);
    r[6] = __shfl_xor_sync(all, l, 9);
    r[7] = __reduce_add_sync(all, l);
    r[8] = __reduce_max_sync(all, l * 7 % 31);
    r[9] = l < 16 ? __shfl_xor_sync(0x0000ffffu, l, 1)
                  : __shfl_xor_sync(0xffff0000u, l, 2);
    r[10] = 1;
#if PTX_SM90
    r[10] = (uint32_t)__popc(__ballot_sync(all, ptx_elect()));
#endif
    r[11] = (uint32_t)__syncthreads_count(threadIdx.x % 5 == 0);
    if (threadIdx.x < 32)
        for (int i = 0; i < 12; i++)
            out[i * 32 + l] = r[i];
}

cudaError_t
units_warp_launch(uint32_t *out)
{
    return uli_kernel_launch(one_block(96, 0), warp_kernel, out);
}

/* Also runs on compute capability 8.0, because cp.async does not use the asynchronous proxy. */
__global__ void
copy_kernel(const uint32_t *in, uint32_t *out, int count, int valid)
{
    ULI_SHARED(shared);
    uint32_t base = ptx_smem_addr(shared), i = threadIdx.x;
    uint32_t bar = base + 4096, left = (uint32_t)max(valid - (int)i * 4, 0);
    if (i == 0)
        ptx_mbarrier_init(bar, 64);
    __syncthreads();
    for (int round = 0; round < 2; round++) {
        ptx_cp_async_16_zfill(
            base + i * 16, in + i * 4, min(left, 4u) * 4);
        ptx_cp_async_mbarrier_arrive(bar);
        while (!ptx_mbarrier_test_wait(bar, (uint32_t)round))
            ;
    }
    for (int k = (int)i; k < count; k += 64)
        out[k] = ((uint32_t *)shared)[count - 1 - k];
}

cudaError_t
units_copy_launch(const uint32_t *in, uint32_t *out, int count, int valid)
{
    return uli_kernel_launch(
        one_block(64, 4096 + 8), copy_kernel, in, out, count, valid);
}

/* Warp 0 writes a word and arrives at barrier 1, where warp 1 waits. Warp 1 reads the word and
 * arrives at barrier 2, which returns the word to warp 0. */
__global__ void
named_kernel(uint32_t *out, int rounds)
{
    ULI_SHARED(shared);
    uint32_t *word = (uint32_t *)shared;
    for (int r = 0; r < rounds; r++) {
        if (threadIdx.x < 32) {
            word[threadIdx.x] = (uint32_t)r * 100 + threadIdx.x;
            ptx_bar_arrive(1, 64);
            ptx_bar_sync(2, 64);
        } else {
            ptx_bar_sync(1, 64);
            if (threadIdx.x == 32)
                out[r] = word[31];
            ptx_bar_arrive(2, 64);
        }
    }
}

cudaError_t
units_named_launch(uint32_t *out, int rounds)
{
    return uli_kernel_launch(one_block(64, 128), named_kernel, out, rounds);
}

__global__ void
convert_kernel(const float *in, uint32_t *bf16, uint32_t *f16, int count)
{
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x) {
        bf16[i] = ptx_pack_bf16(in[i], -in[i]);
        f16[i] = ptx_pack_f16(in[i], -in[i]);
    }
}

cudaError_t
units_convert_launch(
    const float *in, uint32_t *bf16, uint32_t *f16, int count)
{
    return uli_kernel_launch(
        one_block(64, 0), convert_kernel, in, bf16, f16, count);
}

/* A chain: block b adds one after block b - 1 has. */
__global__ void
turns_kernel(uint32_t *turn, uint32_t *value)
{
    while (ptx_ld_relaxed_gpu_u32(turn) != blockIdx.x)
        ;
    __threadfence();
    *value += 1;
    __threadfence();
    ptx_red_add_relaxed_gpu_u32(turn, 1);
}

cudaError_t
units_turns_launch(uint32_t *turn, uint32_t *value, int blocks)
{
    struct uli_launch_config launch = { dim3((unsigned)blocks), dim3(1), 0, nullptr,
        0 };
    return uli_kernel_launch(launch, turns_kernel, turn, value);
}

__global__ void
empty_kernel(void)
{
}

cudaError_t
units_cluster_launch(void)
{
    struct uli_launch_config launch = { dim3(4), dim3(32), 0, nullptr, 2 };
    return uli_kernel_launch(launch, empty_kernel);
}

__global__ void
multicast_kernel(const __grid_constant__ CUtensorMap map)
{
#if PTX_SM90
    ULI_SHARED(shared);
    uint32_t base = ptx_smem_addr(shared);
    if (threadIdx.x == 0)
        ptx_tma_load_multicast(base, &map, base + 1024, 3, 0, 0);
#endif
}

cudaError_t
units_multicast_launch(void)
{
    CUtensorMap map = {};
    return uli_kernel_launch(one_block(32, 2048), multicast_kernel, map);
}

cudaError_t
units_shared_launch(size_t bytes, int prepare)
{
    if (prepare) {
        cudaError_t error = uli_kernel_prepare(empty_kernel, bytes);
        if (error)
            return error;
    }
    return uli_kernel_launch(one_block(32, bytes), empty_kernel);
}
