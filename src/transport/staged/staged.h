/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport "staged" of batches (batch.h): device memory moves from rank to
 * rank through pinned host memory, where neither mapping nor NCCL serves. It
 * needs no library, only the hooks of the communicator.
 *
 *   same node   kernel of the sender -> receive buffer of the receiver, in its
 *               host memory, which both have mapped and pinned -> kernel of the
 *               receiver
 *   other node  kernel of the sender -> its sending slots -> a put of the
 *               network -> receive buffer of the receiver -> kernel of the
 *               receiver
 *
 * One kernel per launch moves all messages both ways (cuda/staged_gpu.h), as a
 * step of the caller's stream. The caller's thread does not wait, and a
 * captured run can be replayed, because all counts are kept on the device.
 * Chunks have a fixed size, with four slots per queue and way, so that the copy
 * to the host, the network and the copy to the device overlap.
 *
 * The relay (relay.c) is a thread of a rank that has peers on other nodes: it
 * puts filled chunks and the counts of emptied slots to these peers. A host
 * call before each kernel wakes it, also in graphs; it sleeps while no run is
 * in flight.
 *
 * Memory does not grow with the messages: a rank's receive buffer and sending
 * slots are queues x 4 x chunk bytes per peer and way, at most ULYX_STAGE_BYTES
 * in all as long as a chunk has at least a page; all pinned. They are one block
 * of the memory that peers reach, in pages of its own:
 *
 *   flags           [peers][queues]             written by peers, stored or put
 *   receive buffer  [peers][queues][4][chunk]   written by peers, stored or put
 *   own flags       [remote][queues]            written by this rank's kernel,
 *                                               read by the relay
 *   sending slots   [remote][queues][4][chunk]  written by this rank's kernel,
 *                                               read by the relay
 *
 * How runs end. A kernel that waits reads the communicator's poison, the abort
 * word, and its own deadline, which is half a second after the caller's, so
 * that the watch over the calls can name the missing rank first. A batch that
 * has failed moves nothing any more.
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

/* One peer. Indices count the peers, leaving out this rank. */
struct uli_staged_peer {
    int32_t rank;
    int32_t remote;  /* index among the peers of other nodes; -1: of this
                      * node */
    uint32_t window; /* the peer's block: its window, offset and bytes */
    int64_t offset, bytes;
    unsigned char *mapped, *there; /* of this node: its address here, and for
                                    * the device */
};

struct uli_staged_memory {
    struct uli_staged_shape shape;
    struct uli_batch_memory block;
    unsigned char *base, *there; /* the block's whole pages: address here, and
                                  * for the device */
    int64_t offset, bytes;       /* of the pages, in the window */
    int32_t remotes;
    struct uli_staged_peer *peers;   /* [shape.peers] */
    struct uli_staged_queue *queues; /* [peers][queues], on the device */
};

struct uli_staged_relay {
    const struct uli_batch_params *params;
    const struct uli_staged_memory *memory;
    const struct uli_staged_report *report;
    uint64_t *sent, *taken; /* [remotes][queues]: chunks already announced */
    pthread_t thread;
    bool has_thread;
    sem_t work;
    _Atomic bool stop;
    _Atomic uint64_t runs; /* runs that the stream has reached */
};

/* Offsets of a pair's flags and slots in a rank's memory. index: of the other
 * rank. */
int64_t uli_staged_flags_at(
    const struct uli_staged_shape *shape, int32_t index, int32_t queue);
int64_t uli_staged_recv_at(
    const struct uli_staged_shape *shape, int32_t index, int32_t queue);
/* remote: index among the peers of other nodes. */
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

/* Makes this rank's memory and connects it with the peers' memory; collective,
 * with one gather. Errors: NO_MEMORY, the driver's, the communicator's; then
 * nothing is kept. */
ulyx_status_t uli_staged_memory_open(struct uli_staged_memory *memory,
    const struct uli_batch_params *params,
    const struct uli_staged_shape *shape);
/* Takes the place of open at a rank that has failed by `status`, whose text is
 * the last error: the others receive the error. Returns the lowest rank's
 * error. */
ulyx_status_t uli_staged_memory_refuse(
    const struct uli_batch_params *params, ulyx_status_t status);
/* Frees the memory, which no kernel of this rank uses. used: peers may still
 * store into the block, which then stays with the communicator. */
void uli_staged_memory_close(struct uli_staged_memory *memory,
    const struct uli_batch_params *params, bool used);

/* Starts the relay where peers are remote. Errors: NO_MEMORY, SYSTEM. */
ulyx_status_t uli_staged_relay_open(struct uli_staged_relay *relay,
    const struct uli_batch_params *params,
    const struct uli_staged_memory *memory,
    const struct uli_staged_report *report);
/* Puts the rest and ends the relay. May be called twice. */
void uli_staged_relay_close(struct uli_staged_relay *relay);
/* A host call in a stream: a run begins now. */
void uli_staged_relay_wake(void *relay);

#endif
