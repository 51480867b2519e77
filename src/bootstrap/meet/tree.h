/* SPDX-License-Identifier: Apache-2.0
 *
 * A tree of streams for the gathers of many ranks. The star stays open: over it
 * the ranks exchange their addresses, and its root, which records missing and
 * dead ranks, reports failures of the tree.
 *
 * Rank r is the root of the subtree [r, end). The ranks after r are cut into at
 * most ULI_TREE_ARITY equal parts; the first rank of each part is a child of r.
 * So the records of a subtree are contiguous in the table.
 *
 * In a gather the records go up the tree and the table goes down: 2 (P - 1)
 * messages in all, at most 2 (ULI_TREE_ARITY + 1) at a rank, in 2 ceil(log_8 P)
 * steps. The star's root sends the table P times.
 */
#ifndef ULI_BOOTSTRAP_MEET_TREE_H
#define ULI_BOOTSTRAP_MEET_TREE_H

#include "bootstrap/bootstrap.h"

enum { ULI_TREE_ARITY = 8 };

struct uli_tree_place {
    int32_t parent; /* -1: rank 0 */
    int32_t end;
    int32_t nchildren;
    int32_t first[ULI_TREE_ARITY + 1]; /* child i: [first[i], first[i + 1]) */
};
void uli_tree_place(
    int32_t nranks, int32_t rank, struct uli_tree_place *place_p);

/* Takes over the star, whose descriptor is fd. *bootstrap_p is a bootstrap that
 * gathers by a tree; or the star itself, if there are few ranks, or all are on
 * one node (fd is a Unix socket). ports: where the ranks listen. Without memory
 * the star is closed. Errors: NO_MEMORY. */
ulyx_status_t uli_bootstrap_open_tree(struct uli_bootstrap *star, int fd,
    struct uli_port_range ports, struct uli_bootstrap **bootstrap_p);

/* For tests: the least number of ranks for which there is a tree. */
void uli_tree_set_least(int32_t nranks);

#endif
