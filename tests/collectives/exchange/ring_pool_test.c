/* SPDX-License-Identifier: Apache-2.0
 *
 * Rings that plans share. The pool alone: which set a lease returns, which sets
 * grow, what is released. Then many plans that share the pool, one after
 * another and at once, with more plans than sets: each moves the right bytes
 * whether it leased a set or used its small rings, and the test checks that
 * both happen.
 */
#include "collectives/exchange/reshuffle_world.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "collectives/exchange/ring_pool.h"
#include "collectives/hier/hier.h"
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 4, SETS = 2, PLANS = 6, ROUNDS = 20, LIMIT_S = 60 };

/* Chunks are at most 16 KiB, or 4 KiB in small rings. A stream of the largest
 * plan needs several chunks of either. */
static void
settings_make(const char *sets)
{
    setenv("ULYX_CMA", "off", 1);
    setenv("ULYX_RING_CHUNK", "16K", 1);
    setenv("ULYX_RING_SETS", sets, 1);
}

/* ---- the pool alone ------------------------------------------------------ */

static ulyx_comm_t *
pool_alone(const char *sets)
{
    ulyx_comm_t *comm;
    settings_make(sets);
    assert_status(ulyx_comm_create_local(1, NULL, &comm), ULYX_SUCCESS);
    assert_status(uli_ring_pool_open(comm), ULYX_SUCCESS);
    return comm;
}

static void
pool_join(ulyx_comm_t *comm, struct uli_ring_use *use, int64_t bytes)
{
    *use = (struct uli_ring_use){.bytes = 0};
    assert_status(uli_ring_pool_join(comm, use, bytes), ULYX_SUCCESS);
}

static void
lease_is_the_smallest_that_fits(void **state)
{
    ulyx_comm_t *comm = pool_alone("3");
    struct uli_ring_use uses[3];
    (void)state;
    assert_null(uli_ring_set_lease(comm, 1, 1));
    pool_join(comm, &uses[0], 10000);
    pool_join(comm, &uses[1], 100000);
    pool_join(comm, &uses[2], 40000);
    struct uli_ring_set *a = uli_ring_set_lease(comm, 1, 9000);
    struct uli_ring_set *b = uli_ring_set_lease(comm, 2, 9000);
    assert_non_null(a);
    assert_non_null(b);
    assert_true(a->bytes >= 10000 && a->bytes < b->bytes);
    assert_true(b->bytes >= 40000 && b->bytes < 100000);
    assert_null(uli_ring_set_lease(comm, 3, 200000));
    struct uli_ring_set *c = uli_ring_set_lease(comm, 3, 9000);
    assert_true(c && c->bytes >= 100000);
    assert_null(uli_ring_set_lease(comm, 4, 9000));
    uli_ring_set_give_back(b);
    assert_ptr_equal(uli_ring_set_lease(comm, 4, 9000), b);
    struct uli_ring_pool_counts counts = uli_ring_pool_counts(comm);
    assert_int_equal(counts.sets, 3);
    assert_int_equal(counts.leased, 3);
    assert_int_equal(counts.leases, 4);
    assert_int_equal(counts.misses, 3);
    assert_status(ulyx_comm_destroy(comm), ULYX_SUCCESS);
}

