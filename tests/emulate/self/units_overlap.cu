/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of products of an attention kernel, without the softmax: while
 * o += p_j v_j is in flight, the next scores are computed and converted to
 * register operands. k_j is K-major, v_j MN-major, both swizzled over 128
 * bytes; the tiles are loaded by plain stores of the block itself.
 */
#include "units_kernels.h"
#include "device/cuda/ptx.h"

#if PTX_SM90
enum { SIDE = 64, TILE_BYTES = SIDE * 128, THREADS = 128 };

/* Row r of a tile is at r * 128 bytes; its 16-byte pieces are swizzled by the row. */
static __device__ void
load_tile(unsigned char *place, const uint16_t *rows)
{
    for (uint32_t i = threadIdx.x; i < SIDE * 8; i += THREADS) {
        uint32_t row = i / 8, piece = i % 8;
        *(uint4 *)(place + row * 128 + ((piece ^ (row & 7)) << 4))
            = ptx_ld_v4(rows + row * SIDE + piece * 8);
    }
}

static __device__ __forceinline__ void
issue_scores(float (&s)[32], uint32_t q, uint32_t k)
{
    uint64_t a = ptx_wgmma_descriptor(q, 16, 1024, 128);
    uint64_t b = ptx_wgmma_descriptor(k, 16, 1024, 128);
#pragma unroll
    for (int i = 0; i < 4; i++)
        ptx_wgmma_bf16<0, 0>(s, a + 2 * i, b + 2 * i, i > 0);
    ptx_wgmma_commit();
}

static __device__ __forceinline__ void
issue_values(float (&o)[32], const uint32_t (&p)[4][4], uint32_t v, bool first)
{
    uint64_t b = ptx_wgmma_descriptor(v, 16, 1024, 128);
#pragma unroll
    for (int i = 0; i < 4; i++)
        ptx_wgmma_bf16<1>(o, p[i], b + 128 * i, !first || i > 0);
    ptx_wgmma_commit();
}

/* The eight accumulators of 16 columns are the four words of a fragment. */
static __device__ __forceinline__ void
acc_convert(uint32_t (&p)[4][4], const float (&s)[32])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            p[i][j] = ptx_pack_bf16(s[8 * i + 2 * j] * 0.125f,
                s[8 * i + 2 * j + 1] * 0.125f);
}

static __device__ __forceinline__ void
acc_store(const float (&o)[32], float *out)
{
    uint32_t w = threadIdx.x / 32, l = threadIdx.x % 32;
    for (uint32_t i = 0; i < 32; i++)
        out[(16 * w + l / 4 + 8 * (i / 2 & 1)) * SIDE + 8 * (i / 4)
            + 2 * (l % 4) + (i & 1)]
            = o[i];
}
#endif

__global__ void
__launch_bounds__(128, 1) overlap_kernel(const uint16_t *q, const uint16_t *k,
    const uint16_t *v, float *out, int tiles)
{
#if PTX_SM90
    ULI_SHARED(shared);
    uint32_t base = ptx_smem_addr(shared);
    float s[32], o[32];
    uint32_t p[2][4][4];
    load_tile(shared, q);
    for (int j = 0; j < tiles; j++) {
        load_tile(shared + (1 + 2 * j) * TILE_BYTES, k + j * SIDE * SIDE);
        load_tile(shared + (2 + 2 * j) * TILE_BYTES, v + j * SIDE * SIDE);
    }
    ptx_fence_proxy_async_shared();
    __syncthreads();
    ptx_wgmma_fence();
    issue_scores(s, base, base + TILE_BYTES);
    ptx_wgmma_wait<0>();
    ptx_wgmma_touch(s);
    acc_convert(p[0], s);
    for (int j = 1; j <= tiles; j++) {
        uint32_t k_next = base + (1 + 2 * j) * TILE_BYTES;
        ptx_wgmma_fence();
        if (j < tiles)
            issue_scores(s, base, k_next);
        issue_values(o, p[(j - 1) & 1], k_next - TILE_BYTES, j == 1);
        if (j < tiles) {
            ptx_wgmma_wait<1>();
            ptx_wgmma_touch(s);
            acc_convert(p[j & 1], s);
        }
        ptx_wgmma_wait<0>();
        ptx_wgmma_touch(o);
    }
    acc_store(o, out);
#endif
}

cudaError_t
units_overlap_launch(const uint16_t *q, const uint16_t *k, const uint16_t *v,
    float *o, int tiles)
{
#if PTX_SM90
    size_t bytes = (size_t)(1 + 2 * tiles) * TILE_BYTES;
    struct uli_launch_config launch = { dim3(1), dim3(THREADS), bytes, nullptr };
    cudaError_t error = uli_kernel_prepare(overlap_kernel, bytes);
    return error ? error
                 : uli_kernel_launch(launch, overlap_kernel, q, k, v, o, tiles);
#else
    return cudaErrorNotSupported;
#endif
}
