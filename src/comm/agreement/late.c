/* SPDX-License-Identifier: Apache-2.0
 *
 * Late ranks and their wording; see late.h.
 *
 *     reshuffle, call 7: timed out waiting for rank 3 (node5, pid 412)
 *     reshuffle, call 7: timed out waiting for ranks 3, 8-15, by the deadline
 *     of rank 0
 *     detach of window 2: timed out waiting for rank 1 (node5, pid 9) to let go
 *     of it
 */
#include "comm/agreement/late.h"

#include <stdarg.h>
#include <stdio.h>
#include "comm/comm.h"
#include "base/rank_list.h"

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

/* " (node5, pid 412)" where one rank is late. */
static void
late_identity(const ulyx_comm_t *comm, const struct uli_late *late,
    char *text_p, size_t bytes)
{
    text_p[0] = 0;
    if (late->count == 1) {
        const struct uli_peer *peer = &comm->peers[late->runs[0].first];
        snprintf(text_p, bytes, " (%.63s, pid %d)", peer->identity.host,
            peer->identity.pid);
    }
}

ulyx_status_t
uli_comm_fail_late(
    ulyx_comm_t *comm, const struct uli_late *late, const char *format, ...)
{
    static const char *const not_done[ULI_LATE_PHASES] = {
        [ULI_LATE_MOVE] = "",
        [ULI_LATE_REACH] = " to reach it",
        [ULI_LATE_MAP] = " to map it",
        [ULI_LATE_NOTE] = " to take note of it",
        [ULI_LATE_LET_GO] = " to let go of it",
    };
    char what[96], ranks[128], identity[96], origin[40] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    if (late->origin >= 0)
        snprintf(origin, sizeof(origin), ", by the deadline of rank %d",
            late->origin);
    if (late->count == 0)
        return uli_comm_fail(comm, ULYX_ERR_TIMEOUT, -1,
            "%s: timed out with nobody to wait for%s: this rank did not run in "
            "time",
            what, origin);
    uli_late_ranks(late, ranks, sizeof(ranks));
    late_identity(comm, late, identity, sizeof(identity));
    return uli_comm_fail(comm, ULYX_ERR_TIMEOUT, late->runs[0].first,
        "%s: timed out waiting for %s%s%s%s", what, ranks, identity,
        not_done[late->phase], origin);
}
