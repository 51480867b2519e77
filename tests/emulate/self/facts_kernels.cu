/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of facts_test.c. Operands are written to shared memory with
 * ordinary stores, then fence.proxy.async, then the block's barrier.
 */
#include "facts_kernels.h"
#include "device/cuda/ptx.h"

#if PTX_SM90
static __device__ __forceinline__ uint64_t
operand_descriptor(uint32_t place, const struct facts_operand *operand, int step)
{
    return ptx_wgmma_descriptor(place + operand->step[step],
               operand->leading_bytes, operand->stride_bytes,
               operand->swizzle_bytes) |
           (uint64_t)operand->base_offset << 49;
}

/* Loads the fragment of one k16 step. Register j holds row 16w + l/4 + 8*(j&1), columns k = 2*(l%4)
 * + 8*(j/2) and k + 1. */
static __device__ __forceinline__ void
load_fragment(uint32_t (&a)[4], const uint16_t *rows, int step)
{
    int w = (int)threadIdx.x / 32, l = (int)threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int row = 16 * w + l / 4 + 8 * (j & 1);
        int k = 16 * step + 2 * (l % 4) + 8 * (j / 2);
        a[j] = (uint32_t)rows[row * 64 + k + 1] << 16 | rows[row * 64 + k];
    }
}

template <int N>
static __device__ __forceinline__ void
store_accumulators(const float (&acc)[N / 2], float *d)
{
    int w = (int)threadIdx.x / 32, l = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        int row = 16 * w + l / 4 + 8 * ((i / 2) & 1);
        int column = 8 * (i / 4) + 2 * (l % 4) + (i & 1);
        d[row * N + column] = acc[i];
    }
}
#endif

template <int N, int TransA, int TransB, bool Registers, bool F16>
__global__ void __launch_bounds__(128, 1)
    product_kernel(struct facts_product product, const uint4 *images,
        const uint16_t *a_rows, float *d)
{
#if PTX_SM90
    ULI_SHARED(shared);
    uint32_t base = ptx_smem_addr(shared);
    uint4 *words = (uint4 *)shared;
    for (uint32_t i = threadIdx.x; i < (FACTS_A_BYTES + FACTS_B_BYTES) / 16;
         i += 128)
        words[i] = images[i];
    ptx_fence_proxy_async_shared();
    __syncthreads();
    float acc[N / 2];
    uint32_t a[FACTS_STEPS][4];
#pragma unroll
    for (int s = 0; s < FACTS_STEPS; s++)
        if (Registers)
            load_fragment(a[s], a_rows, s);
    ptx_wgmma_fence();
#pragma unroll
    for (int s = 0; s < FACTS_STEPS; s++) {
        uint64_t db = operand_descriptor(base + FACTS_A_BYTES, &product.b, s);
        if constexpr (Registers && F16)
            ptx_wgmma_f16<TransB>(acc, a[s], db, s > 0);
        else if constexpr (Registers)
            ptx_wgmma_bf16<TransB>(acc, a[s], db, s > 0);
        else if constexpr (F16)
            ptx_wgmma_f16<TransA, TransB>(
                acc, operand_descriptor(base, &product.a, s), db, s > 0);
        else
            ptx_wgmma_bf16<TransA, TransB>(
                acc, operand_descriptor(base, &product.a, s), db, s > 0);
    }
    ptx_wgmma_commit();
    ptx_wgmma_wait<0>();
    ptx_wgmma_touch(acc);
    store_accumulators<N>(acc, d);
#endif
}

template <int N, int TransA, int TransB, bool Registers, bool F16>
static cudaError_t
launch_product(const struct facts_product *product, const void *images,
    const uint16_t *a_rows, float *d, cudaStream_t stream)
{
    struct uli_launch_config launch = {
        dim3(1), dim3(128), FACTS_A_BYTES + FACTS_B_BYTES, stream};
    auto kernel = product_kernel<N, TransA, TransB, Registers, F16>;
    cudaError_t error = uli_kernel_prepare(kernel, launch.shared_bytes);
    return error != cudaSuccess
               ? error
               : uli_kernel_launch(launch, kernel, *product,
                     (const uint4 *)images, a_rows, d);
}

/* B is MN-major, as the values of attention are, in tiles as wide as the heads. */
template <int N>
static cudaError_t
launch_values(const struct facts_product *p, const void *images,
    const uint16_t *a_rows, float *d, cudaStream_t s)
{
    if (p->a.trans || !p->b.trans)
        return cudaErrorInvalidValue;
    switch (p->registers * 2 + p->f16) {
    case 0:
        return launch_product<N, 0, 1, false, false>(p, images, a_rows, d, s);
    case 1:
        return launch_product<N, 0, 1, false, true>(p, images, a_rows, d, s);
    case 2:
        return launch_product<N, 0, 1, true, false>(p, images, a_rows, d, s);
    default:
        return launch_product<N, 0, 1, true, true>(p, images, a_rows, d, s);
    }
}

