/* SPDX-License-Identifier: Apache-2.0
 *
 * How bytes go between nodes: the execution of a schedule. The engine moves
 * what pairs of ranks move directly (exchange.h). A schedule may carry some
 * moves in their place, and sets how many remote peers pairs send to at one
 * time. Neither the engine nor the plan tests which schedule it is.
 *
 * Each schedule is one row of the list (base/schedules.h):
 * `uli_schedule_<name>`, in a file of its own. schedule_direct.c: pairs move
 * everything; pairwise is direct with a limit of peers. schedule_hier.c: bytes
 * that cross nodes are gathered, sent once and spread (hier.h). The costs of a
 * schedule are in topology (schedule_model.h).
 *
 * No entry is NULL; an entry without work does nothing. A schedule's state is
 * exchange->schedule_state, which is NULL until create has set it. Unless its
 * comment differs, an entry is called by the holder of the exchange, allocates
 * nothing, waits for no rank and takes no lock.
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
     * Has the schedule anything to do on this communicator? Where not, pairs
     * move everything, as in direct. Equal on all ranks. */
    bool (*applicable)(const ulyx_comm_t *comm);
    /* Before the agreement, with the layout, strides and chunk size known:
     * makes tables and memory, allocates, sets peer_limit and the fields of
     * plan->info for the other ranks. On an error destroy frees what was made.
     * Errors: UNSUPPORTED, NO_MEMORY, those of arenas. */
    ulyx_status_t (*create)(struct ulyx_plan *plan);
    /* After the agreement: finds the memory of the other ranks. Errors:
     * INTERNAL, having failed the communicator. */
    ulyx_status_t (*connect)(struct ulyx_plan *plan);
    /* The document tables have changed. Allocates; a failure is returned by
     * check. */
    void (*rebuild)(struct ulyx_plan *plan);
    /* This rank's strides of a direction have changed (uli_plan_strides):
     * rebuilds the boxes that depend on them, in place. */
    void (*lay)(struct ulyx_plan *plan, ulyx_direction_t direction);
    /* The plan ends at this rank: announces that to the other ranks. state: of
     * the exchange, which is about to be freed. */
    void (*leave)(void *state);
    /* After leave: has every rank stopped reading the state's memory? Not
     * called again once true. */
    bool (*idle)(void *state);
    /* Frees the state, which may be NULL. comm: its arena blocks go back to
     * this communicator for use again; NULL: they end with the communicator. */
    void (*destroy)(ulyx_comm_t *comm, void *state);

    /* ---- what it carries in place of pairs (plan_build.c, plan_fill.c) --- */

    /* Does the schedule carry the move? Equal on all ranks of the move. */
    bool (*carries)(
        const struct uli_exchange *exchange, const struct uli_move *move);
    /* Does the schedule carry everything between rank p and this rank? Then the
     * two are no pair. */
    bool (*parts)(const struct uli_exchange *exchange, int32_t p);

    /* ---- a call (exchange.c) ---------------------------------------------
     *
     * May calls start? Errors: NO_MEMORY of an update. */
    ulyx_status_t (*check)(const struct uli_exchange *exchange);
    /* May this rank post call exchange->call, by the schedule's own pair flags?
     * False only after a refusal. */
    bool (*may_post)(const struct uli_exchange *exchange);
    /* A call begins; call, direction and hash of the exchange are set. */
    void (*start)(struct uli_exchange *exchange);
    /* Moves bytes; true when anything has advanced. May end the operation with
     * a failure. */
    bool (*progress)(struct uli_exchange *exchange);
    /* Has everything that the schedule carries been moved? */
    bool (*ended)(const struct uli_exchange *exchange);
    /* When everything of the call has ended: SUCCESS, or why nothing moved, by
     * exchange->report for the lowest rank with a fault. */
    ulyx_status_t (*result)(struct uli_exchange *exchange);
    /* Announces that this rank refuses the call; after may_post, and after the
     * posts to pairs. */
    void (*refuse)(struct uli_exchange *exchange, ulyx_status_t status);

    /* ---- which ranks a call waits for (exchange_waits.c) ------------------
     *
     * Does the call wait for rank p, in addition to what pairs wait for? False
     * where p is known only to wait for others. */
    bool (*missing)(const struct uli_exchange *exchange, int32_t p);
    /* Do pairs announce to each other for which rank they wait (the flag
     * WAITS)? False where the pair flags of the schedule show that already. */
    bool announces_waits;

    /* ---- description and numbers ------------------------------------------
     *
     * Bytes that this rank puts to other nodes in a call. by_moves: the bytes
     * of its moves to ranks of other nodes. */
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
