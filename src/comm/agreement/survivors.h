/* SPDX-License-Identifier: Apache-2.0
 *
 * Decisions of the survivors of a communicator, healthy or failed: the protocol
 * of consensus.h carried out. Within a node a proposer works on the votes in
 * the control blocks itself. Of another node it asks one rank, which answers
 * for all of its node from within its net's progress, so also when no thread of
 * that rank is in the library; one that does not answer is passed over for the
 * next.
 *
 * Cost, all here and well: on one node P doorbells and P reads a rank. On
 * several, at the lowest rank: a question and an answer for each node and each
 * burst of ranks that come, and P messages with the decision.
 */
#ifndef ULI_COMM_AGREEMENT_SURVIVORS_H
#define ULI_COMM_AGREEMENT_SURVIVORS_H

#include "comm/comm.h"
#include "comm/agreement/consensus.h"

/* Comes to the next decision with the given opinion, and waits for it. Ranks
 * that are dead are not waited for; ones that do not come in the first half of
 * the time are left out of this decision and all later ones.
 * returns SUCCESS, *decision_p the same on all members, of which this rank is
 * one; ERR_RANK_LOST: this rank has been left out; ERR_TIMEOUT: what was
 * decided cannot be known yet, since a whole node neither answers nor is known
 * to be dead: the next call of the same topic goes on with it, by the opinion
 * first given; ERR_NO_MEMORY, ERR_UNSUPPORTED (more than ULI_MOST_SURVIVORS
 * ranks): it has not come. Never fails the communicator. */
ulyx_status_t uli_survivors_decide(ulyx_comm_t *comm,
    const struct uli_opinion *mine, uli_deadline_t deadline,
    struct uli_decision *decision_p);

/* SUCCESS; PEER_REFUSED or MISMATCH: not all members came to the same call. */
ulyx_status_t uli_survivors_same(const struct uli_decision *decision);

/* The public agree; outcome: on the arguments, with its text set, told to the
 * peers. */
ulyx_status_t uli_comm_agree(ulyx_comm_t *comm, uint64_t mine, ulyx_agree_t how,
    ulyx_status_t outcome, uint64_t *value_p, int32_t *nranks_p);

/* Whether the last call was of this topic and ended by its deadline; then
 * *last_p <- the decision before. */
bool uli_survivors_owes(
    const ulyx_comm_t *comm, enum uli_topic topic, struct uli_decision *last_p);

/* shrink.c: before another call, the end of a shrink that ended by its
 * deadline. Errors: as uli_survivors_decide; RANK_LOST: the others have what it
 * formed. */
ulyx_status_t uli_shrink_settle(ulyx_comm_t *comm, uli_deadline_t deadline);

/* Whether this rank was left out, by any decision or for any late one. */
bool uli_survivors_left_out(const ulyx_comm_t *comm);

/* This rank takes part in no decision any more, nor in one that it has come to
 * unless it is decided with it already. */
void uli_survivors_leave(ulyx_comm_t *comm);

/* Before a rank says that it leaves: its last decision, to remote members. */
void uli_survivors_farewell(ulyx_comm_t *comm);

#endif
