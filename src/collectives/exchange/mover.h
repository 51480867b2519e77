/* SPDX-License-Identifier: Apache-2.0
 *
 * Movers: what executes a plan. A plan is what moves where, equal whatever
 * moves it; its mover is how: loads, stores and streams of the host, a kernel
 * over mapped device memory, copy engines, or messages. Each mover is one table
 * of functions and one kind of state; nothing outside of a mover's own files
 * asks which one a plan has.
 *
 * A plan's state outlives the plan. Peers may still post into this rank's
 * memory when it has destroyed its plan, so the state waits in
 * comm->retired_plans until all of them have left too.
 *
 * Threads: where an entry does not say otherwise it is called by the thread
 * that is in the public call, and the caller sees to it that one such call a
 * plan is under way (creation, destroy), or the mover does (plan->exchange's
 * ticket: BUSY).
 */
#ifndef ULI_COLLECTIVES_EXCHANGE_MOVER_H
#define ULI_COLLECTIVES_EXCHANGE_MOVER_H

#include "base/list.h"
#include "base/text.h"
#include "collectives/plan/plan.h"

/* Begins the state of every mover. */
struct uli_mover_state {
    struct uli_list node; /* of comm->retired_plans, once the plan has left */
    const struct uli_mover_ops *mover;
    ulyx_plan_t *plan; /* NULL once it has left */
};

struct uli_mover_ops {
    const char *name; /* one flag, for logs */
    /* A call belongs to a stream once it has been started: no ulyx_request_t
     * stands for it, and ulyx_reshuffle_start is refused. */
    bool by_stream;
    /* Calls may give strides other than creation's. */
    bool takes_strides;

    /* ---- creation ---- */

    /* Does it execute the plan, which has communicator, flags, layout and
     * directions? algo: the name that the caller or else the setting asks for,
     * "" for none. Looks only, never blocks. The answer is equal on all ranks
     * or becomes a difference of plan->terms. */
    bool (*serves)(const ulyx_plan_t *plan, const char *algo);
    /* Refuses parameters that are not for it, before anything is allocated.
     * Never blocks. Errors: UNSUPPORTED, with the text set. */
    ulyx_status_t (*check)(
        const ulyx_plan_t *plan, const struct uli_plan_params *params);
    /* Before the agreement, with everything of the plan but volumes and the
     * others' strides and places: measures the volumes (uli_plan_measure),
     * makes plan->state and all that calls will need, notes in plan->info what
     * peers have to know and in plan->terms what must be equal. May block on
     * the driver, never on another rank. On error the state may be half made:
     * destroy follows. Errors: NO_MEMORY, UNSUPPORTED, the driver's: this
     * rank's outcome. */
    ulyx_status_t (*prepare)(
        ulyx_plan_t *plan, const struct uli_plan_params *params);
    /* After the agreement, on all ranks at once, with plan->ranks: how to reach
     * the peers, and tables. May wait for peers, until comm->call_deadline. An
     * error that other ranks do not get fails the communicator; destroy
     * follows. */
    ulyx_status_t (*complete)(ulyx_plan_t *plan);

    /* ---- calls ---- */

    /* Why tensors on the side have to lie in windows: the end of the sentence
     * "... is not inside a window attached to the communicator, as "; NULL:
     * they may lie anywhere. Never blocks. */
    const char *(*wants_windows)(const ulyx_plan_t *plan, enum uli_side side);
    /* Starts call n + 1: uli_plan_check_call, then moves or enqueues. A call
     * that is refused here is told to the peers, who do not wait for it then.
     * Allocates nothing, takes no lock, waits for no peer; staged messages may
     * wait on the host for the device. *request_p: what to wait for, set on
     * SUCCESS only; by_stream leaves it NULL. The call's timeout_s is not for
     * by_stream. Errors: BUSY, the communicator's, of the
     * arguments; by_stream also that of an earlier call, while this one is
     * enqueued all the same. */
    ulyx_status_t (*start)(ulyx_plan_t *plan, const struct uli_plan_call *call,
        ulyx_request_t **request_p);
    /* Tells the peers, as far as it can, that this rank refuses call n + 1.
     * Returns status with text as the last error, not logged again; or BUSY or
     * the communicator's failure. Never waits. */
    ulyx_status_t (*refuse)(
        ulyx_plan_t *plan, ulyx_status_t status, const char *text);
    /* As ulyx_plan_update. Local; waits for no peer. On an error of the
     * arguments the old documents stay. */
    ulyx_status_t (*update)(ulyx_plan_t *plan, const ulyx_docs_t *docs_q,
        const ulyx_docs_t *docs_k, void *stream);
    /* As ulyx_plan_update_rows, of a plan whose rows change; likewise. NULL:
     * creation refuses such plans. */
    ulyx_status_t (*update_rows)(ulyx_plan_t *plan, const int64_t *rows,
        const int64_t *const *splits, const ulyx_docs_t *docs_q,
        const ulyx_docs_t *docs_k, void *stream);

    /* ---- the end ---- */

    /* Tells the peers that this rank takes no part in calls any more, and sets
     * state->plan to NULL. Waits for this rank's device at most, not for peers.
     * Errors: BUSY, a call is in flight; the driver's. Nothing has changed
     * then. */
    ulyx_status_t (*leave)(ulyx_plan_t *plan);
    /* Once it has left: have all peers left too, so that nothing of them comes
     * any more and destroy may follow? By the thread that creates or destroys a
     * plan or the communicator. Never blocks. */
    bool (*left)(const struct uli_mover_state *state);
    /* Frees the state at any stage; nothing is in flight. The plan, if it has
     * not left, is still whole. gives_back: arena blocks go back to the
     * communicator; else they end with its arenas, right after. */
    void (*destroy)(
        ulyx_comm_t *comm, struct uli_mover_state *state, bool gives_back);

    /* ---- in pair flags and numbers; never block ---- */

    /* "direct (one node)" */
    void (*describe)(const ulyx_plan_t *plan, struct uli_text *text);
    /* "3 stored to, 1 by ring": of one of the plan's directions */
    void (*describe_direction)(const ulyx_plan_t *plan,
        ulyx_direction_t direction, struct uli_text *text);
    /* "; slots of 8192; ...": what else there is to say */
    void (*describe_rest)(const ulyx_plan_t *plan, struct uli_text *text);
    /* Bytes held beyond the plan's own tables. */
    int64_t (*bytes)(const ulyx_plan_t *plan);
};

/* All movers of this build, ended by NULL: the first that serves a plan is its
 * own. The last one, the host's, serves whatever is left, and is the only one
 * of a build without CUDA. (cuda/movers.c) */
extern const struct uli_mover_ops *const uli_movers[];
extern const struct uli_mover_ops uli_mover_host; /* mover_host.c */

/* The mover of a plan whose layout and directions are known. algo: what the
 * caller asks for, or NULL. */
const struct uli_mover_ops *uli_mover_choose(
    const ulyx_plan_t *plan, const char *algo);

/* Takes over the state of a plan that has left. */
void uli_retired_add(ulyx_comm_t *comm, struct uli_mover_state *state);
/* Frees the states that all peers have left, too. */
void uli_retired_sweep(ulyx_comm_t *comm);
/* Frees all of them, as comm->retired_destroy: the communicator ends. */
void uli_retired_destroy(ulyx_comm_t *comm);

/* "; slots of 8192", for describe_rest (plan_describe.c). */
void uli_plan_describe_slots(const ulyx_plan_t *plan, struct uli_text *text);

/* What the ranks compare, in pair flags; by enum uli_term. */
extern const char *const uli_term_names[ULI_TERMS];

#endif
