/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives without a layout on device memory: the arguments that the host
 * gives the kernels, and the receive buffers, for bytes that cannot go straight
 * to their place. Plain C and CUDA C++.
 *
 * Words, records and the order of memory are those of exchange_gpu.h: READY(n)
 * with a record, DONE(n), n read from device memory and advanced there. Here
 * nothing is declared in advance, so each pair has a record of its own: where
 * its messages lie, their bytes each way, and for reductions what must be equal
 * on all ranks.
 *
 * A message goes straight to its place where its destination lies in a window
 * (the sender stores) or else its source (the receiver loads). Otherwise it
 * goes by the pair's receive buffer at the receiver, which has two chunks for
 * each of `queues` warps, filled and emptied in turn. Both ends number the
 * chunks of a queue, from 0, for the life of the communicator, so replays need
 * no reset. Chunk k may be filled once k - 1 chunks have been emptied. Chunk c
 * of a message goes by queue c mod queues, so memory does not grow with the
 * message.
 *
 * Queue l of a rank waits for queue l of its peers. So the ranks agree on the
 * number of queues, and either the warps of all queues are on their devices at
 * the same time (residency.h) or there is one queue.
 */
#ifndef ULI_COLLECTIVES_DEVICE_COLLECTIVE_COLLECTIVE_GPU_H
#define ULI_COLLECTIVES_DEVICE_COLLECTIVE_COLLECTIVE_GPU_H

#include "collectives/device/mapped/exchange_gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ULI_COLLECTIVE_RANKS = 72,    /* the most of a communicator: the arguments
                                   * of a launch hold so many */
    ULI_COLLECTIVE_TILE = 8192,   /* bytes of a message that a warp moves at a
                                   * time */
    ULI_COLLECTIVE_THREADS = 256, /* of a block */
    ULI_RECV_SLOTS = 2,
};

/* Operations in the record's first word. */
enum uli_collective {
    ULI_COLLECTIVE_ALLTOALL = 1,
    ULI_COLLECTIVE_ALLTOALLV,
    ULI_COLLECTIVE_ALLREDUCE,
    ULI_COLLECTIVE_ALLGATHER,
    ULI_COLLECTIVE_BROADCAST,
    ULI_COLLECTIVES
};
/* "allreduce". (channel_gpu_error.c) */
const char *uli_collective_name(uint64_t operation);

/* Words of a record. SRC: window and offset of the message to the record's
 * reader. DST: window and offset of the place for the reader's message. Of an
 * allreduce: of the whole tensors. */
enum {
    ULI_COLLECTIVE_CALL = ULI_GPU_RECORD_CALL,
    ULI_COLLECTIVE_SRC,
    ULI_COLLECTIVE_DST = ULI_COLLECTIVE_SRC + 2,
    ULI_COLLECTIVE_SENDS = ULI_COLLECTIVE_DST + 2,
    ULI_COLLECTIVE_RECEIVES,
    ULI_COLLECTIVE_COUNT,
    ULI_COLLECTIVE_DTYPE,
    ULI_COLLECTIVE_ROOT,
    ULI_COLLECTIVE_WORDS
};

/* One queue of a pair, written by the peer: the number of chunks that the peer
 * has put into the receive buffer here, and that it has taken out of its
 * own. */
struct uli_recv_flags {
    uint64_t filled, emptied;
};

/* One queue of a pair at this rank, touched by its warp alone. */
struct uli_recv_counts {
    uint64_t sent, received;
};

/* One pair; all arrays [queues]. */
struct uli_recv_buffer {
    struct uli_recv_flags *mine;    /* here, written by the peer */
    struct uli_recv_flags *yours;   /* there, written by this rank */
    struct uli_recv_counts *counts; /* here */
    unsigned char *in;                 /* [queues][slots][in_stride], here */
    unsigned char *out;                /* the same at the peer */
    int64_t in_stride, out_stride;     /* bytes from slot to slot */
};

/* What the host reads, in mapped host memory. */
struct uli_collective_report {
    struct uli_gpu_report base;
    uint64_t operation; /* of the last call that has begun */
    /* Both records of the pair from which call `reported` has its outcome. */
    uint64_t reported, ours[ULI_COLLECTIVE_WORDS], theirs[ULI_COLLECTIVE_WORDS];
};

struct uli_collective_args {
    struct uli_gpu_args base; /* without items, tensors and slots; the record is
                               * the same for all pairs, except for SENDS,
                               * RECEIVES and the offsets of the messages */
    struct uli_collective_report *report; /* == base.report */
    const struct uli_recv_buffer *recv_buffers;   /* [nranks], on the device */
    int64_t chunk_bytes;
    int32_t queues;
    int32_t together; /* nothing moves unless all ranks agree */
    const unsigned char *src;
    unsigned char *dst;
    /* Messages by rank, also this rank's own; of an allreduce not used. */
    int64_t send_bytes[ULI_COLLECTIVE_RANKS], src_offset[ULI_COLLECTIVE_RANKS];
    int64_t receive_bytes[ULI_COLLECTIVE_RANKS],
        dst_offset[ULI_COLLECTIVE_RANKS];
};

/* Enqueues base.steps of one call, as uli_gpu_exchange_launch does. OPEN alone
 * is one block; CLOSE alone needs `queues` warps; uli_alltoall_launch alone
 * serves LEAVE. Every launch has whole warps, at most ULI_COLLECTIVE_THREADS
 * threads per block. Both return a cudaError_t. */
int uli_alltoall_launch(const struct uli_collective_args *args, int32_t blocks,
    int32_t threads, void *stream);
/* The record's DTYPE is the dtype of the tensors. */
int uli_allreduce_launch(const struct uli_collective_args *args, int32_t blocks,
    int32_t threads, void *stream);
/* Load the kernels on the current device. *blocks_per_sm_p: how many blocks of
 * ULI_COLLECTIVE_THREADS threads a multiprocessor holds, of the kernel that
 * takes the most room. Both return a cudaError_t. */
int uli_alltoall_prepare(int32_t *blocks_per_sm_p);
int uli_allreduce_prepare(int32_t *blocks_per_sm_p);

#ifdef __cplusplus
}
#endif
#endif
