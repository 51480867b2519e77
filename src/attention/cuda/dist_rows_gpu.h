/* SPDX-License-Identifier: Apache-2.0
 *
 * The small kernels of distributed attention on device memory: delta where out
 * and dout are sharded by sequence, and what only the device can compare.
 */
#ifndef ULI_ATTENTION_CUDA_DIST_ROWS_GPU_H
#define ULI_ATTENTION_CUDA_DIST_ROWS_GPU_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor on the device, with {batch, row, head} strides in bytes. */
struct uli_gpu_strided {
    const unsigned char *base; /* dlse: NULL where there is none */
    int64_t strides[3];
};

struct uli_gpu_delta_args {
    struct uli_gpu_strided dout, out, dlse;
    unsigned char *delta; /* float, as dlse */
    int64_t delta_strides[3];
    int64_t batch, rows, heads;
    int32_t dim, dtype; /* ulyx_dtype_t: F32, BF16, F16 */
};

/* What the device finds when it checks a call. */
enum uli_gpu_dist_cause {
    ULI_GPU_DIST_FINE,
    ULI_GPU_DIST_SAVED_IS_OTHER,
    ULI_GPU_DIST_SAVED_HAS_OTHER_TABLES,
    ULI_GPU_DIST_STALE, /* captured before the last update of the documents */
};

struct uli_gpu_dist_check_args {
    const uint64_t *saved; /* three words, or NULL: not looked at */
    uint64_t expected[3];  /* the last one is of the tables */
    const uint64_t *tables; /* of the last update; 0: none yet */
    uint64_t *cause;       /* keeps the first until the host clears it */
};

/* Each enqueues on a stream (a cudaStream_t), may be captured, and returns a
 * cudaError_t. load: outside of any capture, on the device of the launches. */
int uli_gpu_dist_load(void);
int uli_gpu_dist_delta(const struct uli_gpu_delta_args *args, void *stream);
int uli_gpu_dist_check(
    const struct uli_gpu_dist_check_args *args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
