/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbered rounds of posts in the ranks' control blocks. The post of round n
 * lies in buffer n mod 2 of each rank's own block. No rank overwrites a post
 * that a slower rank still reads: a rank that posts n + 1 has read all of round
 * n, and a rank posts n + 2 only after it has read n + 1 of every rank.
 *
 * Posts of other nodes are copies. Those of the agreement rounds lie in the
 * table of this node's leader (nodes.h). Those of the shrink rounds, which must
 * not depend on any rank that may be lost, lie in the replica of each remote
 * peer's block, which the peer's own messages fill in.
 */
#ifndef ULI_COMM_AGREEMENT_ROUNDS_H
#define ULI_COMM_AGREEMENT_ROUNDS_H

#include "comm/comm.h"

enum uli_rounds { ULI_ROUNDS_AGREE, ULI_ROUNDS_SHRINK };

struct uli_agree_post *uli_rounds_post(
    struct uli_control *control, enum uli_rounds rounds, uint64_t round);

/* The most payload bytes of a post; equal on all ranks. */
int64_t uli_rounds_chunk(const ulyx_comm_t *comm, enum uli_rounds rounds);

/* The buffer for the rank's post of the round, which may hold an older post;
 * NULL: not known. */
const struct uli_agree_post *uli_rounds_read(
    ulyx_comm_t *comm, enum uli_rounds rounds, int32_t rank, uint64_t round);

/* Fills this rank's post of the round from the header and payload (bytes <=
 * uli_rounds_chunk), and rings all peers of the node. In the shrink rounds also
 * sends the post to remote peers.
 */
void uli_rounds_publish(ulyx_comm_t *comm, enum uli_rounds rounds,
    uint64_t round, const struct uli_agree_post *header, const void *payload,
    int64_t bytes);

bool uli_rounds_has(
    ulyx_comm_t *comm, enum uli_rounds rounds, int32_t rank, uint64_t round);

/* The ranks for which an agreement round waits: ranks that have not come to the
 * round, or the ranks for which these wait; if all have come, the leaders of
 * nodes whose posts have not arrived. Names a rank unless all posts are here.
 * For the thread that agrees. */
struct uli_late uli_rounds_late(ulyx_comm_t *comm, uint64_t round);

#endif
