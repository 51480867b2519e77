/* SPDX-License-Identifier: Apache-2.0
 *
 * c[m][n] = a[m][k] b[n][k]^T: one 128 x 128 tile of c a block, k in steps of
 * 64. A producer warpgroup (one thread works) loads tiles of a and b by TMA
 * through a ring of three stages; two consumer warpgroups of 64 rows each
 * multiply with wgmma, and write their half of c by way of shared memory, in
 * the swizzle that TMA undoes. Tiles past the edges are zeros on the way in
 * and are skipped on the way out, so sizes need not be multiples of a tile.
 *
 *   shared memory: stages of {a[128][64], b[128][64]}, c in two panels
 *   [2][128][64], full[3], empty[3]
 */
#include "matmul.h"
#include "device/cuda/ptx.h"
#include "device/cuda/tensor_map.h"

enum {
    TILE = 128,
    DEPTH = 64,
    STAGES = 3,
    PANEL_BYTES = TILE * 128,
    STAGE_BYTES = 2 * PANEL_BYTES,
    C_OFFSET = STAGES * STAGE_BYTES,
    BARS_OFFSET = C_OFFSET + 2 * PANEL_BYTES,
    SHARED_BYTES = BARS_OFFSET + 16 * STAGES,
    THREADS = 384
};

#if PTX_SM90
struct ring {
    uint32_t data, full, empty;
};

static __device__ __forceinline__ void
ring_produce(const struct ring &ring, const CUtensorMap *a, const CUtensorMap *b,
    int row, int column, int steps)
{
    for (int s = 0; s < steps; s++) {
        uint32_t stage = s % STAGES, lap = s / STAGES;
        uint32_t full = ring.full + 8 * stage;
        uint32_t tile = ring.data + stage * STAGE_BYTES;
        ptx_mbarrier_wait(ring.empty + 8 * stage, (lap + 1) & 1);
        ptx_mbarrier_arrive_expect_tx(full, STAGE_BYTES);
        ptx_tma_load(tile, a, full, s * DEPTH, row);
        ptx_tma_load(tile + PANEL_BYTES, b, full, s * DEPTH, column);
    }
}

/* Multiplies the 64 rows of the tile that belong to consumer 0 or 1. */
static __device__ __forceinline__ void
ring_multiply(const struct ring &ring, int consumer, int steps, float (&acc)[64])
{
    for (int s = 0; s < steps; s++) {
        uint32_t stage = s % STAGES, lap = s / STAGES;
        uint32_t tile = ring.data + stage * STAGE_BYTES;
        uint64_t a = ptx_wgmma_descriptor(
            tile + consumer * PANEL_BYTES / 2, 16, 1024, 128);
        uint64_t b
            = ptx_wgmma_descriptor(tile + PANEL_BYTES, 16, 1024, 128);
        ptx_mbarrier_wait(ring.full + 8 * stage, lap & 1);
        ptx_wgmma_fence();
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++)
            ptx_wgmma_bf16<0, 0>(acc, a + 2 * k, b + 2 * k, s + k > 0);
        ptx_wgmma_commit();
        ptx_wgmma_wait<0>();
        ptx_wgmma_touch(acc);
        if (threadIdx.x % 128 == 0)
            ptx_mbarrier_arrive(ring.empty + 8 * stage);
    }
}

/* Stores acc to the panels of c, 16 columns at a time, as four 8 x 8 matrices. */
static __device__ __forceinline__ void
acc_store(uint32_t panels, int consumer, const float (&acc)[64])
{
    uint32_t w = threadIdx.x % 128 / 32, l = threadIdx.x % 32;
    uint32_t row = 64 * consumer + 16 * w + l % 8 + 8 * (l / 8 & 1);
#pragma unroll
    for (int g = 0; g < TILE / 16; g++) {
        uint32_t column = 16 * g + 8 * (l / 16), r[4];
        uint32_t place = panels + column / 64 * PANEL_BYTES + row * 128
            + ((column % 64 * 2) ^ (row & 7) << 4);
#pragma unroll
        for (int j = 0; j < 4; j++)
            r[j] = ptx_pack_bf16(acc[8 * g + 2 * j], acc[8 * g + 2 * j + 1]);
        ptx_stmatrix(place, r);
    }
}

static __device__ __forceinline__ void
ring_consume(const struct ring &ring, uint32_t panels, const CUtensorMap *c,
    int row, int column, int steps)
{
    int consumer = (int)threadIdx.x / 128 - 1;
    float acc[64];
    ring_multiply(ring, consumer, steps, acc);
    acc_store(panels, consumer, acc);
    ptx_fence_proxy_async_shared();
    ptx_bar_sync(1 + consumer, 128);
    if (threadIdx.x % 128 == 0) {
        uint32_t half = panels + consumer * PANEL_BYTES / 2;
        ptx_tma_store(c, half, column, row + 64 * consumer);
        ptx_tma_store(c, half + PANEL_BYTES, column + 64, row + 64 * consumer);
        ptx_bulk_commit();
        ptx_bulk_wait_read<0>();
    }
}
#endif

__global__ void
__launch_bounds__(THREADS, 1)
    matmul_kernel(const __grid_constant__ CUtensorMap a,
        const __grid_constant__ CUtensorMap b,
        const __grid_constant__ CUtensorMap c, int steps)
{
#if PTX_SM90
    ULI_SHARED(shared);
    uint32_t base = ptx_smem_addr(shared);
    struct ring ring
        = { base, base + BARS_OFFSET, base + BARS_OFFSET + 8 * STAGES };
    int row = (int)blockIdx.y * TILE, column = (int)blockIdx.x * TILE;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            ptx_mbarrier_init(ring.full + 8 * s, 1);
            ptx_mbarrier_init(ring.empty + 8 * s, 2);
        }
        ptx_fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        ptx_setmaxnreg_dec<40>();
        if (threadIdx.x == 0)
            ring_produce(ring, &a, &b, row, column, steps);
    } else {
        ptx_setmaxnreg_inc<232>();
        ring_consume(ring, base + C_OFFSET, &c, row, column, steps);
    }
#endif
}

static cudaError_t
map_encode(CUtensorMap *map, const void *base, int rows, int columns, int box_rows)
{
    struct uli_tensor_map_spec spec = { CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
        (void *)base, { (uint64_t)columns, (uint64_t)rows },
        { (uint64_t)columns * 2 }, { 64, (uint32_t)box_rows }, 128 };
    return uli_tensor_map_encode(map, &spec);
}

cudaError_t
matmul_launch(const uint16_t *a, const uint16_t *b, uint16_t *c, int m, int n,
    int k, cudaStream_t stream)
{
    CUtensorMap maps[3];
    struct uli_launch_config launch
        = { dim3((unsigned)(n + TILE - 1) / TILE,
                (unsigned)(m + TILE - 1) / TILE),
              dim3(THREADS), SHARED_BYTES, stream, 0 };
    cudaError_t error = uli_kernel_prepare(matmul_kernel, SHARED_BYTES);
    if (error == cudaSuccess)
        error = map_encode(&maps[0], a, m, k, TILE);
    if (error == cudaSuccess)
        error = map_encode(&maps[1], b, n, k, TILE);
    if (error == cudaSuccess)
        error = map_encode(&maps[2], c, m, n, 64);
    if (error == cudaSuccess)
        error = uli_kernel_launch(launch, matmul_kernel, maps[0], maps[1],
            maps[2], (k + DEPTH - 1) / DEPTH);
    return error;
}
