/* SPDX-License-Identifier: Apache-2.0
 *
 * Votes, opinions and decisions in the control blocks of this node: how any
 * rank of the node changes a vote, and how a decision is read while its owner
 * may replace it.
 */
#include <string.h>
#include "comm/agreement/survivors_call.h"

uint64_t
uli_survivors_vote(const ulyx_comm_t *comm, int32_t rank)
{
    struct uli_control *control = comm->peers[rank].control;

    return atomic_load_explicit(&control->vote, memory_order_acquire);
}

enum uli_answer
uli_survivors_query_vote(ulyx_comm_t *comm, int32_t rank, uint32_t instance,
    uint32_t ballot, bool exclude, struct uli_opinion *opinion_p,
    uint32_t *promised_p)
{
    struct uli_control *control = comm->peers[rank].control;
    uint64_t next, vote = uli_survivors_vote(comm, rank);
    enum uli_answer answer;

    exclude = exclude || atomic_load(&comm->peers[rank].dead) != 0 ||
              atomic_load(&comm->control->left[rank]) != 0;
    do
        answer = uli_vote_answer(vote, instance, ballot, exclude, &next);
    while (next != vote &&
           !atomic_compare_exchange_strong(&control->vote, &vote, next));
    *promised_p = uli_vote_ballot(vote);
    memset(opinion_p, 0, sizeof(*opinion_p));
    if (answer == ULI_ANSWER_PROMISED)
        *opinion_p = control->opinions[instance & 1];
    return answer;
}

/* The owner overwrites a decision two instances later, so the copy is whole if
 * the vote still shows the decision afterwards. */
bool
uli_survivors_shown(ulyx_comm_t *comm, int32_t rank, uint32_t instance,
    struct uli_decision *decision_p)
{
    struct uli_control *control = comm->peers[rank].control;

    if (!uli_vote_shows(uli_survivors_vote(comm, rank), instance))
        return false;
    *decision_p = control->decisions[instance & 1];
    /* This access releases, so no read of the copy moves after it. */
    return uli_vote_shows(atomic_fetch_or(&control->vote, 0), instance);
}

bool
uli_survivors_left_out(const ulyx_comm_t *comm)
{
    return uli_vote_phase(uli_survivors_vote(comm, comm->rank)) == ULI_VOTE_OUT;
}

void
uli_survivors_farewell(ulyx_comm_t *comm)
{
    uint64_t vote = uli_survivors_vote(comm, comm->rank);
    uint32_t instance = uli_vote_instance(vote);

    if (instance != 0)
        uli_survivors_send_decision(
            comm, &comm->control->decisions[instance & 1], true);
}

void
uli_survivors_leave(ulyx_comm_t *comm)
{
    uint64_t vote = uli_survivors_vote(comm, comm->rank);

    while (!atomic_compare_exchange_weak(
        &comm->control->vote, &vote, uli_vote_leave(vote)))
        ;
}

bool
uli_survivors_owes(
    const ulyx_comm_t *comm, enum uli_topic topic, struct uli_decision *last_p)
{
    uint64_t vote = uli_survivors_vote(comm, comm->rank);
    uint32_t instance = uli_vote_instance(vote);

    if (uli_vote_phase(vote) != ULI_VOTE_OPEN ||
        comm->control->opinions[instance & 1].topic != topic)
        return false;
    *last_p = comm->control->decisions[(instance - 1) & 1];
    return true;
}
