/* SPDX-License-Identifier: Apache-2.0
 *
 * Agreement over several nodes. Within a node ranks read each other's posts in
 * their control blocks. The lowest rank of a node, its leader, reads the posts
 * of its node and exchanges posts with the other leaders in Bruck's steps: in
 * step k = 0 .. ceil(log2 N) - 1, node i sends the posts of nodes i, i + 1, ...
 * (min(2^k, N - 2^k) nodes, modulo N) to node i - 2^k, so that every post
 * arrives at every node once. Posts of other nodes go into the leader's table,
 * which the node's other ranks map and read in place of control blocks.
 *
 * Buffers: n mod 2, as in rounds.h. A post of round n + 2 exists only when
 * every rank has posted n + 1, and so has read all of round n.
 *
 * Messages per round: ceil(log2 N) from each leader (more where the posts
 * exceed ULI_NET_MESSAGE_BYTES), none from other ranks.
 */
#ifndef ULI_COMM_REMOTE_NODES_H
#define ULI_COMM_REMOTE_NODES_H

#include "comm/comm.h"

struct uli_nodes {
    int32_t *order; /* [nranks], by node, then by rank */
    int32_t *first; /* [nnodes + 1]: node j is order[first[j] .. first[j+1]) */
    int32_t mine;   /* this rank's node */
    int64_t chunk_bytes;  /* of a payload in one round */
    int64_t stride_bytes; /* of a post in the table */
    /* [2][nranks] posts at stride_bytes: at the leader its own memory, else as
     * mapped. NULL: not known. */
    unsigned char *table;
    struct uli_arena_block block; /* at the leader: the table's memory */

    /* The leader's exchange (owner): */
    uint64_t round;
    int32_t distance;      /* 2^k of the next step */
    int32_t present_nodes; /* number of nodes mine, mine + 1, ... that are
                            * complete */
    int32_t present_ranks; /* number of ranks of the next node that are here */

    /* Written by the hook: how many posts of other nodes have arrived, for two
     * rounds. */
    uint64_t came_round[2];
    int32_t came[2];
};

/* Fills order, first and the sizes. Errors: NO_MEMORY. */
ulyx_status_t uli_nodes_open(ulyx_comm_t *comm, struct uli_nodes *nodes);
void uli_nodes_close(struct uli_nodes *nodes);
/* At a leader: makes the table and gives it to the node. */
ulyx_status_t uli_nodes_share(ulyx_comm_t *comm);

/* The rank's post of the round, or an older one; NULL: the table is not known
 * yet. */
const struct uli_agree_post *uli_nodes_post(
    ulyx_comm_t *comm, int32_t rank, uint64_t round);
/* At a leader: sends the posts of the round that can be sent; true when all are
 * sent. True at other ranks. */
bool uli_nodes_drive(ulyx_comm_t *comm, uint64_t round);

/* Sends a query to the leader of each node whose posts are missing: which ranks
 * of the node have come? all: sends the query to every missing rank instead. */
void uli_nodes_query(ulyx_comm_t *comm, uint64_t round, bool all);
/* Whether the rank is known to have come to the round. */
bool uli_nodes_came(const ulyx_comm_t *comm, int32_t rank, uint64_t round);
/* Whether the leader of the rank's node has answered for this round. */
bool uli_nodes_answered(const ulyx_comm_t *comm, int32_t rank, uint64_t round);
/* The rank for which a missing rank waits, as its node has answered; -1: not
 * known. */
int32_t uli_nodes_awaits(const ulyx_comm_t *comm, int32_t rank, uint64_t round);
/* Where all ranks have come but not all posts are here: the leaders that do not
 * pass posts on. None where all posts are here. For the thread that agrees. */
struct uli_late uli_nodes_relays(ulyx_comm_t *comm, uint64_t round);

#endif
