/* SPDX-License-Identifier: Apache-2.0
 *
 * What is sent comes before what is received, also between threads of one
 * process whose ranks are of different (made-up) nodes: so whoever waits for
 * the answer of another rank may reuse what that one has read. The order goes
 * through sockets within UCX, which ThreadSanitizer does not see; for it alone
 * it is said once more, by a word for each receiver (two may share one).
 */
#ifndef ULI_TRANSPORT_UCX_ORDER_H
#define ULI_TRANSPORT_UCX_ORDER_H

#include <stdint.h>

#ifdef __SANITIZE_THREAD__
#include <stdatomic.h>

enum { ULI_UCX_ORDERS = 1024 };
extern _Atomic uint64_t uli_ucx_orders[ULI_UCX_ORDERS];

static inline void
uli_ucx_before(uint64_t receiver)
{
    atomic_fetch_add_explicit(
        &uli_ucx_orders[receiver % ULI_UCX_ORDERS], 1, memory_order_acq_rel);
}

static inline void
uli_ucx_after(uint64_t receiver)
{
    (void)atomic_load_explicit(
        &uli_ucx_orders[receiver % ULI_UCX_ORDERS], memory_order_acquire);
}
#else
static inline void
uli_ucx_before(uint64_t receiver)
{
    (void)receiver;
}

static inline void
uli_ucx_after(uint64_t receiver)
{
    (void)receiver;
}
#endif

#endif
