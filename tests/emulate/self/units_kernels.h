/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of units_test.c: one instruction family each.
 */
#ifndef TESTS_EMULATE_SELF_UNITS_KERNELS_H
#define TESTS_EMULATE_SELF_UNITS_KERNELS_H

#include <stdint.h>
#include <cuda_runtime.h>
#include "device/cuda/tensor_map.h"

#ifdef __cplusplus
extern "C" {
#endif

/* d[16][8] = a[16][16] b[8][16]^T, by ldmatrix and mma.sync; f16 or bf16. */
cudaError_t units_mma_launch(
    int f16, const uint16_t *a, const uint16_t *b, float *d);
/* As above, with b stored [16][8] and loaded transposed. */
cudaError_t units_mma_trans_launch(
    const uint16_t *a, const uint16_t *b, float *d);
/* d[16][8] = a[16][8] b[8][8]^T, tf32. */
cudaError_t units_tf32_launch(const float *a, const float *b, float *d);
/* out[8][8] = in[8][8] transposed by stmatrix.trans. */
cudaError_t units_stmatrix_launch(const uint16_t *in, uint16_t *out);
/* out[16]: results of votes, shuffles and reductions of warp 0. */
cudaError_t units_warp_launch(uint32_t *out);
/* out[i] = in[i] by cp.async, which arrives on an mbarrier; zeros from byte
 * `valid` on. */
cudaError_t units_copy_launch(
    const uint32_t *in, uint32_t *out, int count, int valid);
/* out[r] = the value that warp 1 reads from warp 0 in round r, after a named
 * barrier. */
cudaError_t units_named_launch(uint32_t *out, int rounds);
/* bf16[i] and f16[i] = in[i] and -in[i], converted and packed into a word. */
cudaError_t units_convert_launch(
    const float *in, uint32_t *bf16, uint32_t *f16, int count);
/* The blocks take turns in order, so the last value is `blocks`. */
cudaError_t units_turns_launch(uint32_t *turn, uint32_t *value, int blocks);
/* o[64][64] = sum over j < tiles of bf16(q k_j^T / 8) v_j; q, k_j, v_j are
 * 64 x 64 bf16. Products overlap as in an attention kernel. */
cudaError_t units_overlap_launch(const uint16_t *q, const uint16_t *k,
    const uint16_t *v, float *o, int tiles);
/* Launches of what the emulator does not support. */
cudaError_t units_cluster_launch(void);
cudaError_t units_multicast_launch(void);
/* Launches with more shared memory than allowed. */
cudaError_t units_shared_launch(size_t bytes, int prepare);

#ifdef __cplusplus
}
#endif
#endif
