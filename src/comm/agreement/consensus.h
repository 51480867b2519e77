/* SPDX-License-Identifier: Apache-2.0
 *
 * Consensus among the survivors of a communicator: the protocol alone, as
 * functions of their arguments. survivors.c runs it over shared memory and
 * messages; consensus_test.c runs the same functions through every order of
 * events of small jobs.
 *
 * Each call takes one decision, numbered by its instance. The state of a rank
 * lies in one word of its control block, its vote, which every rank of its node
 * may change by compare and swap. So any rank of the node can answer for a rank
 * that is stopped, and a vote outlives its rank as long as one rank of the node
 * lives.
 *
 *     IDLE(k)     knows the decisions up to k, has not come to k + 1
 *     OPEN(k, b)  has come to k and given its opinion; takes no decision of a
 *                 ballot below b
 *     OUT(k)      was left out after k, for good
 *
 * Any rank may propose, under a ballot of its own. The proposer queries all
 * votes. A vote that is OPEN promises the ballot. For a vote that has not come
 * the proposer waits during half of its time, then makes the vote OUT. A vote
 * that has the decision shows it. A vote can be passed over only where every
 * rank of its node is dead or has left. Only when all answers are there, the
 * proposer forms the decision, or takes over a decision that was shown. The
 * decision is taken when the proposer's own vote, which must still be OPEN
 * under the ballot, has become IDLE(k).
 *
 * Why two living ranks never have different decisions of one instance: let c
 * decide under ballot b, and d propose under a higher ballot, at any time. If
 * d can query c's vote, the vote is IDLE, and d takes over c's decision; or it
 * promises d's ballot, and can no longer become IDLE under b. If d cannot
 * query it, all of c's node has gone. A living rank that has learned from c is
 * then in c's place: its vote shows the decision, or it has promised d's
 * ballot and takes no decision of ballot b any more. A rank that leaves in
 * good order sends its last decision before it announces its leaving. If no
 * living rank has the decision, none can contradict d's.
 *
 * Why a rank that was left out detects it: OUT is in its own vote, and no
 * transition leads out of OUT. Decision k + 1 cannot pass over a member of
 * decision k unnoticed: the member comes, or it is made OUT. So storage for
 * the opinions and decisions of two instances, by parity, is enough, and a
 * reader checks its own vote afterwards.
 *
 * A node that counts as gone must be gone (its process has ended, its
 * connection was closed). A network that is cut in two, so that each half takes
 * the other for dead, makes two sets of survivors. Only a majority rule could
 * prevent that, and jobs must survive the loss of more than half of their
 * ranks.
 */
#ifndef ULI_COMM_AGREEMENT_CONSENSUS_H
#define ULI_COMM_AGREEMENT_CONSENSUS_H

#include <stdbool.h>
#include <stdint.h>

enum { ULI_MEMBER_BYTES = 4096, ULI_MOST_SURVIVORS = 8 * ULI_MEMBER_BYTES };

/* ---- votes --------------------------------------------------------------- */

enum uli_vote_phase { ULI_VOTE_IDLE, ULI_VOTE_OPEN, ULI_VOTE_OUT };

/* instance (30 bits), phase (2), ballot (32); 0 is IDLE(0). */
static inline uint64_t
uli_vote(uint32_t instance, enum uli_vote_phase phase, uint32_t ballot)
{
    return (uint64_t)instance << 34 | (uint64_t)phase << 32 | ballot;
}

static inline uint32_t
uli_vote_instance(uint64_t vote)
{
    return (uint32_t)(vote >> 34);
}

static inline enum uli_vote_phase
uli_vote_phase(uint64_t vote)
{
    return (enum uli_vote_phase)(vote >> 32 & 3);
}

static inline uint32_t
uli_vote_ballot(uint64_t vote)
{
    return (uint32_t)vote;
}

/* The answer of a vote to a ballot. */
enum uli_answer {
    ULI_ANSWER_NONE,     /* no answer yet */
    ULI_ANSWER_ABSENT,   /* has not come */
    ULI_ANSWER_PROMISED, /* has come; takes no decision of a lower ballot from
                          * now on */
    ULI_ANSWER_REFUSED,  /* has promised a higher ballot */
    ULI_ANSWER_DECIDED,  /* has the decision */
    ULI_ANSWER_OUT,      /* is left out */
    ULI_ANSWER_PAST,     /* is past this instance: the proposer was left out */
};

