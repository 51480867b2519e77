/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives without a layout: plain messages between all ranks.
 * They run on the machinery of the reshuffle and keep its promises: on return
 * dst is whole and src may be overwritten, every wait has a deadline, a
 * disagreement is a named error and moves nothing between the two ranks.
 * Stream and thread rules as ulyx_reshuffle_execute; one at a time on a
 * communicator.
 *
 * On device memory (a communicator of ULYX_MEMORY_CUDA) a call is enqueued on
 * the stream and returns; it may be captured, and replays keep its sizes and
 * pointers. src and dst are device memory of the communicator's device, in
 * windows or not: data in windows of all ranks concerned is moved once, other
 * data passes through memory of the library. The first call on a communicator
 * blocks until all ranks have made theirs, may not be captured, and is called
 * inside a group where one thread has several ranks. An error that ranks find
 * on the device (ERR_MISMATCH, ERR_PEER_REFUSED) is returned once, by the next
 * call, which is enqueued all the same. A rank that does not come within the
 * communicator's timeout fails the communicator: see ulyx_comm_get_async_error.
 * ERR_UNSUPPORTED: there are more than 72 ranks.
 *
 * Where memory of some pair of ranks cannot be mapped, NCCL moves the data, or
 * else memory of the host does (ULYX_ALGO=nccl or staged asks for one of them),
 * straight from src to dst. Bits and errors are the same, with these
 * differences. Every call waits on the host until all ranks have made theirs:
 * the host, not a stream, finds what differs, so the error is that of the call
 * itself, and ranks of one thread call inside a group. A captured call is
 * compared once, by its capture. The library holds ULYX_GPU_RECV_BUFFER bytes a
 * rank of device memory from the first call on. ERR_UNSUPPORTED: neither NCCL
 * nor staging serves (the reasons are named); staging serves 65 ranks. Other
 * calls of the communicator that go by messages, as those of its plans, meet
 * these in one order on all ranks; ERR_BUSY: another thread is in one.
 */
#ifndef ULYX_COLLECTIVE_H
#define ULYX_COLLECTIVE_H

#include "ulyx/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dst[p] <- rank p's src[me], messages of message_bytes >= 0 bytes.
 * src and dst have P * message_bytes bytes and do not overlap.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT; ERR_OVERFLOW; ERR_MISMATCH (another
 * size or call there); ERR_PEER_REFUSED; ERR_NO_MEMORY (first call only);
 * ERR_TIMEOUT; ERR_RANK_LOST; ERR_ABORTED; ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_alltoall(ulyx_comm_t *comm, const void *src,
    void *dst, int64_t message_bytes, void *stream);

/* dst + dst_offsets[p], dst_bytes[p] <- rank p's message for this rank.
 * All arrays have P entries, in bytes. The sizes that two ranks give for one
 * message must agree: otherwise ERR_MISMATCH at both, and only there.
 * returns: as ulyx_alltoall. */
ULYX_API ulyx_status_t ulyx_alltoallv(ulyx_comm_t *comm, const void *src,
    const int64_t src_bytes[], const int64_t src_offsets[], void *dst,
    const int64_t dst_bytes[], const int64_t dst_offsets[], void *stream);

/* dst[i] <- sum of src[i] over all ranks, on every rank: added in rank order
 * in fp32 (fp64 for F64) and rounded once, so every rank has the same bits,
 * each time. dtype is F64, F32, BF16 or F16. src may be dst.
 * returns: as ulyx_alltoall; ERR_MISMATCH (another count, dtype or call there)
 * and ERR_PEER_REFUSED on all ranks, before anything has moved;
 * ERR_UNSUPPORTED (a dtype without sums). */
ULYX_API ulyx_status_t ulyx_allreduce(ulyx_comm_t *comm, const void *src,
    void *dst, int64_t count, ulyx_dtype_t dtype, void *stream);

/* dst[p] <- rank p's src, messages of message_bytes bytes. src may be the own
 * message of dst. returns: as ulyx_allreduce. */
ULYX_API ulyx_status_t ulyx_allgather(ulyx_comm_t *comm, const void *src,
    void *dst, int64_t message_bytes, void *stream);

/* buffer <- root's buffer. returns: as ulyx_allreduce. */
ULYX_API ulyx_status_t ulyx_broadcast(
    ulyx_comm_t *comm, void *buffer, int64_t bytes, int32_t root, void *stream);

#ifdef __cplusplus
}
#endif
#endif
