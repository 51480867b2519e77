/* SPDX-License-Identifier: Apache-2.0
 *
 * Decisions of the survivors of a communicator, healthy or failed: runs the
 * protocol of consensus.h. Within a node, a proposer itself works on the votes
 * in the control blocks. On another node, it queries one rank, which answers
 * for all of its node from the network's progress, so also when no thread of
 * that rank is in the library. If that rank does not answer, the proposer
 * queries the next one.
 *
 * Cost where all ranks are present and healthy: on one node, P doorbells and P
 * reads per rank. On several nodes, at the lowest rank: a query and an answer
 * per node and per burst of ranks that come, and P messages with the decision.
 */
#ifndef ULI_COMM_AGREEMENT_SURVIVORS_H
#define ULI_COMM_AGREEMENT_SURVIVORS_H

#include "comm/comm.h"
#include "comm/agreement/consensus.h"

/* Comes to the next decision with the given opinion, and waits for the
 * decision. Does not wait for dead ranks. Ranks that do not come in the first
 * half of the time are left out of this decision and all later ones. Returns
 * SUCCESS: *decision_p is the same on all members, of which this rank is one;
 * ERR_RANK_LOST: this rank has been left out; ERR_TIMEOUT: the decision cannot
 * be known yet, because a whole node neither answers nor is known to be dead:
 * the next call of the same topic continues with this decision and the opinion
 * first given; ERR_NO_MEMORY, ERR_UNSUPPORTED (more than ULI_MOST_SURVIVORS
 * ranks): the rank has not come. Never fails the communicator. */
ulyx_status_t uli_survivors_decide(ulyx_comm_t *comm,
    const struct uli_opinion *mine, uli_deadline_t deadline,
    struct uli_decision *decision_p);

/* Whether all members made the same call. SUCCESS; PEER_REFUSED: a member
 * refused the arguments of its own call; MISMATCH: the calls differ. */
ulyx_status_t uli_survivors_same(const struct uli_decision *decision);

/* The public agree. outcome: the outcome of the check of the arguments, with
 * its text as last error; peers receive both. */
ulyx_status_t uli_comm_agree(ulyx_comm_t *comm, uint64_t mine, ulyx_agree_t how,
    ulyx_status_t outcome, uint64_t *value_p, int32_t *nranks_p);

/* Whether the last call was of this topic and ended by its deadline; then
 * *last_p is the decision before it. */
bool uli_survivors_owes(
    const ulyx_comm_t *comm, enum uli_topic topic, struct uli_decision *last_p);

/* In shrink.c. Before another call: finishes a shrink that ended by its
 * deadline. Errors: as uli_survivors_decide; RANK_LOST: the others have the
 * communicator that the shrink formed. */
ulyx_status_t uli_shrink_settle(ulyx_comm_t *comm, uli_deadline_t deadline);

/* Whether this rank was left out, by a decision or by a proposer while a
 * decision is open. */
bool uli_survivors_left_out(const ulyx_comm_t *comm);

/* This rank takes part in no further decision, nor in a decision to which it
 * has come, unless that decision is taken already. */
void uli_survivors_leave(ulyx_comm_t *comm);

/* Before a rank announces its leaving: sends its last decision to remote
 * members. */
void uli_survivors_farewell(ulyx_comm_t *comm);

#endif
