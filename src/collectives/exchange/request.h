/* SPDX-License-Identifier: Apache-2.0
 *
 * Host operations in flight: what start returns, and what test and wait take.
 *
 * An operation is a state machine that a thread drives: the thread that started
 * it, whenever that thread tests or waits for any operation of its own, or the
 * library's progress thread. The operation is embedded in the object that owns
 * it (plan, channel), and its result is taken once.
 */
#ifndef ULI_COLLECTIVES_EXCHANGE_REQUEST_H
#define ULI_COLLECTIVES_EXCHANGE_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include "base/list.h"
#include "base/system/clock.h"
#include "base/system/semaphore.h"
#include "comm/comm.h"

struct ulyx_request {
    ulyx_comm_t *comm;
    /* Does what can be done without waiting; true when anything advanced. Ends
     * the operation by uli_request_finish, and is not called after that. */
    bool (*progress)(struct ulyx_request *request);
    /* The result has been taken: the owner may start the next operation. */
    void (*release)(struct ulyx_request *request);
    uli_deadline_t deadline;
    bool by_library_thread;
    uint64_t recorded; /* serial number in the flight recorder, or 0 */

    /* A thread waits for the operation, or for a group that it belongs to, and
     * begins nothing else before it has ended. */
    atomic_bool awaited;
    bool grouped;                      /* started in a group */
    _Atomic int32_t status;            /* ULYX_IN_PROGRESS until its end */
    char text[256];                    /* the error's text, set before status */
    int64_t ended_ns;                  /* when it ended, set before status */
    const void *owner;                 /* the thread that started it */
    struct uli_list node;              /* in the driving thread's list */
    struct ulyx_request *pending_next; /* in the stack of request_thread.c */
    struct uli_semaphore finished;     /* by_library_thread only */
};

/* The caller sets the fields above `awaited`. Once, before the first launch.
 */
void uli_request_init(struct ulyx_request *request);

/* Hands the operation to the thread that drives it; cannot fail, allocates
 * nothing. awaited: the caller waits for it next. */
void uli_request_launch(struct ulyx_request *request, bool awaited);

/* Called by progress: the operation has ended. On an error its text is the
 * calling thread's last error. */
void uli_request_finish(struct ulyx_request *request, ulyx_status_t status);

/* IN_PROGRESS (test only), or the result, with its text as the last error; the
 * operation is then released. ERR_INVALID_ARGUMENT from another thread than the
 * one that started it (nothing has changed). */
ulyx_status_t uli_request_test(struct ulyx_request *request);
ulyx_status_t uli_request_wait(struct ulyx_request *request);

/* Operations that the calling thread starts between true and false form a
 * group: all of them are awaited from false on. */
void uli_request_group(bool group);
/* Does the thread that drives the operation wait for it, with no other
 * operation to drive meanwhile? For progress. */
bool uli_request_is_alone(const struct ulyx_request *request);
/* The thread does other work for now: the operation is not awaited. */
void uli_request_leave(struct ulyx_request *request);

/* Waits until ready(context), and drives the thread's operations meanwhile.
 * Returns as uli_comm_wait. */
ulyx_status_t uli_request_drive_until(ulyx_comm_t *comm,
    bool (*ready)(void *context), void *context, uli_deadline_t deadline);

/* ---- the library's progress thread (request_thread.c) -------------------- */

/* Counted: the first hold starts the thread, the last release joins it. The
 * thread may run on the cores of any of its users' bindings
 * (topology/bind.h). */
ulyx_status_t uli_request_thread_hold(const struct uli_binding *binding);
void uli_request_thread_release(void);
void uli_request_thread_push(struct ulyx_request *request);

#endif
