/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that no program should make: to peers that have left, groups out of
 * order, one plan from two threads, arguments that only one rank gets wrong.
 * Each ends at once with an error that names the cause.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "soak/scene.h"
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 4, ROWS = 40, ODD = 2, LIMIT_S = 60 };

/* Every wait below has a timeout of 600 s, so a test that ends within LIMIT_S
 * has not waited until a timeout. */
struct ranks {
    ulyx_comm_t *comms[RANKS];
    pthread_barrier_t barrier;
};

static void
run_threads(rank_fn body, bool destroys)
{
    struct ranks ranks;
    pthread_barrier_init(&ranks.barrier, NULL, RANKS);
    assert_status(
        ulyx_comm_create_local(RANKS, NULL, ranks.comms), ULYX_SUCCESS);
    assert_int_equal(ranks_run_threads(RANKS, body, &ranks, LIMIT_S), 0);
    for (int r = 0; !destroys && r < RANKS; r++)
        assert_status(ulyx_comm_destroy(ranks.comms[r]), ULYX_SUCCESS);
    pthread_barrier_destroy(&ranks.barrier);
}

static bool
still_works(ulyx_comm_t *comm)
{
    struct scene s;
    return ranks_expect(scene_open(comm, SCENE_WINDOW, ROWS, &s) == 0) &&
           ranks_expect(scene_execute(&s, ULYX_SEQ_TO_HEAD) == 0) &&
           ranks_expect(scene_check(&s, ULYX_SEQ_TO_HEAD)) &&
           ranks_expect(scene_close(&s, 10));
}

/* ---- peers that have left ------------------------------------------------ */

static bool
without_its_plan(struct ranks *ranks, int rank, enum scene_path path)
{
    struct scene s;
    bool good = ranks_expect(
        scene_open(ranks->comms[rank], path, ROWS, &s) == ULYX_SUCCESS);
    good = good && ranks_expect(scene_execute(&s, ULYX_SEQ_TO_HEAD) == 0);
    if (rank == ODD)
        return good && ranks_expect(scene_close(&s, 10));
    /* Twice, because a refused call moves nothing and leaves the other ranks in
     * step. */
    for (int i = 0; good && i < 2; i++)
        good = ranks_expect(scene_execute(&s, ULYX_SEQ_TO_HEAD) ==
                            ULYX_ERR_PEER_REFUSED) &&
               ranks_expect(error_has("rank 2 has destroyed its plan"));
    return ranks_expect(scene_close(&s, 10)) && good;
}

static int
plan_body(int rank, int nranks, void *context)
{
    struct ranks *ranks = context;
    bool good = true;
    (void)nranks;
    for (int path = 0; good && path < SCENE_PATHS; path++)
        good = without_its_plan(ranks, rank, (enum scene_path)path) &&
               still_works(ranks->comms[rank]);
    return !good;
}

static void
a_peer_has_destroyed_its_plan(void **state)
{
    (void)state;
    run_threads(plan_body, false);
}

static int
comm_body(int rank, int nranks, void *context)
{
    struct ranks *ranks = context;
    char src[RANKS][64] = {{0}}, dst[RANKS][64];
    ulyx_comm_t *comm = ranks->comms[rank], *fewer = NULL;
    int32_t left = 0;
    (void)nranks;
    bool good = ranks_expect(ulyx_alltoall(comm, src, dst, 64, NULL) == 0);
    /* A rank that is still in its first call would fail with the others. */
    pthread_barrier_wait(&ranks->barrier);
    if (rank == ODD)
        return !(good && ranks_expect(ulyx_comm_destroy(comm) == 0));
    good &= ranks_expect(
        ulyx_alltoall(comm, src, dst, 64, NULL) == ULYX_ERR_RANK_LOST);
    good &= ranks_expect(error_has("rank 2"));
    good &= ranks_expect(ulyx_comm_shrink(comm, NULL, &fewer) == 0);
    good = good && ranks_expect(ulyx_comm_get_nranks(fewer, &left) == 0) &&
           ranks_expect(left == RANKS - 1) && still_works(fewer);
    good &= ranks_expect(ulyx_comm_destroy(fewer) == ULYX_SUCCESS);
    return !(ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS) && good);
}

static void
a_peer_has_destroyed_its_communicator(void **state)
{
    (void)state;
    run_threads(comm_body, true);
}

/* Rank 0 gives up after 50 ms, before the others come, and destroys its plan.
 * The others, whose timeout is 600 s, find that rank 0 had been ready, and
 * return an error that names rank 0's deadline. */