/* The k-th largest set fits the k-th largest plan. */
static void
sets_follow_the_largest_plans(void **state)
{
    ulyx_comm_t *comm = pool_alone("2");
    struct uli_ring_use uses[50];
    (void)state;
    for (int i = 0; i < 50; i++)
        pool_join(comm, &uses[i], 5000 + i * 3000);
    struct uli_ring_pool_counts counts = uli_ring_pool_counts(comm);
    assert_int_equal(counts.sets, 2);
    assert_true(counts.bytes >= 2 * (5000 + 48 * 3000) + 3000);
    assert_true(counts.bytes <= 5 * (5000 + 49 * 3000) / 2);
    /* Half of the plans, the large ones, leave: trim shrinks the pool to the
     * rest. */
    for (int i = 49; i > 24; i--)
        uli_ring_pool_leave(&uses[i]);
    assert_int_equal(uli_ring_pool_counts(comm).bytes, counts.bytes);
    uli_ring_pool_trim(comm);
    counts = uli_ring_pool_counts(comm);
    assert_int_equal(counts.sets, 2);
    assert_true(counts.bytes >= 2 * (5000 + 24 * 3000) - 3000);
    assert_true(counts.bytes <= 5 * (5000 + 24 * 3000) / 2);
    for (int i = 0; i < 25; i++)
        uli_ring_pool_leave(&uses[i]);
    uli_ring_pool_trim(comm);
    assert_int_equal(uli_ring_pool_counts(comm).bytes, 0);
    assert_null(uli_ring_set_lease(comm, 1, 1));
    assert_status(ulyx_comm_destroy(comm), ULYX_SUCCESS);
}

static void
sets_in_use_stay(void **state)
{
    ulyx_comm_t *comm = pool_alone("1");
    struct uli_ring_use small, large;
    (void)state;
    pool_join(comm, &small, 10000);
    struct uli_ring_set *set = uli_ring_set_lease(comm, 1, 10000);
    int64_t bytes = set->bytes;
    pool_join(comm, &large, 100000);
    assert_int_equal(set->bytes, bytes);
    uli_ring_pool_leave(&small);
    uli_ring_pool_leave(&large);
    uli_ring_pool_trim(comm);
    assert_int_equal(set->bytes, bytes);
    /* Puts refer to the set: only the same plan may lease it, and trim keeps
     * it. */
    atomic_fetch_add(uli_ring_set_pending(set), 1);
    uli_ring_set_give_back(set);
    assert_null(uli_ring_set_lease(comm, 2, 10000));
    assert_ptr_equal(uli_ring_set_lease(comm, 1, 10000), set);
    uli_ring_set_give_back(set);
    uli_ring_pool_trim(comm);
    assert_int_equal(set->bytes, bytes);
    atomic_fetch_sub(uli_ring_set_pending(set), 1);
    /* The same holds while ranks still read the set. */
    atomic_fetch_add(uli_ring_set_readers(set), 2);
    assert_null(uli_ring_set_lease(comm, 2, 10000));
    assert_ptr_equal(uli_ring_set_lease(comm, 1, 10000), set);
    uli_ring_set_give_back(set);
    atomic_fetch_sub(uli_ring_set_readers(set), 1);
    uli_ring_pool_trim(comm);
    assert_null(uli_ring_set_lease(comm, 2, 10000));
    atomic_fetch_sub(uli_ring_set_readers(set), 1);
    assert_ptr_equal(uli_ring_set_lease(comm, 2, 10000), set);
    uli_ring_set_give_back(set);
    uli_ring_pool_trim(comm);
    assert_int_equal(uli_ring_pool_counts(comm).sets, 0);
    assert_status(ulyx_comm_destroy(comm), ULYX_SUCCESS);
}

/* ---- many plans ---------------------------------------------------------- */

/* Plans of different lengths, each with its own tensors. */
struct scene {
    struct world_ranks ranks;
    struct world *worlds[PLANS];
    int64_t leases_before[RANKS]; /* calls that have asked for a set */
    pthread_barrier_t barrier;
    _Atomic int ended; /* ranks that have ended all calls */
    uint64_t seed;
};

static struct scene *
scene_new(const char *sets)
{
    struct scene *s = calloc(1, sizeof(*s));
    s->seed = test_seed(7);
    struct test_random random = {s->seed};
    settings_make(sets);
    world_ranks_init(&s->ranks, RANKS);
    for (int i = 0; i < PLANS; i++) {
        struct world *w = s->worlds[i] = calloc(1, sizeof(*w));
        world_plain_case(w, RANKS, 100 + 77 * i, 8, 2, 16, ULYX_DTYPE_F32);
        w->fixed_limits = true;
        w->slot_bytes = -1;
        w->salt = i;
        assert_true(world_draw(w, &s->ranks, &random, 0));
        world_fill(w);
    }
    return s;
}

