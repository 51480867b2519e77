/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that stops receiving in the middle of its calls, with each schedule
 * between nodes: all ranks end by their deadline and name it, also ranks that
 * wait only for other waiting ranks; and a rank with a late deadline ends by
 * the earlier deadline of the other rank of its node.
 *
 * A chain: rank 0 has the only head, so ranks 1 and 2 share nothing; rank 2
 * makes no call, and rank 1 must name it although rank 1 waits for rank 0.
 */
#include "collectives/exchange/reshuffle_world.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "comm/comm.h"
#include "support/ranks.h"
#include "support/test.h"
#include "support/thread_net.h"

/* The nodes are {0, 1} and {2, 3}. */
enum { RANKS = 4, VICTIM = 2, PATIENT = 1, LIMIT_S = 30, MOST_CALLS = 1 << 20 };
static const double SHORT_S = 0.9, LONG_S = 300;

struct scene {
    struct world w;
    struct world_ranks ranks;
    bool patient; /* rank PATIENT has a long deadline */
    _Atomic int ended;
    int64_t delay_us;
    char text[RANKS][256];
    ulyx_status_t status[RANKS];
};

static struct scene *
scene_new(int nranks, const char *per_node, int heads, const char *algo,
    struct test_random *random)
{
    struct scene *s = calloc(1, sizeof(*s));
    setenv("ULYX_RANKS_PER_NODE", per_node, 1);
    world_ranks_init(&s->ranks, nranks);
    unsetenv("ULYX_RANKS_PER_NODE");
    world_plain_case(
        &s->w, nranks, 512, heads, heads > 1 ? 2 : 1, 8, ULYX_DTYPE_BF16);
    s->w.algo = algo;
    s->w.fixed_limits = true;
    s->w.slot_bytes = -1;
    s->w.bytes_in_flight = 2048; /* many chunks per call */
    assert_true(world_draw(&s->w, &s->ranks, random, 2));
    world_fill(&s->w);
    return s;
}

static void
nap_us(int64_t us)
{
    nanosleep(&(struct timespec){0, us * 1000}, NULL);
}

/* Bytes that were on their way to the victim may still be read from a
 * window. */
static void
mem_detach(ulyx_comm_t *comm, ulyx_mem_t *mem)
{
    ulyx_status_t status = ulyx_mem_detach(comm, mem);
    for (int i = 0; i < 10000 && status == ULYX_ERR_BUSY; i++) {
        nap_us(1000);
        status = ulyx_mem_detach(comm, mem);
    }
    assert_status(status, ULYX_SUCCESS);
}

static void
scene_free(struct scene *s, int nranks)
{
    world_free(&s->w);
    for (int r = 0; r < nranks; r++) {
        mem_detach(s->ranks.comms[r], s->ranks.mems[r]);
        assert_status(ulyx_mem_free(s->ranks.mems[r]), ULYX_SUCCESS);
        free(s->ranks.windows[r]);
    }
    for (int r = 0; r < nranks; r++)
        assert_status(ulyx_comm_destroy(s->ranks.comms[r]), ULYX_SUCCESS);
    free(s);
}

static void *
stand_still(void *context)
{
    struct scene *s = context;
    nap_us(s->delay_us);
    thread_net_freeze(s->ranks.comms[VICTIM]->net, true);
    return NULL;
}

/* Makes calls until one fails, then destroys the plan. */
static int
late_rank(int rank, int nranks, void *context)
{
    struct scene *s = context;
    ulyx_status_t status = ULYX_SUCCESS;
    pthread_t thread;
    (void)nranks;
    if (!ranks_expect(world_create(&s->w, rank) == ULYX_SUCCESS))
        return 1;
    s->w.plans[rank]->timeout_s =
        s->patient && rank == PATIENT ? LONG_S : SHORT_S;
    if (rank == VICTIM)
        pthread_create(&thread, NULL, stand_still, s);
    for (int i = 0; i < MOST_CALLS && status == ULYX_SUCCESS; i++)
        status = world_execute(&s->w, rank, s->w.order[i % s->w.norder]);
    s->status[rank] = status;
    snprintf(s->text[rank], sizeof(s->text[rank]), "%s", ulyx_last_error());
    if (rank == VICTIM)
        pthread_join(thread, NULL);
    else
        atomic_fetch_add(&s->ended, 1);
    /* The victim does not destroy its plan before the others end. */
    while (rank == VICTIM && atomic_load(&s->ended) < RANKS - 1)
        nap_us(1000);
    return !ranks_expect(ulyx_plan_destroy(s->w.plans[rank]) == ULYX_SUCCESS);
}

