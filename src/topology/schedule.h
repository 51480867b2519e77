/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange from sequence shards to head shards as schedules for the
 * model: direct, pairwise, hierarchical. Sizes come from counts: rank i sends
 * rank j rows_i times what j reads of a token. Ranks are numbered node by
 * node; rank r is local rank r mod g of node r / g.
 *
 *     direct    every rank to every other, all at once
 *     pairwise  the same messages, at most ULI_PAIRWISE_LIMIT at a time
 *     hier      gather: inside the node, to the local rank that has the
 *               destination's local number; wire: one message to each other
 *               node, by that rank; spread: inside the destination's node.
 *               KV heads that several ranks of a node read come once, cut
 *               into equal parts over its ranks, so that no NIC carries more
 *               than another, and spread hands the parts on.
 */
#ifndef ULI_TOPOLOGY_SCHEDULE_H
#define ULI_TOPOLOGY_SCHEDULE_H

#include <stdio.h>
#include "topology/model.h"
#include "ulyx/types.h"

enum { ULI_PAIRWISE_LIMIT = 8, ULI_EXCHANGE_RANKS_MAX = 1 << 17 };

enum uli_algo { ULI_ALGO_DIRECT, ULI_ALGO_PAIRWISE, ULI_ALGO_HIER, ULI_ALGOS };

/* Arrays of nranks entries but for the last; bytes are those of one token, all
 * batches. */
struct uli_exchange {
    int32_t nodes, ranks_per_node, nranks;
    enum uli_model_class local; /* between ranks of a node */
    int64_t *rows;              /* tokens that the rank holds */
    int64_t *own_bytes;         /* of heads that it alone of its node reads */
    int64_t *shared_bytes;      /* of KV heads that others of its node read
                                 * too */
    int64_t *node_shared_bytes; /* [nodes]: those, each once */
};

struct uli_exchange_shape {
    int64_t nodes, ranks_per_node, seq, batch, heads, kv_heads, dim;
    int64_t element_bytes;
    enum uli_model_class local;
};

/* q, k and v of that shape, tokens and heads balanced as plans do it.
 * Errors: INVALID_ARGUMENT naming the number that is out of range, NO_MEMORY.
 */
ulyx_status_t uli_exchange_create(
    const struct uli_exchange_shape *shape, struct uli_exchange *exchange_p);
void uli_exchange_destroy(struct uli_exchange *exchange);

/* The most that a rank must receive from others, each byte once. */
double uli_exchange_received(const struct uli_exchange *exchange);

const char *uli_algo_name(enum uli_algo algo);
/* False when it is not one of the names. */
bool uli_algo_parse(const char *name, enum uli_algo *algo_p);

/* Bytes a token that come to a node for rank r to keep or hand on, and the
 * part of `to`'s shared heads that `from`, of the same node, hands it. */
int64_t uli_exchange_carried(const struct uli_exchange *exchange, int32_t r);
int64_t uli_exchange_handed(
    const struct uli_exchange *exchange, int32_t from, int32_t to);

/* The schedule, with the flows of its most loaded rank, in O(nranks).
 * Errors: NO_MEMORY. */
ulyx_status_t uli_schedule_build(const struct uli_exchange *exchange,
    const struct uli_model *model, enum uli_algo algo, int32_t chunks,
    struct uli_schedule *schedule_p);

/* Every message of the schedule in GOAL, the input of LogGOPSim and ATLAHS.
 * Errors: INVALID_ARGUMENT for more than 2^24 messages, NO_MEMORY, SYSTEM. */
ulyx_status_t uli_schedule_write_goal(
    const struct uli_exchange *exchange, enum uli_algo algo, FILE *file);

#endif