static void
scene_free(struct scene *s)
{
    for (int i = 0; i < PLANS; i++) {
        world_free(s->worlds[i]);
        free(s->worlds[i]);
    }
    world_ranks_free(&s->ranks);
    free(s);
}

static bool
rank_creates(struct scene *s, int rank)
{
    for (int i = 0; i < PLANS; i++)
        if (!ranks_expect(world_create(s->worlds[i], rank) == ULYX_SUCCESS))
            return false;
    return true;
}

/* Destroys the plans of a rank, in an order that differs from rank to rank. */
static bool
rank_destroys(struct scene *s, int rank)
{
    for (int i = 0; i < PLANS; i++)
        if (!ranks_expect(ulyx_plan_destroy(
                              s->worlds[(i * 5 + rank) % PLANS]->plans[rank]) ==
                          ULYX_SUCCESS))
            return false;
    return true;
}

/* Returns whether nothing is leased, and `calls` more calls have asked for a
 * set. */
static bool
rank_is_idle(struct scene *s, int rank, int64_t calls)
{
    struct uli_ring_pool_counts counts =
        uli_ring_pool_counts(s->ranks.comms[rank]);
    calls += s->leases_before[rank];
    s->leases_before[rank] = counts.leases + counts.misses;
    if (counts.leased == 0 && s->leases_before[rank] == calls)
        return true;
    fprintf(stderr, "rank %d: %d leased, %d leases, %d misses, not %d\n", rank,
        (int)counts.leased, (int)counts.leases, (int)counts.misses, (int)calls);
    return false;
}

/* Makes one call after another, in a random order that all ranks share. */
static int
serial_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    struct test_random random = {s->seed};
    bool good = rank_creates(s, rank);
    (void)nranks;
    for (int k = 0; good && k < ROUNDS * PLANS; k++) {
        struct world *w = s->worlds[test_random_in(&random, 0, PLANS - 1)];
        int direction = (int)test_random_in(&random, 0, 3);
        good =
            ranks_expect(world_execute(w, rank, direction) == ULYX_SUCCESS) &&
            ranks_expect(world_check_rank(w, direction, rank));
    }
    good &= ranks_expect(rank_is_idle(s, rank, ROUNDS * PLANS));
    return !good || !rank_destroys(s, rank);
}

/* Keeps several calls in flight, started and waited for in the rank's own
 * order. */
static int
flight_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    ulyx_request_t *requests[PLANS];
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    bool good = rank_creates(s, rank);
    (void)nranks;
    for (int k = 0; good && k < ROUNDS; k++) {
        int direction = k % ULYX_DIRECTIONS;
        for (int i = 0; good && i < PLANS; i++) {
            int at = (i + rank + k) % PLANS;
            struct world *w = s->worlds[at];
            world_pointers(w, rank, direction, src, dst);
            good = ranks_expect(ulyx_reshuffle_start(w->plans[rank], direction,
                                    src, dst, 0, &requests[at]) == 0);
        }
        for (int i = 0; good && i < PLANS; i++) {
            int at = (i * 5 + rank) % PLANS;
            good =
                ranks_expect(ulyx_request_wait(requests[at]) == 0) &&
                ranks_expect(world_check_rank(s->worlds[at], direction, rank));
        }
    }
    good &= ranks_expect(rank_is_idle(s, rank, ROUNDS * PLANS));
    return !good || !rank_destroys(s, rank);
}

/* Keeps several calls in flight by a group, which starts all of them before it
 * waits for any. */
static int
group_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    bool good = rank_creates(s, rank);
    (void)nranks;
    for (int k = 0; good && k < ROUNDS; k++) {
        int direction = k % ULYX_DIRECTIONS;
        good = ranks_expect(ulyx_group_start() == ULYX_SUCCESS);
        for (int i = 0; good && i < PLANS; i++)
            good = ranks_expect(world_execute(s->worlds[(i * 5 + k) % PLANS],
                                    rank, direction) == ULYX_SUCCESS);
        good &= ranks_expect(ulyx_group_end() == ULYX_SUCCESS);
        for (int i = 0; good && i < PLANS; i++)
            good =
                ranks_expect(world_check_rank(s->worlds[i], direction, rank));
    }
    good &= ranks_expect(rank_is_idle(s, rank, ROUNDS * PLANS));
    return !good || !rank_destroys(s, rank);
}

