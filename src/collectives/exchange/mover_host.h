/* SPDX-License-Identifier: Apache-2.0
 *
 * The mover of host memory by the exchange engine (exchange.h): what its files
 * share.
 */
#ifndef ULI_COLLECTIVES_EXCHANGE_MOVER_HOST_H
#define ULI_COLLECTIVES_EXCHANGE_MOVER_HOST_H

#include "collectives/exchange/mover.h"

struct uli_schedule_ops;

/* Arena blocks of a plan; address NULL = none. */
struct uli_plan_blocks {
    struct uli_arena_block
        pair_flags; /* per rank: a uli_pair_flags; then two eager slots */
    struct uli_arena_block rings; /* small ones, of exchange->rings */
    struct uli_arena_block
        bounces; /* count of puts; then per rank: pair flags, two eager slots */
};

struct uli_host_state {
    struct uli_mover_state state; /* first */
    struct uli_plan_blocks blocks;
    struct uli_ring_use ring_use;            /* of the communicator's pool */
    const struct uli_schedule_ops *schedule; /* the exchange's, and its state */
    void *schedule_state;
    bool holds_thread; /* the library's, until the plan leaves */
    int32_t nranks;
    bool shares[]; /* [nranks]: ranks that may post until they have left */
};

static inline struct uli_host_state *
uli_host_of(const ulyx_plan_t *plan)
{
    return (struct uli_host_state *)plan->state;
}

/* ---- arena blocks (mover_host_blocks.c) ---------------------------------- */

/* Before the agreement: allocates pair flags, eager slots, small rings and
 * bounce buffers, and sizes what calls will lease from the pool. */
ulyx_status_t uli_plan_take_blocks(ulyx_plan_t *plan, int64_t bytes_in_flight);
/* After the agreement: finds the blocks' places, here and at rank p. */
ulyx_status_t uli_plan_connect(ulyx_plan_t *plan, int32_t p);
/* With all verbs known: frees the small rings if no verb needs them, else joins
 * the pool. Errors: as uli_ring_pool_join. */
ulyx_status_t uli_plan_settle_rings(ulyx_plan_t *plan);
void uli_plan_free_blocks(
    ulyx_comm_t *comm, const struct uli_plan_blocks *blocks);
/* Has p closed the plan, and have all of its posts arrived? */
bool uli_plan_closed_by(const struct uli_plan_blocks *blocks, int32_t p);
/* No put reads from the blocks any more. */
bool uli_plan_blocks_idle(const struct uli_plan_blocks *blocks);

/* ---- strides of a call (mover_host_strides.c) ---------------------------- */

/* Before a call: plan->call has this rank's strides. Allocates nothing. */
void uli_host_use_strides(ulyx_plan_t *plan, ulyx_direction_t direction);
/* Hooks of the exchange. */
void uli_host_send_strides(
    struct uli_exchange *exchange, int32_t p, struct uli_record *record);
bool uli_host_take_strides(
    struct uli_exchange *exchange, int32_t p, const struct uli_record *record);
bool uli_host_refresh_sums(struct uli_exchange *exchange);

#endif
