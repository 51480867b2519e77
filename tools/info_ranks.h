/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx_info ranks and report: ranks by their flight recorders, of processes on
 * this host or of dumps. The data is memory of other processes, or files from
 * anywhere: it is read once, into copies that have been checked
 * (comm/record/recorder.h).
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
    bool absent;       /* known from other ranks only: it has no calls */
    char failure[256]; /* of its communicator; "": it has not failed */
    int64_t now_ns;    /* when the rank was read */
    pid_t pid;         /* as this process sees it; 0: not known */
    char state;        /* of the process: 'R', 'S', 'T'; '?': cannot be read */
    dev_t device;
    ino_t file; /* of its segment: opened twice, it counts once */
    /* Set by info_ranks_wait. call: the longest call that has not ended, else
     * the last if it failed with its communicator, or NULL. waits: its call
     * stands still and waits for ranks that were found. awaited: other ranks
     * wait for this rank. next: index of one rank that it waits for. */
    const struct uli_recorder_call *call;
    bool waits, awaited;
    int next;
};
struct info_ranks {
    struct info_rank *at; /* by communicator, then rank */
    int count, capacity;
};

/* Finds all ranks of processes whose segments this user may open.
 * returns 0, or an exit code after a message; release frees. */
int info_ranks_find(struct info_ranks *ranks_p);
void info_ranks_release(struct info_ranks *ranks);
/* Copies the rank to the end.
 * returns 0, or 1 after a message. */
int info_ranks_add(struct info_ranks *ranks, const struct info_rank *rank);
void info_ranks_sort(struct info_ranks *ranks);

/* Does the rank wait for the other, of the same communicator? */
bool info_rank_waits_for(
    const struct info_rank *rank, const struct info_rank *other);
/* Sets what each of the ranks [0, count) of one communicator waits for. */
void info_ranks_wait(struct info_rank *ranks, int count);

#endif