/* A thread that calls one plan of a rank without pause. */
struct runner {
    struct scene *s;
    int rank, plan;
    bool good;
};

static void *
runner_main(void *context)
{
    struct runner *runner = context;
    struct world *w = runner->s->worlds[runner->plan];
    runner->good = true;
    for (int k = 0; runner->good && k < ROUNDS; k++) {
        int direction = (k + runner->plan) % ULYX_DIRECTIONS;
        runner->good =
            ranks_expect(world_execute(w, runner->rank, direction) == 0) &&
            ranks_expect(world_check_rank(w, direction, runner->rank));
    }
    return NULL;
}

static int
threads_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    pthread_t threads[PLANS];
    struct runner runners[PLANS];
    bool good = rank_creates(s, rank);
    (void)nranks;
    for (int i = 0; good && i < PLANS; i++) {
        runners[i] = (struct runner){s, rank, i, false};
        good = ranks_expect(
            pthread_create(&threads[i], NULL, runner_main, &runners[i]) == 0);
    }
    for (int i = 0; good && i < PLANS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < PLANS; i++)
        good &= runners[i].good;
    good &= ranks_expect(rank_is_idle(s, rank, ROUNDS * PLANS));
    return !good || !rank_destroys(s, rank);
}

/* Runs the body on all ranks. Returns the misses of all ranks together. */
static int64_t
scene_runs(struct scene *s, rank_fn body)
{
    int64_t misses = 0;
    assert_int_equal(ranks_run_threads(RANKS, body, s, LIMIT_S), 0);
    for (int r = 0; r < RANKS; r++) {
        struct uli_ring_pool_counts counts =
            uli_ring_pool_counts(s->ranks.comms[r]);
        assert_true(counts.sets <= SETS);
        assert_int_equal(counts.readers, 0);
        misses += counts.misses;
    }
    return misses;
}

static void
plans_in_turn_share_sets(void **state)
{
    struct scene *s = scene_new("2");
    (void)state;
    int64_t misses = scene_runs(s, serial_body);
    if (s->ranks.comms[0]->nnodes == 1)
        assert_int_equal(misses, 0);
    scene_free(s);
}

/* With no set, every call uses the small rings. */
static void
plans_without_sets_go_by_small_rings(void **state)
{
    struct scene *s = scene_new("0");
    (void)state;
    assert_int_equal(scene_runs(s, serial_body), RANKS * ROUNDS * PLANS);
    scene_free(s);
}

static void
plans_at_once_take_sets_or_small_rings(void **state)
{
    static const rank_fn bodies[] = {flight_body, group_body, threads_body};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct scene *s = scene_new("2");
        int64_t misses = scene_runs(s, bodies[i]);
        /* Of 6 calls at once, 2 get a set; threads may run one after
         * another. */
        if (bodies[i] != threads_body)
            assert_true(misses >= RANKS * ROUNDS);
        assert_true(misses < RANKS * ROUNDS * PLANS);
        scene_free(s);
    }
}

/* ---- ends of a call ------------------------------------------------------ */

