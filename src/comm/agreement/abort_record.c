/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes, spreads and reads the record of an abort; see abort_record.h.
 */
#include "comm/agreement/abort_record.h"

#include <string.h>
#include "comm/comm.h"
#include "comm/remote/remote.h"

/* ---- making -------------------------------------------------------------- */

static int32_t
rank_awaits(void *context, int32_t rank)
{
    return uli_comm_awaits(context, rank);
}

/* The rank at the end of the chain of waits, which begins at this rank's flight
 * recorder and is followed through the recorders of its node. If the chain is a
 * circle: the rank for which this rank waits. If this rank's entry is only a
 * guess: no rank. */
static struct uli_late
live_wait(ulyx_comm_t *comm)
{
    const struct uli_late_view view = {.context = comm,
        .nranks = comm->nranks,
        .rank = comm->rank,
        .awaits = rank_awaits};
    int32_t first = uli_comm_awaits(comm, comm->rank), last;

    if (first < 0 || uli_recorder_doubts(&comm->control->recorder, first))
        return uli_late_none(ULI_LATE_MOVE);
    last = uli_late_origin(&view, first);
    return uli_late_one(ULI_LATE_MOVE, last >= 0 ? last : first);
}

/* The ranks for which this rank waited when its deadline passed, because the
 * abort may follow a timeout; without such a record, the present wait. */
static struct uli_late
own_wait(ulyx_comm_t *comm)
{
    const struct uli_late *noted = uli_comm_noted_late(comm, comm->rank);
    struct uli_late late;

    if (!noted || !uli_late_take(noted, comm->nranks, &late))
        late = live_wait(comm);
    late.origin = comm->rank;
    return late;
}

/* ---- spreading ----------------------------------------------------------- */

/* Writes the record at all ranks of this node. */
static void
record_spread(ulyx_comm_t *comm, const struct uli_late *late)
{
    for (int32_t p = 0; p < comm->nranks; p++) {
        struct uli_control *control = uli_comm_mapped_control(comm, p);

        if (control)
            uli_control_write_once(
                &control->abort_state, &control->abort, late, sizeof(*late));
    }
}

void
uli_abort_record(ulyx_comm_t *comm)
{
    struct uli_late late;

    if (atomic_load(&comm->control->abort_state) != 0)
        return;
    late = own_wait(comm);
    if (late.count > 0)
        record_spread(comm, &late);
}

/* ---- reading ------------------------------------------------------------- */

static bool
record_take(const ulyx_comm_t *comm, const struct uli_late *theirs,
    struct uli_late *late_p)
{
    return theirs->origin >= 0 && uli_late_take(theirs, comm->nranks, late_p);
}

bool
uli_abort_read(ulyx_comm_t *comm, struct uli_late *late_p)
{
    const struct uli_control *control = comm->control;
    struct uli_late late;

    return uli_control_read_once(
               &control->abort_state, &control->abort, &late, sizeof(late)) &&
           record_take(comm, &late, late_p);
}

void
uli_abort_receive(ulyx_comm_t *comm, const void *content, size_t bytes)
{
    struct uli_late late;

    if (bytes != sizeof(late))
        return;
    memcpy(&late, content, sizeof(late));
    if (record_take(comm, &late, &late))
        record_spread(comm, &late);
}
