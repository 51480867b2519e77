/* SPDX-License-Identifier: Apache-2.0
 *
 * Movers: what executes a plan. A plan defines which bytes move where; its
 * mover is the means: loads, stores and streams of the host, a kernel over
 * mapped device memory, copy engines, or messages. Each mover is one table of
 * functions and one kind of state; only a mover's own files test which mover a
 * plan has.
 *
 * A plan's state outlives the plan. Peers may still post into this rank's
 * memory after it has destroyed its plan, so comm->retired_plans keeps the
 * state until all peers have left the plan too.
 *
 * Threads: unless an entry says otherwise, it is called by the thread of the
 * public call. The caller (creation, destroy) or the mover (plan->exchange's
 * `busy`: BUSY) ensures that only one such call per plan runs at a time.
 */
#ifndef ULI_COLLECTIVES_EXCHANGE_MOVER_H
#define ULI_COLLECTIVES_EXCHANGE_MOVER_H

#include "base/list.h"
#include "base/text.h"
#include "collectives/plan/plan.h"

/* The head of the state of every mover. */
struct uli_mover_state {
    struct uli_list node; /* in comm->retired_plans, once the plan has left */
    const struct uli_mover_ops *mover;
    ulyx_plan_t *plan; /* NULL once it has left */
};

struct uli_mover_ops {
    const char *name; /* one word, for logs */
    /* A started call belongs to a stream: no ulyx_request_t stands for it, and
     * ulyx_reshuffle_start is refused. */
    bool by_stream;
    /* Calls may give other strides than creation. */
    bool takes_strides;
    /* Peers compare plan->user_hash at every call. */
    bool takes_hash;

    /* ---- creation ---- */

    /* Does the mover execute the plan, whose communicator, flags, layout and
     * directions are known? algo: the name that the caller, or else the
     * setting, requests; "" for none. Changes nothing, never blocks. The
     * answer is equal on all ranks, or a difference becomes one of
     * plan->terms. */
    bool (*serves)(const ulyx_plan_t *plan, const char *algo);
    /* Refuses parameters that the mover does not support, before anything is
     * allocated. Never blocks. Errors: UNSUPPORTED, with the text set. */
    ulyx_status_t (*check)(
        const ulyx_plan_t *plan, const struct uli_plan_params *params);
    /* Before the agreement, with everything of the plan but the volumes and the
     * strides and places of other ranks: measures the volumes
     * (uli_plan_measure), makes plan->state and everything that calls need,
     * sets in plan->info what peers need and in plan->terms what must be equal.
     * May block on the driver, never on another rank. On an error the state may
     * be incomplete; destroy follows. Errors, which become this rank's outcome:
     * NO_MEMORY, UNSUPPORTED, the driver's. */
    ulyx_status_t (*prepare)(
        ulyx_plan_t *plan, const struct uli_plan_params *params);
    /* After the agreement, on all ranks at once, with plan->ranks: connects to
     * the peers and fills tables. May wait for peers, until
     * comm->call_deadline. An error that other ranks do not get fails the
     * communicator; destroy follows. */
    ulyx_status_t (*complete)(ulyx_plan_t *plan);

    /* ---- calls ---- */

