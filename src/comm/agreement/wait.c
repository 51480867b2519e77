/* SPDX-License-Identifier: Apache-2.0
 *
 * The one wait of the control path: check, spin a little, sleep on the
 * doorbell. Failure and deadline are checked in every iteration, so no wait
 * outlives either by more than one slice.
 */
#include <sched.h>

#include "base/size.h"
#include "base/system/cpu.h"
#include "comm/remote/remote.h"

/* After so many nanoseconds a spin yields its core between two looks. A rank
 * with a core of its own is answered sooner. A rank that shares its core with
 * the rank for which it waits would otherwise keep that rank from answering,
 * and where ranks are known to share cores each look is followed by a yield: a
 * sleep and a wake would cost several times as much as the other rank's part of
 * a small call. */
#define ALONE_NS 3000
/* The most that one look counts against the spin budget. A yield that takes
 * longer has let another thread run. */
#define LOOK_NS 2000

/* True when ready within the spin budget. */
static bool
wait_spin(ulyx_comm_t *comm, bool (*ready)(void *context), void *context)
{
    int looks = comm->shares_cores ? 1 : 16;
    int64_t spun = 0, begin, now = uli_clock_ns();

    while (spun < comm->spin_ns) {
        begin = now;
        for (int i = 0; i < looks; i++) {
            if (ready(context))
                return true;
            uli_cpu_relax();
        }
        uli_comm_progress(comm);
        if (comm->shares_cores || spun > ALONE_NS)
            sched_yield();
        now = uli_clock_ns();
        spun += uli_min(now - begin, LOOK_NS);
    }
    return false;
}

ulyx_status_t
uli_comm_wait(ulyx_comm_t *comm, bool (*ready)(void *context), void *context,
    uli_deadline_t deadline)
{
    bool spun = false;

    for (;;) {
        uint32_t seen = uli_doorbell_read(comm->control);

        uli_comm_progress(comm);
        if (ready(context))
            return ULYX_SUCCESS;
        ULI_TRY(uli_comm_check(comm));
        if (uli_deadline_over(deadline))
            return ULYX_ERR_TIMEOUT;
        if (!spun && (spun = true, wait_spin(comm, ready, context)))
            return ULYX_SUCCESS;
        uli_doorbell_sleep(
            comm->control, seen, deadline - uli_clock_ns(), ready, context);
    }
}
