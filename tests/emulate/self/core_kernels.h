/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that launch the kernels of core_test.c.
 */
#ifndef TESTS_EMULATE_SELF_CORE_KERNELS_H
#define TESTS_EMULATE_SELF_CORE_KERNELS_H

#include <stdint.h>
#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out[i] = i + add */
cudaError_t core_index_launch(
    int *out, int add, unsigned blocks, unsigned threads, cudaStream_t stream);
/* out[block] = sum of in[block * 256 ..]: shared memory, shuffles, barrier */
cudaError_t core_sum_launch(
    const int *in, int *out, unsigned blocks, cudaStream_t stream);
/* counter += 1 by every thread */
cudaError_t core_count_launch(
    unsigned *counter, unsigned blocks, cudaStream_t stream);
/* Waits until *flag >= value, at most limit_ns. *result = 1: reached, 2: not
 * reached. */
cudaError_t core_wait_launch(unsigned *flag, unsigned value, uint64_t limit_ns,
    unsigned *result, cudaStream_t stream);
/* If words[0] is set, thread 0 raises words[2]. All threads wait for words[2],
 * at most limit_ns. words[4 + thread] = 1: reached, 2: not reached. */
cudaError_t core_crowd_launch(
    unsigned *words, unsigned threads, uint64_t limit_ns, cudaStream_t stream);
/* Writes data[i] = value + i, then raises the flag, for a peer. */
cudaError_t core_put_launch(int *data, int count, int value, unsigned *flag,
    unsigned epoch, cudaStream_t stream);
/* Waits for the flag, then out[i] = data[i]. */
cudaError_t core_take_launch(const int *data, int count, unsigned *flag,
    unsigned epoch, int *out, cudaStream_t stream);
/* *out = depth, by recursion with a kilobyte per level */
cudaError_t core_recurse_launch(int depth, int *out, cudaStream_t stream);
/* warp 0 waits at barrier 1 for a warp 1 that never comes */
cudaError_t core_hang_launch(cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
