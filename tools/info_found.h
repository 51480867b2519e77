/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of one communicator that were found, and the report on them: which
 * ranks hold the others up, which are in another call, what each does.
 */
#ifndef TOOLS_INFO_FOUND_H
#define TOOLS_INFO_FOUND_H

#include <stddef.h>
#include "info_ranks.h"

struct info_found {
    struct info_rank *ranks; /* ascending, after info_ranks_wait */
    int count, absent; /* absent: how many are known from other ranks only */
    bool dumps;        /* the ranks come from files */
    const struct info_rank *subject; /* whose list of ranks is being written */
};

/* Gathers the ranks of one communicator, each once; they begin at index
 * `first`. returns the index of the next communicator's first rank. */
int info_found_take(
    struct info_ranks *ranks, int first, struct info_found *found_p);

/* A group of ranks in the same call: equal kind, plan, fingerprint and number.
 * A rank in no call is grouped by its last call, with others in no call. */
struct info_call {
    bool inside;
    struct uli_recorder_call call; /* serial 0: no call was ever made */
    int count;                     /* number of ranks */
    const struct info_found *found;
};
/* returns the number of groups; -1: no memory. *calls_p: the groups, the
 * smallest first; the caller frees them. */
int info_found_group(
    const struct info_found *found, struct info_call **calls_p);

/* "in reshuffle, call 7 of plan 2, seq_to_head, for 3.2 s". */
void info_rank_text(const struct info_rank *rank, char *text_p, size_t bytes);
/* Lists of ranks as text: the ranks of a group, and the ranks for which a rank
 * waits. */
void info_call_ranks_text(
    const struct info_call *call, char *text_p, size_t bytes);
void info_found_awaited_text(struct info_found *found,
    const struct info_rank *rank, char *text_p, size_t bytes);
/* "rank 3 (node5, pid 412, stopped by a signal)". */
void info_rank_name(const struct info_rank *rank, char *text_p, size_t bytes);
/* Do other ranks wait for this rank, while it waits for none? */
bool info_rank_is_cause(const struct info_rank *rank);
/* Is the rank the lowest of a circle of ranks that wait for each other? The
 * next in the circle is ranks[rank].next. */
bool info_found_begins_circle(const struct info_found *found, int rank);

void info_found_print(struct info_found *found);

#endif
