/* SPDX-License-Identifier: Apache-2.0
 *
 * The address functions of the mma kernels themselves, called for each lane.
 */
#include "mma_banks.h"
#include "attention/cuda/portable/mma_shape.h"

template <int DIM>
__global__ void
mma_places_kernel(struct mma_lane_places *places)
{
    typedef mma_shape<DIM, DIM == 192 ? 128 : DIM, DIM == 256 ? 1 : 2,
        DIM == 256 ? 8 : 4>
        S;
    struct mma_lane_places *p = &places[threadIdx.x];
    int lane = (int)threadIdx.x;
    uint32_t row = tile_at<DIM>(lane / 4, 0);
    for (int c = 0; c < DIM / 16; c++) {
        p->q[c] = tile_along<DIM>(mma_a_at<S>(), c);
        p->k[c] = tile_along<DIM>(mma_b_at<S>(), c);
        p->v[c] = tile_along<DIM>(mma_bt_at<S>(), c);
    }
    for (int c = 0; c < DIM / 8; c++)
        p->result[c] = tile_chunk<DIM>(row, c) + (uint32_t)(lane % 4 * 4);
    p->copy = tile_at<DIM>(lane / 8, lane % 8);
}

int
mma_places(int n, struct mma_lane_places *places, int *columns_p)
{
    struct uli_launch_config launch = {dim3(1), dim3(32), 0, NULL};
    static const int columns[MMA_SHAPES] = {64, 96, 128, 192, 256};
    *columns_p = columns[n];
    switch (n) {
    case 0:
        return uli_kernel_launch(launch, mma_places_kernel<64>, places);
    case 1:
        return uli_kernel_launch(launch, mma_places_kernel<96>, places);
    case 2:
        return uli_kernel_launch(launch, mma_places_kernel<128>, places);
    case 3:
        return uli_kernel_launch(launch, mma_places_kernel<192>, places);
    default:
        return uli_kernel_launch(launch, mma_places_kernel<256>, places);
    }
}
