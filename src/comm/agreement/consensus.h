/* SPDX-License-Identifier: Apache-2.0
 *
 * Consensus among the survivors of a communicator: the protocol alone, as
 * functions of their arguments. survivors.c carries it over shared memory and
 * messages; consensus_test.c runs these same functions through every order of
 * events of small jobs.
 *
 * One decision a call, numbered by its instance. What a rank has done lies in
 * one word of its control block, its vote, which it and every other rank of its
 * node change by compare and swap. So a rank that is stopped is spoken for by
 * any other of its node, and its vote outlives it as long as one of them lives.
 *
 *     IDLE(k)     knows the decisions up to k, has not come to k + 1
 *     OPEN(k, b)  has come to k and given its opinion; takes no decision of a
 *                 ballot below b
 *     OUT(k)      was left out after k, for good
 *
 * Any rank may propose, under a ballot of its own. It asks all votes. One that
 * is OPEN promises the ballot; one that has not come is waited for, and made
 * OUT once the proposer's patience is over; one that knows the decision shows
 * it. A vote can be passed over only where every rank of its node is dead or
 * has left. With all answers, no sooner, the proposer forms the decision, or
 * takes over one that was shown, and it is decided when the proposer's own
 * vote, which must still be OPEN under its ballot, has become IDLE(k).
 *
 * Why two living ranks never know different decisions of one instance: let c
 * decide under ballot b, and d propose under a higher one, at any time. If c's
 * vote can be asked, it is IDLE, and d takes its decision over; or it promises
 * d, and can no longer become IDLE under b. If it cannot, all of c's node has
 * gone, and a living rank that has learned from c is where c was: its vote
 * shows the decision, or it has promised d and takes nothing of ballot b any
 * more. Who leaves in good order sends its last decision before it says that it
 * leaves. If nobody alive has the decision nobody can contradict d's.
 *
 * Why a rank that was left out learns it: OUT is in its own vote, and nothing
 * leads out of it. A member of the decision k cannot be passed over by k + 1
 * unnoticed: it comes, or it is made OUT. So the opinions and decisions of two
 * instances, by parity, suffice, and who reads them looks at its own vote
 * afterwards.
 *
 * That a node has gone must be true (a process that has ended, a connection
 * that was closed). A network that is cut in two so that each half takes the
 * other for dead makes two sets of survivors; nothing short of a majority
 * could tell, and jobs must survive the loss of more than that.
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

/* What a vote answers to a ballot. */
enum uli_answer {
    ULI_ANSWER_NONE,     /* not heard of */
    ULI_ANSWER_ABSENT,   /* has not come */
    ULI_ANSWER_PROMISED, /* has come; takes no lower ballot from now on */
    ULI_ANSWER_REFUSED,  /* has promised a higher ballot */
    ULI_ANSWER_DECIDED,  /* has the decision */
    ULI_ANSWER_OUT,      /* is left out */
    ULI_ANSWER_PAST,     /* of a later instance: the asker was left out */
};

/* The vote of a rank that comes to the next instance; false: it is OUT. */
bool uli_vote_come(uint64_t vote, uint64_t *next_p);
/* Asked under a ballot; exclude: one that has not come is made OUT. */
enum uli_answer uli_vote_ask(uint64_t vote, uint32_t instance, uint32_t ballot,
    bool exclude, uint64_t *next_p);
/* OPEN becomes IDLE by a decision of this ballot; false: it may not. */
bool uli_vote_decide(
    uint64_t vote, uint32_t instance, uint32_t ballot, uint64_t *next_p);
/* Whether the owner of the vote has the decision, and still keeps it. */
bool uli_vote_shows(uint64_t vote, uint32_t instance);
/* Its rank leaves the survivors: OUT. */
uint64_t uli_vote_leave(uint64_t vote);

/* ---- decisions ----------------------------------------------------------- */

/* What a decision is about. Equal on all ranks, or the decision says not. */
enum uli_topic {
    ULI_TOPIC_REFUSED,    /* arguments that are wrong */
    ULI_TOPIC_SHRINK,     /* who is a survivor; values do not matter */
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
    uint64_t value;     /* of all members' values, by the topic */
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
    bool never; /* not a member of the last decision: is passed over */
    bool gone;  /* its vote can be asked no more */
    bool dead;  /* no member of what is formed */
};

struct uli_proposal {
    int32_t nranks;
    uint32_t instance;
    uint32_t ballot;        /* 0: nothing proposed yet */
    uint32_t highest;       /* ballot that was heard of */
    struct uli_seat *seats; /* [nranks] */
};

enum uli_standing {
    ULI_STANDING_ASKING,
    ULI_STANDING_REFUSED, /* another ballot goes before */
    ULI_STANDING_READY,   /* to be formed, unless one was shown or heard of */
    ULI_STANDING_PAST,    /* this rank was left out */
};

/* The rank that a ballot is of. */
int32_t uli_ballot_rank(int32_t nranks, uint32_t ballot);
/* A ballot above all that were heard of; no two ranks have the same. Of two
 * ranks that know as much the lower one's is higher. */
void uli_proposal_begin(struct uli_proposal *proposal, int32_t rank);
/* An answer to a ballot of the instance; one to an older ballot is dropped.
 * promised: the vote's ballot, where it REFUSED. */
void uli_proposal_take(struct uli_proposal *proposal, uint32_t ballot,
    int32_t rank, enum uli_answer answer, const struct uli_opinion *opinion,
    uint32_t promised);
/* Whether the seat's vote must be asked, or asked again. */
bool uli_proposal_wants(const struct uli_proposal *proposal, int32_t rank);
enum uli_standing uli_proposal_standing(const struct uli_proposal *proposal);
/* The decision of a READY proposal. */
void uli_proposal_form(
    const struct uli_proposal *proposal, struct uli_decision *decision_p);

#endif
