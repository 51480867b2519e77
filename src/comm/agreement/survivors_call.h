/* SPDX-License-Identifier: Apache-2.0
 *
 * One call for a decision, shared by survivors.c, which waits,
 * survivors_vote.c, which works on the votes of this node, and
 * survivors_message.c, which exchanges messages with other nodes.
 *
 * Locks: fields that hooks of the network write (answers, the decision
 * received, when a node is queried next) are under remote->lock while
 * remote->deciding points to the call.
 */
#ifndef ULI_COMM_AGREEMENT_SURVIVORS_CALL_H
#define ULI_COMM_AGREEMENT_SURVIVORS_CALL_H

#include "comm/remote/remote_internal.h"
#include "comm/agreement/survivors.h"

struct uli_queried_node {
    int64_t next_ns;  /* when the node is queried again */
    int64_t pause_ns; /* between that time and the next */
    uint32_t turn;    /* which of its ranks is queried next */
    bool lives;       /* at least one of its ranks lives */
};

struct uli_survivors_call {
    ulyx_comm_t *comm;
    struct uli_proposal proposal;
    struct uli_queried_node *nodes; /* [nnodes] */
    uli_deadline_t exclude_at; /* then ranks that have not come are left out */
    uli_deadline_t turns;      /* from exclude_at to here the ranks propose in
                                * turn */
    uli_deadline_t deadline;
    uli_deadline_t retry; /* when a refused proposer tries again */
    bool excludes;        /* exclude_at is over */
    bool has_received;
    struct uli_decision received; /* received decision of the highest ballot */
};

/* ---- survivors_vote.c ---------------------------------------------------- */

/* The vote of a rank of this node. Any thread, as all functions of
 * survivors_vote.c. */
uint64_t uli_survivors_vote(const ulyx_comm_t *comm, int32_t rank);
/* Queries a vote of this node. *promised_p: the ballot that the vote had
 * before. */
enum uli_answer uli_survivors_query_vote(ulyx_comm_t *comm, int32_t rank,
    uint32_t instance, uint32_t ballot, bool exclude,
    struct uli_opinion *opinion_p, uint32_t *promised_p);
/* The decision that a rank of this node shows; false: the vote no longer shows
 * it. */
bool uli_survivors_shown(ulyx_comm_t *comm, int32_t rank, uint32_t instance,
    struct uli_decision *decision_p);

/* ---- survivors.c --------------------------------------------------------- */

/* Keeps a received decision if it is of the call's instance and of the highest
 * ballot so far. Under the lock. */
void uli_survivors_receive_decision(
    struct uli_survivors_call *call, const struct uli_decision *decision);

/* ---- survivors_message.c ------------------------------------------------- */

/* From here on hooks of the network find this call; NULL: they find none. */
void uli_survivors_listen(ulyx_comm_t *comm, struct uli_survivors_call *call);
/* Sends to rank `to` that this rank has come. */
void uli_survivors_announce(struct uli_survivors_call *call, int32_t to);
/* Every node is due for a query now. Under the lock. */
void uli_survivors_query_soon(struct uli_survivors_call *call);
/* Queries each remote node whose time has come. */
void uli_survivors_query_nodes(struct uli_survivors_call *call, int64_t now_ns);
/* Sends the decision to all remote ranks that live; members: to members
 * only. */
void uli_survivors_send_decision(
    ulyx_comm_t *comm, const struct uli_decision *decision, bool members);

#endif
