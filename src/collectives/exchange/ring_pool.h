/* SPDX-License-Identifier: Apache-2.0
 *
 * The rings that the plans of a communicator share: ring sets, each a block of
 * an arena in which one call of one plan has all its rings (exchange_rings.c).
 * A call leases a set by one compare and swap and never waits for one: where
 * none is free it goes by the small rings of its plan. So many plans hold the
 * pool and a few KiB each, not full rings each.
 *
 * Why a peer of an earlier call never touches a set that is another's by now.
 * Who writes into a set's rings is told where they lie by a READY(n), of one
 * plan and call. It uses that between reading READY(n) and posting its DONE(n),
 * and nothing else tells it: call n + 1 has a READY of its own. The set goes
 * back only when the call has ended in order, so after the DONE(n) of all
 * peers. Of a mapped peer that DONE(n) is released after its last store. Of a
 * remote peer DONE(n) may overtake its puts, but this rank has then taken all
 * chunks of its stream, each by the signal of its own put, so none is still to
 * land. A peer that refuses, differs or has left streams nothing in call n, and
 * both ends come to that conclusion from the same two records. Where a call
 * fails the communicator nobody knows what peers still do, so its set is never
 * leased again.
 *
 * What goes out of a set, from bounce buffers, may be referred to by the
 * network for longer than the call: `pending` counts such puts. Until it is 0
 * the set is free to the same plan only, whose chunks are reused by the same
 * rule within a call: all of the data has been taken by the peers. Staging of
 * a schedule is read by other ranks of the node, longer than its owner's call:
 * `readers` counts them, and each takes itself off. The same plan may lease it
 * before that, for its next call moves nothing before all ranks have left this
 * one (hier.h).
 *
 * Sets are made when plans are made, never in a call: the i-th largest set
 * serves the i-th largest plan, for at most ULYX_RING_SETS of them. A set that
 * has become too small is replaced when it is free. Nothing is given back but
 * by uli_ring_pool_trim.
 *
 * Threads: lease and give_back any; the others are for the owner of the
 * communicator's handle.
 */
#ifndef ULI_COLLECTIVES_EXCHANGE_RING_POOL_H
#define ULI_COLLECTIVES_EXCHANGE_RING_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/list.h"
#include "comm/comm.h"

enum { ULI_MOST_RING_SETS = 64 };

/* Begins a set's block; the memory to lease follows at the next line. */
struct uli_ring_head {
    _Alignas(ULI_LINE) _Atomic int64_t pending; /* puts that refer to the set */
    _Atomic int32_t readers; /* ranks that may still read it, of a schedule */
};

struct uli_ring_set {
    _Alignas(ULI_LINE) _Atomic int32_t leased;
    uint64_t user;         /* plan number of the last lease */
    _Atomic int64_t bytes; /* behind the head; 0: there is no set here */
    struct uli_arena_block block;
};

/* What a plan wants of the pool, until it leaves. */
struct uli_ring_use {
    struct uli_list node;
    int64_t bytes;
};

struct uli_ring_pool;

/* Makes the communicator's pool, empty, unless it is there. Errors:
 * NO_MEMORY. */
ulyx_status_t uli_ring_pool_open(ulyx_comm_t *comm);
/* Calls of one more plan will lease `bytes`: makes or enlarges a set where
 * needed, as an arena grows. No memory for it is no error: calls then go by
 * their small rings, which is said once. Errors: those that have failed the
 * communicator. */
ulyx_status_t uli_ring_pool_join(
    ulyx_comm_t *comm, struct uli_ring_use *use, int64_t bytes);
/* The plan has gone. A use that has not joined (zeros) is fine. */
void uli_ring_pool_leave(struct uli_ring_use *use);
/* Gives back the sets beyond what the plans that there are want of it. */
void uli_ring_pool_trim(ulyx_comm_t *comm);

/* A set of at least `bytes`, or NULL: none is free. user: a number of the plan
 * that is unique in the communicator. Waits for nobody. */
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

/* For tests. Of the pool, which may not be there. */
struct uli_ring_pool_counts {
    int64_t sets, leased, readers, bytes; /* at present */
    int64_t leases, misses; /* calls that got one, and that did not */
};
struct uli_ring_pool_counts uli_ring_pool_counts(const ulyx_comm_t *comm);

#endif
