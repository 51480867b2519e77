/* SPDX-License-Identifier: Apache-2.0
 *
 * Survivors of one node and of several: all get the same outcome, whoever comes
 * late, is cut off or stands still. Ranks are threads, nodes made up.
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
    int64_t wait_us[RANKS]; /* before it calls */
    int last;               /* comes when the others have ended, or -1 */
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

/* Who succeeded has a place in one set of all that did; the others were left
 * out. Returns how many; 0: all that were not left out were out of time, for a
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
play(struct scene *s, int on_node)
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
        play(&s, per_node[i / 2]);
        assert_int_equal(expect_one_set(&s), RANKS - 1);
        assert_status(s.status[s.last], ULYX_ERR_RANK_LOST);
        scene_close(RANKS, s.comms);
    }
}

/* Ranks come around the moments at which others give up on them. */
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
        play(&s, per_node[i % 3]);
        formed += expect_one_set(&s);
        scene_close(RANKS, s.comms);
    }
    assert_true(formed > 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rank_that_comes_too_late_is_lost_for_good),
    cmocka_unit_test(ranks_that_come_at_any_time_have_one_set),
};

ULI_TEST_MAIN("Survivors", tests)
