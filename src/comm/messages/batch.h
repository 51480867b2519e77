/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator's batch (transport/batch.h): how its ranks send each other
 * device memory where they cannot map it; and the watch over calls that wait
 * on a stream, where no host thread does.
 *
 * What carries it is agreed: the first transport of the list with ULI_TR_BATCH
 * that serves all ranks, or the one that is asked for. The reasons against
 * those before it are kept.
 *
 * A call says in two words of host memory that it has begun and ended. The
 * service thread looks every few milliseconds (uli_batch_look): it tells the
 * peers of this node how far this rank is, in a word of its arena, and fails
 * the communicator when a call has not ended in time after it has begun,
 * naming the rank that has not come, or when the batch transport has found an
 * error. A communicator that fails, for whatever reason, has its batch aborted
 * by the same look.
 */
#ifndef ULI_COMM_MESSAGES_BATCH_H
#define ULI_COMM_MESSAGES_BATCH_H

#include "comm/comm.h"

/* Makes the communicator's batch at the first call, collectively; later calls
 * return at once. wanted: a batch transport, or 0 for the first that serves.
 * Errors, the same on all ranks: UNSUPPORTED (another batch transport than
 * wanted is in use), and what batch transports say, each with the rank and its
 * words; those of the agreement. */
ulyx_status_t uli_comm_batch_open(
    ulyx_comm_t *comm, int32_t wanted, uli_deadline_t deadline);
/* Which of the transports that carry batches has that name, from 1 on; 0 =
 * none. */
int32_t uli_comm_batch_transport(const char *name);
/* NULL before open. */
struct uli_batch *uli_comm_batch(ulyx_comm_t *comm);
/* Of the batch transport; after open. */
const struct uli_batch_ops *uli_comm_batch_ops(ulyx_comm_t *comm);
/* "nccl 2.28.9", and why it was not a better one; after open. */
void uli_comm_batch_describe(
    ulyx_comm_t *comm, char *text_p, size_t text_bytes);
/* Ends it, at any stage; the service does not know the communicator any more
 * or nothing is under way. */
void uli_comm_batch_close(ulyx_comm_t *comm);

/* The turn of one call, which may be several runs of the batch: a batch
 * transport would refuse a second thread in the middle of it. take: BUSY,
 * nothing has been done, once the deadline is over (0: at once). */
ulyx_status_t uli_comm_batch_take(ulyx_comm_t *comm, uli_deadline_t deadline);
void uli_comm_batch_give(ulyx_comm_t *comm);

/* Where a rank tells how far it is, in a window of its own: two words, the
 * number of the last call that has begun, and what that does. */
enum { ULI_BATCH_TOLD_BYTES = 16 };
struct uli_batch_place {
    uint32_t window;
    int64_t offset;
};

/* The calls of one plan at this rank. */
struct uli_batch_watch {
    struct uli_list node;
    const uint64_t *begun, *ended; /* numbers of calls, written by a device */
    const uint64_t *call;          /* what the last does, written before begun;
                                    * NULL = they all do the same */
    const char *(*name_of)(uint64_t call);
    double timeout_s;
    const char *what;                   /* "reshuffle" */
    const struct uli_batch_place *told; /* [nranks] */
    const bool *shares;                 /* [nranks]: calls need that rank */
    struct uli_arena_block block;       /* this rank's own */
    uint64_t seen;                      /* private to the look, as below */
    int64_t since_ns;
};
void uli_batch_watch_add(ulyx_comm_t *comm, struct uli_batch_watch *watch);
/* No look touches it afterwards. */
void uli_batch_watch_remove(ulyx_comm_t *comm, struct uli_batch_watch *watch);

/* By the service thread, under its lock. Does nothing without a batch. */
void uli_batch_look(ulyx_comm_t *comm);

#endif
