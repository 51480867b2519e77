/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx_info ranks and report: ranks by their flight recorders, running ones of
 * this host or those of dumps. All of it is memory of other processes, or files
 * of anybody: read once, into copies that have been checked
 * (comm/record/recorder.h).
 */
#ifndef TOOLS_INFO_RANKS_H
#define TOOLS_INFO_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "comm/record/recorder.h"

/* A rank that was found. Of a dump its times are those of the wall clock. */
struct info_rank {
    struct uli_recorder_copy copy;
    bool absent;       /* only others speak of it: it has no calls */
    char failure[256]; /* what its communicator has failed by; "": it has not */
    int64_t now_ns;    /* when it was looked at */
    pid_t pid;         /* as this process sees it; 0: not known */
    char state; /* of the process: 'R', 'S', 'T'; '?': it cannot be read */
    dev_t device;
    ino_t file; /* of its segment: one that is open twice counts once */
    /* info_ranks_wait: its longest call that has not ended, else the last if
     * that failed with its communicator, or NULL; whether it stands still for
     * ranks that were found; and for one of them. */
    const struct uli_recorder_call *call;
    bool waits, awaited;
    int next;
};
struct info_ranks {
    struct info_rank *at; /* by communicator, then rank */
    int count, capacity;
};

/* All ranks of processes whose segments this user may open.
 * returns 0, or an exit code after a message; release frees. */
int info_ranks_find(struct info_ranks *ranks_p);
void info_ranks_release(struct info_ranks *ranks);
/* Copies the rank to the end. returns 0, or 1 after a message. */
int info_ranks_add(struct info_ranks *ranks, const struct info_rank *rank);
void info_ranks_sort(struct info_ranks *ranks);

/* Does a rank wait for another of the same communicator? */
bool info_rank_waits_for(
    const struct info_rank *rank, const struct info_rank *other);
/* Fills what each of the ranks [0, count) of one communicator waits for. */
void info_ranks_wait(struct info_rank *ranks, int count);

#endif
