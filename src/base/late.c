/* SPDX-License-Identifier: Apache-2.0
 *
 * Late ranks, the search for the cause, and the wording; see late.h. Texts:
 *
 *     reshuffle, call 7: timed out waiting for rank 3 (node5, pid 412)
 *     reshuffle, call 7: timed out waiting for ranks 3, 8-15, by the deadline
 *     of rank 0
 *     detach of window 2: timed out waiting for rank 1 (node5, pid 9) to let go
 *     of it
 *     rank 0 (node4, pid 9) aborted; it waited for ranks 3, 8-15
 */
#include "base/late.h"

#include <stdarg.h>
#include <stdio.h>
#include "base/rank_list.h"
#include "base/status.h"

/* ---- the data ------------------------------------------------------------ */

static int32_t
late_listed(const struct uli_late *late)
{
    int32_t listed = 0;
    for (int32_t i = 0; i < late->nruns; i++)
        listed += late->runs[i].last - late->runs[i].first + 1;
    return listed;
}

void
uli_late_add(struct uli_late *late, int32_t rank)
{
    bool full = late_listed(late) < late->count++;
    if (full)
        return;
    if (late->nruns > 0 && late->runs[late->nruns - 1].last == rank - 1)
        late->runs[late->nruns - 1].last = rank;
    else if (late->nruns < ULI_LATE_RUNS)
        late->runs[late->nruns++] = (struct uli_late_run){rank, rank};
}

struct uli_late
uli_late_one(enum uli_late_phase phase, int32_t rank)
{
    struct uli_late late = uli_late_none(phase);
    uli_late_add(&late, rank);
    return late;
}

bool
uli_late_lists(const struct uli_late *late, int32_t rank)
{
    for (int32_t i = 0; i < late->nruns; i++)
        if (rank >= late->runs[i].first && rank <= late->runs[i].last)
            return true;
    return false;
}

bool
uli_late_take(
    const struct uli_late *theirs, int32_t nranks, struct uli_late *late_p)
{
    struct uli_late late = *theirs;
    int32_t before = -1;
    if (late.phase < 0 || late.phase >= ULI_LATE_PHASES || late.origin < -1 ||
        late.origin >= nranks || late.nruns < 1 || late.nruns > ULI_LATE_RUNS)
        return false;
    for (int32_t i = 0; i < late.nruns; i++) {
        const struct uli_late_run *run = &late.runs[i];
        if (run->first <= before || run->last < run->first ||
            run->last >= nranks)
            return false;
        before = run->last;
    }
    if (late.count < late_listed(&late) || late.count > nranks)
        return false;
    *late_p = late;
    return true;
}

/* ---- who is the cause ---------------------------------------------------- */

int32_t
uli_late_origin(const struct uli_late_view *view, int32_t p)
{
    for (int32_t i = 0; i < view->nranks && p != view->rank; i++) {
        int32_t next = view->awaits(view->context, p);
        if (next < 0)
            return p;
        p = next;
    }
    return -1;
}

/* Marks the ranks from `at` on, each with the rank for which it waits, until
 * `end` or a rank that no longer waits. */
static void
waits_mark(const struct uli_late_view *view, int32_t at, int32_t end)
{
    for (int32_t i = 0; i < view->nranks && at >= 0; i++) {
        *view->mark(view->context, at) = true;
        at = view->awaits(view->context, at);
        if (at == end)
            return;
    }
}

/* Marks the circle to which the waits of the missing rank p lead. If it goes
 * through the rank that searches, that rank itself is left out. */
static void
circle_mark(const struct uli_late_view *view, int32_t p)
{
    int32_t at = p;
    for (int32_t i = 0; i < view->nranks && at >= 0 && at != view->rank; i++)
        at = view->awaits(view->context, at);
    if (at == view->rank)
        waits_mark(view, p, view->rank);
    else if (at >= 0)
        waits_mark(view, at, at);
    else /* one of them has just ended its wait */
        *view->mark(view->context, p) = true;
}

