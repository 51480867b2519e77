/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator's batch (transport/batch.h), by which its ranks send each
 * other device memory where they cannot map it; and the watch over calls that
 * wait on a stream, for which no host thread waits.
 *
 * The ranks agree on the transport that carries the batch: the first transport
 * of the list with ULI_TR_BATCH that serves all ranks, or the one that the
 * caller requires. The reasons against the transports before it are kept.
 *
 * The device writes into two words of host memory which call has begun and
 * which has ended. The service thread reads them every few milliseconds
 * (uli_batch_look). It copies this rank's progress into words of its arena, for
 * the peers of this node. It fails the communicator in three cases: a call has
 * not ended in time (the error names the rank that has not come); the batch
 * transport has found an error; a call waits for a rank of this node that has
 * left the communicator. Where the communicator has failed, for whatever
 * reason, the same look aborts the batch.
 */
#ifndef ULI_COMM_MESSAGES_BATCH_H
#define ULI_COMM_MESSAGES_BATCH_H

#include "comm/comm.h"

/* Makes the communicator's batch at the first call, collectively; later calls
 * return at once. required: the number of a batch transport, or 0 for the first
 * that serves. Errors, the same on all ranks: UNSUPPORTED (another batch
 * transport than required is in use); those of batch transports, with the rank
 * and its text; those of the agreement. */
ulyx_status_t uli_comm_batch_open(
    ulyx_comm_t *comm, int32_t required, uli_deadline_t deadline);
/* The number of the batch transport with that name, from 1 on; 0 = none. */
int32_t uli_comm_batch_transport(const char *name);
/* The batch; NULL before open. */
struct uli_batch *uli_comm_batch(ulyx_comm_t *comm);
/* The functions of the batch transport; after open. */
const struct uli_batch_ops *uli_comm_batch_ops(ulyx_comm_t *comm);
/* "nccl 2.28.9", and why the transports before it do not serve; after open. */
void uli_comm_batch_describe(
    ulyx_comm_t *comm, char *text_p, size_t text_bytes);
/* Ends the batch, at any stage. The communicator has left the service's
 * registry, or no call is in flight. */
void uli_comm_batch_close(ulyx_comm_t *comm);

/* take begins and give ends the turn of one call, which may be several runs of
 * the batch: between these runs a batch transport would refuse another thread.
 * Errors of take: BUSY, when the deadline is over before the turn has come
 * (deadline 0: at once). */
ulyx_status_t uli_comm_batch_take(ulyx_comm_t *comm, uli_deadline_t deadline);
void uli_comm_batch_give(ulyx_comm_t *comm);

/* The words in which a rank publishes its progress, in a window of its own: [0]
 * the number of the last call that has begun, [1] what that call does. */
enum { ULI_BATCH_PROGRESS_BYTES = 16 };
struct uli_batch_place {
    uint32_t window;
    int64_t offset;
};

/* The calls of one plan at this rank. */
struct uli_batch_watch {
    struct uli_list node;
    const uint64_t *begun, *ended; /* numbers of calls, written by the device */
    const uint64_t *call;          /* what the last call does, written before
                                    * begun; NULL = all calls do the same */
    const char *(*name_of)(uint64_t call);
    double timeout_s;
    const char *what;                       /* "reshuffle" */
    const struct uli_batch_place *progress; /* [nranks] */
    const bool *shares;           /* [nranks]: whether the calls need that
                                   * rank */
    struct uli_arena_block block; /* this rank's words */
    uint64_t seen;                /* private to uli_batch_look, as the
                                   * next */
    int64_t since_ns;
};
void uli_batch_watch_add(ulyx_comm_t *comm, struct uli_batch_watch *watch);
/* Publishes this rank's progress once more, as the rank takes no further part:
 * peers that still wait for it find out that it has left. */
void uli_batch_watch_leave(ulyx_comm_t *comm, struct uli_batch_watch *watch);
/* As uli_batch_watch_leave; uli_batch_look does not touch the watch
 * afterwards. */
void uli_batch_watch_remove(ulyx_comm_t *comm, struct uli_batch_watch *watch);

/* Called by the service thread, under its lock. Does nothing without a
 * batch. */
void uli_batch_look(ulyx_comm_t *comm);

#endif
