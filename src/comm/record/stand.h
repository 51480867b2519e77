/* SPDX-License-Identifier: Apache-2.0
 *
 * A call that needs one rank after another records in the flight recorder for
 * which rank it stands still. It does so only after a pause: the entry of a
 * rank that is stopped stays, and others would follow that entry to a rank that
 * has answered since.
 */
#ifndef ULI_COMM_RECORD_STAND_H
#define ULI_COMM_RECORD_STAND_H

#include "comm/comm.h"

/* The pause. A rank that runs answers sooner; even a short deadline is
 * longer. */
#define ULI_STAND_NS INT64_C(20000000)

/* On the call's stack. */
struct uli_stand {
    ulyx_comm_t *comm;
    uint64_t recorded; /* the call, in the flight recorder, or 0 */
    int32_t rank;      /* the rank that the call needs now */
    bool published;
    int64_t still_ns; /* when to record the rank */
};

/* The call needs no rank any more: clears the awaited rank. */
static inline void
uli_stand_end(struct uli_stand *stand)
{
    if (stand->published)
        uli_recorder_await(
            &stand->comm->control->recorder, stand->recorded, -1);
    stand->published = false;
}

/* The call needs this rank now, and no other. */
static inline void
uli_stand_begin(struct uli_stand *stand, int32_t rank)
{
    uli_stand_end(stand);
    stand->rank = rank;
    stand->still_ns = uli_clock_ns() + ULI_STAND_NS;
}

/* Called repeatedly from the call's wait: it still needs the rank. */
static inline void
uli_stand_look(struct uli_stand *stand)
{
    if (stand->published || uli_clock_ns() < stand->still_ns)
        return;
    stand->published = true;
    uli_recorder_await(
        &stand->comm->control->recorder, stand->recorded, stand->rank);
}

#endif
