/* SPDX-License-Identifier: Apache-2.0
 *
 * The packed exchange on device memory, for ranks that cannot map each other's
 * memory: what a peer needs is packed into one contiguous message, a batch of
 * sends and receives carries the messages, and a second launch unpacks them.
 * All three are steps of the caller's stream. Plain C and CUDA C++.
 *
 *   pack    items [0, nfirst): shares into messages; the own share and zeros
 *           straight to their place. Each message begins with the words that
 *           the direct exchange stores at the peer: READY(n) and the record.
 *   batch   message p to p, message of p from p
 *   unpack  items [nfirst, nitems), from messages whose record agrees; sums
 *           in the tree order of the plan, so the bits are those of the direct
 *           exchange. Then n is advanced.
 *
 * The tables are those of a small call (exchange_table.h) whose slots are the
 * messages. Message p of both directions has the same layout at both ends, as
 * both walk the same moves.
 */
#ifndef ULI_COLLECTIVES_CUDA_PACKED_GPU_H
#define ULI_COLLECTIVES_CUDA_PACKED_GPU_H

#include "collectives/cuda/exchange_gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the words at a message's front; the shares follow. */
enum {
    ULI_PACKED_HEAD = (sizeof(struct uli_gpu_words) + ULI_GPU_LINE - 1) /
                      ULI_GPU_LINE * ULI_GPU_LINE
};

/* The arguments are those of exchange_gpu.h. peers[p].yours, slot_out: in the
 * message to p; mine, slot_in: in that of p. slots = 1, slot_bytes = 0 (there
 * is one message a pair), head = NULL, steps is not looked at. A call that is
 * refused has no tiles. report tells who watches over deadlines how far calls
 * are: begun as pack begins, ended as unpack ends.
 *
 * Each returns a cudaError_t, allocates nothing and may be captured. blocks:
 * any number, for no block waits for another. */
int uli_packed_pack_launch(const struct uli_gpu_args *args, int32_t blocks,
    int32_t threads, void *stream);
int uli_packed_unpack_launch(const struct uli_gpu_args *args, int32_t blocks,
    int32_t threads, void *stream);
/* Loads the kernels on the current device. returns a cudaError_t. */
int uli_packed_prepare(void);

#ifdef __cplusplus
}
#endif
#endif
