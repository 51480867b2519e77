/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of collectives by messages (channel_messages.h): the words by
 * which the host follows a call in its stream, and the sums of an allreduce.
 * Plain C and CUDA C++. None of them waits for anything.
 */
#ifndef ULI_COLLECTIVES_DEVICE_COLLECTIVE_COLLECTIVE_MESSAGES_GPU_H
#define ULI_COLLECTIVES_DEVICE_COLLECTIVE_COLLECTIVE_MESSAGES_GPU_H

#include "collectives/device/mapped/exchange_gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ULI_MESSAGES_SUM_THREADS = 256 }; /* of a block */

/* The begin or the end of a call. Its number is kept on the device and advanced
 * at the end, so that a captured call can be replayed. */
struct uli_messages_mark {
    struct uli_gpu_state *state;   /* call: number of the last that ended */
    struct uli_gpu_report *report; /* call, begun; ended */
    uint64_t call;                 /* what begins */
    bool ends;
};
/* Returns a cudaError_t. */
int uli_messages_mark_launch(
    const struct uli_messages_mark *mark, void *stream);

/* dst[i] <- the sum of element i of all ranks, added in rank order in fp32
 * (fp64 for F64) and rounded once. */
struct uli_messages_sum {
    const unsigned char *own;    /* this rank's elements; may be dst */
    const unsigned char *shares; /* rank p's at shares + p * share_bytes, of all
                                  * other ranks */
    unsigned char *dst;
    int64_t share_bytes; /* a multiple of 16 */
    int64_t count;       /* elements; 1 at least */
    int32_t rank, nranks, dtype;
};
/* blocks: the most blocks of the launch. Returns a cudaError_t. */
int uli_messages_sum_launch(
    const struct uli_messages_sum *sum, int32_t blocks, void *stream);

/* Loads the kernels on the current device. Returns a cudaError_t. */
int uli_messages_collective_prepare(void);

#ifdef __cplusplus
}
#endif
#endif