    /* Why tensors of this side must lie in windows: the end of the sentence
     * "... is not inside a window attached to the communicator, as "; NULL:
     * they may lie anywhere. Never blocks. */
    const char *(*needs_windows)(const ulyx_plan_t *plan, enum uli_side side);
    /* Starts call n + 1: uli_plan_check_call, then moves or enqueues. A call
     * that is refused here is announced to the peers as refused, and they do
     * not wait for this rank. Allocates nothing, takes no lock, waits for no
     * peer; staged messages may wait on the host for the device. *request_p:
     * what to wait for, set on SUCCESS only; NULL by a mover with by_stream,
     * which also ignores the call's timeout_s. Errors: BUSY, the
     * communicator's, of the arguments; by_stream also the error of an earlier
     * call, although this call is enqueued. */
    ulyx_status_t (*start)(ulyx_plan_t *plan, const struct uli_plan_call *call,
        ulyx_request_t **request_p);
    /* Announces to the peers, as far as possible, that this rank refuses call
     * n + 1. Returns status with text as the last error, not logged again; or
     * BUSY or the communicator's failure. Never waits. */
    ulyx_status_t (*refuse)(
        ulyx_plan_t *plan, ulyx_status_t status, const char *text);
    /* As refuse, for a call whose direction and stream are known: nothing else
     * of `call` is read. NULL: refuse needs neither. */
    ulyx_status_t (*refuse_call)(ulyx_plan_t *plan,
        const struct uli_plan_call *call, ulyx_status_t status,
        const char *text);
    /* As ulyx_plan_update. Local; waits for no peer. On an error of the
     * arguments the previous documents stay. */
    ulyx_status_t (*update)(ulyx_plan_t *plan, const ulyx_docs_t *docs_q,
        const ulyx_docs_t *docs_k, void *stream);
    /* As ulyx_plan_update_rows, for a plan whose rows change; otherwise like
     * update. NULL: creation refuses such plans. */
    ulyx_status_t (*update_rows)(ulyx_plan_t *plan, const int64_t *rows,
        const int64_t *const *splits, const ulyx_docs_t *docs_q,
        const ulyx_docs_t *docs_k, void *stream);

    /* ---- the end ---- */

    /* Announces to the peers that this rank takes no part in calls any more,
     * and sets state->plan to NULL. May wait for this rank's device, not for
     * peers. Errors: BUSY, a call is in flight; the driver's; nothing has
     * changed then. */
    ulyx_status_t (*leave)(ulyx_plan_t *plan);
    /* After leave: have all peers left too, so that none of their posts can
     * arrive any more and destroy may follow? Called by the thread that creates
     * or destroys a plan or the communicator. Never blocks. */
    bool (*left)(const struct uli_mover_state *state);
    /* Frees the state at any stage, with nothing in flight. A plan that has not
     * left is still whole. gives_back: arena blocks go back to the
     * communicator; else they end with its arenas, right after. */
    void (*destroy)(
        ulyx_comm_t *comm, struct uli_mover_state *state, bool gives_back);

    /* ---- description and numbers; never block ---- */

    /* "direct (one node)" */
    void (*describe)(const ulyx_plan_t *plan, struct uli_text *text);
    /* "3 stored to, 1 by ring": one of the plan's directions. */
    void (*describe_direction)(const ulyx_plan_t *plan,
        ulyx_direction_t direction, struct uli_text *text);
    /* "; slots of 8192; ...": everything else. */
    void (*describe_rest)(const ulyx_plan_t *plan, struct uli_text *text);
    /* Bytes held beyond the plan's own tables. */
    int64_t (*bytes)(const ulyx_plan_t *plan);
};

/* All movers of this build, ended by NULL; a plan's mover is the first that
 * serves it. The host's mover is last and serves every plan that is left; a
 * build without CUDA has no other. (device/movers.c) */
extern const struct uli_mover_ops *const uli_movers[];
extern const struct uli_mover_ops uli_mover_host; /* mover_host.c */

/* The mover of a plan whose layout and directions are known. algo: the name
 * that the caller requests, or NULL. */
const struct uli_mover_ops *uli_mover_choose(
    const ulyx_plan_t *plan, const char *algo);

/* Takes the state of a plan that has left. */
void uli_retired_add(ulyx_comm_t *comm, struct uli_mover_state *state);
/* Frees the states whose plans all peers have left. */
void uli_retired_sweep(ulyx_comm_t *comm);
/* Frees all states, as comm->retired_destroy: the communicator ends. */
void uli_retired_destroy(ulyx_comm_t *comm);

/* "; slots of 8192", for describe_rest (plan_describe.c). */
void uli_plan_describe_slots(const ulyx_plan_t *plan, struct uli_text *text);

/* The names of what ranks compare, by enum uli_term. */
extern const char *const uli_term_names[ULI_TERMS];

#endif
