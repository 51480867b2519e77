/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of one communicator that were found, and what is said of them: who
 * holds all up, who is in another call, what each does.
 */
#ifndef TOOLS_INFO_FOUND_H
#define TOOLS_INFO_FOUND_H

#include <stddef.h>
#include "info_ranks.h"

struct info_found {
    struct info_rank *ranks; /* ascending; info_ranks_wait has seen them */
    int count, absent;       /* of them only others speak */
    bool dumps;              /* they come from files */
    const struct info_rank *waiting; /* whose list is written */
};

/* The ranks from `first` on that are of one communicator, each once. returns
 * where the next one begins. */
int info_found_take(
    struct info_ranks *ranks, int first, struct info_found *found_p);

/* Ranks that are in the same call: equal kind, plan, fingerprint and number. Of
 * those in no call the last one counts, and they are groups of their own. */
struct info_call {
    bool inside;
    struct uli_recorder_call call; /* serial 0: none was ever made */
    int count;                     /* of ranks */
    const struct info_found *found;
};
/* returns how many groups there are, the smallest first; *calls_p, freed by the
 * caller, has them. -1: no memory. */
int info_found_group(
    const struct info_found *found, struct info_call **calls_p);

/* "in reshuffle, call 7 of plan 2, seq_to_head, for 3.2 s". */
void info_rank_text(const struct info_rank *rank, char *text_p, size_t bytes);
/* The ranks of a group; those that a rank waits for. */
void info_call_ranks_text(
    const struct info_call *call, char *text_p, size_t bytes);
void info_found_awaited_text(struct info_found *found,
    const struct info_rank *rank, char *text_p, size_t bytes);
/* "rank 3 (node5, pid 412, stopped by a signal)". */
void info_rank_name(const struct info_rank *rank, char *text_p, size_t bytes);
/* Do others wait for the rank, and it for nobody? */
bool info_rank_is_cause(const struct info_rank *rank);
/* Is the rank the lowest of a circle of ranks that wait for each other? The
 * next in the circle is ranks[rank].next. */
bool info_found_begins_circle(const struct info_found *found, int rank);

void info_found_print(struct info_found *found);

#endif
