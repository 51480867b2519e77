/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups: collective calls of a thread are queued between start and end and
 * run together at the end. There are two kinds. Calls that block (creations,
 * agreements) run in order, on one thread per communicator. Operations are
 * first all started and then all waited for by the calling thread; this
 * allocates nothing, because the entry of an operation is part of its plan.
 * Neither kind waits until the other has ended: a peer that is not in a group
 * makes its calls one after another, and any of them may be its first.
 */
#ifndef ULI_API_GROUP_H
#define ULI_API_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include "base/list.h"
#include "ulyx/types.h"

/* True between start and end on this thread: calls are then queued. */
bool uli_group_active(void);

/* The error that was found in a call before it ran, with its text. A queued
 * call runs on another thread, whose last error is not the caller's. */
struct uli_outcome {
    ulyx_status_t status;
    char text[256];
};
/* The status with the text of the thread's last error. */
struct uli_outcome uli_outcome_keep(ulyx_status_t status);
/* Makes the outcome the thread's last error, unless it is SUCCESS. returns its
 * status.
 */
ulyx_status_t uli_outcome_recall(const struct uli_outcome *outcome);

/* Runs run(context) now. In a group, queues it with a copy of context, to run
 * at the end of the group in the order of the calls on communicator `key`, or
 * on its own if key is NULL. If the call cannot be queued, run is never called,
 * and release (unless NULL) frees what context holds.
 * Errors: those of run; NO_MEMORY. */
ulyx_status_t uli_group_run(const void *key,
    ulyx_status_t (*run)(void *context), void (*release)(void *context),
    void *context, size_t bytes);

/* Is a call on the communicator queued by this thread? */
bool uli_group_holds(const void *key);

/* The entry of an operation, part of its plan. queued prevents a second
 * operation of the plan in a group. */
struct uli_group_op {
    struct uli_list node;
    bool queued;
    ulyx_status_t (*start)(void *context);
    ulyx_status_t (*wait)(void *context); /* only if start succeeded */
    void *context;
    ulyx_status_t started;
};
/* Errors: BUSY when the entry is already queued. Never allocates. */
ulyx_status_t uli_group_queue_op(struct uli_group_op *op);

ulyx_status_t uli_group_start(void);
ulyx_status_t uli_group_end(void);

#endif
