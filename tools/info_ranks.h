/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks that `ulyx_info ranks` and `ulyx_info report` have found: their
 * flight recorders, in processes on this host or in dumps. The data is memory
 * of other processes, or files of unknown origin: it is read once, into copies
 * that are checked (comm/record/recorder.h).
 */
#ifndef TOOLS_INFO_RANKS_H
#define TOOLS_INFO_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "comm/record/recorder.h"

/* A rank that was found. The times of a dump are wall-clock times. */
struct info_rank {
    struct uli_recorder_copy copy;
    bool absent;       /* known from other ranks only, so without calls */
    char failure[256]; /* of its communicator; "": it has not failed */
    int64_t now_ns;    /* when the rank was read */
    pid_t pid;         /* as this process sees it; 0: not known */
    char state;        /* of the process: 'R', 'S', 'T'; '?': not known */
    /* These two identify the segment, so that a segment that is open twice
     * counts once. */
    dev_t device;
    ino_t file;
    /* Set by info_ranks_wait. call: the call that began first and has not
     * ended; else the last call, if it failed with its communicator; else NULL.
     * waits: the call waits for ranks that were found. awaited: other ranks
     * wait for this rank. next: index of one rank for which this rank waits;
     * -1: none. */
    const struct uli_recorder_call *call;
    bool waits, awaited;
    int next;
};
struct info_ranks {
    struct info_rank *at; /* by communicator, then rank */
    int count, capacity;
};

/* Finds all ranks in processes whose segments this user may open. The caller
 * frees them by info_ranks_release.
 * returns 0, or an exit code after a message. */
int info_ranks_find(struct info_ranks *ranks_p);
void info_ranks_release(struct info_ranks *ranks);
/* Appends a copy of the rank.
 * returns 0, or 1 after a message. */
int info_ranks_add(struct info_ranks *ranks, const struct info_rank *rank);
void info_ranks_sort(struct info_ranks *ranks);

/* Does `rank` wait for `other`? Both are of one communicator. */
bool info_rank_waits_for(
    const struct info_rank *rank, const struct info_rank *other);
/* Sets call, waits, awaited and next of the `count` ranks of a communicator. */
void info_ranks_wait(struct info_rank *ranks, int count);

#endif
