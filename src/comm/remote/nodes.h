/* SPDX-License-Identifier: Apache-2.0
 *
 * Agreement over several nodes. Within a node ranks read each other's posts in
 * their control blocks. The lowest rank of a node, its leader, gathers those of
 * its node and exchanges them with the other leaders in Bruck's steps: in step
 * k = 0 .. ceil(log2 N) - 1 node i sends what it has of nodes i, i + 1, ...
 * (min(2^k, N - 2^k) of them, modulo N) to node i - 2^k, so that every post
 * comes to every node once. What comes in goes into the leader's table, which
 * the node's other ranks map: it takes the place of the posts that they cannot
 * see.
 *
 * Buffers: as in rounds.h, n mod 2. A post of round n + 2 exists only when
 * everybody has posted n + 1, and so has read all of round n.
 *
 * Messages a round: ceil(log2 N) for each leader (more when what they carry
 * exceeds ULI_NET_MESSAGE_BYTES), none for the others.
 */
#ifndef ULI_COMM_REMOTE_NODES_H
#define ULI_COMM_REMOTE_NODES_H

#include "comm/comm.h"

struct uli_nodes {
    int32_t *order; /* [nranks], by node, then by rank */
    int32_t *first; /* [nnodes + 1]: node j is order[first[j] .. first[j+1]) */
    int32_t mine;   /* my node */
    int64_t chunk_bytes;  /* of a payload in one round */
    int64_t stride_bytes; /* of a post in the table */
    /* [2][nranks] posts; the leader's own, or as mapped. NULL: not known. */
    unsigned char *table;
    struct uli_arena_block block; /* of the leader */

    /* The leader's exchange: (owner) */
    uint64_t round;
    int32_t distance;      /* 2^k of the next step */
    int32_t present_nodes; /* of mine, mine + 1, ...: have come whole */
    int32_t present_ranks; /* of the next node */

    /* By the hook: posts of other nodes that have come, of two rounds. */
    uint64_t came_round[2];
    int32_t came[2];
};

/* Who is where. Errors: NO_MEMORY. */
ulyx_status_t uli_nodes_open(ulyx_comm_t *comm, struct uli_nodes *nodes);
void uli_nodes_close(struct uli_nodes *nodes);
/* The leader's table, given to its node. */
ulyx_status_t uli_nodes_share(ulyx_comm_t *comm);

/* The rank's post of the round or an older one; NULL: not known yet. */
const struct uli_agree_post *uli_nodes_post(
    ulyx_comm_t *comm, int32_t rank, uint64_t round);
/* At a leader: sends what can be sent of the round; true when all was. */
bool uli_nodes_drive(ulyx_comm_t *comm, uint64_t round);

/* Before a deadline: asks the leaders of nodes whose posts are missing who of
 * their node has come, or, with all, every rank that is missing still. */
void uli_nodes_ask(ulyx_comm_t *comm, uint64_t round, bool all);
/* Whether the rank is known to have come to the round. */
bool uli_nodes_came(const ulyx_comm_t *comm, int32_t rank, uint64_t round);
/* Has a rank of its node that answers for all of them said who has come? */
bool uli_nodes_told(const ulyx_comm_t *comm, int32_t rank, uint64_t round);
/* Whom the rank waits for instead, as its node has answered; -1: not known. */
int32_t uli_nodes_awaits(const ulyx_comm_t *comm, int32_t rank, uint64_t round);
/* All ranks have come, but not all posts: the leaders that do not pass them on.
 * Nobody, where all posts are here. By the thread that agrees. */
struct uli_late uli_nodes_relays(ulyx_comm_t *comm, uint64_t round);

#endif
