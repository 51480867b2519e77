/* SPDX-License-Identifier: Apache-2.0
 *
 * Survivors on one node and on several: all get the same outcome, whichever
 * rank comes late, is cut off or stands still. Ranks are threads; a setting
 * makes the nodes.
 */
#include "support/test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "comm/remote/nodes_scene.h"
#include "comm/agreement/survivors.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/thread_net.h"

enum { RANKS = 3 };
static const int per_node[] = {3, 1, 2};

struct scene {
    ulyx_comm_t *comms[RANKS];
    int64_t wait_us[RANKS]; /* before the rank calls */
    int last; /* rank that comes when all others have ended, or -1 */
    double timeout_s;
    _Atomic int ended;
    ulyx_status_t status[RANKS];
    int32_t size[RANKS], place[RANKS];
};

static bool
text_is_whole(const char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            return false;
    return true;
}

static int
shrink_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *smaller = NULL;
    bool right = true;
    params.timeout_s = s->timeout_s;
    while (rank == s->last && atomic_load(&s->ended) < nranks - 1)
        usleep(1000);
    usleep((useconds_t)s->wait_us[rank]);
    s->status[rank] = ulyx_comm_shrink(s->comms[rank], &params, &smaller);
    if (s->status[rank] != ULYX_SUCCESS)
        right = ranks_expect(text_is_whole(ulyx_last_error())) &&
                ranks_expect(!smaller);
    else {
        s->size[rank] = smaller->nranks;
        s->place[rank] = smaller->rank;
    }
    atomic_fetch_add(&s->ended, 1);
    ulyx_comm_destroy(smaller);
    if (s->status[rank] == ULYX_ERR_RANK_LOST)
        right = ranks_expect(ulyx_comm_shrink(s->comms[rank], &params,
                                 &smaller) == ULYX_ERR_RANK_LOST) &&
                right;
    return !right;
}

/* All ranks that succeeded are in one set; the others were left out. Returns
 * how many succeeded; 0: all that were not left out ran out of time, because a
 * loaded machine may be too slow to form a communicator. */
static int
expect_one_set(const struct scene *s)
{
    int count = 0;
    for (int r = 0; r < RANKS; r++)
        if (s->status[r] == ULYX_SUCCESS)
            assert_int_equal(s->place[r], count++);
        else if (s->status[r] != ULYX_ERR_TIMEOUT)
            assert_status(s->status[r], ULYX_ERR_RANK_LOST);
    for (int r = 0; count > 0 && r < RANKS; r++)
        if (s->status[r] == ULYX_SUCCESS)
            assert_int_equal(s->size[r], count);
        else
            assert_status(s->status[r], ULYX_ERR_RANK_LOST);
    return count;
}

static void
scene_play(struct scene *s, int on_node)
{
    memset(s->status, 0, sizeof(s->status));
    atomic_store(&s->ended, 0);
    scene_open(RANKS, on_node, 20, s->comms);
    ulyx_comm_abort(s->comms[0]);
    assert_int_equal(ranks_run_threads(RANKS, shrink_body, s, 30), 0);
}

static void
rank_that_comes_too_late_is_lost_for_good(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct scene s = {.last = i % 2 * 2, .timeout_s = 2};
        scene_play(&s, per_node[i / 2]);
        assert_int_equal(expect_one_set(&s), RANKS - 1);
        assert_status(s.status[s.last], ULYX_ERR_RANK_LOST);
        scene_close(RANKS, s.comms);
    }
}

/* Ranks come close to the moments at which others stop waiting for them. */
static void
ranks_that_come_at_any_time_have_one_set(void **state)
{
    struct test_random random = {test_seed(71)};
    int formed = 0;
    (void)state;
    for (int64_t i = test_draws(12); i > 0; i--) {
        struct scene s = {.last = -1, .timeout_s = 0.3};
        for (int r = 0; r < RANKS; r++)
            s.wait_us[r] = test_random_in(&random, 0, 3) * 75000 +
                           test_random_in(&random, -2000, 2000) + 2000;
        scene_play(&s, per_node[i % 3]);
        formed += expect_one_set(&s);
        scene_close(RANKS, s.comms);
    }
    assert_true(formed > 0);
}

