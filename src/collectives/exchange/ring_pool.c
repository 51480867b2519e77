/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool of rings; see ring_pool.h. The owner of the handle changes a set's
 * fields while it holds the set's lease, so a call either does not get the set
 * or finds it whole.
 */
#include "collectives/exchange/ring_pool.h"

#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/size.h"

/* Sizes of sets are rounded up to a quarter of the power of two below, at least
 * LEAST_STEP bytes, so that plans of slightly growing lengths do not replace
 * one another's sets. */
enum { LEAST_STEP = 4096, STEPS = 4 };

struct uli_ring_pool {
    struct uli_ring_set sets[ULI_MOST_RING_SETS];
    int32_t most;         /* number of places in use, by the setting */
    struct uli_list uses; /* (owner's) of plans that have not left */
    _Atomic int64_t leases, misses;
};

static void
pool_destroy(ulyx_comm_t *comm)
{
    free(comm->ring_pool);
    comm->ring_pool = NULL;
}

ulyx_status_t
uli_ring_pool_open(ulyx_comm_t *comm)
{
    struct uli_ring_pool *pool;
    if (comm->ring_pool)
        return ULYX_SUCCESS;
    pool = aligned_alloc(ULI_LINE, sizeof(*pool));
    if (!pool)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a pool of rings");
    memset(pool, 0, sizeof(*pool));
    pool->most = (int32_t)comm->settings.ring_sets;
    for (int32_t i = 0; i < ULI_MOST_RING_SETS; i++)
        atomic_init(&pool->sets[i].leased, 1); /* empty, so not to lease */
    uli_list_init(&pool->uses);
    comm->ring_pool = pool;
    comm->ring_pool_destroy = pool_destroy;
    return ULYX_SUCCESS;
}

/* ---- leases -------------------------------------------------------------- */

static int64_t
set_bytes(const struct uli_ring_set *set)
{
    return atomic_load_explicit(&set->bytes, memory_order_relaxed);
}

static bool
set_take(struct uli_ring_set *set)
{
    int32_t none = 0;
    return atomic_compare_exchange_strong_explicit(
        &set->leased, &none, 1, memory_order_acquire, memory_order_relaxed);
}

void
uli_ring_set_give_back(struct uli_ring_set *set)
{
    atomic_store_explicit(&set->leased, 0, memory_order_release);
}

static bool
set_is_idle(const struct uli_ring_set *set)
{
    return atomic_load_explicit(
               uli_ring_set_pending(set), memory_order_acquire) == 0 &&
           atomic_load_explicit(
               uli_ring_set_readers(set), memory_order_acquire) == 0;
}

/* The smallest set after `after` that seems free and has enough bytes, in the
 * order of (bytes, place), so that large sets are left to plans that need them;
 * -1: none. */
static int32_t
pool_find(const struct uli_ring_pool *pool, int64_t bytes, int32_t after)
{
    int32_t best = -1;
    int64_t least = after < 0 ? bytes : set_bytes(&pool->sets[after]);
    for (int32_t i = 0; i < pool->most; i++) {
        const struct uli_ring_set *set = &pool->sets[i];
        int64_t has = set_bytes(set);
        if (has < bytes || has < least || (has == least && i <= after) ||
            atomic_load_explicit(&set->leased, memory_order_relaxed))
            continue;
        if (best < 0 || has < set_bytes(&pool->sets[best]))
            best = i;
    }
    return best;
}

struct uli_ring_set *
uli_ring_set_lease(ulyx_comm_t *comm, uint64_t user, int64_t bytes)
{
    struct uli_ring_pool *pool = comm->ring_pool;
    int32_t i = -1;
    while ((i = pool_find(pool, bytes, i)) >= 0) {
        struct uli_ring_set *set = &pool->sets[i];
        if (!set_take(set))
            continue;
        if (set_bytes(set) >= bytes &&
            (set->user == user || set_is_idle(set))) {
            set->user = user;
            atomic_fetch_add_explicit(&pool->leases, 1, memory_order_relaxed);
            return set;
        }
        uli_ring_set_give_back(set);
    }
    if (atomic_fetch_add_explicit(&pool->misses, 1, memory_order_relaxed) == 0)
        ULI_INFO(ULI_LOG_EXEC, comm->rank,
            "a call found no ring set free and goes by small rings: more than "
            "ULYX_RING_SETS (%d) at one time",
            pool->most);
    return NULL;
}

/* ---- sets ---------------------------------------------------------------- */

/* An empty place is marked as leased, so no call takes it; the owner of the
 * handle may fill it. */
static ulyx_status_t
set_make(ulyx_comm_t *comm, struct uli_ring_set *set, int64_t bytes)
{
    ULI_TRY(uli_arena_alloc(
        comm, bytes + (int64_t)sizeof(struct uli_ring_head), &set->block));
    set->user = 0;
    atomic_store_explicit(&set->bytes, bytes, memory_order_relaxed);
    uli_ring_set_give_back(set);
    return ULYX_SUCCESS;
}

