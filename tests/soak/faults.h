/* SPDX-License-Identifier: Apache-2.0
 *
 * The faults of one rank of a soak, injected at a random moment: the thread or
 * process that injects the fault, and the errors that the other ranks must
 * return.
 */
#ifndef TESTS_SOAK_FAULTS_H
#define TESTS_SOAK_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "ulyx/ulyx.h"

enum fault {
    FAULT_NONE,
    FAULT_PAUSED,  /* stopped, and resumed before any deadline */
    FAULT_FORKED,  /* a child is forked in the middle of a call */
    FAULT_BROKEN,  /* the link of its host goes down and comes up again */
    FAULT_ABORTED, /* another thread of the rank aborts */
    FAULT_KILLED,
    FAULT_STOPPED, /* past the deadline */
    FAULT_CUT,     /* the link of its host goes down */
    FAULTS
};
extern const char *const fault_names[FAULTS];

enum { FAULT_RANKS = 8, FAULT_LIMIT_S = 60 };

/* One fault. Lies in memory that the ranks share with the process that injects
 * the fault. */
struct strike {
    enum fault fault;
    int nranks, victim;
    int64_t delay_us, pause_us;
    pid_t pids[FAULT_RANKS + 1];
    _Atomic int ready; /* ranks that have begun their calls */
    /* ranks that have ended their calls, except a stopped victim */
    _Atomic int done;
    _Atomic int awake; /* 1: the stopped victim has ended its calls too */
    /* 1: and it has formed a communicator without the others */
    _Atomic int alone;
    _Atomic int spoilt; /* ranks that UCX has ended by an assertion */
    _Atomic bool over;  /* the fault has passed: calls may end */
    _Atomic int64_t struck_ns;
    _Atomic bool child_refused; /* the forked child got ERR_FORKED */
};

/* Do calls continue without an error while the fault lasts? */
bool fault_is_harmless(enum fault fault);
/* Is the fault noticed only when the deadline of a call is over? */
bool fault_is_silent(enum fault fault);
/* Does a separate process inject the fault? Else a thread of the victim
 * does. */
bool fault_is_outer(enum fault fault);
/* Is the rank on the victim's host? Without hosts every rank is. */
bool strike_is_beside(const struct strike *strike, int rank);
/* Waits until the stopped victim has ended its calls. The victim is resumed
 * when all other ranks have ended theirs. */
void fault_await_awake(struct strike *strike);
/* Starts the process that injects the fault. The caller waits for this
 * process. */
pid_t fault_send(struct strike *strike);
/* Injects the fault from a thread of the victim, once all ranks have begun
 * their calls. */
void fault_from_within(struct strike *strike, ulyx_comm_t *comm);
/* Are the status and the text those that a surviving rank must get? */
bool fault_is_named(const struct strike *strike, int rank, ulyx_status_t status,
    const char *text);

#endif
