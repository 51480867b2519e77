/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels behind facts_test.c: wgmma and TMA on given images of shared memory.
 */
#ifndef TESTS_EMULATE_SELF_FACTS_KERNELS_H
#define TESTS_EMULATE_SELF_FACTS_KERNELS_H

#include <stdint.h>
#include <cuda_runtime.h>
#include "device/cuda/tensor_map.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FACTS_STEPS = 4, FACTS_A_BYTES = 16384, FACTS_B_BYTES = 40960 };

/* Where the four k16 steps of an operand start, and its descriptor. */
struct facts_operand {
    /* bytes from the begin of the operand to each step */
    uint32_t step[FACTS_STEPS];
    uint32_t leading_bytes, stride_bytes, swizzle_bytes, base_offset;
    int trans;
};

struct facts_product {
    int n;         /* 64, 80 or 128; 96, 192 and 256 where B is MN-major */
    int registers; /* A comes from a_rows instead of shared memory */
    int f16;       /* operands are fp16 instead of bf16 */
    struct facts_operand a, b;
};

/* d[64][n] = the sum over the steps. images: FACTS_A_BYTES of A, then
 * FACTS_B_BYTES of B, as they shall lie in shared memory. a_rows[64][64]: A,
 * where it is in registers. */
cudaError_t facts_wgmma_launch(const struct facts_product *product,
    const void *images, const uint16_t *a_rows, float *d, cudaStream_t stream);

/* Loads one box into shared memory, then copies `bytes` bytes of it to out. */
cudaError_t facts_load_launch(const CUtensorMap *map, int rank,
    const int *coordinates, uint32_t bytes, void *out, cudaStream_t stream);
/* Copies `bytes` bytes from in to shared memory, then stores them as a box of
 * the tensor. */
cudaError_t facts_store_launch(const CUtensorMap *map, int rank,
    const int *coordinates, uint32_t bytes, const void *in,
    cudaStream_t stream);
/* Every block adds i + block to the floats sum[i], i < 1024. */
cudaError_t facts_reduce_launch(
    float *sum, unsigned blocks, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