/* Leaves an empty place; false while the set is in use. */
static bool
set_drop(ulyx_comm_t *comm, struct uli_ring_set *set)
{
    if (!set_bytes(set))
        return true;
    if (!set_take(set))
        return false;
    if (!set_is_idle(set)) {
        uli_ring_set_give_back(set);
        return false;
    }
    uli_arena_free(comm, &set->block);
    atomic_store_explicit(&set->bytes, 0, memory_order_relaxed);
    return true;
}

/* Rounds up to the sizes that sets have. */
static int64_t
step_up(int64_t bytes)
{
    int64_t step = LEAST_STEP;
    while (step * STEPS * 2 <= bytes)
        step *= 2;
    return uli_round_up(bytes, step);
}

/* The places by size, the largest set first. */
static void
pool_sort(struct uli_ring_pool *pool, struct uli_ring_set **sorted_p)
{
    for (int32_t i = 0; i < pool->most; i++) {
        struct uli_ring_set *set = &pool->sets[i];
        int32_t at = i;
        for (; at > 0 && set_bytes(sorted_p[at - 1]) < set_bytes(set); at--)
            sorted_p[at] = sorted_p[at - 1];
        sorted_p[at] = set;
    }
}

/* ---- what plans need ---------------------------------------------------- */

static int64_t
use_bytes(const struct uli_list *node)
{
    return ULI_CONTAINER_OF(node, struct uli_ring_use, node)->bytes;
}

/* Makes the missing sets, in the places of the smallest ones, unless those are
 * in use now. */
static ulyx_status_t
pool_fit(ulyx_comm_t *comm, struct uli_ring_pool *pool)
{
    struct uli_ring_set *sorted[ULI_MOST_RING_SETS];
    const struct uli_list *n = pool->uses.next;
    for (int32_t k = 0; k < pool->most && n != &pool->uses; k++, n = n->next) {
        pool_sort(pool, sorted);
        if (set_bytes(sorted[k]) >= use_bytes(n))
            continue;
        struct uli_ring_set *last = sorted[pool->most - 1];
        if (!set_drop(comm, last))
            break;
        ULI_TRY(set_make(comm, last, step_up(use_bytes(n))));
    }
    return ULYX_SUCCESS;
}

/* As pool_fit; lack of memory is logged only, and calls then use small
 * rings. */
static ulyx_status_t
pool_grow(ulyx_comm_t *comm, struct uli_ring_pool *pool)
{
    ulyx_status_t status = pool_fit(comm, pool);
    if (status == ULYX_SUCCESS || uli_comm_failure(comm) != ULYX_SUCCESS)
        return status;
    ULI_WARN(ULI_LOG_MEM, comm->rank,
        "no ring set of full size, calls may go by small rings: %s",
        uli_error_text());
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_ring_pool_join(ulyx_comm_t *comm, struct uli_ring_use *use, int64_t bytes)
{
    struct uli_ring_pool *pool = comm->ring_pool;
    struct uli_list *n = pool->uses.next;
    use->bytes = bytes;
    uli_list_init(&use->node);
    while (n != &pool->uses && use_bytes(n) >= bytes)
        n = n->next;
    uli_list_append(n, &use->node); /* before n: by size, the largest first */
    return pool_grow(comm, pool);
}

void
uli_ring_pool_leave(struct uli_ring_use *use)
{
    if (use->node.next)
        uli_list_remove(&use->node);
    use->node.next = NULL;
}

void
uli_ring_pool_trim(ulyx_comm_t *comm)
{
    struct uli_ring_pool *pool = comm->ring_pool;
    struct uli_ring_set *sorted[ULI_MOST_RING_SETS];
    if (!pool)
        return;
    const struct uli_list *n = pool->uses.next;
    pool_sort(pool, sorted);
    for (int32_t k = 0; k < pool->most; k++) {
        bool needed = n != &pool->uses;
        if (!needed || set_bytes(sorted[k]) > step_up(use_bytes(n)))
            (void)set_drop(comm, sorted[k]);
        n = needed ? n->next : n;
    }
    (void)pool_grow(comm, pool);
}

/* ---- counts -------------------------------------------------------------- */

struct uli_ring_pool_counts
uli_ring_pool_counts(const ulyx_comm_t *comm)
{
    const struct uli_ring_pool *pool = comm->ring_pool;
    struct uli_ring_pool_counts counts = {0};
    for (int32_t i = 0; pool && i < pool->most; i++) {
        int64_t bytes = set_bytes(&pool->sets[i]);
        counts.sets += bytes > 0;
        counts.bytes += bytes;
        if (!bytes)
            continue;
        counts.leased += atomic_load(&pool->sets[i].leased);
        counts.readers += atomic_load(uli_ring_set_readers(&pool->sets[i]));
    }
    counts.leases = pool ? atomic_load(&pool->leases) : 0;
    counts.misses = pool ? atomic_load(&pool->misses) : 0;
    return counts;
}
