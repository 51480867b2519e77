/* SPDX-License-Identifier: Apache-2.0
 *
 * A rounds: numbered rounds of posts over the ranks' control blocks. Round
 * n lies in buffer n mod 2 of each rank's own block; nobody overwrites what a
 * slower rank still reads, because posting n + 1 says that one has read all
 * of round n, and n + 2 is posted only after everybody's n + 1.
 *
 * Posts of other nodes are copies: of the agreement rounds in the table of the
 * node's leader (nodes.h), of the shrink rounds, whose rounds must do without
 * any rank that may be lost, in the replica of each remote peer's block, which
 * the peer's own messages fill in.
 */
#ifndef ULI_COMM_AGREEMENT_ROUNDS_H
#define ULI_COMM_AGREEMENT_ROUNDS_H

#include "comm/comm.h"

enum uli_rounds { ULI_ROUNDS_AGREE, ULI_ROUNDS_SHRINK };

struct uli_agree_post *uli_rounds_post(
    struct uli_control *control, enum uli_rounds rounds, uint64_t round);

/* The most that a post of the rounds carries; equal on all ranks. */
int64_t uli_rounds_chunk(const ulyx_comm_t *comm, enum uli_rounds rounds);

/* The rank's post of the round, or what is in its place; NULL: not known. */
const struct uli_agree_post *uli_rounds_read(
    ulyx_comm_t *comm, enum uli_rounds rounds, int32_t rank, uint64_t round);

/* Fills my post of the round from the header and bytes <= uli_rounds_chunk of
 * payload, and rings all peers; on the shrink rounds sends it to remote ones.
 */
void uli_rounds_publish(ulyx_comm_t *comm, enum uli_rounds rounds,
    uint64_t round, const struct uli_agree_post *header, const void *payload,
    int64_t bytes);

bool uli_rounds_has(
    ulyx_comm_t *comm, enum uli_rounds rounds, int32_t rank, uint64_t round);

/* Whom an agreement round waits for: ranks that have not come to it, or those
 * whom these wait for in turn; where all have come, the first ranks of nodes
 * that do not pass posts on. Names somebody unless all posts are here. By the
 * thread that agrees. */
struct uli_late uli_rounds_late(ulyx_comm_t *comm, uint64_t round);

#endif
