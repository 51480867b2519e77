/* SPDX-License-Identifier: Apache-2.0
 *
 * The rings that the plans of a communicator share: ring sets. A ring set is a
 * block of an arena in which one call of one plan has all its rings
 * (exchange_rings.c). A call leases a set by one compare and swap and never
 * waits for one: where none is free, it uses the small rings of its plan. So
 * the communicator holds one pool, and each plan a few KiB in place of full
 * rings.
 *
 * Why a peer of an earlier call never touches a set that belongs to another
 * call by now. A peer gets the place of its ring in a set from a READY(n) of
 * one plan and call only. It uses that place between reading READY(n) and
 * posting its DONE(n); call n + 1 has a READY of its own. The set goes back
 * only when the call has ended in order, so after the DONE(n) of all peers. A
 * mapped peer releases DONE(n) after its last store. The DONE(n) of a remote
 * peer may overtake its puts, but this rank has by then taken all chunks of
 * that peer's stream, each by the signal of its own put, so no put is still to
 * arrive. A peer that refuses, disagrees or has left streams nothing in call
 * n, and both ends conclude that from the same two records. Where a call fails
 * the communicator, the peers may still use the set, so it is never leased
 * again.
 *
 * The network may read from the bounce buffers of a set for longer than the
 * call: `pending` counts such puts. Until it is 0 only the same plan may lease
 * the set. That plan reuses its chunks by the same rule as within a call: all
 * of the data has been taken by the peers. Other ranks of the node may read the
 * staging of a schedule for longer than its owner's call: `readers` counts
 * them, and each takes itself off. The same plan may lease the set before that,
 * because its next call moves nothing before all ranks have left this call
 * (hier.h).
 *
 * Sets are made when plans are made, never in a call: the i-th largest set
 * serves the i-th largest plan, for at most ULYX_RING_SETS of them. A set that
 * has become too small is replaced when it is free. Only uli_ring_pool_trim
 * gives sets back.
 *
 * Threads: any thread may call lease and give_back; all other functions are for
 * the owner of the communicator's handle.
 */
#ifndef ULI_COLLECTIVES_EXCHANGE_RING_POOL_H
#define ULI_COLLECTIVES_EXCHANGE_RING_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/list.h"
#include "comm/comm.h"

enum { ULI_MOST_RING_SETS = 64 };

/* The head of a set's block; the memory to lease follows at the next line. */
struct uli_ring_head {
    _Alignas(ULI_LINE) _Atomic int64_t pending; /* puts that read from it */
    _Atomic int32_t readers; /* ranks that may still read the staging */
};

struct uli_ring_set {
    _Alignas(ULI_LINE) _Atomic int32_t leased;
    uint64_t user;         /* plan number of the last lease */
    _Atomic int64_t bytes; /* after the head; 0: the place is empty */
    struct uli_arena_block block;
};

/* What a plan needs of the pool, until it leaves. */
struct uli_ring_use {
    struct uli_list node;
    int64_t bytes;
};

struct uli_ring_pool;

/* Makes the communicator's pool, empty, unless it exists. Errors: NO_MEMORY. */
ulyx_status_t uli_ring_pool_open(ulyx_comm_t *comm);
/* Calls of one more plan will lease `bytes`: makes or enlarges a set where
 * needed, as an arena grows. Lack of memory for it is no error: calls then use
 * their small rings, and a warning is logged. Errors: those that have failed
 * the communicator. */
ulyx_status_t uli_ring_pool_join(
    ulyx_comm_t *comm, struct uli_ring_use *use, int64_t bytes);
/* The plan has ended. A use that has not joined (zeros) is allowed. */
void uli_ring_pool_leave(struct uli_ring_use *use);
/* Gives back the sets beyond what the present plans need. */
void uli_ring_pool_trim(ulyx_comm_t *comm);

/* A set of at least `bytes`, or NULL: none is free. user: a number of the plan
 * that is unique in the communicator. Waits for no rank. */
struct uli_ring_set *uli_ring_set_lease(
    ulyx_comm_t *comm, uint64_t user, int64_t bytes);
/* After a call that has ended in order. */
void uli_ring_set_give_back(struct uli_ring_set *set);

static inline char *
uli_ring_set_memory(const struct uli_ring_set *set)
{
    return (char *)set->block.address + sizeof(struct uli_ring_head);
}
static inline _Atomic int64_t *
uli_ring_set_pending(const struct uli_ring_set *set)
{
    return &((struct uli_ring_head *)set->block.address)->pending;
}

static inline _Atomic int32_t *
uli_ring_set_readers(const struct uli_ring_set *set)
{
    return &((struct uli_ring_head *)set->block.address)->readers;
}

/* For tests. comm's pool may not exist. */
struct uli_ring_pool_counts {
    int64_t sets, leased, readers, bytes; /* at present */
    int64_t leases, misses; /* calls that got a set, and that did not */
};
struct uli_ring_pool_counts uli_ring_pool_counts(const ulyx_comm_t *comm);

#endif
