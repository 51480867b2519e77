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
#include "base/list.h"
#include "ulyx/types.h"

/* True between start and end on this thread: queue instead of running. */
bool uli_group_active(void);

/* Queues run(copy of context) for the communicator `key`; NULL = on its own.
 * Errors: NO_MEMORY. */
ulyx_status_t uli_group_queue(const void *key,
    ulyx_status_t (*run)(void *context), const void *context, size_t bytes);

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
