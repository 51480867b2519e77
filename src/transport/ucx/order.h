/* SPDX-License-Identifier: Apache-2.0
 *
 * A send happens before its receive. This also orders threads of one process,
 * where a setting has put their ranks on different nodes: a rank that has
 * received another rank's answer may reuse memory that the other rank has read
 * before. The order arises from sockets within UCX, which ThreadSanitizer does
 * not follow. For ThreadSanitizer alone the order is repeated here, by a word
 * per receiver (two receivers may share one).
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
