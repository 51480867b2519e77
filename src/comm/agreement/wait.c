/* SPDX-License-Identifier: Apache-2.0
 *
 * The one wait of the control path: check, spin a little, sleep on the
 * doorbell. Failure and deadline are checked in every iteration, so no wait
 * outlives either by more than one slice.
 */
#include <sched.h>

#include "base/system/cpu.h"
#include "comm/remote/remote.h"

/* After so many nanoseconds a spin yields its core between two looks. A rank
 * with a core of its own is answered sooner. A rank that shares its core with
 * the rank for which it waits would otherwise keep that rank from answering. */
#define ALONE_NS 3000

/* True when ready within the spin budget. */
static bool
wait_spin(ulyx_comm_t *comm, bool (*ready)(void *context), void *context)
{
    enum { LOOKS = 16 };
    int64_t begin = uli_clock_ns(), now = begin;

    if (comm->spin_ns == 0)
        return false;
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (ready(context))
                return true;
            uli_cpu_relax();
        }
        uli_comm_progress(comm);
        now = uli_clock_ns();
        if (now - begin > ALONE_NS)
            sched_yield();
    } while (now - begin < comm->spin_ns);
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
