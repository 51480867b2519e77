/* SPDX-License-Identifier: Apache-2.0
 *
 * What an exchange has to move, as counts: how many tokens each rank holds, and
 * how many bytes of a token lie at each rank on the head side. What passes
 * between two ranks is a product with one factor from each rank:
 *
 *     SEQ_TO_HEAD          i to j   rows_i    reads_j
 *     SEQ_TO_HEAD_ADJOINT  j to i   rows_i    partials_j
 *     HEAD_TO_SEQ          j to i   rows_i    gives_j
 *     HEAD_TO_SEQ_ADJOINT  i to j   rows_i    gives_j
 *
 * reads: all heads that j has; partials: the same heads in the type in which
 * they are summed; gives: the heads of which j is the lowest holder. Kept as
 * counts, not as a matrix of pairs, so that 4,096 ranks cost no more than 4,096
 * entries.
 *
 * Ranks of a node need not be consecutive, nor nodes equal: a rank's place is
 * its position among the ranks of its node, in rank order.
 */
#ifndef ULI_TOPOLOGY_MODEL_DEMAND_H
#define ULI_TOPOLOGY_MODEL_DEMAND_H

#include "topology/model/model.h"
#include "ulyx/reshuffle.h"
#include "ulyx/types.h"

enum { ULI_DEMAND_RANKS_MAX = 1 << 17 };

/* One side of the products: bytes of a token (all batches), or tokens. */
struct uli_holding {
    int64_t *own;         /* [nranks] of what the rank alone of its node has */
    int64_t *shared;      /* [nranks] of what others of its node have too */
    int64_t *node_shared; /* [nodes]: of that, each once */
};

struct uli_demand {
    int32_t nranks, nodes;
    int32_t ranks_per_node;     /* of the largest node */
    enum uli_model_class local; /* between ranks of a node */
    bool one_machine;           /* some nodes are on one machine (simulated
                                 * nodes) */
    int32_t *node, *place;      /* [nranks] */
    int32_t *first, *members;   /* [nodes + 1], [nranks]: the ranks of node n
                                 * are members[first[n] .. first[n + 1]) */
    uint64_t directions;  /* bits 1 << direction: which it is used for, each as
                           * often as the others */
    int64_t flight_bytes; /* the most under way to a rank; 0: the setting's */
    bool sums;            /* SEQ_TO_HEAD_ADJOINT adds partials */
    int64_t *rows;        /* [nranks] tokens that the rank holds */
    struct uli_holding reads, partials;
    int64_t *gives; /* [nranks] */
    int64_t *none;  /* zeros */
};

struct uli_demand_shape {
    int64_t nodes, ranks_per_node, seq, batch, heads, kv_heads, dim;
    int64_t element_bytes;
    enum uli_model_class local;
};

/* Ranks on nodes by node_of[nranks] (0 .. nodes - 1, each with a rank); all
 * counts are 0, for the caller to fill in, and it is used for SEQ_TO_HEAD.
 * Errors: NO_MEMORY. */
ulyx_status_t uli_demand_create_empty(int32_t nranks, int32_t nodes,
    const int32_t *node_of, struct uli_demand *demand_p);

/* q, k and v of that shape, ranks numbered node by node, tokens and heads
 * balanced as plans do it, for all four directions.
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

/* The factors of a direction: rank i sends rank j all of from_i times all of
 * to_j. What a node's ranks share leaves the node once (partials are added
 * first) and arrives at a node once. The arrays are the demand's. */
struct uli_factors {
    struct uli_holding from, to;
};
struct uli_factors uli_demand_factors(
    const struct uli_demand *demand, ulyx_direction_t direction);

static inline int64_t
uli_holding_all(const struct uli_holding *holding, int32_t r)
{
    return holding->own[r] + holding->shared[r];
}

/* The bytes that arrive at a node for rank r to keep or hand on; and the part
 * of these that `from` hands to `to` of the same node. `holding` is a
 * direction's `to`. */
int64_t uli_demand_carried(const struct uli_demand *demand,
    const struct uli_holding *holding, int32_t r);
int64_t uli_demand_handed(const struct uli_demand *demand,
    const struct uli_holding *holding, int32_t from, int32_t to);

#endif
