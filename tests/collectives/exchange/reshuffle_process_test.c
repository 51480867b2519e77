/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange between processes: windows in memfds, ordinary memory read
 * through the kernel or staged in rings, mixed over ranks and sides. Every
 * process makes the same draws and checks every byte of its own buffers.
 */
#include "collectives/exchange/reshuffle_world.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "support/ranks.h"
#include "support/test.h"

enum { MAX_RANKS = 5, GATHER_BYTES = 1 << 14, LIMIT_S = 100 };

struct shared {
    pthread_barrier_t barrier;
    unsigned char bytes[MAX_RANKS][GATHER_BYTES];
    int64_t draws;
    uint64_t seed;
    int memory;
    bool balanced;
};

struct gather {
    struct shared *shared;
    int rank, nranks;
};

static int
shared_allgather(void *context, const void *mine, void *all, size_t bytes)
{
    struct gather *gather = context;
    struct shared *shared = gather->shared;
    if (bytes > GATHER_BYTES)
        return 1;
    memcpy(shared->bytes[gather->rank], mine, bytes);
    pthread_barrier_wait(&shared->barrier);
    for (int r = 0; r < gather->nranks; r++)
        memcpy(
            (unsigned char *)all + (size_t)r * bytes, shared->bytes[r], bytes);
    pthread_barrier_wait(&shared->barrier);
    return 0;
}

static bool
run_draw(struct world *w, struct world_ranks *ranks, int rank,
    struct test_random *random, const struct shared *shared)
{
    do
        case_random(&w->c, random, ranks->nranks, shared->balanced);
    while (w->c.shape.nranks != ranks->nranks);
    if (!world_draw(w, ranks, random, shared->memory)) {
        uli_layout_destroy(w->layout);
        return true;
    }
    world_fill(w);
    bool good = ranks_expect(world_create(w, rank) == ULYX_SUCCESS);
    /* The second round uses other strides on some ranks. */
    for (int round = 0; good && round < 2; round++) {
        if (round) {
            world_move(w, random, 2);
            world_fill(w);
        }
        for (int i = 0; good && i < w->norder; i++)
            good = ranks_expect(
                       world_execute(w, rank, w->order[i]) == ULYX_SUCCESS) &&
                   ranks_expect(world_wire_agrees(w, rank, w->order[i]));
        good = good && ranks_expect(world_check(w));
    }
    good =
        good && ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS);
    world_free(w);
    return good;
}

static int
process_rank(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    struct gather gather = {shared, rank, nranks};
    struct test_random random = {shared->seed};
    struct world *w = calloc(1, sizeof(*w));
    struct world_ranks ranks;
    ulyx_comm_t *comm;
    if (!ranks_expect(ulyx_comm_create_from_allgather(shared_allgather, &gather,
                          nranks, rank, NULL, &comm) == ULYX_SUCCESS))
        return 1;
    world_ranks_init_process(&ranks, comm, rank, nranks);
    bool good = true;
    for (int64_t i = 0; good && i < shared->draws; i++) {
        w->salt = i;
        good = run_draw(w, &ranks, rank, &random, shared);
        if (!good)
            fprintf(stderr, "rank %d: draw %d\n", rank, (int)i);
    }
    /* A rank that fails returns at once; the others do not wait for it. */
    if (!good)
        return 1;
    good = ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS);
    world_ranks_free(&ranks);
    free(w);
    return !(good && ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS));
}

static void
processes_run(
    int nranks, uint64_t seed, int64_t draws, int memory, bool balanced)
{
    struct shared *shared = ranks_shared(sizeof(*shared));
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attributes, (unsigned)nranks);
    shared->draws = draws;
    shared->seed = seed;
    shared->memory = memory;
    shared->balanced = balanced;
    int failed = ranks_run_processes(nranks, process_rank, shared, LIMIT_S);
    ranks_shared_free(shared, sizeof(*shared));
    assert_int_equal(failed, 0);
}

static void
windows(void **state)
{
    (void)state;
    uint64_t seed = test_seed(201);
    for (int nranks = 1; nranks <= MAX_RANKS; nranks++)
        processes_run(
            nranks, seed + (uint64_t)nranks, test_draws(20), 1, false);
}