struct uli_late
uli_late_find(const struct uli_late_view *view, enum uli_late_phase phase)
{
    struct uli_late late = uli_late_none(phase);
    bool any = false;
    for (int32_t p = 0; p < view->nranks; p++)
        *view->mark(view->context, p) = false;
    for (int32_t p = 0; p < view->nranks; p++) {
        int32_t origin =
            view->missing(view->context, p) ? uli_late_origin(view, p) : -1;
        if (origin >= 0)
            any = *view->mark(view->context, origin) = true;
    }
    /* A circle has no first rank, but the cause is one of its ranks, or what
     * connects them. */
    for (int32_t p = 0; !any && p < view->nranks; p++)
        if (view->missing(view->context, p))
            circle_mark(view, p);
    for (int32_t p = 0; p < view->nranks; p++)
        if (*view->mark(view->context, p))
            uli_late_add(&late, p);
    return late;
}

/* ---- the wording --------------------------------------------------------- */

static bool
is_listed(const void *context, int32_t rank)
{
    return uli_late_lists(context, rank);
}

void
uli_late_ranks(const struct uli_late *late, char *text_p, size_t bytes)
{
    int32_t end = late->nruns > 0 ? late->runs[late->nruns - 1].last + 1 : 0;
    uli_rank_list_text_of(late->count, end, is_listed, late, text_p, bytes);
}

static const char *const phase_words[ULI_LATE_PHASES] = {
    [ULI_LATE_MOVE] = "",
    [ULI_LATE_REACH] = " to reach it",
    [ULI_LATE_MAP] = " to map it",
    [ULI_LATE_NOTE] = " to acknowledge it",
    [ULI_LATE_LET_GO] = " to let go of it",
    [ULI_LATE_RELAY] = " to pass on what other ranks have posted",
    [ULI_LATE_JOIN] = " to join",
    [ULI_LATE_ANSWER] = " to answer",
    [ULI_LATE_VOTE] = " to answer, and none is known to be dead",
    [ULI_LATE_DECIDE] = " to decide",
    [ULI_LATE_SEND] = " to send a message",
    [ULI_LATE_TAKE] = " to receive what was sent",
    [ULI_LATE_END] = " to end it, which all have reached",
    [ULI_LATE_UNSEEN] = " on another node, where it cannot be seen how far a "
                        "rank is",
};

enum { WHOM_BYTES = 128 + ULI_LATE_WHO_BYTES };

/* "rank 3 (node5, pid 412)", "ranks 3, 5"; only `who` if no rank is late. */
static void
late_whom(const struct uli_late *late, const char *who, char text_p[WHOM_BYTES])
{
    char ranks[128] = "";
    bool adds = late->count == 1 && who[0];

    if (late->count > 0)
        uli_late_ranks(late, ranks, sizeof(ranks));
    snprintf(text_p, WHOM_BYTES, "%s%s%s%s", ranks, adds ? " (" : "",
        late->count < 2 ? who : "", adds ? ")" : "");
}

void
uli_late_text(const struct uli_late *late, const char *what, const char *who,
    char *text_p, size_t bytes)
{
    char whom[WHOM_BYTES], origin[40] = "";

    if (late->origin >= 0)
        snprintf(origin, sizeof(origin), ", by the deadline of rank %d",
            late->origin);
    if (late->count == 0 && !who[0]) {
        snprintf(text_p, bytes,
            "%s: timed out, and no rank was awaited%s: this rank did not run "
            "in time",
            what, origin);
        return;
    }
    late_whom(late, who, whom);
    snprintf(text_p, bytes, "%s: timed out waiting for %s%s%s", what, whom,
        phase_words[late->phase], origin);
}

void
uli_late_abort_text(const struct uli_late *late, const char *aborter,
    const char *who, char *text_p, size_t bytes)
{
    char whom[WHOM_BYTES];

    late_whom(late, who, whom);
    snprintf(text_p, bytes, "%s aborted%s%s", aborter,
        late->count > 0 ? "; it waited for " : "", whom);
}

ulyx_status_t
uli_late_error(
    const struct uli_late *late, const char *who, const char *format, ...)
{
    char what[96], text[ULI_LATE_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    uli_late_text(late, what, who, text, sizeof(text));
    return uli_error(ULYX_ERR_TIMEOUT, "%s", text);
}
