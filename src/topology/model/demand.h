/* SPDX-License-Identifier: Apache-2.0
 *
 * What an exchange has to move, as counts: how many tokens each rank holds, and
 * how many bytes of a token each rank has on the head side. The bytes that go
 * from one rank to another are a product with one factor from each rank:
 *
 *     SEQ_TO_HEAD          i to j   rows_i    reads_j
 *     SEQ_TO_HEAD_ADJOINT  j to i   rows_i    partials_j
 *     HEAD_TO_SEQ          j to i   rows_i    gives_j
 *     HEAD_TO_SEQ_ADJOINT  i to j   rows_i    gives_j
 *
 * reads: all heads that j has; partials: the same heads in the type in which
 * they are summed; gives: the heads of which j is the lowest holder. The demand
 * has counts, not a matrix of pairs, so that 4,096 ranks need only arrays of
 * 4,096 entries.
 *
 * The ranks of a node need not be consecutive, and nodes may differ in size. A
 * rank's place is its position among the ranks of its node, in rank order.
 */
#ifndef ULI_TOPOLOGY_MODEL_DEMAND_H
#define ULI_TOPOLOGY_MODEL_DEMAND_H

#include "topology/model/model.h"
#include "ulyx/reshuffle.h"
#include "ulyx/types.h"

enum { ULI_DEMAND_RANKS_MAX = 1 << 17 };

/* The factors of one side: bytes of a token (all batches), or tokens. */
struct uli_holding {
    int64_t *own;         /* [nranks] what no other rank of the node has */
    int64_t *shared;      /* [nranks] what other ranks of the node have too */
    int64_t *node_shared; /* [nodes] what is shared in a node, counted once */
};

struct uli_demand {
    int32_t nranks, nodes;
    int32_t ranks_per_node;     /* of the largest node */
    enum uli_model_class local; /* link between the ranks of a node */
    bool one_machine;           /* some nodes are on one machine (simulated
                                 * nodes) */
    int32_t *node, *place;      /* [nranks] */
    int32_t *first, *members;   /* [nodes + 1], [nranks]: the ranks of node n
                                 * are members[first[n] .. first[n + 1]) */
    uint64_t directions;  /* bits (1 << direction) for which the exchange is
                           * used, each equally often */
    int64_t flight_bytes; /* most bytes in flight to a rank; 0: the setting's */
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

/* Makes a demand whose ranks are on the nodes node_of[nranks] (0 .. nodes - 1;
 * each node has a rank). All counts are 0, for the caller to fill in; the only
 * direction is SEQ_TO_HEAD.
 * Errors: NO_MEMORY. */
ulyx_status_t uli_demand_create_empty(int32_t nranks, int32_t nodes,
    const int32_t *node_of, struct uli_demand *demand_p);

/* Makes the demand of q, k and v of a shape, for all four directions. Ranks are
 * numbered node by node; tokens and heads are balanced as in plans.
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

/* The factors of a direction: rank i sends to rank j (own + shared) of `from`
 * at i times (own + shared) of `to` at j. With hier, bytes that ranks of a node
 * share leave the node once (partials are added before) and arrive at a node
 * once. The arrays belong to the demand. */
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

/* uli_demand_carried: the factor of what arrives from other nodes at rank r,
 * which keeps it or hands it on. uli_demand_handed: the part of it that rank
 * `from` hands to rank `to` of the same node. `holding` is the `to` of a
 * direction. */
int64_t uli_demand_carried(const struct uli_demand *demand,
    const struct uli_holding *holding, int32_t r);
int64_t uli_demand_handed(const struct uli_demand *demand,
    const struct uli_holding *holding, int32_t from, int32_t to);

#endif
