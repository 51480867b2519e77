/* SPDX-License-Identifier: Apache-2.0
 *
 * The protocol of consensus.h. No function here waits, sends or allocates.
 */
#include "comm/agreement/consensus.h"

#include <string.h>

/* ---- votes --------------------------------------------------------------- */

bool
uli_vote_come(uint64_t vote, uint64_t *next_p)
{
    if (uli_vote_phase(vote) != ULI_VOTE_IDLE)
        return false;
    *next_p = uli_vote(uli_vote_instance(vote) + 1, ULI_VOTE_OPEN, 0);
    return true;
}

/* The last instance whose decision the vote's owner has. */
static uint32_t
last_decided(uint64_t vote)
{
    return uli_vote_instance(vote) - (uli_vote_phase(vote) == ULI_VOTE_OPEN);
}

bool
uli_vote_shows(uint64_t vote, uint32_t instance)
{
    return last_decided(vote) == instance;
}

uint64_t
uli_vote_leave(uint64_t vote)
{
    return uli_vote(last_decided(vote), ULI_VOTE_OUT, 0);
}

enum uli_answer
uli_vote_answer(uint64_t vote, uint32_t instance, uint32_t ballot, bool exclude,
    uint64_t *next_p)
{
    *next_p = vote;
    if (uli_vote_shows(vote, instance))
        return ULI_ANSWER_DECIDED;
    if (last_decided(vote) > instance)
        return ULI_ANSWER_PAST;
    if (uli_vote_phase(vote) == ULI_VOTE_OUT)
        return ULI_ANSWER_OUT;
    if (uli_vote_phase(vote) == ULI_VOTE_OPEN &&
        uli_vote_instance(vote) == instance) {
        if (uli_vote_ballot(vote) > ballot)
            return ULI_ANSWER_REFUSED;
        *next_p = uli_vote(instance, ULI_VOTE_OPEN, ballot);
        return ULI_ANSWER_PROMISED;
    }
    if (!exclude)
        return ULI_ANSWER_ABSENT;
    *next_p = uli_vote_leave(vote);
    return ULI_ANSWER_OUT;
}

bool
uli_vote_decide(
    uint64_t vote, uint32_t instance, uint32_t ballot, uint64_t *next_p)
{
    if (uli_vote_phase(vote) != ULI_VOTE_OPEN ||
        uli_vote_instance(vote) != instance || uli_vote_ballot(vote) > ballot)
        return false;
    *next_p = uli_vote(instance, ULI_VOTE_IDLE, 0);
    return true;
}

/* ---- decisions ----------------------------------------------------------- */

const char *
uli_topic_name(uint32_t topic)
{
    static const char *const names[] = {"a refused call", "shrink",
        "shrink's end", "agree (and)", "agree (min)", "agree (max)"};

    return topic < sizeof(names) / sizeof(names[0]) ? names[topic]
                                                    : "an unknown call";
}

static uint64_t
values_combine(uint32_t topic, uint64_t a, uint64_t b)
{
    if (topic == ULI_TOPIC_AND)
        return a & b;
    if (topic == ULI_TOPIC_MIN)
        return a < b ? a : b;
    return a > b ? a : b;
}

/* ---- proposals ----------------------------------------------------------- */

/* Ballots of attempt a: a * P + 1 (of the highest rank) to (a + 1) * P (of rank
 * 0). */
void
uli_proposal_begin(struct uli_proposal *proposal, int32_t rank)
{
    uint32_t nranks = (uint32_t)proposal->nranks;
    uint32_t attempt =
        proposal->highest == 0 ? 0 : (proposal->highest - 1) / nranks + 1;

    proposal->ballot = attempt * nranks + nranks - (uint32_t)rank;
    proposal->highest = proposal->ballot;
    for (int32_t p = 0; p < proposal->nranks; p++)
        proposal->seats[p].answer = ULI_ANSWER_NONE;
}

int32_t
uli_ballot_rank(int32_t nranks, uint32_t ballot)
{
    return nranks - 1 - (int32_t)((ballot - 1) % (uint32_t)nranks);
}

void
uli_proposal_take(struct uli_proposal *proposal, uint32_t ballot, int32_t rank,
    enum uli_answer answer, const struct uli_opinion *opinion,
    uint32_t promised)
{
    struct uli_seat *seat = &proposal->seats[rank];

    if (answer == ULI_ANSWER_REFUSED && promised > proposal->highest)
        proposal->highest = promised;
    if (ballot != proposal->ballot || seat->answer > ULI_ANSWER_ABSENT)
        return;
    seat->answer = (uint8_t)answer;
    seat->opinion = *opinion;
}

bool
uli_proposal_awaits(const struct uli_proposal *proposal, int32_t rank)
{
    const struct uli_seat *seat = &proposal->seats[rank];

    return seat->answer <= ULI_ANSWER_ABSENT && !seat->never && !seat->gone;
}

enum uli_standing
uli_proposal_standing(const struct uli_proposal *proposal)
{
    enum uli_standing standing = ULI_STANDING_READY;
    bool refused = false;

    for (int32_t p = 0; p < proposal->nranks; p++) {
        enum uli_answer answer = proposal->seats[p].answer;

        if (answer == ULI_ANSWER_PAST)
            return ULI_STANDING_PAST;
        if (uli_proposal_awaits(proposal, p))
            standing = ULI_STANDING_PENDING;
        refused = refused || answer == ULI_ANSWER_REFUSED;
    }
    return refused ? ULI_STANDING_REFUSED : standing;
}

static void
add_member(struct uli_decision *decision, int32_t rank,
    const struct uli_opinion *opinion)
{
    decision->members[rank / 8] =
        (unsigned char)(decision->members[rank / 8] | 1u << (rank % 8));
    if (decision->first_rank < 0) {
        decision->first_rank = rank;
        decision->topic = opinion->topic;
        decision->value = opinion->value;
        return;
    }
    decision->value =
        values_combine(decision->topic, decision->value, opinion->value);
    if (opinion->topic != decision->topic && decision->odd_rank < 0) {
        decision->odd_rank = rank;
        decision->odd_topic = opinion->topic;
    }
}

void
uli_proposal_form(
    const struct uli_proposal *proposal, struct uli_decision *decision_p)
{
    memset(decision_p, 0, sizeof(*decision_p));
    decision_p->instance = proposal->instance;
    decision_p->ballot = proposal->ballot;
    decision_p->first_rank = decision_p->odd_rank = -1;
    for (int32_t p = 0; p < proposal->nranks; p++)
        if (proposal->seats[p].answer == ULI_ANSWER_PROMISED &&
            !proposal->seats[p].dead)
            add_member(decision_p, p, &proposal->seats[p].opinion);
}
