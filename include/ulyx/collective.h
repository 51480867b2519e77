/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives without a layout: plain messages between all ranks.
 * They have the properties of ulyx_reshuffle_execute: on return dst is complete
 * and src may be overwritten, every wait has a deadline, and ranks whose
 * arguments disagree get an error that names the difference, with nothing moved
 * between them. Streams and threads: as for ulyx_reshuffle_execute; a
 * communicator runs one of these calls at a time.
 *
 * On device memory (a communicator of ULYX_MEMORY_CUDA) a call is enqueued on
 * the stream and returns. A call may be captured; replays use its sizes and
 * pointers. src and dst are device memory of the communicator's device, in
 * windows or not: data that lies in a window on both ranks is copied once,
 * other data is staged in memory of the library. The first call on a
 * communicator blocks until all ranks have made their first call. It may not be
 * captured, and a thread that has several ranks makes it inside a group. An
 * error that ranks find on the device (ERR_MISMATCH, ERR_PEER_REFUSED) is
 * returned once, by the next call, which is enqueued all the same. If a rank
 * does not make the call within the communicator's timeout, the communicator
 * fails: see ulyx_comm_get_async_error. ERR_UNSUPPORTED: there are more than 72
 * ranks.
 *
 * If the memory of some pair of ranks cannot be mapped, the data goes by
 * messages from src to dst: by NCCL, or if NCCL cannot be used, through host
 * memory (staged). ULYX_ALGO=nccl or staged selects one of them. The results
 * have the same bits and the errors are the same, with these differences. Every
 * call waits on the host until all ranks have made the call. The host compares
 * the arguments, so an error is returned by the call itself; a thread that has
 * several ranks calls inside a group. The arguments of a captured call are
 * compared once, during the capture. From the first call on the library holds
 * ULYX_GPU_RECV_BUFFER bytes of device memory per rank. ERR_UNSUPPORTED:
 * neither NCCL nor staging can be used (the text has both reasons; staging is
 * limited to 65 ranks). All ranks make these calls, and all other calls of the
 * communicator that go by messages (those of plans), in one order. ERR_BUSY:
 * another thread is in such a call.
 */
#ifndef ULYX_COLLECTIVE_H
#define ULYX_COLLECTIVE_H

#include "ulyx/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dst[p] <- src[me] of rank p, for every rank p; messages have message_bytes >=
 * 0 bytes. src and dst have nranks * message_bytes bytes each and do not
 * overlap.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT; ERR_OVERFLOW; ERR_MISMATCH (another
 * rank gave another size or made another call); ERR_PEER_REFUSED; ERR_NO_MEMORY
 * (first call only); ERR_TIMEOUT; ERR_RANK_LOST; ERR_ABORTED; ERR_FORKED. */
ULYX_API ulyx_status_t ulyx_alltoall(ulyx_comm_t *comm, const void *src,
    void *dst, int64_t message_bytes, void *stream);

/* dst + dst_offsets[p], dst_bytes[p] <- rank p's message for this rank.
 * All arrays have nranks entries, in bytes. The sizes that two ranks give for a
 * message between them must agree; otherwise these two ranks, and no others,
 * get ERR_MISMATCH.
 * returns: as ulyx_alltoall. */
ULYX_API ulyx_status_t ulyx_alltoallv(ulyx_comm_t *comm, const void *src,
    const int64_t src_bytes[], const int64_t src_offsets[], void *dst,
    const int64_t dst_bytes[], const int64_t dst_offsets[], void *stream);

/* dst[i] <- sum of src[i] over all ranks, on every rank. The sum is computed in
 * rank order in fp32 (fp64 for F64) and rounded once, so all ranks get the same
 * bits, and repeated calls do too. dtype is F64, F32, BF16 or F16. src may be
 * dst.
 * returns: as ulyx_alltoall; ERR_MISMATCH (another rank gave another count or
 * dtype, or made another call) and ERR_PEER_REFUSED are returned on all ranks,
 * before any data has moved; ERR_UNSUPPORTED (a dtype without sums). */
ULYX_API ulyx_status_t ulyx_allreduce(ulyx_comm_t *comm, const void *src,
    void *dst, int64_t count, ulyx_dtype_t dtype, void *stream);

/* dst[p] <- src of rank p, for every rank p; messages have message_bytes bytes.
 * src may be this rank's own message in dst. returns: as ulyx_allreduce. */
ULYX_API ulyx_status_t ulyx_allgather(ulyx_comm_t *comm, const void *src,
    void *dst, int64_t message_bytes, void *stream);

/* buffer <- root's buffer. returns: as ulyx_allreduce. */
ULYX_API ulyx_status_t ulyx_broadcast(
    ulyx_comm_t *comm, void *buffer, int64_t bytes, int32_t root, void *stream);

#ifdef __cplusplus
}
#endif
#endif
