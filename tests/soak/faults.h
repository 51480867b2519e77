/* SPDX-License-Identifier: Apache-2.0
 *
 * The faults of one rank of a soak, at a moment that is drawn: the thread or
 * process that injects the fault, and the errors that the other ranks must get.
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

/* In memory that ranks and the hand share. */
struct strike {
    enum fault fault;
    int nranks, victim;
    int64_t delay_us, pause_us;
    pid_t pids[FAULT_RANKS + 1];
    _Atomic int ready;  /* ranks that have begun their calls */
    _Atomic int done;   /* ranks that are through, a stopped victim not */
    _Atomic int awake;  /* 1: the stopped victim is through as well */
    _Atomic int alone;  /* 1: and formed a communicator without the others */
    _Atomic int spoilt; /* ranks that UCX has ended by an assertion */
    _Atomic bool over;  /* the fault has passed: calls may end */
    _Atomic int64_t struck_ns;
    _Atomic bool child_refused; /* the forked child got ERR_FORKED */
};

/* Do calls continue through the fault without an error? */
bool fault_is_harmless(enum fault fault);
/* Does the fault make calls end by their deadline only? */
bool fault_is_silent(enum fault fault);
/* Is the fault injected by a process of its own, or by a thread of the
 * victim? */
bool fault_is_outer(enum fault fault);
/* Is the rank on the victim's host? Without hosts every rank is. */
bool strike_is_beside(const struct strike *strike, int rank);
/* Waits until the stopped victim, which is resumed when all others are through,
 * is so as well. */
void fault_await_awake(struct strike *strike);
/* A process that injects the fault; to be waited for. */
pid_t fault_send(struct strike *strike);
/* Strikes from a thread of the victim: waits for all to be ready first. */
void fault_from_within(struct strike *strike, ulyx_comm_t *comm);
/* Are the status and the text those that a surviving rank must get? */
bool fault_is_named(const struct strike *strike, int rank, ulyx_status_t status,
    const char *text);

#endif
