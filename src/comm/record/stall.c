/* SPDX-License-Identifier: Apache-2.0
 *
 * The warning about a wait that stands still; see stall.h.
 */
#include "comm/record/stall.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "base/system/clock.h"

enum { DESCRIBED = 3 };

void
uli_recorder_call_text(
    const struct uli_recorder_call *call, char *text_p, size_t bytes)
{
    const char *name = uli_call_name((enum uli_call)call->call);

    if (call->call == ULI_CALL_RESHUFFLE)
        snprintf(text_p, bytes, "%s, call %" PRIu64 " of plan %" PRIu64, name,
            call->number, call->plan);
    else if (call->call == ULI_CALL_ALLTOALL)
        snprintf(text_p, bytes, "%s, call %" PRIu64, name, call->number);
    else if (call->call >= ULI_CALL_ATTACH || call->call == ULI_CALL_SHRINK)
        snprintf(text_p, bytes, "%s", name);
    else
        snprintf(
            text_p, bytes, "%s, collective call %" PRIu64, name, call->number);
}

/* Describes the call of a rank of this node. The recorder of a remote rank is
 * not here. */
static void
rank_text(const ulyx_comm_t *comm, int32_t rank, char *text_p, size_t bytes)
{
    const struct uli_control *control = atomic_load(&comm->peers[rank].control);
    struct uli_recorder_copy copy;
    const struct uli_recorder_call *call;
    char last[128];

    if (!control || !uli_recorder_read(
                        &control->recorder, sizeof(control->recorder), &copy)) {
        snprintf(text_p, bytes, "on another node");
        return;
    }
    if (copy.ncalls == 0) {
        snprintf(text_p, bytes, "in no call; it has made none");
        return;
    }
    call = &copy.calls[0];
    uli_recorder_call_text(call, last, sizeof(last));
    snprintf(text_p, bytes, "%s%s, begun %.1f s ago",
        call->status == ULYX_IN_PROGRESS ? "in " : "in no call; its last: ",
        last, (double)(uli_clock_ns() - call->begun_ns) / 1e9);
}

void
uli_comm_warn_stall(
    ulyx_comm_t *comm, const char *what, const struct uli_late *late)
{
    char text[768] = "no rank that is late", does[192];
    size_t at = 0;
    int described = 0;

    for (int32_t r = 0; r < comm->nranks && described < DESCRIBED; r++) {
        const struct uli_identity *identity = &comm->peers[r].identity;

        if (!uli_late_lists(late, r))
            continue;
        rank_text(comm, r, does, sizeof(does));
        at += (size_t)snprintf(text + at, sizeof(text) - at,
            "%srank %d (%.40s, pid %d): %.120s", described++ ? "; " : "", r,
            identity->host, identity->pid, does);
    }
    if (late->count > described)
        snprintf(text + at, sizeof(text) - at, "; and %d more",
            late->count - described);
    ULI_WARN(ULI_LOG_FAULT, comm->rank, "%s: %s has waited for %g s, for %s",
        comm->name, what, comm->settings.stall_warn_s, text);
}
