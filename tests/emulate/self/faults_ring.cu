/* SPDX-License-Identifier: Apache-2.0
 *
 * Planted faults in a producer-consumer ring: warp 0 loads tiles in two bulk
 * copies each, warps 1 to 4 add them up. Two stages.
 */
#include "faults.h"
#include "device/cuda/ptx.h"

#if PTX_SM90
enum { STAGES = 2, TILE_BYTES = RING_TILE * 4, THREADS = 160 };

struct ring {
    uint32_t data, full, empty; /* shared addresses */
};

static __device__ void
ring_produce(int fault, const struct ring &ring, const int *in)
{
    uint32_t expected = TILE_BYTES;
    if (fault == RING_EXPECTS_TOO_FEW)
        expected = TILE_BYTES / 2;
    if (fault == RING_EXPECTS_TOO_MANY)
        expected = TILE_BYTES + 16;
    for (uint32_t t = 0; t < RING_TILES; t++) {
        uint32_t stage = t % STAGES, lap = t / STAGES;
        uint32_t full = ring.full + 8 * stage;
        uint32_t dst = ring.data + stage * TILE_BYTES;
        const int *src = in + t * RING_TILE;
        if (fault != RING_STAGE_REUSED_EARLY)
            ptx_mbarrier_wait(ring.empty + 8 * stage, (lap + 1) & 1);
        ptx_mbarrier_arrive_expect_tx(full, expected);
        if (fault == RING_LOAD_NOT_ALIGNED)
            src += 1;
        ptx_bulk_load(dst, src, TILE_BYTES / 2, full);
        ptx_bulk_load(
            dst + TILE_BYTES / 2, src + RING_TILE / 2, TILE_BYTES / 2, full);
    }
}

/* Runs on four warps, as thread i of 128. */
static __device__ void
ring_consume(int fault, const struct ring &ring, const int *shared, int *out)
{
    uint32_t i = threadIdx.x - 32;
    for (uint32_t t = 0; t < RING_TILES; t++) {
        uint32_t stage = t % STAGES, lap = t / STAGES;
        uint32_t empty = ring.empty + 8 * stage;
        uint32_t parity = fault == RING_WRONG_PARITY ? lap + 1 : lap;
        if (fault != RING_NOT_WAITED_FOR)
            ptx_mbarrier_wait(ring.full + 8 * stage, parity & 1);
        if (fault == RING_RELEASED_BEFORE_READ)
            ptx_mbarrier_arrive(empty);
        const int *tile = shared + stage * RING_TILE;
        int sum = tile[i] + tile[i + 128];
        for (int step = 16; step; step /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (i % 32 == 0)
            atomicAdd(out + t, sum);
        if (fault == RING_RELEASED_FOR_OTHERS)
            for (int k = 0; k < 128 && i == 0; k++)
                ptx_mbarrier_arrive(empty);
        else if (fault == RING_LOST_ARRIVAL && i == 77)
            continue;
        else if (fault != RING_RELEASED_BEFORE_READ)
            ptx_mbarrier_arrive(empty);
        if (fault == RING_ARRIVES_TWICE)
            ptx_mbarrier_arrive(empty);
    }
}
#endif

__global__ void
ring_kernel(int fault, const int *in, int *out)
{
#if PTX_SM90
    ULI_SHARED(shared);
    uint32_t base = ptx_smem_addr(shared);
    struct ring ring = {base, base + STAGES * TILE_BYTES,
        base + STAGES * TILE_BYTES + 8 * STAGES};
    if (threadIdx.x == 0) {
        for (uint32_t s = 0; s < STAGES; s++) {
            ptx_mbarrier_init(ring.full + 8 * s, 1);
            ptx_mbarrier_init(ring.empty + 8 * s, 128);
        }
        if (fault != RING_NO_INIT_FENCE)
            ptx_fence_mbarrier_init();
    }
    if (fault != RING_NO_INIT_BARRIER)
        __syncthreads();
    if (threadIdx.x == 0)
        ring_produce(fault, ring, in);
    else if (threadIdx.x >= 32)
        ring_consume(fault, ring, (const int *)shared, out);
#endif
}

cudaError_t
ring_launch(int fault, const int *in, int *out)
{
#if PTX_SM90
    struct uli_launch_config launch = {
        dim3(1), dim3(THREADS), STAGES * (TILE_BYTES + 16), nullptr};
    return uli_kernel_launch(launch, ring_kernel, fault, in, out);
#else
    return cudaErrorNotSupported;
#endif
}