/* A refused call and calls that differ leave nothing leased. */
static int
differ_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    struct world *w = s->worlds[PLANS - 1];
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    bool good = ranks_expect(world_create(w, rank) == ULYX_SUCCESS);
    (void)nranks;
    for (int k = 0; good && k < 3; k++) {
        good = ranks_expect(
            world_execute(w, rank, rank == 1) == ULYX_ERR_MISMATCH);
        good &= ranks_expect(world_execute(w, rank, 0) == ULYX_SUCCESS) &&
                ranks_expect(world_check_rank(w, 0, rank));
        world_pointers(w, rank, 0, src, dst);
        if (rank == 2)
            src[0] = NULL;
        good &= ranks_expect(
            ulyx_reshuffle_execute(w->plans[rank], 0, src, dst, NULL) ==
            (rank == 2 ? ULYX_ERR_INVALID_ARGUMENT : ULYX_ERR_PEER_REFUSED));
        good &= ranks_expect(world_execute(w, rank, 3) == ULYX_SUCCESS) &&
                ranks_expect(world_check_rank(w, 3, rank));
    }
    good &=
        ranks_expect(uli_ring_pool_counts(s->ranks.comms[rank]).leased == 0);
    return !good || ulyx_plan_destroy(w->plans[rank]) != ULYX_SUCCESS;
}

static void
calls_that_differ_give_their_sets_back(void **state)
{
    struct scene *s = scene_new("2");
    (void)state;
    assert_int_equal(ranks_run_threads(RANKS, differ_body, s, LIMIT_S), 0);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(uli_ring_pool_counts(s->ranks.comms[r]).readers, 0);
    scene_free(s);
}

/* All ranks of the node read staging between nodes. They count as its readers
 * from the moment when a rank announces it, before any other rank has called,
 * until they have ended. */
static int
readers_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    struct world *w = s->worlds[PLANS - 1];
    ulyx_comm_t *comm = s->ranks.comms[rank];
    const char *algo = getenv("ULYX_ALGO"),
               *size = getenv("ULYX_RANKS_PER_NODE");
    bool staged = comm->nnodes > 1 && algo && !strcmp(algo, "hier");
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    ulyx_request_t *request;
    (void)nranks;
    if (!ranks_expect(world_create(w, rank) == ULYX_SUCCESS))
        return 1;
    world_pointers(w, rank, 0, src, dst);
    pthread_barrier_wait(&s->barrier);
    bool good = true;
    if (rank == 0) {
        good = ranks_expect(ulyx_reshuffle_start(
                                w->plans[rank], 0, src, dst, 0, &request) == 0);
        int64_t readers = uli_ring_pool_counts(comm).readers;
        good &= ranks_expect(readers == (staged ? atoi(size) : 0));
    }
    pthread_barrier_wait(&s->barrier);
    good &= rank == 0 ? ranks_expect(ulyx_request_wait(request) == ULYX_SUCCESS)
                      : ranks_expect(world_execute(w, rank, 0) == ULYX_SUCCESS);
    good &= ranks_expect(world_check_rank(w, 0, rank));
    pthread_barrier_wait(&s->barrier);
    good &= ranks_expect(uli_ring_pool_counts(comm).readers == 0);
    pthread_barrier_wait(&s->barrier);
    return !good || ulyx_plan_destroy(w->plans[rank]) != ULYX_SUCCESS;
}

static void
staging_is_kept_for_its_readers(void **state)
{
    struct scene *s = scene_new("2");
    (void)state;
    pthread_barrier_init(&s->barrier, NULL, RANKS);
    assert_int_equal(ranks_run_threads(RANKS, readers_body, s, LIMIT_S), 0);
    pthread_barrier_destroy(&s->barrier);
    scene_free(s);
}

/* The exchange whose call takes nothing out of staging, or NULL. */
static _Atomic(struct uli_exchange *) held;

bool __real_uli_hier_spread(struct uli_hier *h, struct uli_hier_rail *rail);
bool __wrap_uli_hier_spread(struct uli_hier *h, struct uli_hier_rail *rail);

bool
__wrap_uli_hier_spread(struct uli_hier *h, struct uli_hier_rail *rail)
{
    if (h->exchange == atomic_load(&held) && rail->proxy != h->comm->rank)
        return false;
    return __real_uli_hier_spread(h, rail);
}

/* Makes calls beside rank 1's call of the first plan, then releases that
 * call. */
