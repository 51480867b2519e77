/* SPDX-License-Identifier: Apache-2.0
 *
 * How bytes go between nodes: the execution of a schedule. The engine moves
 * what pairs of ranks move directly (exchange.h); a schedule may carry some
 * moves in their place, and says how many peers pairs send to at one time.
 * Neither the engine nor the plan asks which one it is.
 *
 * Each is one row of the list (base/schedules.h): `uli_schedule_<name>`, in a
 * file of its own. schedule_direct.c: pairs do everything; pairwise is the same
 * with a limit of peers. schedule_hier.c: what crosses nodes is gathered, sent
 * once and spread (hier.h). What a schedule costs is in topology
 * (schedule_model.h).
 *
 * All entries are there; one of a schedule that has nothing to do does nothing.
 * What a schedule needs lies in exchange->schedule_state, which is NULL until
 * create has set it. Unless an entry says so, it is called by the holder of the
 * exchange's ticket, allocates nothing, waits for nobody and takes no lock.
 */
#ifndef ULI_COLLECTIVES_EXCHANGE_EXCHANGE_SCHEDULE_H
#define ULI_COLLECTIVES_EXCHANGE_EXCHANGE_SCHEDULE_H

#include "collectives/exchange/exchange.h"
#include "collectives/layout/layout.h"
#include "topology/model/schedule.h"

struct ulyx_plan;

struct uli_schedule_ops {
    /* ---- the life of a plan (mover_host.c) -------------------------------
     *
     * Has the schedule anything to do on this communicator? Where not, pairs do
     * everything, as in direct. Equal on all ranks. */
    bool (*applicable)(const ulyx_comm_t *comm);
    /* Before the agreement, with layout, strides and the chunk's size: makes
     * tables and memory, allocates, sets peer_limit and what plan->info tells
     * the others. What it has made when it fails is destroyed by destroy.
     * Errors: UNSUPPORTED, NO_MEMORY, those of arenas. */
    ulyx_status_t (*create)(struct ulyx_plan *plan);
    /* After it: finds the others' memory. Errors: INTERNAL, having failed the
     * communicator. */
    ulyx_status_t (*connect)(struct ulyx_plan *plan);
    /* The document tables have changed; allocates. A failure shows in check. */
    void (*rebuild)(struct ulyx_plan *plan);
    /* This rank's strides of a direction have changed (uli_plan_strides): its
     * boxes in their places. */
    void (*lay)(struct ulyx_plan *plan, ulyx_direction_t direction);
    /* The plan ends at this rank: tells the others. state is what the exchange
     * had, which is about to be freed. */
    void (*leave)(void *state);
    /* After leave: does nobody look at the state's memory any more? Once true,
     * it is not asked again. */
    bool (*idle)(void *state);
    /* Frees the state, which may be NULL. comm: of its arena blocks, which can
     * serve again; NULL: they go with the communicator. */
    void (*destroy)(ulyx_comm_t *comm, void *state);

    /* ---- what it carries in place of pairs (plan_build.c, plan_fill.c) --- */

    /* Is the move the schedule's? Equal on all ranks of the move. */
    bool (*carries)(
        const struct uli_exchange *exchange, const struct uli_move *move);
    /* Does it carry all that moves between rank p and this one? Then they are
     * no pair. */
    bool (*parts)(const struct uli_exchange *exchange, int32_t p);

    /* ---- a call (exchange.c) ---------------------------------------------
     *
     * May calls start at all? Errors: NO_MEMORY of an update. */
    ulyx_status_t (*check)(const struct uli_exchange *exchange);
    /* May this rank post call exchange->call, as far as the schedule's own
     * pair flags say? False only after a refusal. */
    bool (*may_post)(const struct uli_exchange *exchange);
    /* A call begins; call, direction and hash of the exchange are set. */
    void (*start)(struct uli_exchange *exchange);
    /* Moves on; true when anything has advanced. May end the operation, in
     * failure. */
    bool (*progress)(struct uli_exchange *exchange);
    /* Has it moved all that it carries? */
    bool (*ended)(const struct uli_exchange *exchange);
    /* Of a call in which everything has ended: SUCCESS, or why nothing moved,
     * by exchange->report: it names the lowest rank that something was wrong
     * with. */
    ulyx_status_t (*result)(struct uli_exchange *exchange);
    /* Tells that this rank refuses the call; after may_post. Pairs have been
     * told. */
    void (*refuse)(struct uli_exchange *exchange, ulyx_status_t status);

    /* ---- whom a call waits for (exchange_waits.c) ------------------------
     *
     * Does the call wait for rank p, beyond what pairs wait for? Not where p is
     * known only to wait for others. */
    bool (*missing)(const struct uli_exchange *exchange, int32_t p);
    /* Do pairs tell each other whom they wait for (the flag WAITS)? False where
     * the pair flags of the schedule say whose turn it is. */
    bool tells_waits;

    /* ---- what it is and does ---------------------------------------------
     *
     * Bytes that this rank puts to other nodes in a call. by_moves: those
     * of its moves to ranks there. */
    int64_t (*wire_bytes)(const struct uli_exchange *exchange,
        ulyx_direction_t direction, int64_t by_moves);
    /* Bytes held. */
    int64_t (*bytes)(const struct uli_exchange *exchange);
    /* For the plan's description: "; ..." or nothing. */
    void (*describe)(
        const struct ulyx_plan *plan, char *text_p, size_t text_bytes);
};

const struct uli_schedule_ops *uli_schedule_of(enum uli_algo algo);

#define ULI_SCHEDULE_OPS(ID, name)                                             \
    extern const struct uli_schedule_ops uli_schedule_##name;
ULI_SCHEDULE_LIST(ULI_SCHEDULE_OPS)

#endif