static void
run_draws(uint64_t seed, const char *algo, bool patient)
{
    struct test_random random = {test_seed(seed)};
    for (int64_t i = 0, draws = test_draws(2); i < draws; i++) {
        struct scene *s = scene_new(RANKS, "2", 8, algo, &random);
        s->patient = patient;
        s->delay_us = test_random_in(&random, 0, 20000);
        int failed = ranks_run_threads(RANKS, late_rank, s, LIMIT_S);
        thread_net_freeze(s->ranks.comms[VICTIM]->net, false);
        assert_int_equal(failed, 0);
        for (int r = 0; r < RANKS; r++) {
            if (r == VICTIM)
                continue;
            assert_int_equal(s->status[r], ULYX_ERR_TIMEOUT);
            if (!ranks_listed(s->text[r], "waiting for rank", VICTIM))
                fail_msg("rank %d: %s", r, s->text[r]);
        }
        if (patient && !strstr(s->text[PATIENT], ", by the deadline of rank 0"))
            fail_msg("rank %d: %s", PATIENT, s->text[PATIENT]);
        scene_free(s, RANKS);
    }
}

/* ---- a chain ------------------------------------------------------------- */

enum { CHAIN = 3, WAITING = 1, ABSENT = 2 };

/* The deadline of rank WAITING ends long before that of rank 0. */
static int
chain_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    ulyx_status_t status = ULYX_SUCCESS;
    (void)nranks;
    if (!ranks_expect(world_create(&s->w, rank) == ULYX_SUCCESS))
        return 1;
    s->w.plans[rank]->timeout_s = rank == WAITING ? 1.6 : 2.6;
    for (int i = 0; rank != ABSENT && status == ULYX_SUCCESS; i++)
        status = world_execute(&s->w, rank, s->w.order[i % s->w.norder]);
    s->status[rank] = status;
    snprintf(s->text[rank], sizeof(s->text[rank]), "%s", ulyx_last_error());
    atomic_fetch_add(&s->ended, 1);
    while (rank == ABSENT && atomic_load(&s->ended) < CHAIN)
        nap_us(1000);
    return !ranks_expect(ulyx_plan_destroy(s->w.plans[rank]) == ULYX_SUCCESS);
}

static void
check_chain(const char *per_node, const char *algo)
{
    struct test_random random = {test_seed(605)};
    struct scene *s = scene_new(CHAIN, per_node, 1, algo, &random);
    assert_int_equal(ranks_run_threads(CHAIN, chain_body, s, LIMIT_S), 0);
    for (int r = 0; r < ABSENT; r++) {
        assert_int_equal(s->status[r], ULYX_ERR_TIMEOUT);
        if (!strstr(s->text[r], "waiting for rank 2"))
            fail_msg("rank %d: %s", r, s->text[r]);
    }
    scene_free(s, CHAIN);
}

static void
chain_within_a_node(void **state)
{
    (void)state;
    check_chain("3", NULL);
}

static void
chain_over_nodes(void **state)
{
    (void)state;
    check_chain("1", "direct");
}

static void
direct(void **state)
{
    (void)state;
    run_draws(601, "direct", false);
}

static void
pairwise(void **state)
{
    (void)state;
    run_draws(602, "pairwise", false);
}

static void
hier(void **state)
{
    (void)state;
    run_draws(603, "hier", false);
}

static void
hier_with_a_late_deadline(void **state)
{
    (void)state;
    run_draws(604, "hier", true);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(direct),
    cmocka_unit_test(pairwise),
    cmocka_unit_test(hier),
    cmocka_unit_test(hier_with_a_late_deadline),
    cmocka_unit_test(chain_within_a_node),
    cmocka_unit_test(chain_over_nodes),
};

ULI_TEST_MAIN("ReshuffleLate", tests)