static void *
release_main(void *context)
{
    struct scene *s = context;
    const struct timespec nap = {0, 1000000};
    bool good = ranks_expect(world_execute(s->worlds[1], 1, 0) == ULYX_SUCCESS);
    for (int i = 0;
         i < 1000 * LIMIT_S / 2 && atomic_load(&s->ended) < RANKS - 1; i++)
        nanosleep(&nap, NULL);
    atomic_store(&held, NULL);
    good &= ranks_expect(world_check_rank(s->worlds[1], 0, 1));
    return good ? s : NULL;
}

/* Rank 1 is so slow that the others have ended the call, and the next call of
 * another plan, before rank 1 reads its bytes of the first call: the bytes are
 * still there. */
static int
slow_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    struct world *first = s->worlds[0], *next = s->worlds[1];
    pthread_t thread;
    void *released = s;
    bool good = ranks_expect(world_create(first, rank) == ULYX_SUCCESS) &&
                ranks_expect(world_create(next, rank) == ULYX_SUCCESS);
    (void)nranks;
    if (!good)
        return 1;
    if (rank == 1) {
        atomic_store(&held, &first->plans[rank]->exchange);
        if (!ranks_expect(pthread_create(&thread, NULL, release_main, s) == 0))
            return 1;
    }
    good = ranks_expect(world_execute(first, rank, 0) == ULYX_SUCCESS);
    if (rank == 1)
        pthread_join(thread, &released);
    else
        good &= ranks_expect(world_execute(next, rank, 0) == ULYX_SUCCESS) &&
                ranks_expect(world_check_rank(next, 0, rank));
    atomic_fetch_add(&s->ended, 1);
    good &= ranks_expect(released) &&
            ranks_expect(world_check_rank(first, 0, rank));
    /* The first call leased a set, which held the bytes. */
    good &= ranks_expect(uli_ring_pool_counts(s->ranks.comms[rank]).leases > 0);
    return !good || ulyx_plan_destroy(first->plans[rank]) != ULYX_SUCCESS ||
           ulyx_plan_destroy(next->plans[rank]) != ULYX_SUCCESS;
}

static void
bytes_stay_in_staging_for_a_slow_reader(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct scene *s = scene_new("1");
        assert_int_equal(ranks_run_threads(RANKS, slow_body, s, LIMIT_S), 0);
        scene_free(s);
    }
}

/* Rank 3 makes no call and aborts while the others are in the middle. Their set
 * is not leased again to any plan, and is freed with the communicator. */
static int
failed_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    struct world *w = s->worlds[PLANS - 1];
    ulyx_comm_t *comm = s->ranks.comms[rank], *fresh;
    bool good = ranks_expect(world_create(w, rank) == ULYX_SUCCESS) &&
                ranks_expect(world_execute(w, rank, 0) == ULYX_SUCCESS);
    (void)nranks;
    if (rank == 3) {
        const struct timespec time = {0, 20000000};
        nanosleep(&time, NULL);
        good &= ranks_expect(ulyx_comm_abort(comm) == ULYX_SUCCESS);
    } else {
        good &= ranks_expect(world_execute(w, rank, 0) == ULYX_ERR_ABORTED);
        good &= ranks_expect(uli_ring_pool_counts(comm).leased == 1);
        good &= ranks_expect(uli_ring_set_lease(comm, 9, 4096) == NULL);
    }
    good &= ranks_expect(ulyx_comm_shrink(comm, NULL, &fresh) == ULYX_SUCCESS);
    good &= ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS);
    if (!good)
        return 1;
    /* A communicator of the survivors has a pool of its own. */
    s->ranks.comms[rank] = fresh;
    good = ranks_expect(world_create(w, rank) == ULYX_SUCCESS) &&
           ranks_expect(world_execute(w, rank, 1) == ULYX_SUCCESS) &&
           ranks_expect(world_check_rank(w, 1, rank)) &&
           ranks_expect(uli_ring_pool_counts(fresh).leased == 0) &&
           ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS) &&
           ranks_expect(ulyx_comm_destroy(fresh) == ULYX_SUCCESS);
    s->ranks.comms[rank] = comm;
    return !good;
}

