/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses in shared memory that a warp of the mma kernels uses, in bytes.
 */
#ifndef TESTS_EMULATE_ATTENTION_MMA_BANKS_H
#define TESTS_EMULATE_ATTENTION_MMA_BANKS_H

#include <stdint.h>

enum { MMA_STEPS = 16, MMA_SHAPES = 5 };

/* The addresses of one lane: step c of q, keys and values, as ldmatrix takes
 * them; chunk c of a row of the result; and the first 16 bytes that the lane
 * copies of a key tile. */
struct mma_lane_places {
    uint32_t q[MMA_STEPS], k[MMA_STEPS], v[MMA_STEPS];
    uint32_t result[2 * MMA_STEPS], copy;
};

#ifdef __cplusplus
extern "C"
#endif
    /* Stores the addresses of the 32 lanes, computed on the device, for the
     * n-th shape (64, 96, 128, 192, 256 columns). Returns a cudaError_t. */
    int
    mma_places(int n, struct mma_lane_places *places, int *columns_p);

#endif