/* ---- agree --------------------------------------------------------------- */

struct vote {
    ulyx_comm_t *comms[RANKS];
    uint64_t mine[RANKS], value[RANKS];
    ulyx_agree_t how[RANKS];
    int absent;           /* rank that makes no call, or -1 */
    int shrinks;          /* rank that calls shrink instead, or -1 */
    bool no_place[RANKS]; /* passes NULL for the value */
    ulyx_status_t status[RANKS];
    char text[RANKS][256];
    int32_t nranks[RANKS];
};

static int
agree_body(int rank, int nranks, void *context)
{
    struct vote *v = context;
    ulyx_comm_t *smaller = NULL;
    (void)nranks;
    if (rank == v->absent)
        return 0;
    v->value[rank] = UINT64_MAX - 1;
    v->nranks[rank] = -1;
    v->status[rank] =
        rank == v->shrinks
            ? ulyx_comm_shrink(v->comms[rank], NULL, &smaller)
            : ulyx_comm_agree(v->comms[rank], v->mine[rank], v->how[rank],
                  v->no_place[rank] ? NULL : &v->value[rank], &v->nranks[rank]);
    snprintf(v->text[rank], sizeof(v->text[rank]), "%s", ulyx_last_error());
    ulyx_comm_destroy(smaller);
    /* The outputs of a failed call are unchanged. */
    return !ranks_expect(v->status[rank] == ULYX_SUCCESS ||
                         (v->value[rank] == UINT64_MAX - 1 &&
                             v->nranks[rank] == -1 && !smaller));
}

static void
vote_open(struct vote *v, int on_node, double timeout_s)
{
    memset(v, 0, sizeof(*v));
    v->absent = v->shrinks = -1;
    scene_open(RANKS, on_node, timeout_s, v->comms);
}

static void
vote_run(struct vote *v)
{
    assert_int_equal(ranks_run_threads(RANKS, agree_body, v, 60), 0);
}

static void
expect_agreed(const struct vote *v, int rank, uint64_t value, int32_t nranks)
{
    assert_status(v->status[rank], ULYX_SUCCESS);
    assert_int_equal(v->value[rank], value);
    assert_int_equal(v->nranks[rank], nranks);
}

static uint64_t
expected_value(const struct vote *v, ulyx_agree_t how)
{
    uint64_t all = v->mine[0];
    for (int r = 1; r < RANKS; r++)
        if (how == ULYX_AGREE_AND)
            all &= v->mine[r];
        else if ((how == ULYX_AGREE_MIN) == (v->mine[r] < all))
            all = v->mine[r];
    return all;
}

static void
all_ranks_get_one_value(void **state)
{
    struct test_random random = {test_seed(72)};
    struct vote v;
    (void)state;
    for (int i = 0; i < 3; i++) {
        vote_open(&v, per_node[i], 30);
        for (int k = 0; k < 12; k++) {
            for (int r = 0; r < RANKS; r++) {
                v.how[r] = k % 3;
                v.mine[r] = test_random_next(&random);
            }
            if (k == 6) /* also on a failed communicator */
                ulyx_comm_abort(v.comms[1]);
            vote_run(&v);
            for (int r = 0; r < RANKS; r++)
                expect_agreed(&v, r, expected_value(&v, k % 3), RANKS);
        }
        scene_close(RANKS, v.comms);
    }
}

static void
one_thread_agrees_for_all_in_a_group(void **state)
{
    uint64_t value[RANKS] = {0};
    struct vote v;
    (void)state;
    vote_open(&v, 2, 30);
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++)
        assert_status(ulyx_comm_agree(v.comms[r], 5 + (uint64_t)r,
                          ULYX_AGREE_MAX, &value[r], NULL),
            ULYX_SUCCESS);
    assert_int_equal(value[0], 0);
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(value[r], 4 + RANKS);
    scene_close(RANKS, v.comms);
}