static void
sets_of_failed_calls_are_not_leased_again(void **state)
{
    struct scene *s = scene_new("1");
    (void)state;
    assert_int_equal(ranks_run_threads(RANKS, failed_body, s, LIMIT_S), 0);
    scene_free(s);
}

/* ---- trim ---------------------------------------------------------------- */

/* Trims while this rank's calls are in flight, and after each of its plans is
 * destroyed: all calls still succeed. */
static int
trim_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    ulyx_comm_t *comm = s->ranks.comms[rank];
    ulyx_request_t *requests[PLANS];
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    bool good = rank_creates(s, rank);
    (void)nranks;
    for (int k = 0; good && k < PLANS; k++) {
        for (int i = k; good && i < PLANS; i++) {
            world_pointers(s->worlds[i], rank, k % 4, src, dst);
            good = ranks_expect(
                ulyx_reshuffle_start(s->worlds[i]->plans[rank], k % 4, src, dst,
                    0, &requests[i]) == ULYX_SUCCESS);
        }
        good &= ranks_expect(ulyx_comm_trim(comm) == ULYX_SUCCESS);
        for (int i = k; good && i < PLANS; i++)
            good = ranks_expect(ulyx_request_wait(requests[i]) == 0) &&
                   ranks_expect(world_check_rank(s->worlds[i], k % 4, rank));
        good =
            good &&
            ranks_expect(ulyx_plan_destroy(s->worlds[k]->plans[rank]) == 0) &&
            ranks_expect(ulyx_comm_trim(comm) == ULYX_SUCCESS);
    }
    struct uli_ring_pool_counts counts = uli_ring_pool_counts(comm);
    s->leases_before[rank] = counts.leases + counts.misses;
    return !good;
}

static int64_t
scene_bytes(const struct scene *s)
{
    int64_t all = 0, bytes;
    for (int r = 0; r < RANKS; r++) {
        assert_status(
            ulyx_comm_get_memory(s->ranks.comms[r], &bytes), ULYX_SUCCESS);
        all += bytes;
    }
    return all;
}

/* Memory that other ranks still hold is released once they release it: the
 * first rank of a node is the last to do so, and its peers' last messages may
 * be on the way. So trims are repeated. */
static void
scene_trims(const struct scene *s, int64_t before)
{
    const struct timespec pause = {0, 10000000};
    for (int i = 0; i < 1000 && scene_bytes(s) > before; i++) {
        if (i > 1)
            nanosleep(&pause, NULL);
        for (int r = 0; r < RANKS; r++)
            assert_status(ulyx_comm_trim(s->ranks.comms[r]), ULYX_SUCCESS);
    }
}

static void
trim_gives_all_back(void **state)
{
    (void)state;
    setenv("ULYX_ARENA_BYTES", "64K", 1);
    struct scene *s = scene_new("4");
    unsetenv("ULYX_ARENA_BYTES");
    int64_t before = scene_bytes(s);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ranks_run_threads(RANKS,
                             i == 1 ? trim_body : flight_body, s, LIMIT_S),
            0);
        if (i != 1)
            assert_true(scene_bytes(s) > before + (64 << 10));
        scene_trims(s, before);
        assert_int_equal(scene_bytes(s), before);
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(uli_ring_pool_counts(s->ranks.comms[r]).sets, 0);
    }
    scene_free(s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(lease_is_the_smallest_that_fits),
    cmocka_unit_test(sets_follow_the_largest_plans),
    cmocka_unit_test(sets_in_use_stay),
    cmocka_unit_test(plans_in_turn_share_sets),
    cmocka_unit_test(plans_without_sets_go_by_small_rings),
    cmocka_unit_test(plans_at_once_take_sets_or_small_rings),
    cmocka_unit_test(calls_that_differ_give_their_sets_back),
    cmocka_unit_test(staging_is_kept_for_its_readers),
    cmocka_unit_test(bytes_stay_in_staging_for_a_slow_reader),
    cmocka_unit_test(sets_of_failed_calls_are_not_leased_again),
    cmocka_unit_test(trim_gives_all_back),
};

ULI_TEST_MAIN("RingPool", tests)
