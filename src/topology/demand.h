/* SPDX-License-Identifier: Apache-2.0
 *
 * What an exchange has to move, as counts: how many tokens each rank holds and
 * how many bytes of a token each rank reads, so that rank i sends rank j
 * rows_i times what j reads. Kept as counts, not as a matrix of pairs, so that
 * 4,096 ranks cost no more than 4,096 entries.
 *
 * Ranks of a node need not be consecutive, nor nodes equal: a rank's place is
 * its position among the ranks of its node, in rank order.
 */
#ifndef ULI_TOPOLOGY_DEMAND_H
#define ULI_TOPOLOGY_DEMAND_H

#include "topology/model.h"
#include "ulyx/types.h"

enum { ULI_DEMAND_RANKS_MAX = 1 << 17 };

/* Bytes are those of one token, all batches. */
struct uli_demand {
    int32_t nranks, nodes;
    int32_t ranks_per_node;     /* of the largest node */
    enum uli_model_class local; /* between ranks of a node */
    bool one_machine;           /* nodes share machines: they are made up */
    int32_t *node, *place;      /* [nranks] */
    int32_t *first, *members;   /* [nodes + 1], [nranks]: the ranks of node n
                                 * are members[first[n] .. first[n + 1]) */
    int64_t *rows;              /* [nranks] tokens that the rank holds */
    int64_t *own_bytes;         /* [nranks] of heads that it alone of its node
                                 * reads */
    int64_t *shared_bytes;      /* [nranks] of KV heads that others of its node
                                 * read too */
    int64_t *node_shared_bytes; /* [nodes]: those, each once */
};

struct uli_demand_shape {
    int64_t nodes, ranks_per_node, seq, batch, heads, kv_heads, dim;
    int64_t element_bytes;
    enum uli_model_class local;
};

/* Ranks on nodes as node_of[nranks] says (0 .. nodes - 1, each with a rank);
 * all counts are 0, for the caller to fill in. Errors: NO_MEMORY. */
ulyx_status_t uli_demand_create_empty(int32_t nranks, int32_t nodes,
    const int32_t *node_of, struct uli_demand *demand_p);

/* q, k and v of that shape, ranks numbered node by node, tokens and heads
 * balanced as plans do it.
 * Errors: INVALID_ARGUMENT naming the number that is out of range, NO_MEMORY.
 */
ulyx_status_t uli_demand_create(
    const struct uli_demand_shape *shape, struct uli_demand *demand_p);
void uli_demand_destroy(struct uli_demand *demand);

static inline int32_t
uli_demand_node_ranks(const struct uli_demand *demand, int32_t node)
{
    return demand->first[node + 1] - demand->first[node];
}

/* The most that a rank must receive from others, each byte once. */
double uli_demand_received(const struct uli_demand *demand);

/* Bytes a token that come to a node for rank r to keep or hand on, and the
 * part of `to`'s shared heads that `from`, of the same node, hands it. */
int64_t uli_demand_carried(const struct uli_demand *demand, int32_t r);
int64_t uli_demand_handed(
    const struct uli_demand *demand, int32_t from, int32_t to);

#endif
