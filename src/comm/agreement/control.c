/* SPDX-License-Identifier: Apache-2.0
 *
 * Doorbells: a futex word that peers increment after each post. The word lies
 * in memory shared between processes, so the futex is not private. Also the
 * records that are written once.
 */
#include "comm/agreement/control.h"

#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SLICE_NS = 50 * 1000 * 1000 };

static long
control_futex(_Atomic uint32_t *word, int operation, uint32_t value,
    const struct timespec *timeout)
{
    return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

void
uli_doorbell_ring(struct uli_control *peer)
{
    atomic_fetch_add_explicit(&peer->doorbell, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&peer->sleeping, memory_order_seq_cst))
        control_futex(&peer->doorbell, FUTEX_WAKE, INT32_MAX, NULL);
}

void
uli_doorbell_sleep(struct uli_control *mine, uint32_t seen, int64_t max_ns,
    bool (*ready)(void *context), void *context)
{
    struct timespec slice = {0, max_ns < SLICE_NS ? max_ns : SLICE_NS};

    if (max_ns <= 0)
        return;
    /* A count, not a flag: several threads may wait on one rank's word. */
    atomic_fetch_add_explicit(&mine->sleeping, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
    if (!ready || !ready(context))
        control_futex(&mine->doorbell, FUTEX_WAIT, seen, &slice);
    atomic_fetch_sub_explicit(&mine->sleeping, 1, memory_order_seq_cst);
}

void
uli_control_write_once(
    _Atomic uint32_t *state, void *record_p, const void *record, size_t bytes)
{
    uint32_t none = 0;

    if (!atomic_compare_exchange_strong(state, &none, 1))
        return;
    memcpy(record_p, record, bytes);
    atomic_store(state, 2);
}

bool
uli_control_read_once(const _Atomic uint32_t *state, const void *record,
    void *copy_p, size_t bytes)
{
    enum { PATIENCE = 1000 }; /* yields while a record is being written */

    for (int i = 0; i < PATIENCE && atomic_load(state) == 1; i++)
        sched_yield();
    if (atomic_load(state) != 2)
        return false;
    memcpy(copy_p, record, bytes);
    return true;
}

int64_t
uli_control_bytes(int32_t nranks)
{
    int64_t bytes = (int64_t)sizeof(struct uli_control) +
                    (int64_t)nranks * (int64_t)sizeof(uint32_t);

    return (bytes + ULI_LINE - 1) / ULI_LINE * ULI_LINE;
}