template <int N>
static cudaError_t
launch_width(const struct facts_product *p, const void *images,
    const uint16_t *a_rows, float *d, cudaStream_t s)
{
    int form = p->registers * 4 + p->a.trans * 2 + p->b.trans;
    if (p->f16)
        return cudaErrorInvalidValue;
    switch (form) {
    case 0:
        return launch_product<N, 0, 0, false, false>(p, images, a_rows, d, s);
    case 1:
        return launch_product<N, 0, 1, false, false>(p, images, a_rows, d, s);
    case 2:
        return launch_product<N, 1, 0, false, false>(p, images, a_rows, d, s);
    case 3:
        return launch_product<N, 1, 1, false, false>(p, images, a_rows, d, s);
    case 4:
        return launch_product<N, 0, 0, true, false>(p, images, a_rows, d, s);
    case 5:
        return launch_product<N, 0, 1, true, false>(p, images, a_rows, d, s);
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t
facts_wgmma_launch(const struct facts_product *product, const void *images,
    const uint16_t *a_rows, float *d, cudaStream_t stream)
{
    switch (product->n) {
    case 64:
        return launch_width<64>(product, images, a_rows, d, stream);
    case 80:
        return launch_width<80>(product, images, a_rows, d, stream);
    case 128:
        return launch_width<128>(product, images, a_rows, d, stream);
    case 96:
        return launch_values<96>(product, images, a_rows, d, stream);
    case 192:
        return launch_values<192>(product, images, a_rows, d, stream);
    case 256:
        return launch_values<256>(product, images, a_rows, d, stream);
    default:
        return cudaErrorInvalidValue;
    }
}

struct coordinates {
    int rank, at[5];
};

#if PTX_SM90
static __device__ __forceinline__ void
load_box(
    uint32_t dst, const void *map, uint32_t bar, const struct coordinates &c)
{
    if (c.rank == 2)
        ptx_tma_load(dst, map, bar, c.at[0], c.at[1]);
    else if (c.rank == 4)
        ptx_tma_load(dst, map, bar, c.at[0], c.at[1], c.at[2], c.at[3]);
    else
        ptx_tma_load(
            dst, map, bar, c.at[0], c.at[1], c.at[2], c.at[3], c.at[4]);
}

static __device__ __forceinline__ void
store_box(const void *map, uint32_t src, const struct coordinates &c)
{
    if (c.rank == 2)
        ptx_tma_store(map, src, c.at[0], c.at[1]);
    else if (c.rank == 4)
        ptx_tma_store(map, src, c.at[0], c.at[1], c.at[2], c.at[3]);
    else
        ptx_tma_store(map, src, c.at[0], c.at[1], c.at[2], c.at[3], c.at[4]);
}
#endif

/* Shared memory holds the box, then the barrier. */
__global__ void
load_kernel(const __grid_constant__ CUtensorMap map, struct coordinates at,
    uint32_t bytes, uint4 *out)
{
#if PTX_SM90
    ULI_SHARED(shared);
    uint32_t base = ptx_smem_addr(shared), bar = base + bytes;
    if (threadIdx.x == 0) {
        ptx_mbarrier_init(bar, 1);
        ptx_fence_mbarrier_init();
        ptx_mbarrier_arrive_expect_tx(bar, bytes);
        load_box(base, &map, bar, at);
    }
    __syncthreads();
    ptx_mbarrier_wait(bar, 0);
    for (uint32_t i = threadIdx.x; i < bytes / 16; i += blockDim.x)
        out[i] = ((uint4 *)shared)[i];
#endif
}

static struct coordinates
coordinates_pack(int rank, const int *at)
{
    struct coordinates c = {rank, {0}};
    for (int d = 0; d < rank; d++)
        c.at[d] = at[d];
    return c;
}

cudaError_t
facts_load_launch(const CUtensorMap *map, int rank, const int *coordinates,
    uint32_t bytes, void *out, cudaStream_t stream)
{
    struct uli_launch_config launch = {dim3(1), dim3(64), bytes + 64, stream};
    return uli_kernel_launch(launch, load_kernel, *map, coordinates_pack(rank, coordinates),
        bytes, (uint4 *)out);
}

__global__ void
store_kernel(const __grid_constant__ CUtensorMap map, struct coordinates at,
    uint32_t bytes, const uint4 *in)
{
#if PTX_SM90
    ULI_SHARED(shared);
    for (uint32_t i = threadIdx.x; i < bytes / 16; i += blockDim.x)
        ((uint4 *)shared)[i] = in[i];
    ptx_fence_proxy_async_shared();
    __syncthreads();
    if (threadIdx.x == 0) {
        store_box(&map, ptx_smem_addr(shared), at);
        ptx_bulk_commit();
        ptx_bulk_wait_read<0>();
    }
#endif
}

cudaError_t
facts_store_launch(const CUtensorMap *map, int rank, const int *coordinates,
    uint32_t bytes, const void *in, cudaStream_t stream)
{
    struct uli_launch_config launch = {dim3(1), dim3(64), bytes, stream};
    return uli_kernel_launch(launch, store_kernel, *map,
        coordinates_pack(rank, coordinates), bytes, (const uint4 *)in);
}

__global__ void
reduce_kernel(float *sum)
{
#if PTX_SM90
    ULI_SHARED(shared);
    float *mine = (float *)shared;
    for (unsigned i = threadIdx.x; i < 1024; i += blockDim.x)
        mine[i] = (float)(i + blockIdx.x);
    ptx_fence_proxy_async_shared();
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx_bulk_reduce_add_f32(sum, ptx_smem_addr(shared), 4096);
        ptx_bulk_commit();
        ptx_bulk_wait<0>();
    }
#endif
}

cudaError_t
facts_reduce_launch(float *sum, unsigned blocks, cudaStream_t stream)
{
    struct uli_launch_config launch = {dim3(blocks), dim3(128), 4096, stream};
    return uli_kernel_launch(launch, reduce_kernel, sum);
}
