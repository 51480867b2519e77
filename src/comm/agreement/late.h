/* SPDX-License-Identifier: Apache-2.0
 *
 * Whom a wait was for when its time was over: the ranks, what they have not
 * done, and whose deadline it was. One structure and one wording for every wait
 * of the library.
 *
 * It is plain data of a fixed size, because it lies in memory that ranks share
 * (control.h) and travels to other nodes with an exchange's last post: a rank
 * that waits for one whose deadline is over fails by what that one has found.
 */
#ifndef ULI_COMM_AGREEMENT_LATE_H
#define ULI_COMM_AGREEMENT_LATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the ranks have not done. */
enum uli_late_phase {
    ULI_LATE_MOVE,   /* ended their part of the call */
    ULI_LATE_REACH,  /* begun the call */
    ULI_LATE_MAP,    /* mapped a window */
    ULI_LATE_NOTE,   /* taken note of a window */
    ULI_LATE_LET_GO, /* let go of a window */
    ULI_LATE_PHASES
};

enum { ULI_LATE_RUNS = 14 };

struct uli_late {
    int32_t phase;  /* enum uli_late_phase */
    int32_t origin; /* whose deadline it was; -1: that of the rank itself */
    int32_t count;  /* of all ranks that are late; 0: none is */
    int32_t nruns;  /* the lowest of them, as runs that ascend: */
    struct uli_late_run {
        int32_t first, last; /* both included */
    } runs[ULI_LATE_RUNS];
};

/* Nobody yet, by the rank's own deadline. */
static inline struct uli_late
uli_late_none(enum uli_late_phase phase)
{
    return (struct uli_late){.phase = phase, .origin = -1};
}
/* One more rank, higher than all before. Beyond ULI_LATE_RUNS runs it is
 * counted only. */
void uli_late_add(struct uli_late *late, int32_t rank);
bool uli_late_lists(const struct uli_late *late, int32_t rank);

/* Takes over what another rank has written, once it is known to be whole:
 * false, and *late_p untouched, where it names nobody or makes no sense for so
 * many ranks. */
bool uli_late_take(
    const struct uli_late *theirs, int32_t nranks, struct uli_late *late_p);

/* "rank 3", "ranks 3, 5-7 and 12 more". */
void uli_late_ranks(const struct uli_late *late, char *text_p, size_t bytes);

#endif
