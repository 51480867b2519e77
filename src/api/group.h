/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups: collective calls of a thread are queued between start and end and
 * run together at the end. Two kinds: calls that block (creations,
 * agreements) run on a thread for each communicator, in order; operations are
 * all started, then all waited for, by the calling thread, which allocates
 * nothing: their entry is part of the plan or communicator. Neither kind waits
 * for the other: a peer that is not in a group makes its calls one after
 * another, in whatever order it has written them.
 */
#ifndef ULI_API_GROUP_H
#define ULI_API_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include "base/list.h"
#include "ulyx/types.h"

/* True between start and end on this thread: queue instead of running. */
bool uli_group_active(void);

/* The error that was found in a call before it ran, with its text. A queued
 * call runs on another thread, whose last error is not the caller's. */
struct uli_outcome {
    ulyx_status_t status;
    char text[256];
};
/* With the thread's last error. */
struct uli_outcome uli_outcome_keep(ulyx_status_t status);
/* Makes it the thread's last error, unless it is SUCCESS. returns the status.
 */
ulyx_status_t uli_outcome_recall(const struct uli_outcome *outcome);

/* Runs run(context) now, or in a group at its end, with a copy of context, for
 * the communicator `key`; NULL = on its own. release, or NULL: frees what
 * context holds, where it cannot be queued and run will not.
 * Errors: those of run; NO_MEMORY. */
ulyx_status_t uli_group_run(const void *key,
    ulyx_status_t (*run)(void *context), void (*release)(void *context),
    void *context, size_t bytes);

/* Is a call on the communicator queued by this thread? */
bool uli_group_holds(const void *key);

/* An operation's entry; lives in the plan. queued guards against a second
 * one in the same group. */
struct uli_group_op {
    struct uli_list node;
    bool queued;
    ulyx_status_t (*start)(void *context);
    ulyx_status_t (*wait)(void *context); /* only after a good start */
    void *context;
    ulyx_status_t started;
};
/* Errors: BUSY when the entry is already queued. Never allocates. */
ulyx_status_t uli_group_queue_op(struct uli_group_op *op);

ulyx_status_t uli_group_start(void);
ulyx_status_t uli_group_end(void);

#endif
