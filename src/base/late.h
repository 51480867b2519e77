/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks for which a wait still waited when its deadline passed: which
 * ranks, what they have not done, and whose deadline it was. All waits of the
 * library use this structure, the same search for the cause, and the same
 * wording.
 *
 * The structure is plain data of a fixed size, because it lies in memory that
 * ranks share (control.h) and is sent to other nodes with the last post of an
 * exchange. When the deadline of one rank passes, ranks that wait for this rank
 * fail too, and report the late ranks that it has found.
 */
#ifndef ULI_BASE_LATE_H
#define ULI_BASE_LATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ulyx/types.h"

/* What the late ranks have not done. phase_words of late.c has the texts. */
enum uli_late_phase {
    ULI_LATE_MOVE,   /* ended their part of the call */
    ULI_LATE_REACH,  /* begun the call */
    ULI_LATE_MAP,    /* mapped a window */
    ULI_LATE_NOTE,   /* taken note of a window */
    ULI_LATE_LET_GO, /* let go of a window */
    ULI_LATE_RELAY,  /* passed on what others have posted */
    ULI_LATE_JOIN,   /* joined the meeting */
    ULI_LATE_ANSWER, /* answered */
    ULI_LATE_VOTE,   /* answered a survivor's ballot */
    ULI_LATE_DECIDE, /* come to a decision of the survivors */
    ULI_LATE_SEND,   /* sent a message */
    ULI_LATE_TAKE,   /* taken a message */
    ULI_LATE_END,    /* ended what they have all begun */
    ULI_LATE_UNSEEN, /* they are on another node, and how far they are is not
                      * visible here */
    ULI_LATE_PHASES
};

enum { ULI_LATE_RUNS = 14, ULI_LATE_WHO_BYTES = 96, ULI_LATE_TEXT_BYTES = 384 };

struct uli_late {
    int32_t phase;  /* enum uli_late_phase */
    int32_t origin; /* the rank whose deadline passed; -1: the rank that
                     * reports */
    int32_t count;  /* the number of all late ranks; may be 0 */
    int32_t nruns;  /* the lowest late ranks, as ascending runs */
    struct uli_late_run {
        int32_t first, last; /* both included */
    } runs[ULI_LATE_RUNS];
};

/* Names no rank yet; the deadline is this rank's own. */
static inline struct uli_late
uli_late_none(enum uli_late_phase phase)
{
    return (struct uli_late){.phase = phase, .origin = -1};
}
/* Adds a rank, which must be higher than all before. If all ULI_LATE_RUNS runs
 * are in use, the rank is only counted. */
void uli_late_add(struct uli_late *late, int32_t rank);
/* Names one rank; the deadline is this rank's own. */
struct uli_late uli_late_one(enum uli_late_phase phase, int32_t rank);
bool uli_late_lists(const struct uli_late *late, int32_t rank);

/* Copies what another rank has written, if it is valid. returns false, with
 * *late_p untouched, if it names no rank or is not valid for nranks ranks. */
bool uli_late_take(
    const struct uli_late *theirs, int32_t nranks, struct uli_late *late_p);

/* ---- who is the cause ---------------------------------------------------- */

/* Which rank waits for which, as far as one rank can read it. */
struct uli_late_view {
    void *context;
    int32_t nranks, rank; /* rank: the rank that searches */
    /* Does the rank that searches wait for `rank`? */
    bool (*missing)(void *context, int32_t rank);
    /* The rank for which `rank` waits in turn; -1: none, or not known. */
    int32_t (*awaits)(void *context, int32_t rank);
    /* A mark of `rank`, which only uli_late_find uses. */
    bool *(*mark)(void *context, int32_t rank);
};

/* Follows the waits from p on, to the first rank that waits for no other. -1:
 * the ranks wait in a circle, or for the rank that searches. */
int32_t uli_late_origin(const struct uli_late_view *view, int32_t p);
/* The ranks to which uli_late_origin leads from the missing ranks; if it leads
 * to none, the other ranks of the circles in which the missing ranks' waits
 * end. Names at least one rank if any is missing. */
struct uli_late uli_late_find(
    const struct uli_late_view *view, enum uli_late_phase phase);

/* ---- the wording --------------------------------------------------------- */

/* "rank 3", "ranks 3, 5-7 and 12 more". */
void uli_late_ranks(const struct uli_late *late, char *text_p, size_t bytes);

/* "barrier: timed out waiting for rank 3 (node5, pid 412) to reach it, by the
 * deadline of rank 0". what: the operation that waited. who: "node5, pid 412"
 * if exactly one rank is late, or "". If no rank is late, `who` names what the
 * wait was for instead ("the root at 10.0.0.1:7000"). */
void uli_late_text(const struct uli_late *late, const char *what,
    const char *who, char *text_p, size_t bytes);

/* "rank 0 (node4, pid 9) aborted; it waited for rank 3 (node5, pid 412)".
 * aborter: text that names the rank that has aborted. who: as above. */
void uli_late_abort_text(const struct uli_late *late, const char *aborter,
    const char *who, char *text_p, size_t bytes);

/* Reports ERR_TIMEOUT with the text of uli_late_text, whose `what` is made from
 * the format.
 * returns ERR_TIMEOUT. */
ulyx_status_t uli_late_error(const struct uli_late *late, const char *who,
    const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