static void
rings(void **state)
{
    (void)state;
    uint64_t seed = test_seed(202);
    setenv("ULYX_CMA", "off", 1);
    for (int nranks = 2; nranks <= MAX_RANKS; nranks++)
        processes_run(
            nranks, seed + (uint64_t)nranks, test_draws(20), 0, false);
    unsetenv("ULYX_CMA");
}

static void
kernel_reads(void **state)
{
    (void)state;
    uint64_t seed = test_seed(203);
    setenv("ULYX_CMA", "on", 1);
    setenv("ULYX_CMA_MIN_ROW", "8", 1);
    for (int nranks = 2; nranks <= MAX_RANKS; nranks++)
        processes_run(
            nranks, seed + (uint64_t)nranks, test_draws(20), 0, false);
    unsetenv("ULYX_CMA_MIN_ROW");
    unsetenv("ULYX_CMA");
}

static void
everything_mixed(void **state)
{
    (void)state;
    uint64_t seed = test_seed(204);
    setenv("ULYX_CMA", "on", 1);
    setenv("ULYX_CMA_MIN_ROW", "16", 1);
    for (int nranks = 2; nranks <= MAX_RANKS; nranks++) {
        processes_run(
            nranks, seed + (uint64_t)nranks, test_draws(40), 2, false);
        processes_run(nranks, seed + (uint64_t)nranks, test_draws(20), 2, true);
    }
    unsetenv("ULYX_CMA_MIN_ROW");
    unsetenv("ULYX_CMA");
}

/* ---- a rank dies --------------------------------------------------------- */

struct death {
    struct shared shared;
    pid_t pids[MAX_RANKS];
};

/* Rank 1 kills itself in the middle of a run of calls; the others end with an
 * error that names it. */
static int
death_body(int rank, int nranks, void *context)
{
    struct death *death = context;
    struct gather gather = {&death->shared, rank, nranks};
    struct test_random random = {7};
    struct world *w = calloc(1, sizeof(*w));
    struct world_ranks ranks;
    ulyx_comm_t *comm;
    ulyx_status_t status = ULYX_SUCCESS;
    if (!ranks_expect(ulyx_comm_create_from_allgather(shared_allgather, &gather,
                          nranks, rank, NULL, &comm) == ULYX_SUCCESS))
        return 1;
    world_ranks_init_process(&ranks, comm, rank, nranks);
    world_plain_case(w, nranks, 64, 8, 4, 8, ULYX_DTYPE_BF16);
    if (!world_draw(w, &ranks, &random, death->shared.memory))
        return 1;
    world_fill(w);
    /* Messages that a rank of another node sent before its death may be
     * lost. */
    status = world_create(w, rank);
    bool created = status == ULYX_SUCCESS;
    bool good = ranks_expect(created || comm->nnodes > 1);
    for (int call = 0; good && status == ULYX_SUCCESS && call < 1000; call++) {
        if (rank == 1 && call == (int)death->shared.draws)
            raise(SIGKILL);
        status = world_execute(w, rank, call % 2);
    }
    good = good && ranks_expect(status == ULYX_ERR_RANK_LOST) &&
           ranks_expect(strstr(ulyx_last_error(), "rank 1") != NULL);
    if (created)
        good &= ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS);
    good = good && ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
    world_free(w);
    free(w);
    for (int r = 0; r < nranks; r++)
        if (r != rank)
            free(ranks.windows[r]);
    /* The call returns BUSY until all survivors have left their operations. */
    for (int i = 0; good && i < 5000; i++) {
        status = ulyx_mem_free(ranks.mems[rank]);
        if (status != ULYX_ERR_BUSY)
            break;
        usleep(1000);
    }
    return !(good && ranks_expect(status == ULYX_SUCCESS));
}

static void
a_killed_rank_is_named(void **state)
{
    (void)state;
    for (int round = 0; round < 6; round++) {
        struct death *death = ranks_shared(sizeof(*death));
        pthread_barrierattr_t attributes;
        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&death->shared.barrier, &attributes, 4);
        death->shared.draws = round * 13;
        death->shared.memory = round % 3;
        int failed = ranks_run_processes_victim(
            4, death_body, death, 30, 1, death->pids);
        ranks_shared_free(death, sizeof(*death));
        assert_int_equal(failed, 0);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(windows),
    cmocka_unit_test(rings),
    cmocka_unit_test(kernel_reads),
    cmocka_unit_test(everything_mixed),
    cmocka_unit_test(a_killed_rank_is_named),
};

ULI_TEST_MAIN("ReshuffleProcess", tests)
