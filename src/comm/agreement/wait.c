/* SPDX-License-Identifier: Apache-2.0
 *
 * The one wait of the control path: check, spin a little, sleep on the
 * doorbell. Failure is checked in every iteration but not during the spin, the
 * deadline in both, so no wait outlives either by more than one slice and the
 * spin.
 */
#include <sched.h>

#include "base/size.h"
#include "base/system/cpu.h"
#include "comm/remote/remote.h"

/* A spin is rounds of one or several looks. After so many nanoseconds it yields
 * its core between two rounds: a rank with a core of its own is answered
 * sooner, and a rank that shares its core with the rank for which it waits
 * would otherwise keep that rank from answering. Where ranks are known to share
 * cores, each look is followed by a yield, because a sleep and a wake cost
 * several times as much as the other rank's part of a small call. */
#define ALONE_NS 3000
/* The most that a yield counts against the spin budget. One that takes longer
 * has let another thread run. */
#define YIELD_NS 1000
/* The most that a spin lasts beyond its budget, for what others run
 * meanwhile. */
#define SPIN_MOST_NS INT64_C(5000000)

bool
uli_comm_spin(ulyx_comm_t *comm, bool (*ready)(void *context), void *context,
    int64_t budget_ns, uli_deadline_t deadline)
{
    int looks = comm->shares_cores ? 1 : 16;
    int64_t spun = 0, looked, now = uli_clock_ns();
    int64_t until = uli_min(now + budget_ns + SPIN_MOST_NS, deadline);

    while (spun < budget_ns && now < until) {
        looked = now;
        for (int i = 0; i < looks; i++) {
            if (ready(context))
                return true;
            uli_cpu_relax();
        }
        uli_comm_progress(comm);
        now = uli_clock_ns();
        spun += now - looked;
        if (comm->shares_cores || spun > ALONE_NS) {
            looked = now;
            sched_yield();
            now = uli_clock_ns();
            spun += uli_min(now - looked, YIELD_NS);
        }
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
        if (!spun && (spun = true, uli_comm_spin(comm, ready, context,
                                       comm->spin_ns, deadline)))
            return ULYX_SUCCESS;
        uli_doorbell_sleep(
            comm->control, seen, deadline - uli_clock_ns(), ready, context);
    }
}