static int
gave_up_body(int rank, int nranks, void *context)
{
    struct ranks *ranks = context;
    struct scene s;
    const void *src[SCENE_TENSORS];
    void *dst[SCENE_TENSORS];
    ulyx_request_t *request;
    (void)nranks;
    bool good = ranks_expect(
        scene_open(ranks->comms[rank], SCENE_RING, ROWS, &s) == ULYX_SUCCESS);
    scene_pointers(&s, ULYX_SEQ_TO_HEAD, src, dst);
    if (rank == 0) {
        good &= ranks_expect(ulyx_reshuffle_start(s.plan, ULYX_SEQ_TO_HEAD, src,
                                 dst, 0.05, &request) == ULYX_SUCCESS);
        good &= ranks_expect(ulyx_request_wait(request) == ULYX_ERR_TIMEOUT) &&
                ranks_expect(error_has("ranks 1-3"));
        good &= ranks_expect(scene_close(&s, 10));
    }
    pthread_barrier_wait(&ranks->barrier);
    if (rank == 0)
        return !good;
    good &=
        ranks_expect(scene_execute(&s, ULYX_SEQ_TO_HEAD) == ULYX_ERR_TIMEOUT) &&
        ranks_expect(error_has("rank 0"));
    return !(ranks_expect(scene_close(&s, 10)) && good);
}

static void
a_peer_has_given_up(void **state)
{
    (void)state;
    run_threads(gave_up_body, false);
}

/* ---- arguments that one rank gets wrong ---------------------------------- */

static int
split_body(int rank, int nranks, void *context)
{
    struct ranks *ranks = context;
    ulyx_comm_t *comm = ranks->comms[rank], *half = NULL;
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    (void)nranks;
    params.timeout_s = rank == ODD ? -1 : 30;
    ulyx_status_t status = ulyx_comm_split(comm, 0, rank, &params, &half);
    bool good = ranks_expect(status == (rank == ODD ? ULYX_ERR_INVALID_ARGUMENT
                                                    : ULYX_ERR_PEER_REFUSED));
    good &=
        ranks_expect(error_has(rank == ODD ? "timeout_s" : "rank 2 refused"));
    good &= ranks_expect(half == NULL);
    status = ulyx_comm_split(comm, 0, rank, NULL, rank == ODD ? NULL : &half);
    good &= ranks_expect(status == (rank == ODD ? ULYX_ERR_INVALID_ARGUMENT
                                                : ULYX_ERR_PEER_REFUSED));
    return !(good && still_works(comm));
}

static void
one_rank_refuses_its_split(void **state)
{
    (void)state;
    run_threads(split_body, false);
}

static int
creation_body(int rank, int nranks, void *context)
{
    const ulyx_unique_id_t *id = context;
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *comm = NULL;
    params.memory_kind = rank == ODD ? 77 : ULYX_MEMORY_HOST;
    bool good = ranks_expect(ulyx_comm_create(id, nranks, rank, &params,
                                 &comm) == ULYX_ERR_INVALID_ARGUMENT);
    good &= ranks_expect(error_has("memory_kind is 77"));
    if (rank != ODD)
        good &= ranks_expect(error_has("rank 2"));
    return !(good && ranks_expect(comm == NULL));
}

static void
one_rank_refuses_its_creation(void **state)
{
    (void)state;
    ulyx_unique_id_t id;
    assert_status(ulyx_unique_id_create(&id), ULYX_SUCCESS);
    assert_int_equal(ranks_run_threads(RANKS, creation_body, &id, LIMIT_S), 0);
}

/* ---- one plan from two threads ------------------------------------------- */

struct pair {
    struct scene scene;
    _Atomic int done, busy, wrong;
};

static void *
execute_thread(void *context)
{
    struct pair *pair = context;
    const void *src[SCENE_TENSORS];
    void *dst[SCENE_TENSORS];
    scene_pointers(&pair->scene, ULYX_SEQ_TO_HEAD, src, dst);
    for (int i = 0; i < 2000; i++) {
        ulyx_status_t status = ulyx_reshuffle_execute(
            pair->scene.plan, ULYX_SEQ_TO_HEAD, src, dst, NULL);
        atomic_fetch_add(status == ULYX_SUCCESS    ? &pair->done
                         : status == ULYX_ERR_BUSY ? &pair->busy
                                                   : &pair->wrong,
            1);
    }
    return NULL;
}

static void
two_threads_share_a_plan(void **state)
{
    (void)state;
    struct pair pair = {.done = 0};
    ulyx_comm_t *comm;
    pthread_t threads[2];
    assert_status(ulyx_comm_create_local(1, NULL, &comm), ULYX_SUCCESS);
    assert_status(scene_open(comm, SCENE_RING, ROWS, &pair.scene), 0);
    scene_fill(&pair.scene, ULYX_SEQ_TO_HEAD);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, execute_thread, &pair);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(pair.wrong, 0);
    assert_int_equal(pair.done + pair.busy, 4000);
    assert_true(pair.done > 0);
    assert_true(scene_check(&pair.scene, ULYX_SEQ_TO_HEAD));
    assert_true(scene_close(&pair.scene, 1));
    assert_status(ulyx_comm_destroy(comm), ULYX_SUCCESS);
}

/* ---- groups -------------------------------------------------------------- */

