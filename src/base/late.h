/* SPDX-License-Identifier: Apache-2.0
 *
 * Whom a wait was for when its time was over: the ranks, what they have not
 * done, and whose deadline it was. One structure, one way to find who is the
 * cause and one wording for every wait of the library.
 *
 * It is plain data of a fixed size, because it lies in memory that ranks share
 * (control.h) and travels to other nodes with an exchange's last post: a rank
 * that waits for one whose deadline is over fails by what that one has found.
 */
#ifndef ULI_BASE_LATE_H
#define ULI_BASE_LATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ulyx/types.h"

/* What the ranks have not done; its words are a row of late.c. */
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
    ULI_LATE_UNSEEN, /* shown from another node how far they are */
    ULI_LATE_PHASES
};

enum { ULI_LATE_RUNS = 14, ULI_LATE_WHO_BYTES = 96, ULI_LATE_TEXT_BYTES = 384 };

struct uli_late {
    int32_t phase;  /* enum uli_late_phase */
    int32_t origin; /* whose deadline it was; -1: that of the rank itself */
    int32_t count;  /* of all ranks that are late; 0: none is */
    int32_t nruns;  /* the lowest of them, as runs that ascend: */
    struct uli_late_run {
        int32_t first, last; /* both included */
    } runs[ULI_LATE_RUNS];
};

/* Names no rank yet; the deadline is the rank's own. */
static inline struct uli_late
uli_late_none(enum uli_late_phase phase)
{
    return (struct uli_late){.phase = phase, .origin = -1};
}
/* One more rank, higher than all before. Beyond ULI_LATE_RUNS runs it is
 * counted only. */
void uli_late_add(struct uli_late *late, int32_t rank);
/* Names one rank; the deadline is the rank's own. */
struct uli_late uli_late_one(enum uli_late_phase phase, int32_t rank);
bool uli_late_lists(const struct uli_late *late, int32_t rank);

/* Takes over what another rank has written, once it is known to be whole:
 * false, and *late_p untouched, where it names no rank or is not valid for
 * this number of ranks. */
bool uli_late_take(
    const struct uli_late *theirs, int32_t nranks, struct uli_late *late_p);

/* ---- who is the cause ---------------------------------------------------- */

/* Which rank waits for which, as far as one rank can read it. */
struct uli_late_view {
    void *context;
    int32_t nranks, rank; /* rank: the one that looks */
    /* Does this rank wait for it? */
    bool (*missing)(void *context, int32_t rank);
    /* The rank for which `rank` waits in turn; -1: none, or not known. */
    int32_t (*awaits)(void *context, int32_t rank);
    /* A bit of the rank's own, which only uli_late_find uses. */
    bool *(*mark)(void *context, int32_t rank);
};

/* The rank that p waits for in the end; -1: they wait in a circle, or for the
 * rank that looks. */
int32_t uli_late_origin(const struct uli_late_view *view, int32_t p);
/* The ranks for which the missing ranks wait in the end; where all wait in
 * circles, the missing ranks themselves. Names at least one rank if any is
 * missing. */
struct uli_late uli_late_find(
    const struct uli_late_view *view, enum uli_late_phase phase);

/* ---- the wording --------------------------------------------------------- */

/* "rank 3", "ranks 3, 5-7 and 12 more". */
void uli_late_ranks(const struct uli_late *late, char *text_p, size_t bytes);

/* "barrier: timed out waiting for rank 3 (node5, pid 412) to reach it, by the
 * deadline of rank 0". what: the operation that waited. who: "node5, pid 412"
 * of the one rank that is late, or ""; where late names no rank, whom the wait
 * was for instead ("the root at 10.0.0.1:7000"). */
void uli_late_text(const struct uli_late *late, const char *what,
    const char *who, char *text_p, size_t bytes);

/* "rank 0 (node4, pid 9) aborted; it waited for rank 3 (node5, pid 412)".
 * aborter: the rank that has aborted, in words. who: as above. */
void uli_late_abort_text(const struct uli_late *late, const char *aborter,
    const char *who, char *text_p, size_t bytes);

/* uli_error(ULYX_ERR_TIMEOUT, ...) with that text; the format is of the
 * operation. */
ulyx_status_t uli_late_error(const struct uli_late *late, const char *who,
    const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
