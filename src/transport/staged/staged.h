/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport "staged" of batches (batch.h): device memory goes from rank
 * to rank through pinned memory of the host, where neither mapping nor NCCL
 * serves. It needs no library, but the hooks of the communicator.
 *
 *   same node   kernel of the sender -> receive buffer of the receiver, in
 *               its host memory, which both have mapped and pinned -> its
 *               kernel
 *   other node  kernel -> sending slots of the sender -> a put of the network
 *               -> receive buffer of the receiver -> its kernel
 *
 * One kernel a run moves all messages both ways (cuda/staged_gpu.h), a step of
 * the caller's stream: the caller's thread waits for nothing, and a captured
 * run can be replayed, for all counts are kept where kernels run. Chunks of
 * a set size, four slots a queue and way: device to host, wire and host to
 * device overlap.
 *
 * The relay (relay.c) is a thread of a rank that has peers on other
 * nodes: it puts what kernels have filled and emptied to the peers. A call of
 * the host's before each kernel wakes it, in graphs too; it sleeps when no run
 * is under way.
 *
 * Memory does not grow with the messages: a rank's receive buffer and sending
 * slots are queues x 4 x chunk per peer and way, and bounded by
 * ULYX_STAGE_BYTES in all as long as chunks have a page; pinned whole. All of
 * it is one block of the memory that peers reach, of pages of its own:
 *
 *   flags           [peers][queues]             told by peers, stored or put
 *                                               by them
 *   receive buffer  [peers][queues][4][chunk]   the same
 *   own flags       [remote][queues]            told by this rank's kernel, for
 *                                               the relay
 *   sending slots   [remote][queues][4][chunk]  the same
 *
 * How runs end. A kernel that waits looks at the communicator's poison, at
 * abort, and at its own deadline, half a second after the caller's, so that who
 * watches over the calls can name who has not come. A batch that has
 * failed moves nothing any more.
 */
#ifndef ULI_TRANSPORT_STAGED_STAGED_H
#define ULI_TRANSPORT_STAGED_STAGED_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "transport/batch.h"
#include "transport/staged/cuda/staged_gpu.h"

/* Equal on all ranks. */
struct uli_staged_shape {
    int32_t peers, queues;
    int64_t chunk_bytes;
};

/* One peer; its index leaves this rank out. */
struct uli_staged_peer {
    int32_t rank;
    int32_t remote;  /* among the peers of other nodes; -1: of this one */
    uint32_t window; /* its memory: where, and how much of it */
    int64_t offset, bytes;
    unsigned char *mapped, *there; /* of this node: here, and for the device */
};

struct uli_staged_memory {
    struct uli_staged_shape shape;
    struct uli_batch_memory block;
    unsigned char *base, *there; /* its whole pages: here, for the device */
    int64_t offset, bytes;       /* of them, in the window */
    int32_t remotes;
    struct uli_staged_peer *peers;   /* [shape.peers] */
    struct uli_staged_queue *queues; /* [peers][queues], on the device */
};

struct uli_staged_relay {
    const struct uli_batch_params *params;
    const struct uli_staged_memory *memory;
    const struct uli_staged_report *report;
    uint64_t *sent, *taken; /* [remotes][queues]: chunks that were told */
    pthread_t thread;
    bool has_thread;
    sem_t work;
    _Atomic bool stop;
    _Atomic uint64_t runs; /* that the stream has come to */
};

/* Where a pair's things lie in a rank's memory. index: of the other one. */
int64_t uli_staged_flags_at(
    const struct uli_staged_shape *shape, int32_t index, int32_t queue);
int64_t uli_staged_recv_at(
    const struct uli_staged_shape *shape, int32_t index, int32_t queue);
/* remote: among the peers of other nodes. */
int64_t uli_staged_own_flags_at(
    const struct uli_staged_shape *shape, int32_t remote, int32_t queue);
int64_t uli_staged_sending_at(const struct uli_staged_shape *shape,
    int32_t remotes, int32_t remote, int32_t queue);
/* The index of rank p at rank r. */
static inline int32_t
uli_staged_index(int32_t p, int32_t r)
{
    return p < r ? p : p - 1;
}

/* Makes this rank's memory and joins it with the peers'; collective, at one
 * gather. Errors: NO_MEMORY, the driver's, the communicator's; nothing is left
 * then. */
ulyx_status_t uli_staged_memory_open(struct uli_staged_memory *memory,
    const struct uli_batch_params *params,
    const struct uli_staged_shape *shape);
/* Instead, at a rank that has failed by status, whose text is set: the others
 * learn of it. Returns the lowest rank's error. */
ulyx_status_t uli_staged_memory_refuse(
    const struct uli_batch_params *params, ulyx_status_t status);
/* No kernel of this rank uses it. used: peers may still store into the block,
 * which then stays with the communicator. */
void uli_staged_memory_close(struct uli_staged_memory *memory,
    const struct uli_batch_params *params, bool used);

/* Starts it where peers are remote. Errors: NO_MEMORY, SYSTEM. */
ulyx_status_t uli_staged_relay_open(struct uli_staged_relay *relay,
    const struct uli_batch_params *params,
    const struct uli_staged_memory *memory,
    const struct uli_staged_report *report);
/* Tells the rest and ends; harmless twice. */
void uli_staged_relay_close(struct uli_staged_relay *relay);
/* A call of the host's in a stream: a run comes now. */
void uli_staged_relay_wake(void *relay);

#endif