static void
groups_in_disorder(void **state)
{
    (void)state;
    ulyx_comm_t *comms[2], *halves[2] = {NULL, NULL};
    assert_status(ulyx_comm_create_local(2, NULL, comms), ULYX_SUCCESS);
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    assert_status(ulyx_comm_barrier(comms[0]), ULYX_SUCCESS);
    /* A nested group with a failing call, which queues nothing. */
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    assert_status(ulyx_comm_barrier(NULL), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
    assert_status(ulyx_comm_destroy(comms[0]), ULYX_ERR_BUSY);
    assert_non_null(strstr(ulyx_last_error(), "group"));
    assert_status(ulyx_comm_barrier(comms[1]), ULYX_SUCCESS);
    for (int r = 0; r < 2; r++)
        assert_status(
            ulyx_comm_split(comms[r], r, 0, NULL, &halves[r]), ULYX_SUCCESS);
    assert_null(halves[0]);
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
    assert_status(ulyx_group_end(), ULYX_ERR_INVALID_ARGUMENT);
    for (int r = 0; r < 2; r++) {
        assert_status(ulyx_comm_destroy(halves[r]), ULYX_SUCCESS);
        assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
    }
}

/* Rank 0 makes {execute, barrier} as a group, the other ranks one after the
 * other. Neither call of the group may wait for the other to end. */
static int
mixed_body(int rank, int nranks, void *context)
{
    struct ranks *ranks = context;
    ulyx_comm_t *comm = ranks->comms[rank];
    struct scene s;
    (void)nranks;
    bool good = ranks_expect(scene_open(comm, SCENE_RING, 2000, &s) == 0);
    for (int i = 0; good && i < 20; i++) {
        if (rank == 0)
            good &= ranks_expect(ulyx_group_start() == ULYX_SUCCESS);
        good &= ranks_expect(scene_execute(&s, ULYX_SEQ_TO_HEAD) == 0);
        if (rank == 0)
            good &= ranks_expect(
                scene_execute(&s, ULYX_SEQ_TO_HEAD) == ULYX_ERR_BUSY);
        good &= ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS);
        if (rank == 0)
            good &= ranks_expect(ulyx_group_end() == ULYX_SUCCESS);
        good &= ranks_expect(scene_check(&s, ULYX_SEQ_TO_HEAD));
    }
    return !(ranks_expect(scene_close(&s, 10)) && good);
}

static void
a_group_beside_plain_calls(void **state)
{
    (void)state;
    run_threads(mixed_body, false);
}

/* ---- windows that are gone ----------------------------------------------- */

static int
detached_body(int rank, int nranks, void *context)
{
    struct ranks *ranks = context;
    struct scene s;
    (void)nranks;
    bool good = ranks_expect(
        scene_open(ranks->comms[rank], SCENE_WINDOW, ROWS, &s) == 0);
    if (rank == ODD) {
        good &= ranks_expect(ulyx_mem_detach(s.comm, s.mem) == ULYX_SUCCESS);
        s.attached = false;
    }
    pthread_barrier_wait(&ranks->barrier);
    ulyx_status_t status = scene_execute(&s, ULYX_SEQ_TO_HEAD);
    good &= ranks_expect(status == (rank == ODD ? ULYX_ERR_INVALID_ARGUMENT
                                                : ULYX_ERR_PEER_REFUSED));
    good &= ranks_expect(error_has(rank == ODD ? "window" : "rank 2 refused"));
    /* The destination still has the -1 with which it was filled. */
    for (int64_t i = 0; good && rank == ODD && i < ROWS * s.count[0] * 16; i++)
        good = ranks_expect(s.head[0][i] == -1);
    if (rank == ODD) {
        good &= ranks_expect(ulyx_mem_attach(s.comm, s.mem) == ULYX_SUCCESS);
        s.attached = true;
    }
    pthread_barrier_wait(&ranks->barrier);
    good &= ranks_expect(scene_execute(&s, ULYX_SEQ_TO_HEAD) == 0) &&
            ranks_expect(scene_check(&s, ULYX_SEQ_TO_HEAD));
    /* No rank unmaps a window into which another rank still stores. */
    pthread_barrier_wait(&ranks->barrier);
    return !(ranks_expect(scene_close(&s, 10)) && good);
}

static void
a_window_was_detached(void **state)
{
    (void)state;
    run_threads(detached_body, false);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_peer_has_destroyed_its_plan),
    cmocka_unit_test(a_peer_has_destroyed_its_communicator),
    cmocka_unit_test(a_peer_has_given_up),
    cmocka_unit_test(one_rank_refuses_its_split),
    cmocka_unit_test(one_rank_refuses_its_creation),
    cmocka_unit_test(two_threads_share_a_plan),
    cmocka_unit_test(groups_in_disorder),
    cmocka_unit_test(a_group_beside_plain_calls),
    cmocka_unit_test(a_window_was_detached),
};
ULI_TEST_MAIN("SoakMisuse", tests)
