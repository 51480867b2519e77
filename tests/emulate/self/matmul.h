/* SPDX-License-Identifier: Apache-2.0
 *
 * The tiled matrix product that the emulator and a card run alike.
 */
#ifndef TESTS_EMULATE_SELF_MATMUL_H
#define TESTS_EMULATE_SELF_MATMUL_H

#include <stdint.h>
#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* c[m][n] = a[m][k] b[n][k]^T in bf16. Device addresses are multiples of 16, n
 * and k are multiples of 8, m is any size. */
cudaError_t matmul_launch(const uint16_t *a, const uint16_t *b, uint16_t *c,
    int m, int n, int k, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