/* The vote of a rank that comes to the next instance; false: the rank is
 * OUT. */
bool uli_vote_come(uint64_t vote, uint64_t *next_p);
/* A vote's answer to a ballot, and the vote afterwards. exclude: a vote that
 * has not come is made OUT. */
enum uli_answer uli_vote_answer(uint64_t vote, uint32_t instance,
    uint32_t ballot, bool exclude, uint64_t *next_p);
/* OPEN becomes IDLE by a decision of this ballot; false: the vote does not
 * allow that. */
bool uli_vote_decide(
    uint64_t vote, uint32_t instance, uint32_t ballot, uint64_t *next_p);
/* Whether the owner of the vote has the decision, and still keeps it. */
bool uli_vote_shows(uint64_t vote, uint32_t instance);
/* The vote of a rank that leaves the survivors: OUT. */
uint64_t uli_vote_leave(uint64_t vote);

/* ---- decisions ----------------------------------------------------------- */

/* The subject of a decision. Where the topics of the ranks differ, the decision
 * records that (odd_rank). */
enum uli_topic {
    ULI_TOPIC_REFUSED,    /* arguments that are wrong */
    ULI_TOPIC_SHRINK,     /* the set of survivors; values do not matter */
    ULI_TOPIC_SHRINK_END, /* the largest of the values */
    ULI_TOPIC_AND,        /* in the order of ulyx_agree_t */
    ULI_TOPIC_MIN,
    ULI_TOPIC_MAX,
};
const char *uli_topic_name(uint32_t topic);

struct uli_opinion {
    uint64_t value;
    uint32_t topic;
};

struct uli_decision {
    uint32_t instance, ballot;
    uint64_t value;     /* combined from all members' values, by the topic */
    uint32_t topic;     /* of the first member */
    uint32_t odd_topic; /* of odd_rank */
    int32_t first_rank; /* of the members; -1: none */
    int32_t odd_rank;   /* first member of another topic; -1: none */
    unsigned char members[ULI_MEMBER_BYTES]; /* bit p: rank p is one */
};

static inline bool
uli_decision_has(const struct uli_decision *decision, int32_t rank)
{
    return decision->members[rank / 8] >> (rank % 8) & 1;
}

/* ---- proposals ----------------------------------------------------------- */

struct uli_seat {
    struct uli_opinion opinion; /* with PROMISED */
    uint8_t answer;             /* enum uli_answer */
    bool never; /* not a member of the last decision: passed over */
    bool gone;  /* its vote can no longer be queried */
    bool dead;  /* not a member of the decision that is formed */
};

struct uli_proposal {
    int32_t nranks;
    uint32_t instance;
    uint32_t ballot;        /* 0: nothing proposed yet */
    uint32_t highest;       /* the highest ballot seen */
    struct uli_seat *seats; /* [nranks] */
};

enum uli_standing {
    ULI_STANDING_PENDING,
    ULI_STANDING_REFUSED, /* a higher ballot has precedence */
    ULI_STANDING_READY,   /* form the decision, unless one was shown or
                           * received */
    ULI_STANDING_PAST,    /* this rank was left out */
};

/* The rank that owns a ballot. */
int32_t uli_ballot_rank(int32_t nranks, uint32_t ballot);
/* Takes a ballot above all that this rank has seen; no two ranks have the same.
 * Of two ranks that have seen the same ballots, the lower rank's is higher. */
void uli_proposal_begin(struct uli_proposal *proposal, int32_t rank);
/* Records an answer to a ballot of the instance; an answer to an older ballot
 * is dropped. promised: the vote's ballot, where it REFUSED. */
void uli_proposal_take(struct uli_proposal *proposal, uint32_t ballot,
    int32_t rank, enum uli_answer answer, const struct uli_opinion *opinion,
    uint32_t promised);
/* Whether the seat's vote must be queried, or queried again. */
bool uli_proposal_awaits(const struct uli_proposal *proposal, int32_t rank);
enum uli_standing uli_proposal_standing(const struct uli_proposal *proposal);
/* The decision of a READY proposal. */
void uli_proposal_form(
    const struct uli_proposal *proposal, struct uli_decision *decision_p);

#endif
