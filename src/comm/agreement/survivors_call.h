/* SPDX-License-Identifier: Apache-2.0
 *
 * One call for a decision, between survivors.c, which waits, survivors_vote.c,
 * which works on the votes of this node, and survivors_message.c, which speaks
 * with other nodes.
 *
 * Locks: what hooks of the net write (answers, what was heard, when a node is
 * asked next) is under remote->lock while remote->deciding points to the call.
 */
#ifndef ULI_COMM_AGREEMENT_SURVIVORS_CALL_H
#define ULI_COMM_AGREEMENT_SURVIVORS_CALL_H

#include "comm/remote/remote_internal.h"
#include "comm/agreement/survivors.h"

struct uli_asked_node {
    int64_t next_ns;  /* when it is asked again */
    int64_t pause_ns; /* between that and the time after */
    uint32_t turn;    /* which of its ranks */
    bool lives;       /* one of its ranks at least */
};

struct uli_survivors_call {
    ulyx_comm_t *comm;
    struct uli_proposal proposal;
    struct uli_asked_node *nodes; /* [nnodes] */
    uli_deadline_t patience; /* from then on who has not come is left out */
    uli_deadline_t turns;    /* from patience to here ranks take over */
    uli_deadline_t deadline;
    uli_deadline_t retry; /* when one that was refused proposes again */
    bool excludes;        /* patience is over */
    bool has_heard;
    struct uli_decision heard; /* of the highest ballot */
};

/* ---- survivors_vote.c ---------------------------------------------------- */

/* The vote of a rank of this node. Any thread, as the others of this file. */
uint64_t uli_survivors_vote(const ulyx_comm_t *comm, int32_t rank);
/* Asks a vote of this node. *promised_p: its ballot before. */
enum uli_answer uli_survivors_ask(ulyx_comm_t *comm, int32_t rank,
    uint32_t instance, uint32_t ballot, bool exclude,
    struct uli_opinion *opinion_p, uint32_t *promised_p);
/* The decision that a rank of this node shows; false: it shows it no more. */
bool uli_survivors_shown(ulyx_comm_t *comm, int32_t rank, uint32_t instance,
    struct uli_decision *decision_p);

/* ---- survivors.c --------------------------------------------------------- */

/* Keeps it if it is the call's and of the highest ballot. Under the lock. */
void uli_survivors_hear(
    struct uli_survivors_call *call, const struct uli_decision *decision);

/* ---- survivors_message.c ------------------------------------------------- */

/* Hooks of the net find the call from here on; NULL: no longer. */
void uli_survivors_listen(ulyx_comm_t *comm, struct uli_survivors_call *call);
/* Tells the rank that this one has come. */
void uli_survivors_announce(struct uli_survivors_call *call, int32_t to);
/* All nodes' time has come. Under the lock. */
void uli_survivors_ask_soon(struct uli_survivors_call *call);
/* Asks those remote nodes whose time has come. */
void uli_survivors_ask_nodes(struct uli_survivors_call *call, int64_t now_ns);
/* The decision, to all remote members that live, or to everybody. */
void uli_survivors_tell(
    ulyx_comm_t *comm, const struct uli_decision *decision, bool members);

#endif
