/* SPDX-License-Identifier: Apache-2.0
 *
 * What crosses from one node to another in a direction, for the hierarchical
 * schedule: no I/O, no strides, no pointers. Equal on all ranks that compute
 * it.
 *
 * Node A sends node B as many streams as B has ranks: rail j begins at local
 * rank j mod (size of A) and ends at local rank j. A stream is a sequence of
 * items, each sent once whatever the number of its readers:
 *   copy   a rectangle of one rank of A that ranks of B read
 *   sum    the share of A in a sum: the partials of one rank of A, or the
 *          sum of several ranks' partials, in rank order, as accumulators
 *          (fp32, or fp64)
 * Bytes that one rank reads come on the rail of that rank. Bytes that several
 * ranks of B read are divided by rows into equal parts, one per rail, so that
 * no NIC of B carries more than another. All copies come before all sums. Sums
 * come in the same order from every node, B itself included (A = B: shares of
 * B's ranks in sums in which other nodes have shares too).
 *
 * In a stream an item's elements lie dense, [batch][row][head][element]. Copies
 * follow each other without gaps; a sum begins at a multiple of its unit, so
 * that no chunk ends within an element.
 */
#ifndef ULI_COLLECTIVES_HIER_LAYOUT_HIER_H
#define ULI_COLLECTIVES_HIER_LAYOUT_HIER_H

#include "collectives/layout/layout.h"

/* Which rank is on which node. */
struct uli_hier_nodes {
    int32_t nranks, nnodes;
    int32_t *node;  /* [nranks] */
    int32_t *local; /* [nranks]: index among the ranks of its node */
    int32_t *first; /* [nnodes + 1]: index in `ranks` of a node's first */
    int32_t *ranks; /* [nranks] by node, in rank order */
};

/* node[nranks]: the node of each rank, 0 .. nnodes - 1, none empty. Errors:
 * NO_MEMORY. */
ulyx_status_t uli_nodes_create(int32_t nranks, int32_t nnodes,
    const int32_t *node, struct uli_hier_nodes *nodes_p);
void uli_nodes_destroy(struct uli_hier_nodes *nodes);

static inline int32_t
uli_nodes_size(const struct uli_hier_nodes *nodes, int32_t node)
{
    return nodes->first[node + 1] - nodes->first[node];
}
static inline int32_t
uli_nodes_rank(const struct uli_hier_nodes *nodes, int32_t node, int32_t local)
{
    return nodes->ranks[nodes->first[node] + local];
}

/* Has the move a source on another node than its destination? Then the whole
 * move belongs to the hierarchical schedule. */
bool uli_nodes_cross(
    const struct uli_hier_nodes *nodes, const struct uli_move *move);

struct uli_hier_item {
    int32_t tensor, rail;
    bool sum;
    bool shared; /* a sum that all ranks of B have at the same place */
    int64_t batches, rows, heads;
    int64_t at, bytes; /* in the stream of the rail */
    int64_t unit;      /* bytes of an element there */
    int32_t ngivers;   /* ranks of A, in rank order */
    const struct uli_place *givers;
    int32_t nreaders; /* ranks of B, in rank order */
    const struct uli_place *readers;
};

/* The item's arrays are valid during the visit. */
typedef void (*uli_hier_fn)(void *context, const struct uli_hier_item *item);

struct uli_hier_bytes {
    int64_t wire;   /* of all items */
    int64_t direct; /* that A's ranks would send to B's one by one */
};

/* Visits the items of all rails from node `from` to node `to`, in stream order.
 * rail_bytes_p[size of `to`] becomes the length of each stream. Errors:
 * NO_MEMORY, after which some items may have been visited. */
ulyx_status_t uli_hier_each_item(const struct uli_layout *layout,
    const struct uli_hier_nodes *nodes, ulyx_direction_t direction,
    int32_t from, int32_t to, uli_hier_fn visit, void *context,
    int64_t *rail_bytes_p, struct uli_hier_bytes *bytes_p);

#endif