static void
different_calls_are_named_on_all(void **state)
{
    struct vote v;
    (void)state;
    for (int i = 0; i < 3; i++) {
        vote_open(&v, per_node[i], 30);
        for (int k = 0; k < 3; k++) {
            v.how[2] = k == 0 ? ULYX_AGREE_MAX : ULYX_AGREE_AND;
            v.shrinks = k == 1 ? 1 : -1;
            v.no_place[0] = k == 2;
            vote_run(&v);
            for (int r = 0; r < RANKS; r++)
                assert_status(v.status[r], k < 2    ? ULYX_ERR_MISMATCH
                                           : r == 0 ? ULYX_ERR_INVALID_ARGUMENT
                                                    : ULYX_ERR_PEER_REFUSED);
            assert_non_null(strstr(v.text[1], k == 0   ? "agree (max)"
                                              : k == 1 ? "shrink"
                                                       : "rank 0 refused"));
        }
        v.no_place[0] = false;
        vote_run(&v);
        expect_agreed(&v, 2, 0, RANKS);
        scene_close(RANKS, v.comms);
    }
}

static void
dead_and_absent_ranks_do_not_count(void **state)
{
    struct vote v;
    (void)state;
    for (int i = 0; i < 4; i++) {
        vote_open(&v, i < 2 ? 1 : per_node[i - 2], i < 2 ? 30 : 2);
        v.absent = i % 2 ? 0 : 2;
        if (i < 2) /* its host vanishes: no rank waits for it */
            thread_net_cut(v.comms[v.absent]->net);
        for (int r = 0; r < RANKS; r++)
            v.mine[r] = 6 >> (r == v.absent) * 2;
        vote_run(&v);
        for (int r = 0; r < RANKS; r++)
            if (r != v.absent)
                expect_agreed(&v, r, 6, RANKS - 1);
        scene_close(RANKS, v.comms);
    }
}

/* A node that stands still, and that no rank knows to be dead, might have the
 * decision: there is no value until it answers, then one. */
static void
node_that_stands_still_leaves_the_value_undecided(void **state)
{
    struct vote v;
    (void)state;
    vote_open(&v, 2, 0.6);
    v.absent = 2;
    v.mine[0] = 7, v.mine[1] = 3, v.mine[2] = 1;
    thread_net_freeze(v.comms[2]->net, true);
    vote_run(&v);
    for (int r = 0; r < 2; r++) {
        assert_status(v.status[r], ULYX_ERR_TIMEOUT);
        assert_non_null(strstr(v.text[r], "timed out waiting for rank 2 ("));
    }
    thread_net_freeze(v.comms[2]->net, false);
    v.absent = -1;
    v.mine[0] = v.mine[1] = 0; /* the first values count */
    vote_run(&v);
    if (v.status[2] == ULYX_SUCCESS) {
        for (int r = 0; r < RANKS; r++)
            expect_agreed(&v, r, 1, RANKS);
    } else {
        assert_status(v.status[2], ULYX_ERR_RANK_LOST);
        for (int r = 0; r < 2; r++)
            expect_agreed(&v, r, 3, 2);
    }
    scene_close(RANKS, v.comms);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rank_that_comes_too_late_is_lost_for_good),
    cmocka_unit_test(ranks_that_come_at_any_time_have_one_set),
    cmocka_unit_test(all_ranks_get_one_value),
    cmocka_unit_test(one_thread_agrees_for_all_in_a_group),
    cmocka_unit_test(different_calls_are_named_on_all),
    cmocka_unit_test(dead_and_absent_ranks_do_not_count),
    cmocka_unit_test(node_that_stands_still_leaves_the_value_undecided),
};

ULI_TEST_MAIN("Survivors", tests)
