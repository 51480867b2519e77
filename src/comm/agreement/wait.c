/* SPDX-License-Identifier: Apache-2.0
 *
 * The one wait of the control path: check, spin a little, sleep on the
 * doorbell. Failure and deadline are checked in every iteration, so no wait
 * outlives either by more than one slice.
 */
#include "comm/remote/remote.h"

static void
cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* True when ready within the spin budget. */
static bool
wait_spin(ulyx_comm_t *comm, bool (*ready)(void *context), void *context)
{
    int64_t end = uli_clock_ns() + comm->spin_ns;

    if (comm->spin_ns == 0)
        return false;
    do {
        for (int i = 0; i < 64; i++) {
            if (ready(context))
                return true;
            cpu_relax();
        }
        uli_comm_progress(comm);
    } while (uli_clock_ns() < end);
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
        uli_doorbell_sleep(comm->control, seen, deadline - uli_clock_ns());
    }
}
