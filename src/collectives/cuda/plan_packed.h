/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan on device memory by the packed exchange over the communicator's batch,
 * whatever carries it. Taken where device memory of some pair of ranks cannot
 * be mapped, or where the algorithm names a carrier; both are known to all
 * ranks alike before the plan's agreement.
 *
 * A call that has begun on a stream and not ended within the plan's timeout
 * fails the communicator with TIMEOUT and the rank that has not come, and its
 * kernels leave the stream. Ranks that disagree about the operation of a call
 * may send messages of different sizes: that ends at the timeout as well, by
 * name where the other rank is of this node.
 */
#ifndef ULI_COLLECTIVES_CUDA_PLAN_PACKED_H
#define ULI_COLLECTIVES_CUDA_PLAN_PACKED_H

#include "collectives/plan.h"

struct uli_plan_packed;

/* Whether a plan of the communicator goes this way. algo: NULL or "" = free;
 * "direct" is an exchange over mapped memory, the other schedules of the host
 * are between nodes and ask for nothing here. */
bool uli_plan_packed_wanted(const ulyx_comm_t *comm, const char *algo);

/* Before the agreement: plan->packed. Errors: UNSUPPORTED (no kernels,
 * host-only flags), NO_MEMORY, the device's; destroy leaves nothing then. */
ulyx_status_t uli_plan_packed_prepare(
    ulyx_plan_t *plan, const struct uli_plan_params *params);
/* Of a message; equal on all ranks. 0 of NULL. */
int64_t uli_plan_packed_chunk(const struct uli_plan_packed *own);
/* Collective, after the plan's agreement, whose ranks and strides it uses.
 * Errors are the same on all ranks, by name. A failure while connections are
 * made fails the communicator. */
ulyx_status_t uli_plan_packed_complete(
    ulyx_plan_t *plan, uli_deadline_t deadline);
/* No call is under way on any stream. NULL is fine. */
void uli_plan_packed_destroy(struct uli_plan_packed *own);

/* As ulyx_reshuffle_execute. Calls of all plans of the communicator come in the
 * same order on all ranks, one thread at a time. A call with bad pointers is
 * refused, and its peers learn of it; one of an operation that the plan does
 * not have cannot take part at all.
 * Errors: BUSY (another thread is in it); the communicator's failure; of an
 * earlier call that moved nothing with some peer, PEER_REFUSED or MISMATCH
 * naming it, while this call is enqueued all the same. */
ulyx_status_t uli_plan_packed_execute(struct uli_plan_packed *own,
    ulyx_operation_t operation, const void *const src[], void *const dst[],
    void *stream);
/* As ulyx_plan_update. Replays of calls that were captured before it move
 * nothing, and say so: messages have the sizes of the capture. */
ulyx_status_t uli_plan_packed_update(struct uli_plan_packed *own,
    const ulyx_docs_t *docs_q, const ulyx_docs_t *docs_k, void *stream);
/* Before destroy. Errors: BUSY, calls enqueued here have not all ended on the
 * device; never waits. Graphs that are yet to be launched do not count. */
ulyx_status_t uli_plan_packed_leave(struct uli_plan_packed *own);
int64_t uli_plan_packed_bytes(const struct uli_plan_packed *own);
void uli_plan_packed_describe(
    const struct uli_plan_packed *own, char *text_p, size_t text_bytes);
/* Rounds of messages that a call of the operation takes. */
int32_t uli_plan_packed_rounds(
    const struct uli_plan_packed *own, ulyx_operation_t operation);

#endif
